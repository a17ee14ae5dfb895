/* SPDX-License-Identifier: MIT */
/* pack_parts - a packing from a rule that divides into a given number of
 * parts and knows no capacity: as few parts as keep to it. */
#include "plan/pack_rule.h"

uint64_t pp_bins_largest(const struct pp_bins *b, const uint32_t *lengths)
{
    uint64_t most = 0;
    for (size_t k = 0; k < b->n_bins; k++) {
        uint64_t load = 0;
        for (size_t i = b->first[k]; i < b->first[k + 1]; i++)
            load += lengths[b->items[i]];
        most = load > most ? load : most;
    }
    return most;
}

/* Divides into n_parts. Keeps them in *out, in place of what was there, when
 * none exceeds capacity: *fits. */
static int try_parts(pp_parts_fn *divide, const uint32_t *lengths, size_t n,
                     uint32_t capacity, size_t n_parts, struct pp_bins *out,
                     bool *fits, struct pp_err *err)
{
    struct pp_bins b;
    if (divide(lengths, n, n_parts, &b, err) != 0)
        return -1;
    *fits = pp_bins_largest(&b, lengths) <= capacity;
    if (*fits) {
        pp_bins_finish(out);
        *out = b;
    } else
        pp_bins_finish(&b);
    return 0;
}

/* From the lower bound up in growing steps, then between the last number that
 * failed and the first that did not. Every sequence a part of its own fits. */
int pp_parts_fewest(pp_parts_fn *divide, const uint32_t *lengths, size_t n,
                    uint32_t capacity, struct pp_bins *out, struct pp_err *err)
{
    *out = (struct pp_bins){0};
    size_t low, high, step = 1;
    bool fits = false;
    if (n == 0)
        return pp_bins_make(out, NULL, NULL, 0, 0, err);
    if (pp_pack_lower_bound(lengths, n, capacity, &high, err) != 0)
        return -1;
    low = high;
    for (;; step *= 2) {
        if (try_parts(divide, lengths, n, capacity, high, out, &fits, err) != 0)
            goto fail;
        if (fits)
            break;
        low = high + 1;
        high = step < n - high ? high + step : n;
    }
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (try_parts(divide, lengths, n, capacity, middle, out, &fits, err) !=
            0)
            goto fail;
        if (fits)
            high = middle;
        else
            low = middle + 1;
    }
    return 0;
fail:
    pp_bins_finish(out);
    return -1;
}
