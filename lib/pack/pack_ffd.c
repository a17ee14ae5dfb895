/* SPDX-License-Identifier: MIT */
/* pack_ffd - first-fit: in input order, in a drawn one, and decreasing in the
 * order of NeMo-RL.
 *
 * Decreasing: equal lengths from the higher index down. Each goes to the first
 * bin, in creation order, that has room. */
#include <stdlib.h>

#include "base/mt19937.h"
#include "pack/pack_lookup.h"
#include "pack/pack_rule.h"

/* The number of sequences of each bin is counted where most is not 0. */
static int place_first_fit(const uint32_t *lengths, size_t n, uint32_t capacity,
                           const uint32_t *order, uint32_t most,
                           struct pp_waste_budget *budget,
                           struct pp_first_fit_tree *t, uint32_t *count,
                           uint32_t *bin_of, size_t *n_bins, struct pp_err *err)
{
    for (size_t k = 0; k < n; k++) {
        uint32_t i = order ? order[k] : (uint32_t)k;
        if (*n_bins == t->leaves &&
            pp_first_fit_tree_grow(t, capacity, err) != 0)
            return -1;
        size_t bin = pp_first_fit_tree_first(t, lengths[i]);
        uint32_t room = t->room[bin + t->leaves] - lengths[i];
        bool is_full = most && ++count[bin] == most;
        pp_first_fit_tree_set(t, bin, is_full ? 0 : room);
        *n_bins += bin == *n_bins;
        bin_of[i] = (uint32_t)bin;
        if (is_full ? pp_waste_budget_spend(budget, room - 1)
                    : pp_waste_budget_spend_if_full(budget, room - 1)) {
            *n_bins = SIZE_MAX;
            break;
        }
    }
    return 0;
}

int pp_pack_place_first_fit(const uint32_t *lengths, size_t n,
                            uint32_t capacity, const uint32_t *order,
                            uint32_t most, struct pp_waste_budget *budget,
                            uint32_t *bin_of, size_t *n_bins,
                            struct pp_err *err)
{
    int rc = -1;
    struct pp_first_fit_tree t = {0};
    uint32_t *count = most ? pp_pack_alloc(n, sizeof *count, err) : NULL;
    *n_bins = 0;
    if ((count || !most) && pp_first_fit_tree_init(&t, 1, capacity, err) == 0)
        rc = place_first_fit(lengths, n, capacity, order, most, budget, &t,
                             count, bin_of, n_bins, err);
    pp_first_fit_tree_finish(&t);
    free(count);
    return rc;
}

/* In the given order; NULL is that of the input. */
static int first_fit_in_order(const uint32_t *lengths, size_t n,
                              uint32_t capacity, const uint32_t *order,
                              struct pp_waste_budget *budget,
                              struct pp_bins *out, struct pp_err *err)
{
    size_t n_bins;
    uint32_t *bin_of = pp_pack_alloc(n, sizeof *bin_of, err);
    int rc = -1;
    *out = (struct pp_bins){0};
    if (bin_of && pp_pack_place_first_fit(lengths, n, capacity, order, 0,
                                          budget, bin_of, &n_bins, err) == 0)
        rc = n_bins == SIZE_MAX
                 ? 0
                 : pp_bins_make(out, order, bin_of, n, n_bins, err);
    free(bin_of);
    return rc;
}

int pp_try_ffd(const uint32_t *lengths, size_t n, uint32_t capacity,
               struct pp_waste_budget *budget, struct pp_bins *out,
               struct pp_err *err)
{
    uint32_t *order = pp_pack_order(lengths, n, true, err);
    if (!order)
        return -1;
    int rc = first_fit_in_order(lengths, n, capacity, order, budget, out, err);
    free(order);
    return rc;
}

int pp_pack_ffd(const uint32_t *lengths, size_t n, uint32_t capacity,
                struct pp_bins *out, struct pp_err *err)
{
    return pp_try_ffd(lengths, n, capacity, NULL, out, err);
}

int pp_draw_first_fit_shuffle(const uint32_t *lengths, size_t n,
                              uint32_t capacity, uint64_t seed,
                              struct pp_bins *out, struct pp_err *err)
{
    uint32_t *order = pp_pack_alloc(n, sizeof *order, err);
    if (!order)
        return -1;
    for (size_t i = 0; i < n; i++)
        order[i] = (uint32_t)i;
    struct pp_mt19937 g;
    pp_mt19937_seed(&g, seed);
    pp_mt19937_shuffle(&g, order, n);
    int rc = first_fit_in_order(lengths, n, capacity, order, NULL, out, err);
    free(order);
    return rc;
}

int pp_pack_first_fit_shuffle(const uint32_t *lengths, size_t n,
                              uint32_t capacity, struct pp_bins *out,
                              struct pp_err *err)
{
    return pp_draw_first_fit_shuffle(lengths, n, capacity, PP_PACK_SEED, out,
                                     err);
}

int pp_try_first_fit(const uint32_t *lengths, size_t n, uint32_t capacity,
                     struct pp_waste_budget *budget, struct pp_bins *out,
                     struct pp_err *err)
{
    return first_fit_in_order(lengths, n, capacity, NULL, budget, out, err);
}

int pp_pack_first_fit(const uint32_t *lengths, size_t n, uint32_t capacity,
                      struct pp_bins *out, struct pp_err *err)
{
    return pp_try_first_fit(lengths, n, capacity, NULL, out, err);
}
