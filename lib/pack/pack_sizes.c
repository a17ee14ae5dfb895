/* SPDX-License-Identifier: MIT */
/* pack_sizes - first-fit decreasing for items with several sizes, such as
 * tokens and patches of images, each with a capacity of its own (Kou and
 * Markowsky, "Multidimensional Bin Packing Algorithms", 1977). An item is as
 * large as the largest of its shares of a bin, or as their sum; the order with
 * fewer bins wins. */
#include <stdlib.h>
#include <string.h>

#include "pack/pack_rule.h"

struct sizes_state {
    const struct pp_pack_size *size; /* n_sizes */
    size_t n_sizes, n;
    struct pp_first_fit_tree room[PP_MOST_SIZES]; /* of as many leaves */
};

/* Returns the first bin below a node that has room for all sizes of an item, or
 * SIZE_MAX. Such a bin may lack although the node has room for each. */
static size_t find_bin(const struct sizes_state *s, size_t node, uint32_t item)
{
    for (size_t k = 0; k < s->n_sizes; k++)
        if (s->room[k].room[node] <= s->size[k].sizes[item])
            return SIZE_MAX;
    if (node >= s->room[0].leaves)
        return node - s->room[0].leaves;
    size_t left = find_bin(s, 2 * node, item);
    return left != SIZE_MAX ? left : find_bin(s, 2 * node + 1, item);
}

static int place_items(struct sizes_state *s, const uint32_t *order,
                       uint32_t *bin_of, size_t *n_bins, struct pp_err *err)
{
    *n_bins = 0;
    for (size_t i = 0; i < s->n; i++) {
        uint32_t item = order[i];
        for (size_t k = 0; k < s->n_sizes && *n_bins == s->room[k].leaves; k++)
            if (pp_first_fit_tree_grow(&s->room[k], s->size[k].capacity, err) !=
                0)
                return -1;
        size_t bin = find_bin(s, 1, item);
        for (size_t k = 0; k < s->n_sizes; k++)
            pp_first_fit_tree_set(&s->room[k], bin,
                                  s->room[k].room[bin + s->room[k].leaves] -
                                      s->size[k].sizes[item]);
        *n_bins += bin == *n_bins;
        bin_of[item] = (uint32_t)bin;
    }
    return 0;
}

/* Packs the items in one order. */
static int pack_in_order(struct sizes_state *s, const uint32_t *order,
                         uint32_t *bin_of, struct pp_bins *out,
                         struct pp_err *err)
{
    size_t n_bins, k = 0;
    int rc = -1;
    *out = (struct pp_bins){0};
    memset(s->room, 0, sizeof s->room);
    while (k < s->n_sizes && pp_first_fit_tree_init(
                                 &s->room[k], 1, s->size[k].capacity, err) == 0)
        k++;
    if (k == s->n_sizes && place_items(s, order, bin_of, &n_bins, err) == 0)
        rc = pp_bins_make(out, order, bin_of, s->n, n_bins, err);
    for (k = 0; k < s->n_sizes; k++)
        pp_first_fit_tree_finish(&s->room[k]);
    return rc;
}

/* Returns the size of an item: the largest share, or the sum of all. A share of
 * two is the size times the other capacity, which is exact; of more, a multiple
 * of 2^-60. */
static uint64_t weigh_item(const struct sizes_state *s, size_t i, bool sum)
{
    uint64_t all = 0, most = 0;
    for (size_t k = 0; k < s->n_sizes; k++) {
        const struct pp_pack_size *here = &s->size[k];
        uint64_t share =
            s->n_sizes == 2
                ? (uint64_t)here->sizes[i] * s->size[1 - k].capacity
                : (uint64_t)(0x1p60 * here->sizes[i] / here->capacity);
        all += share;
        most = share > most ? share : most;
    }
    return sum ? all : most;
}

int pp_pack_sizes(const struct pp_pack_size *sizes, size_t n_sizes, size_t n,
                  struct pp_bins *out, struct pp_err *err)
{
    struct sizes_state s = {.size = sizes, .n_sizes = n_sizes, .n = n};
    uint64_t *weight = pp_pack_alloc(n, sizeof *weight, err);
    struct pp_by_cost *keys = pp_pack_alloc(n, sizeof *keys, err);
    uint32_t *order = pp_pack_alloc(n, sizeof *order, err);
    uint32_t *bin_of = pp_pack_alloc(n, sizeof *bin_of, err);
    int rc = weight && keys && order && bin_of ? 0 : -1;
    *out = (struct pp_bins){0};
    for (int sum = 0; sum < 2 && rc == 0; sum++) {
        struct pp_bins bins;
        for (size_t i = 0; i < n; i++)
            weight[i] = weigh_item(&s, i, sum);
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
