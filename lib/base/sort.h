/* SPDX-License-Identifier: MIT */
/* sort - numbers of items in the order of their keys, byte by byte from the
 * last: for thousands of items, many times faster than qsort. */
#ifndef PP_BASE_SORT_H
#define PP_BASE_SORT_H

#include <stddef.h>
#include <stdint.h>

struct pp_sort_key {
    uint64_t high, low; /* low orders equal high */
    size_t item;
};

/* Sorts n keys. Items of equal keys keep their order. spare has room for n. */
void pp_sort_keys(struct pp_sort_key *keys, struct pp_sort_key *spare,
                  size_t n);

#endif
