/* SPDX-License-Identifier: MIT */
/* sizes - first-fit decreasing for items with several sizes, such as
 * tokens and patches of images, each with a capacity of its own (Kou and
 * Markowsky, "Multidimensional Bin Packing Algorithms", 1977). An item is as
 * large as the largest of its shares of a bin, or as their sum; the order with
 * fewer bins wins. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "pack/rule.h"

struct sizes_state {
    const struct pp_pack_size *size; /* n_sizes */
    size_t n_sizes, n;
    struct pp_first_fit_tree tree[PP_MOST_SIZES]; /* of as many leaves */
};

/* Returns the first bin below a node that has room for all sizes of an item, or
 * SIZE_MAX. Such a bin may lack although the node has room for each. */
static size_t find_bin(const struct sizes_state *s, size_t node, uint32_t item)
{
    for (size_t k = 0; k < s->n_sizes; k++)
        if (s->tree[k].too_long[node] <= s->size[k].sizes[item])
            return SIZE_MAX;
    if (node >= s->tree[0].leaves)
        return node - s->tree[0].leaves;
    size_t left = find_bin(s, 2 * node, item);
    return left != SIZE_MAX ? left : find_bin(s, 2 * node + 1, item);
}

static void place_items(struct sizes_state *s, const uint32_t *order,
                        uint32_t *bin_of, size_t *n_bins)
{
    *n_bins = 0;
    for (size_t i = 0; i < s->n; i++) {
        uint32_t item = order[i];
        for (size_t k = 0; k < s->n_sizes && *n_bins == s->tree[k].leaves; k++)
            pp_first_fit_tree_grow(&s->tree[k], s->size[k].capacity);
        size_t bin = find_bin(s, 1, item);
        for (size_t k = 0; k < s->n_sizes; k++)
            pp_first_fit_tree_set(&s->tree[k], bin,
                                  s->tree[k].too_long[bin + s->tree[k].leaves] -
                                      s->size[k].sizes[item]);
        *n_bins += bin == *n_bins;
        bin_of[item] = (uint32_t)bin;
    }
}

/* Packs the items in one order. */
static void pack_in_order(struct sizes_state *s, const uint32_t *order,
                          uint32_t *bin_of, struct pp_bins *out)
{
    size_t n_bins, k = 0;
    *out = (struct pp_bins){0};
    memset(s->tree, 0, sizeof s->tree);
    for (k = 0; k < s->n_sizes; k++)
        pp_first_fit_tree_init(&s->tree[k], 1, s->size[k].capacity);
    place_items(s, order, bin_of, &n_bins);
    pp_bins_make(out, order, bin_of, s->n, n_bins);
    for (k = 0; k < s->n_sizes; k++)
        pp_first_fit_tree_finish(&s->tree[k]);
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

void pp_pack_sizes(const struct pp_pack_size *sizes, size_t n_sizes, size_t n,
                   struct pp_bins *out)
{
    struct sizes_state s = {.size = sizes, .n_sizes = n_sizes, .n = n};
    uint64_t *weight = pp_calloc(n, sizeof *weight);
    struct pp_by_cost *keys = pp_calloc(n, sizeof *keys);
    uint32_t *order = pp_calloc(n, sizeof *order);
    uint32_t *bin_of = pp_calloc(n, sizeof *bin_of);
    *out = (struct pp_bins){0};
    for (int sum = 0; sum < 2; sum++) {
        struct pp_bins bins;
        for (size_t i = 0; i < n; i++)
            weight[i] = weigh_item(&s, i, sum);
        pp_sort_by_cost(weight, n, keys, order);
        pack_in_order(&s, order, bin_of, &bins);
        if ((sum == 0 || bins.n_bins < out->n_bins)) {
            pp_bins_finish(out);
            *out = bins;
        } else {
            pp_bins_finish(&bins);
        }
    }
    free(weight);
    free(keys);
    free(order);
    free(bin_of);
}
