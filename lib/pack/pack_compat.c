/* SPDX-License-Identifier: MIT */
/* pack_compat - the bins of systems whose rule is none of the others. */
#include <stdlib.h>

#include "plan/pack_rule.h"

/* axolotl's multipack sampler: first-fit in input order within groups of
 * sequences, of a limited number of sequences a bin. */
int pp_race_axolotl(const uint32_t *lengths, size_t n, uint32_t capacity,
                    struct pp_limit *limit, struct pp_bins *out,
                    struct pp_err *err)
{
    enum { GROUP = 100000, MOST = 200 };
    size_t n_bins = 0;
    *out = (struct pp_bins){0};
    uint32_t *bin_of = pp_pack_alloc(n, sizeof *bin_of, err);
    int rc = bin_of ? 0 : -1;
    for (size_t at = 0; at < n && rc == 0; at += GROUP) {
        size_t here = n - at < GROUP ? n - at : GROUP, more;
        rc = pp_pack_place_first(lengths + at, here, capacity, NULL, MOST,
                                 limit, bin_of + at, &more, err);
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
    return pp_race_axolotl(lengths, n, capacity, NULL, out, err);
}

/* Megatron's RL packer: documented as first-fit, it keeps one bin open; longest
 * first, equal lengths in input order, a limited number of sequences a bin. The
 * order is that of lengths, what a bin holds are slots. */
static int pack_rl(const uint32_t *lengths, const uint32_t *slots, size_t n,
                   uint32_t capacity, struct pp_limit *limit,
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
            load += slots[i];
            if (k == 0 || load > capacity || n_in == MOST) {
                gives_up =
                    k && pp_limit_close(limit, capacity + slots[i] - load);
                n_bins++;
                load = slots[i];
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

int pp_race_megatron_rl(const uint32_t *lengths, size_t n, uint32_t capacity,
                        struct pp_limit *limit, struct pp_bins *out,
                        struct pp_err *err)
{
    return pack_rl(lengths, lengths, n, capacity, limit, out, err);
}

int pp_pack_megatron_rl(const uint32_t *lengths, size_t n, uint32_t capacity,
                        struct pp_bins *out, struct pp_err *err)
{
    return pp_race_megatron_rl(lengths, n, capacity, NULL, out, err);
}

int pp_pack_megatron_rl_unpadded(const uint32_t *lengths, const uint32_t *slots,
                                 size_t n, uint32_t capacity,
                                 struct pp_bins *out, struct pp_err *err)
{
    return pack_rl(lengths, slots, n, capacity, NULL, out, err);
}
