/* SPDX-License-Identifier: MIT */
/* pack_wfd - worst-fit decreasing in the order of Automodel's
 * "greedy_knapsack".
 *
 * Lengths descending, equal ones in input order; each goes to the emptiest
 * bin, among those to the lowest number, and to a new one where even that has
 * no room. */
#include <stdlib.h>

#include "plan/pack_heap.h"
#include "plan/pack_rule.h"

/* The number of bins, SIZE_MAX at the limit. */
static size_t place(const uint32_t *lengths, size_t n, uint32_t capacity,
                    const uint32_t *order, struct pp_limit *limit,
                    struct pp_heap *h, uint32_t *bin_of)
{
    size_t n_bins = 0;
    for (size_t k = 0; k < n; k++) {
        uint32_t i = order[k];
        if (h->n && h->load[h->bin[0]] + lengths[i] <= capacity) {
            bin_of[i] = h->bin[0];
            h->load[h->bin[0]] += lengths[i];
            pp_heap_sift_down(h, 0);
        } else {
            bin_of[i] = (uint32_t)n_bins++;
            h->load[bin_of[i]] = lengths[i];
            pp_heap_push(h, bin_of[i]);
        }
        if (pp_limit_fill(limit, capacity - h->load[bin_of[i]]))
            return SIZE_MAX;
    }
    return n_bins;
}

int pp_race_wfd(const uint32_t *lengths, size_t n, uint32_t capacity,
                struct pp_limit *limit, struct pp_bins *out, struct pp_err *err)
{
    int rc = -1;
    *out = (struct pp_bins){0};
    struct pp_heap h = {
        .load = pp_pack_alloc(n, sizeof *h.load, err),
        .bin = pp_pack_alloc(n, sizeof *h.bin, err),
        .sign = 1,
    };
    uint32_t *order = pp_pack_order(lengths, n, false, err);
    uint32_t *bin_of = pp_pack_alloc(n, sizeof *bin_of, err);
    if (h.load && h.bin && order && bin_of) {
        size_t n_bins = place(lengths, n, capacity, order, limit, &h, bin_of);
        rc = n_bins == SIZE_MAX
                 ? 0
                 : pp_bins_make(out, order, bin_of, n, n_bins, err);
    }
    free(h.load);
    free(h.bin);
    free(order);
    free(bin_of);
    return rc;
}

int pp_pack_wfd(const uint32_t *lengths, size_t n, uint32_t capacity,
                struct pp_bins *out, struct pp_err *err)
{
    return pp_race_wfd(lengths, n, capacity, NULL, out, err);
}
