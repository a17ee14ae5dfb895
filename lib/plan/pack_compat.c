/* SPDX-License-Identifier: MIT */
/* pack_compat - the bins of systems whose rule is none of the others. */
#include <stdlib.h>

#include "plan/pack_rule.h"

/* axolotl's multipack sampler: first-fit in input order within groups of
 * sequences, of a limited number of sequences a bin. */
int pp_pack_axolotl(const uint32_t *lengths, size_t n, uint32_t capacity,
                    struct pp_bins *out, struct pp_err *err)
{
    enum { GROUP = 100000, MOST = 200 };
    size_t n_bins = 0;
    uint32_t *bin_of = pp_pack_alloc(n, sizeof *bin_of, err);
    int rc = bin_of ? 0 : -1;
    for (size_t at = 0; at < n && rc == 0; at += GROUP) {
        size_t here = n - at < GROUP ? n - at : GROUP, more;
        rc = pp_pack_place_first(lengths + at, here, capacity, NULL, MOST,
                                 bin_of + at, &more, err);
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

/* Megatron's RL packer: documented as first-fit, it keeps one bin open; longest
 * first, equal lengths in input order, a limited number of sequences a bin. */
int pp_pack_megatron_rl(const uint32_t *lengths, size_t n, uint32_t capacity,
                        struct pp_bins *out, struct pp_err *err)
{
    enum { MOST = 16 };
    int rc = -1;
    size_t n_bins = 0, n_in = 0;
    uint64_t load = 0;
    uint32_t *order = pp_pack_order(lengths, n, false, err);
    uint32_t *bin_of = pp_pack_alloc(n, sizeof *bin_of, err);
    if (order && bin_of) {
        for (size_t k = 0; k < n; k++, n_in++) {
            uint32_t i = order[k];
            load += lengths[i];
            if (k == 0 || load > capacity || n_in == MOST) {
                n_bins++;
                load = lengths[i];
                n_in = 0;
            }
            bin_of[i] = (uint32_t)(n_bins - 1);
        }
        rc = pp_bins_make(out, order, bin_of, n, n_bins, err);
    }
    free(order);
    free(bin_of);
    return rc;
}

/* verl's micro-batches: as many parts as the sum of lengths asks for, which
 * need not keep to the capacity. */
int pp_pack_verl(const uint32_t *lengths, size_t n, uint32_t capacity,
                 struct pp_bins *out, struct pp_err *err)
{
    uint64_t total = 0;
    for (size_t i = 0; i < n; i++)
        total += lengths[i];
    uint64_t n_parts = (total + capacity - 1) / capacity;
    n_parts = n_parts > n ? n : n_parts;
    if (n == 0)
        return pp_bins_make(out, NULL, NULL, 0, 0, err);
    return pp_parts_kk(lengths, n, n_parts ? (size_t)n_parts : 1, out, err);
}
