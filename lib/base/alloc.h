/* SPDX-License-Identifier: MIT */
/* alloc - memory from malloc(3), checked.
 *
 * Plans need all their memory, and nobody can go on without it. So the
 * functions here end the program with PP_EXIT_SYSTEM and "NAME: out of memory"
 * if memory runs out or a product n * size overflows; outputs under way then
 * stay beside the old ones, as after a kill (base/file.h). A training run that
 * has begun uses the pp_try_ functions, because its ranks must tell the others.
 *
 * The caller frees with free(3). For many small allocations of one lifetime
 * there is base/arena.h. */
#ifndef PP_BASE_ALLOC_H
#define PP_BASE_ALLOC_H

#include <stddef.h>

#include "base/err.h"

/* Ends the program as above. */
void pp_out_of_memory(void) __attribute__((noreturn));

/* Returns n zeroed elements. n may be 0. */
void *pp_calloc(size_t n, size_t size) PP_MUST_USE;

/* Resizes old, or allocates if old is NULL, and returns n elements; elements
 * that are new are not initialised. n may be 0. */
void *pp_realloc(void *old, size_t n, size_t size) PP_MUST_USE;

/* Returns a copy of s. */
char *pp_strdup(const char *s) PP_MUST_USE;

/* Makes room for n elements in the array whose address is given: for
 * struct x *items, pass &items. The array is NULL at first and at least doubles
 * when it grows; elements that are new are not initialised. See also
 * base/vec.h. */
void pp_array_reserve(void *array, size_t *capacity, size_t n, size_t size);

/* The same, but these return NULL or -1 with *err filled, PP_EXIT_SYSTEM and
 * "out of memory". What is old then stays valid. */
void *pp_try_calloc(size_t n, size_t size, struct pp_err *err) PP_MUST_USE;
void *pp_try_realloc(void *old, size_t n, size_t size,
                     struct pp_err *err) PP_MUST_USE;
int pp_try_array_reserve(void *array, size_t *capacity, size_t n, size_t size,
                         struct pp_err *err) PP_MUST_USE;

#endif
