/* SPDX-License-Identifier: MIT */
/* pack_two - first-fit decreasing for items with two sizes, such as tokens and
 * patches of images, each with a capacity of its own (Kou and Markowsky,
 * "Multidimensional Bin Packing Algorithms", 1977). An item is as large as the
 * larger of its two shares of a bin, or as their sum; the order with fewer bins
 * wins. */
#include <stdlib.h>

#include "pack/pack_rule.h"

struct two_state {
    const uint32_t *size[2];
    uint32_t capacity[2];
    size_t n;
    struct pp_first_fit_tree room[2]; /* of as many leaves */
};

/* Returns the first bin below a node that has room for both sizes of an item,
 * or SIZE_MAX. Such a bin may lack although the node has room for each. */
static size_t find_bin(const struct two_state *s, size_t node, uint32_t item)
{
    for (int k = 0; k < 2; k++)
        if (s->room[k].room[node] <= s->size[k][item])
            return SIZE_MAX;
    if (node >= s->room[0].leaves)
        return node - s->room[0].leaves;
    size_t left = find_bin(s, 2 * node, item);
    return left != SIZE_MAX ? left : find_bin(s, 2 * node + 1, item);
}

static int place_items(struct two_state *s, const uint32_t *order,
                       uint32_t *bin_of, size_t *n_bins, struct pp_err *err)
{
    *n_bins = 0;
    for (size_t i = 0; i < s->n; i++) {
        uint32_t item = order[i];
        for (int k = 0; k < 2 && *n_bins == s->room[k].leaves; k++)
            if (pp_first_fit_tree_grow(&s->room[k], s->capacity[k], err) != 0)
                return -1;
        size_t bin = find_bin(s, 1, item);
        for (int k = 0; k < 2; k++)
            pp_first_fit_tree_set(&s->room[k], bin,
                                  s->room[k].room[bin + s->room[k].leaves] -
                                      s->size[k][item]);
        *n_bins += bin == *n_bins;
        bin_of[item] = (uint32_t)bin;
    }
    return 0;
}

/* Packs the items in one order. */
static int pack_in_order(struct two_state *s, const uint32_t *order,
                         uint32_t *bin_of, struct pp_bins *out,
                         struct pp_err *err)
{
    size_t n_bins;
    int rc = -1;
    *out = (struct pp_bins){0};
    for (int k = 0; k < 2; k++)
        s->room[k] = (struct pp_first_fit_tree){0};
    if (pp_first_fit_tree_init(&s->room[0], 1, s->capacity[0], err) == 0 &&
        pp_first_fit_tree_init(&s->room[1], 1, s->capacity[1], err) == 0 &&
        place_items(s, order, bin_of, &n_bins, err) == 0)
        rc = pp_bins_make(out, order, bin_of, s->n, n_bins, err);
    for (int k = 0; k < 2; k++)
        pp_first_fit_tree_finish(&s->room[k]);
    return rc;
}

/* Returns the size of an item: the larger share, or the sum of both. */
static uint64_t weigh_two(const struct two_state *s, size_t i, bool sum)
{
    uint64_t a = (uint64_t)s->size[0][i] * s->capacity[1];
    uint64_t b = (uint64_t)s->size[1][i] * s->capacity[0];
    return sum ? a + b : a > b ? a : b;
}

int pp_pack_two(const struct pp_two_sizes sizes[2], size_t n,
                struct pp_bins *out, struct pp_err *err)
{
    struct two_state s = {{sizes[0].sizes, sizes[1].sizes},
                          {sizes[0].capacity, sizes[1].capacity},
                          .n = n};
    uint64_t *weight = pp_pack_alloc(n, sizeof *weight, err);
    struct pp_by_cost *keys = pp_pack_alloc(n, sizeof *keys, err);
    uint32_t *order = pp_pack_alloc(n, sizeof *order, err);
    uint32_t *bin_of = pp_pack_alloc(n, sizeof *bin_of, err);
    int rc = weight && keys && order && bin_of ? 0 : -1;
    *out = (struct pp_bins){0};
    for (int sum = 0; sum < 2 && rc == 0; sum++) {
        struct pp_bins bins;
        for (size_t i = 0; i < n; i++)
            weight[i] = weigh_two(&s, i, sum);
        pp_sort_by_cost(weight, n, keys, order);
        rc = pack_in_order(&s, order, bin_of, &bins, err);
        if (rc == 0 && (sum == 0 || bins.n_bins < out->n_bins)) {
            pp_bins_finish(out);
            *out = bins;
        } else if (rc == 0) {
            pp_bins_finish(&bins);
        }
    }
    if (rc != 0)
        pp_bins_finish(out);
    free(weight);
    free(keys);
    free(order);
    free(bin_of);
    return rc;
}
