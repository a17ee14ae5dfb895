/* SPDX-License-Identifier: MIT */
/* top_k - the k largest of candidates from several lists, such as lists of
 * ranks that divide a vocabulary. Pure. */
#ifndef PP_RUN_PARTS_EXPERTS_TOP_K_H
#define PP_RUN_PARTS_EXPERTS_TOP_K_H

#include <stddef.h>
#include <stdint.h>

struct pp_candidate {
    double value;
    int32_t id; /* -1: none */
};

/* Fills out (k) with the largest of n candidates, in descending order; of equal
 * values the lowest id comes first. If there are less than k, the rest has id
 * -1. The order of the candidates does not matter. */
void pp_top_k_merge(const struct pp_candidate *candidates, size_t n, size_t k,
                    struct pp_candidate *out);

#endif
