/* SPDX-License-Identifier: MIT */
/* vec - arrays that grow at the end.
 *
 * A vector is any struct with these three members, zeroed at first:
 *
 *     struct action_list {
 *         struct pp_action *items;
 *         size_t n, capacity;
 *     };
 *
 * Its owner frees items. Arrays whose members have other names use
 * pp_array_reserve (base/alloc.h). The macros evaluate v several times. */
#ifndef PP_BASE_VEC_H
#define PP_BASE_VEC_H

#include "base/alloc.h"

/* Makes room for a total of count items. */
#define PP_VEC_RESERVE(v, count) \
    pp_array_reserve(&(v)->items, &(v)->capacity, (count), sizeof *(v)->items)

/* Appends item, which must be of the items' type. Put a compound literal in
 * parentheses. */
#define PP_VEC_PUSH(v, item) \
    (PP_VEC_RESERVE((v), (v)->n + 1), (void)((v)->items[(v)->n++] = (item)))

#endif
