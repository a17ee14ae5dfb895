/* SPDX-License-Identifier: MIT */
/* pack_rule - what packing rules share, and their list. A rule is a file
 * pack_NAME.c, a declaration here and a line in pack.c's table. */
#ifndef PP_PACK_PACK_RULE_H
#define PP_PACK_PACK_RULE_H

#include <stdbool.h>

#include "pack/pack.h"

pp_pack_fn pp_pack_best, pp_pack_bfd, pp_pack_ffd, pp_pack_fill,
    pp_pack_first_fit, pp_pack_kk, pp_pack_lpt, pp_pack_mffd, pp_pack_next_fit,
    pp_pack_wfd;

/* Of other systems; verl's may exceed the capacity. */
pp_pack_fn pp_pack_axolotl, pp_pack_megatron_rl, pp_pack_verl,
    pp_pack_verl_workload;
pp_unpadded_fn pp_pack_megatron_rl_unpadded;

/* What the bins of a rule may leave empty while it can still have fewer bins
 * than are known. A bin with less space than the shortest sequence is as full
 * as it will be. */
struct pp_waste_budget {
    uint64_t spare;
    uint32_t shortest;
};

/* Whether a bin that takes no more goes beyond the limit, NULL for none. */
static inline bool pp_waste_budget_spend(struct pp_waste_budget *l,
                                         uint64_t space)
{
    if (!l)
        return false;
    bool beyond = space > l->spare;
    l->spare -= beyond ? 0 : space;
    return beyond;
}

/* The same of a bin that has so much space after it took a sequence. */
static inline bool pp_waste_budget_spend_if_full(struct pp_waste_budget *l,
                                                 uint64_t space)
{
    return l && space < l->shortest && pp_waste_budget_spend(l, space);
}

/* A rule that gives up at the limit, unless that is NULL: then it returns 0
 * and *out has no arrays, and nothing is to be freed. */
typedef int pp_try_fn(const uint32_t *lengths, size_t n, uint32_t capacity,
                      struct pp_waste_budget *budget, struct pp_bins *out,
                      struct pp_err *err);

pp_try_fn pp_try_axolotl, pp_try_ffd, pp_try_first_fit, pp_try_megatron_rl,
    pp_try_mffd, pp_try_next_fit, pp_try_wfd;

/* First-fit in the order of Python's random.shuffle after random.seed(seed). */
pp_pack_fn pp_pack_first_fit_shuffle;
pp_draw_fn pp_draw_first_fit_shuffle;

pp_parts_fn pp_parts_lpt, pp_parts_kk, pp_parts_kk_equal,
    pp_parts_verl_workload;

/* What a sequence of a length costs; no less the longer it is. */
typedef uint64_t pp_cost_fn(uint32_t length);

/* Differencing by costs instead of lengths. */
int pp_parts_kk_by_cost(const uint32_t *lengths, pp_cost_fn *cost, size_t n,
                        size_t n_parts, struct pp_bins *out,
                        struct pp_err *err) PP_MUST_USE;

/* As few parts as keep to the capacity. */
int pp_parts_fewest(pp_parts_fn *divide, const uint32_t *lengths, size_t n,
                    uint32_t capacity, struct pp_bins *out,
                    struct pp_err *err) PP_MUST_USE;

/* n zeroed elements, or NULL with *err filled. n may be 0. */
void *pp_pack_alloc(size_t n, size_t size, struct pp_err *err) PP_MUST_USE;

/* Indices by descending length; among equal lengths the lower index first, or
 * the higher. To be freed; NULL with *err filled. */
uint32_t *pp_pack_order(const uint32_t *lengths, size_t n, bool higher_first,
                        struct pp_err *err) PP_MUST_USE;

/* For a heap of bins (base/heap.h) whose ctx is their loads, uint64_t: the
 * least loaded bin is first, and the lower number of two with the same load. */
bool pp_load_is_less(const void *ctx, uint32_t a, uint32_t b);

/* Puts each item, in the given order, longest first, into the least loaded of
 * n_bins bins, 1 <= n_bins <= n. load and scratch have n_bins elements each,
 * and load is written. Returns the largest load. */
uint64_t pp_pack_spread(const uint32_t *lengths, const uint32_t *order,
                        size_t n, size_t n_bins, uint64_t *load,
                        uint32_t *scratch, uint32_t *bin_of);

/* First-fit in the given order (NULL: 0, 1, ...): item i into bin bin_of[i], at
 * most so many in one; 0 is any number. *n_bins is SIZE_MAX at the limit. */
int pp_pack_place_first_fit(const uint32_t *lengths, size_t n,
                            uint32_t capacity, const uint32_t *order,
                            uint32_t most, struct pp_waste_budget *budget,
                            uint32_t *bin_of, size_t *n_bins,
                            struct pp_err *err) PP_MUST_USE;

enum pp_pack_answer {
    PP_PACK_FOUND,
    PP_PACK_IMPOSSIBLE, /* there is no such packing */
    PP_PACK_UNKNOWN     /* the search was stopped */
};

/* Looks for a packing into at most n_bins bins; with PP_PACK_FOUND and out
 * not NULL it is in *out. The work is bounded and depends on nothing but the
 * arguments. */
int pp_pack_search(const uint32_t *lengths, size_t n, uint32_t capacity,
                   size_t n_bins, enum pp_pack_answer *answer,
                   struct pp_bins *out, struct pp_err *err) PP_MUST_USE;

/* Makes bins of n items placed in the given order (NULL: 0, 1, ...), item i in
 * bin bin_of[i]. */
int pp_bins_make(struct pp_bins *out, const uint32_t *order,
                 const uint32_t *bin_of, size_t n, size_t n_bins,
                 struct pp_err *err) PP_MUST_USE;

/* The same from bin_at[k], the bin of the kth of order. */
int pp_bins_gather(struct pp_bins *out, const uint32_t *order,
                   const uint32_t *bin_at, size_t n, size_t n_bins,
                   struct pp_err *err) PP_MUST_USE;

#endif
