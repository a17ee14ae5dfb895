/* SPDX-License-Identifier: MIT */
/* pack - the table of packing rules and what they share: sorted lengths, bins,
 * classes of equal lengths, the first-fit tree, and a heap by cost. */
#include "pack/pack.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/num.h"
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

/* Allocates the bins. first[b + 1] is where bin b's next item goes, and ends at
 * the end of bin b. */
static void begin_bins(struct pp_bins *out, const uint32_t *bins, size_t n,
                       size_t n_bins)
{
    *out = (struct pp_bins){.n_bins = n_bins, .n_items = n};
    out->first = pp_calloc(n_bins + 2, sizeof *out->first);
    out->items = pp_calloc(n, sizeof *out->items);
    for (size_t i = 0; i < n; i++)
        out->first[bins[i] + 2]++;
    for (size_t b = 2; b <= n_bins; b++)
        out->first[b] += out->first[b - 1];
}

void pp_bins_make(struct pp_bins *out, const uint32_t *order,
                  const uint32_t *bin_of, size_t n, size_t n_bins)
{
    begin_bins(out, bin_of, n, n_bins);
    for (size_t k = 0; k < n; k++) {
        uint32_t i = order ? order[k] : (uint32_t)k;
        out->items[out->first[bin_of[i] + 1]++] = i;
    }
}

void pp_bins_gather(struct pp_bins *out, const uint32_t *order,
                    const uint32_t *bin_at, size_t n, size_t n_bins)
{
    begin_bins(out, bin_at, n, n_bins);
    for (size_t k = 0; k < n; k++)
        out->items[out->first[bin_at[k] + 1]++] = order[k];
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

void pp_first_fit_tree_init(struct pp_first_fit_tree *t, size_t n,
                            uint32_t capacity)
{
    for (t->leaves = 64; t->leaves < n;)
        t->leaves *= 2;
    t->room = pp_calloc(2 * t->leaves, sizeof *t->room);
    for (size_t i = 1; i < 2 * t->leaves; i++)
        t->room[i] = capacity + 1;
}

static uint32_t larger_of(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

void pp_first_fit_tree_grow(struct pp_first_fit_tree *t, uint32_t capacity)
{
    struct pp_first_fit_tree big;
    pp_first_fit_tree_init(&big, 2 * t->leaves, capacity);
    memcpy(big.room + big.leaves, t->room + t->leaves,
           t->leaves * sizeof *t->room);
    for (size_t i = big.leaves - 1; i > 0; i--)
        big.room[i] = larger_of(big.room[2 * i], big.room[2 * i + 1]);
    free(t->room);
    *t = big;
}

void pp_first_fit_tree_set(struct pp_first_fit_tree *t, size_t bin,
                           uint32_t room)
{
    size_t i = bin + t->leaves;
    t->room[i] = room;
    while (i /= 2) {
        uint32_t top = larger_of(t->room[2 * i], t->room[2 * i + 1]);
        if (t->room[i] == top)
            break;
        t->room[i] = top;
    }
}

void pp_first_fit_tree_finish(struct pp_first_fit_tree *t)
{
    free(t->room);
    memset(t, 0, sizeof *t);
}

static bool cheaper(struct pp_by_cost a, struct pp_by_cost b)
{
    return a.cost != b.cost ? a.cost < b.cost : a.index < b.index;
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

void pp_cost_heap_push(struct pp_cost_heap *h, struct pp_by_cost e)
{
    size_t i = h->n++;
    for (; i > 0 && cheaper(e, h->entries[(i - 1) / 2]); i = (i - 1) / 2)
        h->entries[i] = h->entries[(i - 1) / 2];
    h->entries[i] = e;
}

struct pp_by_cost pp_cost_heap_pop(struct pp_cost_heap *h)
{
    struct pp_by_cost top = h->entries[0], last = h->entries[--h->n];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= h->n)
            break;
        child += child + 1 < h->n &&
                 cheaper(h->entries[child + 1], h->entries[child]);
        if (!cheaper(h->entries[child], last))
            break;
        h->entries[i] = h->entries[child];
        i = child;
    }
    h->entries[i] = last;
    return top;
}

const struct pp_packer pp_packers[] = {
    {"best", "the fewest bins of all rules and searches", .pack = pp_pack_best},
    {"bfd", "best-fit decreasing, in TRL's order", .pack = pp_pack_bfd},
    {"ffd", "first-fit decreasing, in NeMo-RL's order", .pack = pp_pack_ffd},
    {"mffd", "modified first-fit decreasing, NeMo-RL's", .no_empty = true,
     .pack = pp_pack_mffd},
    {"wfd", "worst-fit decreasing, in Automodel's order", .pack = pp_pack_wfd},
    {"fill", "a bin at a time, by a short search", .pack = pp_pack_fill},
    {"first-fit", "in input order, the first bin with room",
     .pack = pp_pack_first_fit},
    {"first-fit-shuffle", "first-fit in NeMo-RL's random order",
     .pack = pp_pack_first_fit_shuffle, .draw = pp_draw_first_fit_shuffle},
    {"next-fit", "in input order, one open bin", .pack = pp_pack_next_fit},
    {"lpt", "longest first to the emptiest of a number of bins",
     .pack = pp_pack_lpt, .divide = pp_parts_lpt},
    {"karmarkar-karp", "equal bins by differencing", .pack = pp_pack_kk,
     .divide = pp_parts_kk},
    {"none", "in input order, a fixed number per bin", .pack = pp_pack_none},
    {0},
};

const struct pp_packer *pp_packer_find(const char *name)
{
    for (const struct pp_packer *p = pp_packers; p->name; p++)
        if (!strcmp(p->name, name))
            return p;
    return NULL;
}

void pp_bins_finish(struct pp_bins *b)
{
    free(b->first);
    free(b->items);
    memset(b, 0, sizeof *b);
}

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
