/* SPDX-License-Identifier: MIT */
/* memory_place - where each buffer lies in the arena, private to lib/sched. */
#ifndef PP_SCHED_MEMORY_PLACE_H
#define PP_SCHED_MEMORY_PLACE_H

#include "sched/memory.h"

/* Orders buffers by key, for qsort and bsearch. */
int pp_buffer_compare(const void *a, const void *b);

/* Fills offsets, arena_bytes and the peaks from the lifetimes. */
int pp_memory_place(struct pp_memory *m, struct pp_err *err) PP_MUST_USE;

#endif
