/* SPDX-License-Identifier: MIT */
/* pack_compat - the rules of other systems that pptools has no rule for:
 * axolotl, Megatron's RL packer and verl. */
#include <stdlib.h>

#include "pack/pack_rule.h"

/* axolotl's multipack sampler: first-fit in input order within groups of
 * sequences, with a limited number of sequences per bin. */
int pp_try_axolotl(const uint32_t *lengths, size_t n, uint32_t capacity,
                   struct pp_waste_budget *budget, struct pp_bins *out,
                   struct pp_err *err)
{
    enum { GROUP = 100000, MOST = 200 };
    size_t n_bins = 0;
    *out = (struct pp_bins){0};
    uint32_t *bin_of = pp_pack_alloc(n, sizeof *bin_of, err);
    int rc = bin_of ? 0 : -1;
    for (size_t at = 0; at < n && rc == 0; at += GROUP) {
        size_t here = n - at < GROUP ? n - at : GROUP, more;
        rc = pp_pack_place_first_fit(lengths + at, here, capacity, NULL, MOST,
                                     budget, bin_of + at, &more, err);
        if (rc == 0 && more == SIZE_MAX) {
            free(bin_of);
            return 0;
        }
        if (rc == 0) {
            for (size_t i = at; i < at + here; i++)
                bin_of[i] += (uint32_t)n_bins;
            n_bins += more;
        }
    }
    if (rc == 0)
        rc = pp_bins_make(out, NULL, bin_of, n, n_bins, err);
    free(bin_of);
    return rc;
}

int pp_pack_axolotl(const uint32_t *lengths, size_t n, uint32_t capacity,
                    struct pp_bins *out, struct pp_err *err)
{
    return pp_try_axolotl(lengths, n, capacity, NULL, out, err);
}

/* Megatron's RL packer: its documentation says first-fit, but it keeps only one
 * bin open. Longest first, equal lengths in input order, and a limited number
 * of sequences per bin. It sorts by length, but fills bins by padded length. */
static int pack_rl(const uint32_t *lengths, const uint32_t *padded, size_t n,
                   uint32_t capacity, struct pp_waste_budget *budget,
                   struct pp_bins *out, struct pp_err *err)
{
    enum { MOST = 16 };
    int rc = -1;
    size_t n_bins = 0, n_in = 0;
    uint64_t load = 0;
    bool gives_up = false;
    *out = (struct pp_bins){0};
    uint32_t *order = pp_pack_order(lengths, n, false, err);
    uint32_t *bin_of = pp_pack_alloc(n, sizeof *bin_of, err);
    if (order && bin_of) {
        for (size_t k = 0; k < n && !gives_up; k++, n_in++) {
            uint32_t i = order[k];
            load += padded[i];
            if (k == 0 || load > capacity || n_in == MOST) {
                gives_up = k && pp_waste_budget_spend(
                                    budget, capacity + padded[i] - load);
                n_bins++;
                load = padded[i];
                n_in = 0;
            }
            bin_of[i] = (uint32_t)(n_bins - 1);
        }
        rc = gives_up ? 0 : pp_bins_make(out, order, bin_of, n, n_bins, err);
    }
    free(order);
    free(bin_of);
    return rc;
}

int pp_try_megatron_rl(const uint32_t *lengths, size_t n, uint32_t capacity,
                       struct pp_waste_budget *budget, struct pp_bins *out,
                       struct pp_err *err)
{
    return pack_rl(lengths, lengths, n, capacity, budget, out, err);
}

int pp_pack_megatron_rl(const uint32_t *lengths, size_t n, uint32_t capacity,
                        struct pp_bins *out, struct pp_err *err)
{
    return pp_try_megatron_rl(lengths, n, capacity, NULL, out, err);
}

int pp_pack_megatron_rl_unpadded(const uint32_t *lengths,
                                 const uint32_t *padded, size_t n,
                                 uint32_t capacity, struct pp_bins *out,
                                 struct pp_err *err)
{
    return pack_rl(lengths, padded, n, capacity, NULL, out, err);
}

/* verl's micro-batches: differencing into as many parts as the sum of lengths
 * needs. A part may exceed the capacity. Parts are equal in length, or, as in
 * its rearrange_micro_batches, in cost. */

/* Returns the number of parts that verl makes, at least 1. */
static size_t count_verl_parts(const uint32_t *lengths, size_t n,
                               uint32_t capacity)
{
    uint64_t total = 0;
    for (size_t i = 0; i < n; i++)
        total += lengths[i];
    uint64_t n_parts = (total + capacity - 1) / capacity;
    n_parts = n_parts > n ? n : n_parts;
    return n_parts ? (size_t)n_parts : 1;
}

int pp_pack_verl(const uint32_t *lengths, size_t n, uint32_t capacity,
                 struct pp_bins *out, struct pp_err *err)
{
    if (n == 0)
        return pp_bins_make(out, NULL, NULL, 0, 0, err);
    return pp_parts_kk(lengths, n, count_verl_parts(lengths, n, capacity), out,
                       err);
}

/* Returns a cost proportional to the operations of a model of hidden size
 * h = 4096: 12 h^2 per token and 2 h per pair of tokens. */
static uint64_t workload(uint32_t length)
{
    return 24576 * (uint64_t)length + (uint64_t)length * length;
}

struct workload_part {
    uint64_t cost;
    uint32_t first, bin; /* its first sequence is its lowest */
};

static int compare_workloads(const void *a, const void *b)
{
    const struct workload_part *p = a, *q = b;
    if (p->cost != q->cost)
        return p->cost < q->cost ? 1 : -1;
    return p->first < q->first ? 1 : -1;
}

/* Puts the costliest parts in the middle: of the sorted parts every other one
 * back to front, then the others. */
static int order_parts(struct pp_bins *b, const uint32_t *lengths,
                       struct pp_err *err)
{
    int rc = -1;
    size_t n = b->n_bins, n_even = (n + 1) / 2;
    struct workload_part *parts = pp_pack_alloc(n, sizeof *parts, err);
    uint32_t *bin_of = pp_pack_alloc(b->n_items, sizeof *bin_of, err);
    struct pp_bins ordered;
    if (!parts || !bin_of)
        goto out;
    for (size_t k = 0; k < n; k++) {
        parts[k].bin = (uint32_t)k;
        parts[k].first = b->items[b->first[k]];
        for (size_t i = b->first[k]; i < b->first[k + 1]; i++)
            parts[k].cost += workload(lengths[b->items[i]]);
    }
    qsort(parts, n, sizeof *parts, compare_workloads);
    for (size_t k = 0; k < n; k++) {
        size_t to = k % 2 ? n_even + k / 2 : n_even - 1 - k / 2;
        size_t end = b->first[parts[k].bin + 1];
        for (size_t i = b->first[parts[k].bin]; i < end; i++)
            bin_of[b->items[i]] = (uint32_t)to;
    }
    rc = pp_bins_make(&ordered, NULL, bin_of, b->n_items, n, err);
    if (rc == 0) {
        pp_bins_finish(b);
        *b = ordered;
    }
out:
    free(parts);
    free(bin_of);
    return rc;
}

int pp_parts_verl_workload(const uint32_t *lengths, size_t n, size_t n_parts,
                           struct pp_bins *out, struct pp_err *err)
{
    if (pp_parts_kk_by_cost(lengths, workload, n, n_parts, out, err) != 0)
        return -1;
    if (order_parts(out, lengths, err) == 0)
        return 0;
    pp_bins_finish(out);
    return -1;
}

int pp_pack_verl_workload(const uint32_t *lengths, size_t n, uint32_t capacity,
                          struct pp_bins *out, struct pp_err *err)
{
    if (n == 0)
        return pp_bins_make(out, NULL, NULL, 0, 0, err);
    return pp_parts_verl_workload(
        lengths, n, count_verl_parts(lengths, n, capacity), out, err);
}
