/* SPDX-License-Identifier: MIT */
/* fit - the rules that take one sequence after the other and keep to the
 * capacity: next-fit, first-fit, best-fit and worst-fit, and "none".
 *
 * Each rule keeps the order of the system that it is named after, so that the
 * bins are the same. It is one file because the rules share one tree and one
 * loop. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/heap.h"
#include "base/mt19937.h"
#include "pack/rule.h"

void pp_first_fit_tree_init(struct pp_first_fit_tree *t, size_t n,
                            uint32_t capacity)
{
    for (t->leaves = 64; t->leaves < n;)
        t->leaves *= 2;
    t->too_long = pp_calloc(2 * t->leaves, sizeof *t->too_long);
    for (size_t i = 1; i < 2 * t->leaves; i++)
        t->too_long[i] = capacity + 1;
}

static uint32_t larger_of(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

void pp_first_fit_tree_grow(struct pp_first_fit_tree *t, uint32_t capacity)
{
    struct pp_first_fit_tree big;
    pp_first_fit_tree_init(&big, 2 * t->leaves, capacity);
    memcpy(big.too_long + big.leaves, t->too_long + t->leaves,
           t->leaves * sizeof *t->too_long);
    for (size_t i = big.leaves - 1; i > 0; i--)
        big.too_long[i] =
            larger_of(big.too_long[2 * i], big.too_long[2 * i + 1]);
    free(t->too_long);
    *t = big;
}

void pp_first_fit_tree_set(struct pp_first_fit_tree *t, size_t bin,
                           uint32_t too_long)
{
    size_t i = bin + t->leaves;
    t->too_long[i] = too_long;
    while (i /= 2) {
        uint32_t top = larger_of(t->too_long[2 * i], t->too_long[2 * i + 1]);
        if (t->too_long[i] == top)
            break;
        t->too_long[i] = top;
    }
}

void pp_first_fit_tree_finish(struct pp_first_fit_tree *t)
{
    free(t->too_long);
    memset(t, 0, sizeof *t);
}

void pp_pack_next_fit(const struct pp_pack_input *in, struct pp_bins *out)
{
    const uint32_t *lengths = in->lengths;
    size_t n = in->n;
    uint32_t *bin_of = pp_calloc(n, sizeof *bin_of);
    size_t n_bins = 0;
    uint64_t load = 0;
    bool gives_up = false;
    *out = (struct pp_bins){0};
    for (size_t i = 0; i < n && !gives_up; i++) {
        load += lengths[i];
        if (i == 0 || load > in->capacity) {
            gives_up = i && pp_waste_budget_spend(
                                in->budget, in->capacity + lengths[i] - load);
            n_bins++;
            load = lengths[i];
        }
        bin_of[i] = (uint32_t)(n_bins - 1);
    }
    if (!gives_up)
        pp_bins_make(out, NULL, bin_of, n, n_bins);
    free(bin_of);
}

void pp_pack_none(const struct pp_pack_input *in, struct pp_bins *out)
{
    uint32_t *bin_of = pp_calloc(in->n, sizeof *bin_of);
    for (size_t i = 0; i < in->n; i++)
        bin_of[i] = (uint32_t)(i / in->capacity);
    size_t n_bins = (in->n + in->capacity - 1) / in->capacity;
    pp_bins_make(out, NULL, bin_of, in->n, n_bins);
    free(bin_of);
}

/* If most is not 0, count[b] is the number of sequences in bin b. */
static void place_first_fit(const struct pp_pack_input *in,
                            const uint32_t *order, uint32_t most,
                            struct pp_first_fit_tree *t, uint32_t *count,
                            uint32_t *bin_of, size_t *n_bins)
{
    for (size_t k = 0; k < in->n; k++) {
        uint32_t i = order ? order[k] : (uint32_t)k;
        if (*n_bins == t->leaves)
            pp_first_fit_tree_grow(t, in->capacity);
        size_t bin = pp_first_fit_tree_first(t, in->lengths[i]);
        uint32_t too_long = t->too_long[bin + t->leaves] - in->lengths[i];
        bool is_full = most && ++count[bin] == most;
        pp_first_fit_tree_set(t, bin, is_full ? 0 : too_long);
        *n_bins += bin == *n_bins;
        bin_of[i] = (uint32_t)bin;
        if (is_full ? pp_waste_budget_spend(in->budget, too_long - 1)
                    : pp_waste_budget_spend_if_full(in->budget, too_long - 1)) {
            *n_bins = SIZE_MAX;
            break;
        }
    }
}

void pp_pack_place_first_fit(const struct pp_pack_input *in,
                             const uint32_t *order, uint32_t most,
                             uint32_t *bin_of, size_t *n_bins)
{
    struct pp_first_fit_tree t = {0};
    uint32_t *count = most ? pp_calloc(in->n, sizeof *count) : NULL;
    *n_bins = 0;
    pp_first_fit_tree_init(&t, 1, in->capacity);
    place_first_fit(in, order, most, &t, count, bin_of, n_bins);
    pp_first_fit_tree_finish(&t);
    free(count);
}

/* order NULL is the order of the input. */
static void first_fit_in_order(const struct pp_pack_input *in,
                               const uint32_t *order, struct pp_bins *out)
{
    size_t n_bins;
    uint32_t *bin_of = pp_calloc(in->n, sizeof *bin_of);
    *out = (struct pp_bins){0};
    pp_pack_place_first_fit(in, order, 0, bin_of, &n_bins);
    if (n_bins != SIZE_MAX)
        pp_bins_make(out, order, bin_of, in->n, n_bins);
    free(bin_of);
}

/* NeMo-RL's order: equal lengths from the higher index down. */
void pp_pack_ffd(const struct pp_pack_input *in, struct pp_bins *out)
{
    uint32_t *order = pp_pack_order(in->lengths, in->n, true);
    first_fit_in_order(in, order, out);
    free(order);
}

void pp_pack_first_fit_shuffle(const struct pp_pack_input *in,
                               struct pp_bins *out)
{
    uint32_t *order = pp_calloc(in->n, sizeof *order);
    for (size_t i = 0; i < in->n; i++)
        order[i] = (uint32_t)i;
    struct pp_mt19937 g;
    pp_mt19937_seed(&g, in->seed);
    pp_mt19937_shuffle(&g, order, in->n);
    first_fit_in_order(in, order, out);
    free(order);
}

void pp_pack_first_fit(const struct pp_pack_input *in, struct pp_bins *out)
{
    first_fit_in_order(in, NULL, out);
}

enum { MAX_LEVELS = 6 }; /* 64^6 > 2^32 */

/* Best-fit decreasing in the order of TRL's "bfd".
 *
 * Lengths descend, and equal lengths are in input order. Each goes to the bin
 * with the smallest space that suffices. Among bins of equal space, it goes to
 * the one that has had this space longest. Spaces are numbers up to the
 * capacity, so open bins are in queues by space. A tree of 64-bit words finds
 * the queues that are not empty: O(log64 capacity) per step. */

/* The set of spaces that some bin has. Bit i of level k + 1 is set if word i of
 * level k is not 0. */
struct spaces {
    uint64_t *level[MAX_LEVELS];
    int n_levels;
};

/* The bins of each space, in the order in which they got it. Numbers are bin
 * plus one; 0 is none. */
struct queues {
    uint32_t *head, *tail; /* by space */
    uint32_t *next;        /* by bin */
};

static void make_spaces(struct spaces *s, size_t n)
{
    *s = (struct spaces){0};
    do {
        n = (n + 63) / 64;
        s->level[s->n_levels++] = pp_calloc(n, sizeof(uint64_t));
    } while (n > 1);
}

static void free_spaces(struct spaces *s)
{
    for (int k = 0; k < s->n_levels; k++)
        free(s->level[k]);
}

static void set_space(struct spaces *s, size_t i)
{
    for (int k = 0; k < s->n_levels; k++, i /= 64)
        s->level[k][i / 64] |= UINT64_C(1) << i % 64;
}

static void clear_space(struct spaces *s, size_t i)
{
    for (int k = 0; k < s->n_levels; k++, i /= 64)
        if (s->level[k][i / 64] &= ~(UINT64_C(1) << i % 64))
            return;
}

/* Returns the smallest space from i on, or SIZE_MAX. */
static size_t find_space(const struct spaces *s, size_t i, size_t n)
{
    for (int k = 0; k < s->n_levels && i < n; k++) {
        uint64_t word = s->level[k][i / 64] >> i % 64;
        if (word) {
            i += (size_t)__builtin_ctzll(word);
            while (k-- > 0)
                i = i * 64 + (size_t)__builtin_ctzll(s->level[k][i]);
            return i;
        }
        i = i / 64 + 1;
        n = (n + 63) / 64;
    }
    return SIZE_MAX;
}

static void append_bin(struct queues *q, struct spaces *s, size_t space,
                       uint32_t bin)
{
    q->next[bin] = 0;
    if (q->head[space])
        q->next[q->tail[space] - 1] = bin + 1;
    else {
        q->head[space] = bin + 1;
        set_space(s, space);
    }
    q->tail[space] = bin + 1;
}

static uint32_t take_bin(struct queues *q, struct spaces *s, size_t space)
{
    uint32_t bin = q->head[space] - 1;
    q->head[space] = q->next[bin];
    if (!q->head[space])
        clear_space(s, space);
    return bin;
}

static uint32_t gcd(uint32_t a, uint32_t b)
{
    while (b) {
        uint32_t t = a % b;
        a = b;
        b = t;
    }
    return a;
}

/* Places m items of one length and puts their bins into bin_at. A bin that took
 * one and has space for another is again the best fit, so the search goes on
 * only if it has no space. */
static void place_class(size_t length, size_t m, size_t n_spaces,
                        struct queues *q, struct spaces *s, uint32_t *bin_at,
                        uint32_t *n_bins)
{
    size_t space = find_space(s, length, n_spaces);
    for (size_t k = 0; k < m; k++) {
        bool opens = space == SIZE_MAX;
        if (opens)
            space = n_spaces - 1;
        bin_at[k] = opens ? (*n_bins)++ : take_bin(q, s, space);
        append_bin(q, s, space - length, bin_at[k]);
        if (space - length >= length)
            space -= length;
        else if (opens)
            space = SIZE_MAX;
        else if (!q->head[space])
            space = find_space(s, space + 1, n_spaces);
    }
}

void pp_pack_bfd(const struct pp_pack_input *in, struct pp_bins *out)
{
    const uint32_t *lengths = in->lengths;
    size_t n = in->n;
    /* Lengths are often aligned. A common divisor as the unit saves queues. */
    uint32_t unit = 0;
    for (size_t i = 0; i < n && unit != 1; i++)
        unit = gcd(lengths[i], unit);
    unit = unit ? unit : 1;
    size_t n_spaces = (size_t)in->capacity / unit + 1;
    struct pp_classes c;
    pp_classes_init(&c, lengths, n);
    uint32_t *bin_at = pp_calloc(n, sizeof *bin_at);
    struct queues q = {
        .head = pp_calloc(n_spaces, sizeof *q.head),
        .tail = pp_calloc(n_spaces, sizeof *q.tail),
        .next = pp_calloc(n, sizeof *q.next),
    };
    struct spaces s;
    make_spaces(&s, n_spaces);
    uint32_t n_bins = 0;
    for (size_t k = 0; k < c.n; k++)
        place_class(c.length[k] / unit, c.count[k], n_spaces, &q, &s,
                    bin_at + c.first[k], &n_bins);
    pp_bins_gather(out, c.order, bin_at, n, n_bins);
    free_spaces(&s);
    free(q.head);
    free(q.tail);
    free(q.next);
    free(bin_at);
    pp_classes_finish(&c);
}

/* Worst-fit decreasing in the order of Automodel's "greedy_knapsack": lengths
 * descend, and equal lengths are in input order. Each goes to the emptiest bin,
 * or to a new one if even that has no space. Among equally empty bins, the
 * lowest number counts. Returns the number of bins, or SIZE_MAX if the budget
 * is spent. */
static size_t place_worst_fit(const struct pp_pack_input *in,
                              const uint32_t *order, struct pp_heap *h,
                              uint64_t *load, uint32_t *bin_of)
{
    size_t n_bins = 0;
    for (size_t k = 0; k < in->n; k++) {
        uint32_t i = order[k], length = in->lengths[i];
        if (h->n && load[h->items[0]] + length <= in->capacity) {
            bin_of[i] = h->items[0];
            load[h->items[0]] += length;
            pp_heap_update(h, 0);
        } else {
            bin_of[i] = (uint32_t)n_bins++;
            load[bin_of[i]] = length;
            pp_heap_push(h, bin_of[i]);
        }
        if (pp_waste_budget_spend_if_full(in->budget,
                                          in->capacity - load[bin_of[i]]))
            return SIZE_MAX;
    }
    return n_bins;
}

void pp_pack_wfd(const struct pp_pack_input *in, struct pp_bins *out)
{
    size_t n = in->n;
    *out = (struct pp_bins){0};
    uint64_t *load = pp_calloc(n, sizeof *load);
    struct pp_heap h = {.items = pp_calloc(n, sizeof *h.items),
                        .before = pp_load_is_less,
                        .ctx = load};
    uint32_t *order = pp_pack_order(in->lengths, n, false);
    uint32_t *bin_of = pp_calloc(n, sizeof *bin_of);
    size_t n_bins = place_worst_fit(in, order, &h, load, bin_of);
    if (n_bins != SIZE_MAX)
        pp_bins_make(out, order, bin_of, n, n_bins);
    free(load);
    free(h.items);
    free(order);
    free(bin_of);
}
