/* SPDX-License-Identifier: MIT */
/* arena - memory of one lifetime, freed as a whole.
 *
 * Ends the program if memory runs out (base/alloc.h).
 *
 * For plan-time data (manifests, schedules, splits). Not for the buffers of a
 * training step, which are planned in schedule/memory/memory.h. */
#ifndef PP_BASE_ARENA_H
#define PP_BASE_ARENA_H

#include <stddef.h>

#include "base/err.h"

struct pp_arena_block;

/* A zeroed struct is an empty arena. */
struct pp_arena {
    struct pp_arena_block *blocks;
};

/* Returns zeroed memory for n elements of size bytes, aligned for any type and
 * valid until pp_arena_finish. n = 0 gives a valid pointer. */
void *pp_arena_alloc(struct pp_arena *a, size_t n, size_t size) PP_MUST_USE;

/* Returns a copy of s in the arena. */
char *pp_arena_strdup(struct pp_arena *a, const char *s) PP_MUST_USE;

/* Returns a formatted string in the arena. */
char *pp_arena_printf(struct pp_arena *a, const char *fmt, ...)
    __attribute__((format(printf, 2, 3))) PP_MUST_USE;

/* Frees everything and leaves an empty arena. */
void pp_arena_finish(struct pp_arena *a);

#endif
