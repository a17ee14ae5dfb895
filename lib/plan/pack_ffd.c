/* SPDX-License-Identifier: MIT */
/* pack_ffd - first-fit decreasing in the order of NeMo-RL.
 *
 * Lengths descending, equal ones from the higher index down; each goes to the
 * first bin, in creation order, that has room. A tournament tree over the bins
 * holds the largest space below each node: O(log bins) a step. Bins not opened
 * yet are leaves with all of their space, so opening one is no special case. */
#include <stdlib.h>
#include <string.h>

#include "plan/pack_rule.h"

/* Node 1 is the root, nodes leaves..2*leaves-1 the bins. */
struct tree {
    uint32_t *space;
    size_t leaves;
};

static int make_tree(struct tree *t, size_t leaves, uint32_t capacity,
                     struct pp_err *err)
{
    t->leaves = leaves;
    t->space = pp_pack_alloc(2 * leaves, sizeof *t->space, err);
    for (size_t i = 1; t->space && i < 2 * leaves; i++)
        t->space[i] = capacity;
    return t->space ? 0 : -1;
}

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* Twice the leaves, all bins kept. */
static int grow_tree(struct tree *t, uint32_t capacity, struct pp_err *err)
{
    struct tree big;
    if (make_tree(&big, 2 * t->leaves, capacity, err) != 0)
        return -1;
    memcpy(big.space + big.leaves, t->space + t->leaves,
           t->leaves * sizeof *t->space);
    for (size_t i = big.leaves - 1; i > 0; i--)
        big.space[i] = larger(big.space[2 * i], big.space[2 * i + 1]);
    free(t->space);
    *t = big;
    return 0;
}

/* Takes length from the first bin with room, which must exist. */
static size_t first_fit(struct tree *t, uint32_t length)
{
    size_t i = 1;
    while (i < t->leaves)
        i = 2 * i + (t->space[2 * i] < length);
    size_t bin = i - t->leaves;
    t->space[i] -= length;
    while (i /= 2) {
        uint32_t top = larger(t->space[2 * i], t->space[2 * i + 1]);
        if (t->space[i] == top)
            break;
        t->space[i] = top;
    }
    return bin;
}

static int place(const uint32_t *lengths, size_t n, uint32_t capacity,
                 const uint32_t *order, struct tree *t, uint32_t *bin_of,
                 size_t *n_bins, struct pp_err *err)
{
    for (size_t k = 0; k < n; k++) {
        uint32_t i = order[k];
        if (*n_bins == t->leaves && grow_tree(t, capacity, err) != 0)
            return -1;
        size_t bin = first_fit(t, lengths[i]);
        *n_bins += bin == *n_bins;
        bin_of[i] = (uint32_t)bin;
    }
    return 0;
}

int pp_pack_ffd(const uint32_t *lengths, size_t n, uint32_t capacity,
                struct pp_bins *out, struct pp_err *err)
{
    size_t n_bins = 0;
    int rc = -1;
    uint32_t *order = pp_pack_order(lengths, n, true, err);
    uint32_t *bin_of = pp_pack_alloc(n, sizeof *bin_of, err);
    struct tree t = {0};
    if (order && bin_of && make_tree(&t, 64, capacity, err) == 0 &&
        place(lengths, n, capacity, order, &t, bin_of, &n_bins, err) == 0)
        rc = pp_bins_make(out, order, bin_of, n, n_bins, err);
    free(t.space);
    free(bin_of);
    free(order);
    return rc;
}
