/* SPDX-License-Identifier: MIT */
/* order - sequences sorted by length or cost, and classes of equal lengths. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "pack/rule.h"

/* Does one stable pass of a radix sort from in to out, by the bits of mask at
 * shift. in NULL means 0, 1, ... The key is the length; it is complemented if
 * descend is all ones. */
static void sort_pass(const uint32_t *lengths, size_t n, uint32_t descend,
                      unsigned shift, uint32_t mask, uint32_t *count,
                      const uint32_t *in, uint32_t *out)
{
    memset(count, 0, ((size_t)mask + 1) * sizeof *count);
    for (size_t i = 0; i < n; i++)
        count[((lengths[i] ^ descend) >> shift) & mask]++;
    for (uint32_t k = 0, at = 0; k <= mask; k++) {
        uint32_t here = count[k];
        count[k] = at;
        at += here;
    }
    for (size_t k = 0; k < n; k++) {
        uint32_t i = in ? in[k] : (uint32_t)k;
        out[count[((lengths[i] ^ descend) >> shift) & mask]++] = i;
    }
}

static void reverse_order(uint32_t *a, size_t n)
{
    for (size_t i = 0; i < n / 2; i++) {
        uint32_t t = a[i];
        a[i] = a[n - 1 - i];
        a[n - 1 - i] = t;
    }
}

uint32_t *pp_pack_order(const uint32_t *lengths, size_t n, bool higher_first)
{
    enum { BITS = 16 };
    /* The higher index first is an ascending stable sort, read backwards. */
    uint32_t descend = higher_first ? 0 : UINT32_MAX, all = 1;
    for (size_t i = 0; i < n; i++)
        all |= lengths[i];
    /* Use only as many bits as there are: few counts stay in the cache. */
    unsigned bits = 32 - (unsigned)__builtin_clz(all);
    uint32_t mask = (UINT32_C(1) << (bits < BITS ? bits : BITS)) - 1;
    uint32_t *order = pp_calloc(n, sizeof *order);
    uint32_t *count = pp_calloc((size_t)mask + 1, sizeof *count);
    uint32_t *low = bits > BITS ? pp_calloc(n, sizeof *low) : NULL;
    sort_pass(lengths, n, descend, 0, mask, count, NULL, low ? low : order);
    if (low)
        sort_pass(lengths, n, descend, BITS, mask, count, low, order);
    if (higher_first)
        reverse_order(order, n);
    free(low);
    free(count);
    return order;
}

/* Longer lengths are sorted, not counted. */
enum { COUNTED = 1 << 16 };

static void alloc_classes(struct pp_classes *c, size_t n_classes)
{
    c->length = pp_calloc(n_classes, sizeof *c->length);
    c->count = pp_calloc(n_classes, sizeof *c->count);
    c->first = pp_calloc(n_classes + 1, sizeof *c->first);
}

/* Makes the classes from count, the number of sequences of each length up to
 * longest. Afterwards count holds where the next sequence of a length goes. */
static void count_classes(struct pp_classes *c, uint32_t longest,
                          uint32_t *count)
{
    size_t n_classes = 0, at = 0;
    for (uint32_t k = 0; k <= longest; k++)
        n_classes += count[k] != 0;
    alloc_classes(c, n_classes);
    for (uint32_t k = longest + 1; k-- > 0;)
        if (count[k]) {
            c->length[c->n] = k;
            c->count[c->n] = count[k];
            c->first[c->n++] = at;
            count[k] = (uint32_t)at;
            at += c->count[c->n - 1];
        }
    c->first[c->n] = at;
}

static void init_counted(struct pp_classes *c, const uint32_t *lengths,
                         size_t n, uint32_t longest)
{
    uint32_t *count = pp_calloc((size_t)longest + 1, sizeof *count);
    c->order = pp_calloc(n, sizeof *c->order);
    for (size_t i = 0; i < n; i++)
        count[lengths[i]]++;
    count_classes(c, longest, count);
    for (size_t i = 0; i < n; i++)
        c->order[count[lengths[i]]++] = (uint32_t)i;
    free(count);
}

static void init_sorted(struct pp_classes *c, const uint32_t *lengths, size_t n)
{
    c->order = pp_pack_order(lengths, n, false);
    size_t n_classes = 0;
    for (size_t k = 0; k < n; k++)
        n_classes += k == 0 || lengths[c->order[k]] != lengths[c->order[k - 1]];
    alloc_classes(c, n_classes);
    for (size_t k = 0; k < n; k++) {
        uint32_t length = lengths[c->order[k]];
        if (k == 0 || length != c->length[c->n - 1]) {
            c->first[c->n] = k;
            c->length[c->n++] = length;
        }
        c->count[c->n - 1]++;
    }
    c->first[c->n] = n;
}

void pp_classes_init(struct pp_classes *c, const uint32_t *lengths, size_t n)
{
    uint32_t longest = 0;
    *c = (struct pp_classes){0};
    for (size_t i = 0; i < n; i++)
        longest = lengths[i] > longest ? lengths[i] : longest;
    if (longest < COUNTED)
        init_counted(c, lengths, n, longest);
    else
        init_sorted(c, lengths, n);
}

void pp_classes_finish(struct pp_classes *c)
{
    free(c->length);
    free(c->count);
    free(c->first);
    free(c->order);
    memset(c, 0, sizeof *c);
}

static int compare_costs(const void *x, const void *y)
{
    const struct pp_by_cost *a = x, *b = y;
    if (a->cost != b->cost)
        return a->cost > b->cost ? -1 : 1;
    return (a->index > b->index) - (a->index < b->index);
}

void pp_sort_by_cost(const uint64_t *cost, size_t n, struct pp_by_cost *keys,
                     uint32_t *order)
{
    for (size_t i = 0; i < n; i++)
        keys[i] = (struct pp_by_cost){cost[i], (uint32_t)i};
    qsort(keys, n, sizeof *keys, compare_costs);
    for (size_t i = 0; i < n; i++)
        order[i] = keys[i].index;
}
