/* SPDX-License-Identifier: MIT */
/* pack_lpt - longest processing time first: each sequence, longest first, to
 * the part with the least in it. Graham, "Bounds on multiprocessing timing
 * anomalies", SIAM Journal on Applied Mathematics 17, 1969. */
#include <stdlib.h>

#include "plan/pack_heap.h"
#include "plan/pack_rule.h"

uint64_t pp_pack_spread(const uint32_t *lengths, const uint32_t *order,
                        size_t n, size_t n_bins, struct pp_heap *h,
                        uint32_t *bin_of)
{
    uint64_t most = 0;
    h->n = 0;
    h->sign = 1;
    for (size_t b = 0; b < n_bins; b++) {
        h->load[b] = 0;
        pp_heap_push(h, (uint32_t)b);
    }
    for (size_t k = 0; k < n; k++) {
        /* One for each bin first, so that none stays empty. */
        uint32_t i = order[k], b = h->bin[0];
        if (k < n_bins)
            b = (uint32_t)k;
        bin_of[i] = b;
        h->load[b] += lengths[i];
        most = h->load[b] > most ? h->load[b] : most;
        if (k + 1 == n_bins)
            for (size_t j = n_bins; j-- > 0;)
                pp_heap_sift_down(h, j);
        else if (k >= n_bins)
            pp_heap_sift_down(h, 0);
    }
    return most;
}

int pp_parts_lpt(const uint32_t *lengths, size_t n, size_t n_parts,
                 struct pp_bins *out, struct pp_err *err)
{
    int rc = -1;
    struct pp_heap h = {
        .load = pp_pack_alloc(n_parts, sizeof *h.load, err),
        .bin = pp_pack_alloc(n_parts, sizeof *h.bin, err),
    };
    uint32_t *order = pp_pack_order(lengths, n, false, err);
    uint32_t *bin_of = pp_pack_alloc(n, sizeof *bin_of, err);
    if (h.load && h.bin && order && bin_of) {
        pp_pack_spread(lengths, order, n, n_parts, &h, bin_of);
        rc = pp_bins_make(out, order, bin_of, n, n_parts, err);
    }
    free(h.load);
    free(h.bin);
    free(order);
    free(bin_of);
    return rc;
}

int pp_pack_lpt(const uint32_t *lengths, size_t n, uint32_t capacity,
                struct pp_bins *out, struct pp_err *err)
{
    return pp_parts_fewest(pp_parts_lpt, lengths, n, capacity, out, err);
}
