/* SPDX-License-Identifier: MIT */
/* alloc - memory from malloc(3), checked.
 *
 * The functions check the product n * size. When memory runs out they fill *err
 * with PP_EXIT_SYSTEM and "out of memory". The caller frees with free(3). For
 * many small allocations of one lifetime there is base/arena.h. */
#ifndef PP_BASE_ALLOC_H
#define PP_BASE_ALLOC_H

#include <stddef.h>

#include "base/err.h"

/* Returns n zeroed elements, or NULL with *err filled. n may be 0. */
void *pp_calloc(size_t n, size_t size, struct pp_err *err) PP_MUST_USE;

/* Resizes old, or allocates if old is NULL, and returns n elements; those that
 * are new are not initialised. Returns NULL with *err filled on failure: old
 * then stays valid. n may be 0. */
void *pp_realloc(void *old, size_t n, size_t size,
                 struct pp_err *err) PP_MUST_USE;

/* Makes room for n elements in the array whose address is given: for
 * struct x *items, pass &items. The array is NULL at first and at least doubles
 * when it grows; elements that are new are not initialised. Fails with *err
 * filled, and the array and *capacity as they were. See also base/vec.h. */
int pp_array_reserve(void *array, size_t *capacity, size_t n, size_t size,
                     struct pp_err *err) PP_MUST_USE;

#endif
