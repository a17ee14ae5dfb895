/* SPDX-License-Identifier: MIT */
/* pack_deal - the order of bins over steps, microbatches and data-parallel
 * lanes.
 *
 * Bins of about the same cost run at the same time on all lanes, since a step
 * ends when the slowest lane does: sorted by cost they are cut into rounds of
 * one for each lane, dealt forwards and backwards in turn so that lanes add up
 * to the same. Rounds are dealt over the steps likewise, so that every step
 * holds cheap and costly ones. Within a step the cheap ones are at both ends,
 * where a pipeline fills and drains and every rank waits for them one after
 * the other (verl orders its micro-batches like that). */
#include <stdlib.h>

#include "plan/pack_costs.h"
#include "plan/pack_rule.h"

/* The kth of n that are sorted, costliest first, goes to this place: even ones
 * backwards, then odd ones. */
static size_t place_in_step(size_t k, size_t n)
{
    size_t n_even = (n + 1) / 2;
    return k % 2 ? n_even + k / 2 : n_even - 1 - k / 2;
}

/* The kth of those dealt to n hands in turn, back and forth. */
static size_t hand(size_t k, size_t n)
{
    size_t at = k % n;
    return k / n % 2 ? n - 1 - at : at;
}

int pp_bins_deal(struct pp_bins *b, const uint64_t *cost, size_t lanes,
                 size_t per_step, struct pp_err *err)
{
    int rc = -1;
    size_t n = b->n_bins, steps = per_step ? n / per_step : 0;
    size_t rounds = per_step / lanes; /* of a step */
    uint64_t *load = pp_pack_alloc(n, sizeof *load, err);
    struct pp_by_cost *keys = pp_pack_alloc(n, sizeof *keys, err);
    uint32_t *sorted = pp_pack_alloc(n, sizeof *sorted, err);
    uint32_t *bin_of = pp_pack_alloc(b->n_items, sizeof *bin_of, err);
    struct pp_bins dealt;
    if (!load || !keys || !sorted || !bin_of)
        goto out;
    for (size_t k = 0; k < n; k++)
        for (size_t i = b->first[k]; i < b->first[k + 1]; i++)
            load[k] += cost[b->items[i]];
    pp_sort_by_cost(load, n, keys, sorted);
    for (size_t k = 0; k < steps * per_step; k++) {
        size_t round = k / lanes, step = hand(round, steps);
        size_t place = place_in_step(round / steps, rounds);
        size_t lane = round / steps % 2 ? lanes - 1 - k % lanes : k % lanes;
        size_t to = step * per_step + place * lanes + lane;
        for (size_t i = b->first[sorted[k]]; i < b->first[sorted[k] + 1]; i++)
            bin_of[b->items[i]] = (uint32_t)to;
    }
    rc = pp_bins_make(&dealt, b->items, bin_of, b->n_items, n, err);
    if (rc == 0) {
        pp_bins_finish(b);
        *b = dealt;
    }
out:
    free(load);
    free(keys);
    free(sorted);
    free(bin_of);
    return rc;
}
