/* SPDX-License-Identifier: MIT */
/* rule - the list of packing rules and what they share. A rule is a
 * function, a declaration here and a line in pack.c's table. */
#ifndef PP_PACK_RULE_H
#define PP_PACK_RULE_H

#include <stdbool.h>

#include "pack/pack.h"

pp_pack_fn pp_pack_best, pp_pack_bfd, pp_pack_ffd, pp_pack_fill,
    pp_pack_first_fit, pp_pack_kk, pp_pack_lpt, pp_pack_mffd, pp_pack_next_fit,
    pp_pack_none, pp_pack_wfd;

/* The rules of other systems. verl's bins may exceed the capacity. */
pp_pack_fn pp_pack_axolotl, pp_pack_megatron_rl, pp_pack_verl,
    pp_pack_verl_workload;

/* The space that a rule may leave empty and still have fewer bins than the best
 * packing so far. A bin with less space than the shortest sequence is full.
 * Most rules give up when it is spent: then *out has no arrays and needs no
 * pp_bins_finish. */
struct pp_waste_budget {
    uint64_t spare;
    uint32_t shortest;
};

/* Spends the space of a full bin. Returns whether that is beyond the budget;
 * NULL is no limit. */
static inline bool pp_waste_budget_spend(struct pp_waste_budget *l,
                                         uint64_t space)
{
    if (!l)
        return false;
    bool beyond = space > l->spare;
    l->spare -= beyond ? 0 : space;
    return beyond;
}

/* Spends the space of a bin that has just taken a sequence, if it is full. */
static inline bool pp_waste_budget_spend_if_full(struct pp_waste_budget *l,
                                                 uint64_t space)
{
    return l && space < l->shortest && pp_waste_budget_spend(l, space);
}

/* Does first-fit in the order of Python's random.shuffle after
 * random.seed(seed). */
pp_pack_fn pp_pack_first_fit_shuffle;

pp_parts_fn pp_parts_lpt, pp_parts_kk, pp_parts_kk_equal,
    pp_parts_verl_workload;

/* Returns the cost of a sequence. A longer sequence costs no less. */
typedef uint64_t pp_cost_fn(uint32_t length);

/* Divides by differencing, by costs instead of lengths. */
void pp_parts_kk_by_cost(const uint32_t *lengths, pp_cost_fn *cost, size_t n,
                         size_t n_parts, struct pp_bins *out);

/* Returns the indices by descending length, which the caller frees.
 * Among equal lengths the lower index is first, or the
 * higher. */
uint32_t *pp_pack_order(const uint32_t *lengths, size_t n,
                        bool higher_first) PP_MUST_USE;

/* Orders a heap of bins (base/heap.h) whose ctx is their loads, uint64_t: the
 * least loaded first, then the lower number. */
bool pp_load_is_less(const void *ctx, uint32_t a, uint32_t b);

/* Puts each item, in the given order, longest first, into the least loaded of
 * n_bins bins, 1 <= n_bins <= n. load and scratch have n_bins elements each,
 * and load is written. Returns the largest load. */
uint64_t pp_pack_spread(const uint32_t *lengths, const uint32_t *order,
                        size_t n, size_t n_bins, uint64_t *load,
                        uint32_t *scratch, uint32_t *bin_of);

/* Does first-fit in the given order (NULL: 0, 1, ...): item i goes into bin
 * bin_of[i]. A bin takes at most `most` items; 0 is no limit. *n_bins is
 * SIZE_MAX if the budget was spent. */
void pp_pack_place_first_fit(const struct pp_pack_input *in,
                             const uint32_t *order, uint32_t most,
                             uint32_t *bin_of, size_t *n_bins);

enum pp_pack_answer {
    PP_PACK_FOUND,
    PP_PACK_IMPOSSIBLE, /* there is no such packing */
    PP_PACK_UNKNOWN     /* the search was stopped */
};

/* Looks for a packing into at most n_bins bins. If it finds one, and out is not
 * NULL, the packing is in *out. The work is bounded and depends only on the
 * arguments. */
void pp_pack_search(const uint32_t *lengths, size_t n, uint32_t capacity,
                    size_t n_bins, enum pp_pack_answer *answer,
                    struct pp_bins *out);

/* Makes bins of n items. Item i is in bin bin_of[i]; order gives the order in
 * the bins (NULL: 0, 1, ...). */
void pp_bins_make(struct pp_bins *out, const uint32_t *order,
                  const uint32_t *bin_of, size_t n, size_t n_bins);

/* Like pp_bins_make, but bin_at[k] is the bin of item order[k]. */
void pp_bins_gather(struct pp_bins *out, const uint32_t *order,
                    const uint32_t *bin_at, size_t n, size_t n_bins);

/* Sequences of equal length as one class, for rules that need not tell them
 * apart. */
struct pp_classes {
    size_t n;
    uint32_t *length; /* longest first */
    uint32_t *count;
    size_t *first;   /* n + 1: start of each class in order */
    uint32_t *order; /* sequences, longest first, of one length as in the input
                      */
};

/* Makes the classes of n sequences. */
void pp_classes_init(struct pp_classes *c, const uint32_t *lengths, size_t n);

/* Returns the first class from at on that is no longer than space, or n. */
static inline size_t pp_classes_within(const struct pp_classes *c, size_t at,
                                       uint64_t space)
{
    size_t end = c->n;
    while (at < end) {
        size_t middle = at + (end - at) / 2;
        if (c->length[middle] <= space)
            end = middle;
        else
            at = middle + 1;
    }
    return at;
}

void pp_classes_finish(struct pp_classes *c);

/* A tournament tree that finds the first bin that a sequence fits into.
 * too_long of a bin is the shortest length that does not fit: its space plus
 * one, or 0 if the bin takes no more sequences. A node has the largest below
 * it: O(log bins) per step. Node 1 is the root; nodes leaves..2*leaves-1 are
 * the bins. A bin that is not open yet is a leaf with all its space, so opening
 * it is no special case. */
struct pp_first_fit_tree {
    uint32_t *too_long;
    size_t leaves;
};

/* Makes a tree of at least n empty bins. */
void pp_first_fit_tree_init(struct pp_first_fit_tree *t, size_t n,
                            uint32_t capacity);

/* Doubles the number of bins; the old bins stay. */
void pp_first_fit_tree_grow(struct pp_first_fit_tree *t, uint32_t capacity);

/* Returns the first bin that length fits into, which must exist. */
static inline size_t pp_first_fit_tree_first(const struct pp_first_fit_tree *t,
                                             uint32_t length)
{
    size_t i = 1;
    while (i < t->leaves)
        i = 2 * i + (t->too_long[2 * i] <= length);
    return i - t->leaves;
}

void pp_first_fit_tree_set(struct pp_first_fit_tree *t, size_t bin,
                           uint32_t too_long);

void pp_first_fit_tree_finish(struct pp_first_fit_tree *t);

/* A sequence or a bin, and its cost. */
struct pp_by_cost {
    uint64_t cost;
    uint32_t index;
};

/* Sorts the indices 0..n-1 by descending cost, then by ascending index. keys is
 * scratch of n elements. */
void pp_sort_by_cost(const uint64_t *cost, size_t n, struct pp_by_cost *keys,
                     uint32_t *order);

#endif
