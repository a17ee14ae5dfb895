/* SPDX-License-Identifier: MIT */
/* pack_ffd - first-fit: in input order, in a drawn one, and decreasing in the
 * order of NeMo-RL.
 *
 * Decreasing: equal lengths from the higher index down. Each goes to the first
 * bin, in creation order, that has room. A tournament tree over the bins
 * holds the largest space below each node: O(log bins) a step. Bins not opened
 * yet are leaves with all of their space, so opening one is no special case. */
#include <stdlib.h>
#include <string.h>

#include "base/mt19937.h"
#include "plan/pack_rule.h"

/* Node 1 is the root, nodes leaves..2*leaves-1 the bins. What is stored is the
 * space plus one, and 0 for a bin that takes no more sequences. */
struct tree {
    uint32_t *room;
    size_t leaves;
};

static int make_tree(struct tree *t, size_t leaves, uint32_t capacity,
                     struct pp_err *err)
{
    t->leaves = leaves;
    t->room = pp_pack_alloc(2 * leaves, sizeof *t->room, err);
    for (size_t i = 1; t->room && i < 2 * leaves; i++)
        t->room[i] = capacity + 1;
    return t->room ? 0 : -1;
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
    memcpy(big.room + big.leaves, t->room + t->leaves,
           t->leaves * sizeof *t->room);
    for (size_t i = big.leaves - 1; i > 0; i--)
        big.room[i] = larger(big.room[2 * i], big.room[2 * i + 1]);
    free(t->room);
    *t = big;
    return 0;
}

/* The first bin with room, which must exist. */
static size_t find_first(const struct tree *t, uint32_t length)
{
    size_t i = 1;
    while (i < t->leaves)
        i = 2 * i + (t->room[2 * i] <= length);
    return i - t->leaves;
}

static void set_room(struct tree *t, size_t bin, uint32_t room)
{
    size_t i = bin + t->leaves;
    t->room[i] = room;
    while (i /= 2) {
        uint32_t top = larger(t->room[2 * i], t->room[2 * i + 1]);
        if (t->room[i] == top)
            break;
        t->room[i] = top;
    }
}

/* The number of sequences of each bin is counted where most is not 0. */
static int place(const uint32_t *lengths, size_t n, uint32_t capacity,
                 const uint32_t *order, uint32_t most, struct tree *t,
                 uint32_t *count, uint32_t *bin_of, size_t *n_bins,
                 struct pp_err *err)
{
    for (size_t k = 0; k < n; k++) {
        uint32_t i = order ? order[k] : (uint32_t)k;
        if (*n_bins == t->leaves && grow_tree(t, capacity, err) != 0)
            return -1;
        size_t bin = find_first(t, lengths[i]);
        bool is_full = most && ++count[bin] == most;
        set_room(t, bin, is_full ? 0 : t->room[bin + t->leaves] - lengths[i]);
        *n_bins += bin == *n_bins;
        bin_of[i] = (uint32_t)bin;
    }
    return 0;
}

int pp_pack_place_first(const uint32_t *lengths, size_t n, uint32_t capacity,
                        const uint32_t *order, uint32_t most, uint32_t *bin_of,
                        size_t *n_bins, struct pp_err *err)
{
    int rc = -1;
    struct tree t = {0};
    uint32_t *count = most ? pp_pack_alloc(n, sizeof *count, err) : NULL;
    *n_bins = 0;
    if ((count || !most) && make_tree(&t, 64, capacity, err) == 0)
        rc = place(lengths, n, capacity, order, most, &t, count, bin_of, n_bins,
                   err);
    free(t.room);
    free(count);
    return rc;
}

/* In the given order; NULL is that of the input. */
static int first_fit_all(const uint32_t *lengths, size_t n, uint32_t capacity,
                         const uint32_t *order, struct pp_bins *out,
                         struct pp_err *err)
{
    size_t n_bins;
    uint32_t *bin_of = pp_pack_alloc(n, sizeof *bin_of, err);
    int rc = -1;
    if (bin_of && pp_pack_place_first(lengths, n, capacity, order, 0, bin_of,
                                      &n_bins, err) == 0)
        rc = pp_bins_make(out, order, bin_of, n, n_bins, err);
    free(bin_of);
    return rc;
}

int pp_pack_ffd(const uint32_t *lengths, size_t n, uint32_t capacity,
                struct pp_bins *out, struct pp_err *err)
{
    uint32_t *order = pp_pack_order(lengths, n, true, err);
    if (!order)
        return -1;
    int rc = first_fit_all(lengths, n, capacity, order, out, err);
    free(order);
    return rc;
}

int pp_draw_first_fit_shuffle(const uint32_t *lengths, size_t n,
                              uint32_t capacity, uint64_t seed,
                              struct pp_bins *out, struct pp_err *err)
{
    uint32_t *order = pp_pack_alloc(n, sizeof *order, err);
    if (!order)
        return -1;
    for (size_t i = 0; i < n; i++)
        order[i] = (uint32_t)i;
    struct pp_mt19937 g;
    pp_mt19937_seed(&g, seed);
    pp_mt19937_shuffle(&g, order, n);
    int rc = first_fit_all(lengths, n, capacity, order, out, err);
    free(order);
    return rc;
}

int pp_pack_first_fit_shuffle(const uint32_t *lengths, size_t n,
                              uint32_t capacity, struct pp_bins *out,
                              struct pp_err *err)
{
    return pp_draw_first_fit_shuffle(lengths, n, capacity, PP_PACK_SEED, out,
                                     err);
}

int pp_pack_first_fit(const uint32_t *lengths, size_t n, uint32_t capacity,
                      struct pp_bins *out, struct pp_err *err)
{
    return first_fit_all(lengths, n, capacity, NULL, out, err);
}
