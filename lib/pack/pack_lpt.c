/* SPDX-License-Identifier: MIT */
/* pack_lpt - longest processing time first: each sequence, longest first, to
 * the part with the least in it. Graham, "Bounds on multiprocessing timing
 * anomalies", SIAM Journal on Applied Mathematics 17, 1969. */
#include <stdlib.h>

#include "base/heap.h"
#include "pack/pack_rule.h"

bool pp_load_is_less(const void *ctx, uint32_t a, uint32_t b)
{
    const uint64_t *load = ctx;
    return load[a] != load[b] ? load[a] < load[b] : a < b;
}

uint64_t pp_pack_spread(const uint32_t *lengths, const uint32_t *order,
                        size_t n, size_t n_bins, uint64_t *load,
                        uint32_t *scratch, uint32_t *bin_of)
{
    uint64_t most = 0;
    struct pp_heap h = {
        .items = scratch, .before = pp_load_is_less, .ctx = load};
    for (size_t k = 0; k < n; k++) {
        /* One for each bin first, so that none stays empty. */
        bool opens = k < n_bins;
        uint32_t i = order[k], b = opens ? (uint32_t)k : h.items[0];
        bin_of[i] = b;
        load[b] = opens ? lengths[i] : load[b] + lengths[i];
        most = load[b] > most ? load[b] : most;
        if (opens)
            pp_heap_push(&h, b);
        else
            pp_heap_update(&h, 0);
    }
    return most;
}

int pp_parts_lpt(const uint32_t *lengths, size_t n, size_t n_parts,
                 struct pp_bins *out, struct pp_err *err)
{
    int rc = -1;
    uint64_t *load = pp_pack_alloc(n_parts, sizeof *load, err);
    uint32_t *items = pp_pack_alloc(n_parts, sizeof *items, err);
    uint32_t *order = pp_pack_order(lengths, n, false, err);
    uint32_t *bin_of = pp_pack_alloc(n, sizeof *bin_of, err);
    if (load && items && order && bin_of) {
        pp_pack_spread(lengths, order, n, n_parts, load, items, bin_of);
        rc = pp_bins_make(out, order, bin_of, n, n_parts, err);
    }
    free(load);
    free(items);
    free(order);
    free(bin_of);
    return rc;
}

int pp_pack_lpt(const uint32_t *lengths, size_t n, uint32_t capacity,
                struct pp_bins *out, struct pp_err *err)
{
    return pp_parts_fewest(pp_parts_lpt, lengths, n, capacity, out, err);
}

/* pack_wfd - worst-fit decreasing in the order of Automodel's
 * "greedy_knapsack".
 *
 * Lengths descending, equal ones in input order; each goes to the emptiest
 * bin, among those to the lowest number, and to a new one where even that has
 * no room. */
/* The number of bins, SIZE_MAX at the budget. */
static size_t place_worst_fit(const uint32_t *lengths, size_t n,
                              uint32_t capacity, const uint32_t *order,
                              struct pp_waste_budget *budget, struct pp_heap *h,
                              uint64_t *load, uint32_t *bin_of)
{
    size_t n_bins = 0;
    for (size_t k = 0; k < n; k++) {
        uint32_t i = order[k];
        if (h->n && load[h->items[0]] + lengths[i] <= capacity) {
            bin_of[i] = h->items[0];
            load[h->items[0]] += lengths[i];
            pp_heap_update(h, 0);
        } else {
            bin_of[i] = (uint32_t)n_bins++;
            load[bin_of[i]] = lengths[i];
            pp_heap_push(h, bin_of[i]);
        }
        if (pp_waste_budget_spend_if_full(budget, capacity - load[bin_of[i]]))
            return SIZE_MAX;
    }
    return n_bins;
}

int pp_try_wfd(const uint32_t *lengths, size_t n, uint32_t capacity,
               struct pp_waste_budget *budget, struct pp_bins *out,
               struct pp_err *err)
{
    int rc = -1;
    *out = (struct pp_bins){0};
    uint64_t *load = pp_pack_alloc(n, sizeof *load, err);
    struct pp_heap h = {.items = pp_pack_alloc(n, sizeof *h.items, err),
                        .before = pp_load_is_less,
                        .ctx = load};
    uint32_t *order = pp_pack_order(lengths, n, false, err);
    uint32_t *bin_of = pp_pack_alloc(n, sizeof *bin_of, err);
    if (load && h.items && order && bin_of) {
        size_t n_bins = place_worst_fit(lengths, n, capacity, order, budget, &h,
                                        load, bin_of);
        rc = n_bins == SIZE_MAX
                 ? 0
                 : pp_bins_make(out, order, bin_of, n, n_bins, err);
    }
    free(load);
    free(h.items);
    free(order);
    free(bin_of);
    return rc;
}

int pp_pack_wfd(const uint32_t *lengths, size_t n, uint32_t capacity,
                struct pp_bins *out, struct pp_err *err)
{
    return pp_try_wfd(lengths, n, capacity, NULL, out, err);
}
