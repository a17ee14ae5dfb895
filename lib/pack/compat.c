/* SPDX-License-Identifier: MIT */
/* compat - the rules of other systems that pptools has no rule for:
 * axolotl, Megatron's RL packer and verl. */
#include <stdlib.h>

#include "base/alloc.h"
#include "pack/rule.h"

/* axolotl's multipack sampler: first-fit in input order within groups of
 * sequences, with a limited number of sequences per bin. */
void pp_pack_axolotl(const struct pp_pack_input *in, struct pp_bins *out)
{
    enum { GROUP = 100000, MOST = 200 };
    size_t n_bins = 0;
    *out = (struct pp_bins){0};
    uint32_t *bin_of = pp_calloc(in->n, sizeof *bin_of);
    for (size_t at = 0; at < in->n; at += GROUP) {
        struct pp_pack_input group = *in;
        size_t more;
        group.lengths += at;
        group.n = in->n - at < GROUP ? in->n - at : GROUP;
        pp_pack_place_first_fit(&group, NULL, MOST, bin_of + at, &more);
        if (more == SIZE_MAX) {
            free(bin_of);
            return;
        }
        for (size_t i = at; i < at + group.n; i++)
            bin_of[i] += (uint32_t)n_bins;
        n_bins += more;
    }
    pp_bins_make(out, NULL, bin_of, in->n, n_bins);
    free(bin_of);
}

/* Megatron's RL packer: its documentation says first-fit, but it keeps only one
 * bin open. Longest first, equal lengths in input order, and a limited number
 * of sequences per bin. It sorts by length, but fills bins by padded length. */
void pp_pack_megatron_rl(const struct pp_pack_input *in, struct pp_bins *out)
{
    enum { MOST = 16 };
    size_t n_bins = 0, n_in = 0;
    uint64_t load = 0;
    bool gives_up = false;
    *out = (struct pp_bins){0};
    uint32_t *order =
        pp_pack_order(in->unpadded ? in->unpadded : in->lengths, in->n, false);
    uint32_t *bin_of = pp_calloc(in->n, sizeof *bin_of);
    for (size_t k = 0; k < in->n && !gives_up; k++, n_in++) {
        uint32_t i = order[k], length = in->lengths[i];
        load += length;
        if (k == 0 || load > in->capacity || n_in == MOST) {
            gives_up = k && pp_waste_budget_spend(in->budget,
                                                  in->capacity + length - load);
            n_bins++;
            load = length;
            n_in = 0;
        }
        bin_of[i] = (uint32_t)(n_bins - 1);
    }
    if (!gives_up)
        pp_bins_make(out, order, bin_of, in->n, n_bins);
    free(order);
    free(bin_of);
}

/* verl's micro-batches: differencing into as many parts as the sum of lengths
 * needs. A part may exceed the capacity. Parts are equal in length, or, as in
 * its rearrange_micro_batches, in cost. */

/* Divides into the number of parts that verl makes, at least 1. */
static void divide_as_verl(const struct pp_pack_input *in, pp_parts_fn *divide,
                           struct pp_bins *out)
{
    uint64_t total = 0;
    for (size_t i = 0; i < in->n; i++)
        total += in->lengths[i];
    uint64_t n_parts = (total + in->capacity - 1) / in->capacity;
    n_parts = n_parts > in->n ? in->n : n_parts;
    if (in->n == 0)
        pp_bins_make(out, NULL, NULL, 0, 0);
    else
        divide(in->lengths, in->n, n_parts ? (size_t)n_parts : 1, out);
}

void pp_pack_verl(const struct pp_pack_input *in, struct pp_bins *out)
{
    divide_as_verl(in, pp_parts_kk, out);
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
static void order_parts(struct pp_bins *b, const uint32_t *lengths)
{
    size_t n = b->n_bins, n_even = (n + 1) / 2;
    struct workload_part *parts = pp_calloc(n, sizeof *parts);
    uint32_t *bin_of = pp_calloc(b->n_items, sizeof *bin_of);
    struct pp_bins ordered;
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
    pp_bins_make(&ordered, NULL, bin_of, b->n_items, n);
    pp_bins_finish(b);
    *b = ordered;
    free(parts);
    free(bin_of);
}

void pp_parts_verl_workload(const uint32_t *lengths, size_t n, size_t n_parts,
                            struct pp_bins *out)
{
    pp_parts_kk_by_cost(lengths, workload, n, n_parts, out);
    order_parts(out, lengths);
}

void pp_pack_verl_workload(const struct pp_pack_input *in, struct pp_bins *out)
{
    divide_as_verl(in, pp_parts_verl_workload, out);
}
