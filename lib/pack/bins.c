/* SPDX-License-Identifier: MIT */
/* bins - makes bins, and changes them after a rule made them: more bins, so
 * that every rank gets the same number, and another order. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/heap.h"
#include "base/rng.h"
#include "pack/rule.h"

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

bool pp_load_is_less(const void *ctx, uint32_t a, uint32_t b)
{
    const uint64_t *load = ctx;
    return load[a] != load[b] ? load[a] < load[b] : a < b;
}

uint64_t pp_pack_spread(const uint32_t *lengths, const uint32_t *order,
                        size_t n, size_t n_bins, uint64_t *load,
                        uint32_t *scratch, uint32_t *bin_of)
{
    uint64_t most = 0;
    struct pp_heap h = {
        .items = scratch, .before = pp_load_is_less, .ctx = load};
    for (size_t k = 0; k < n; k++) {
        /* The first items open all bins, so that none stays empty. */
        bool opens = k < n_bins;
        uint32_t i = order[k], b = opens ? (uint32_t)k : h.items[0];
        bin_of[i] = b;
        load[b] = opens ? lengths[i] : load[b] + lengths[i];
        most = load[b] > most ? load[b] : most;
        if (opens)
            pp_heap_push(&h, b);
        else
            pp_heap_update(&h, 0);
    }
    return most;
}

/* Longest processing time first: Graham, "Bounds on multiprocessing timing
 * anomalies", SIAM Journal on Applied Mathematics 17, 1969. */
static bool load_is_greater(const void *ctx, uint32_t a, uint32_t b)
{
    const uint64_t *load = ctx;
    return load[a] != load[b] ? load[a] > load[b] : a < b;
}

/* Splits the fullest bin that has several items in two of about equal load,
 * until there are enough bins. Bin b's items are linked from head[b] through
 * next, longest first. Numbers are item plus one; 0 ends a list. */
static void split(const uint32_t *lengths, size_t n_bins, size_t target,
                  uint64_t *load, uint32_t *items, uint32_t *head,
                  uint32_t *next, uint32_t *bin_of)
{
    struct pp_heap h = {.items = items, .before = load_is_greater, .ctx = load};
    for (size_t b = 0; b < n_bins; b++)
        if (next[head[b] - 1])
            pp_heap_push(&h, (uint32_t)b);
    while (n_bins < target) {
        uint32_t part[2] = {pp_heap_pop(&h), (uint32_t)n_bins++};
        uint32_t i = head[part[0]], *end[2] = {&head[part[0]], &head[part[1]]};
        load[part[0]] = load[part[1]] = 0;
        for (uint32_t following; i; i = following) {
            following = next[i - 1];
            int k = load[part[1]] < load[part[0]];
            *end[k] = i;
            end[k] = &next[i - 1];
            load[part[k]] += lengths[i - 1];
            bin_of[i - 1] = part[k];
        }
        *end[0] = *end[1] = 0;
        for (int k = 0; k < 2; k++)
            if (next[head[part[k]] - 1])
                pp_heap_push(&h, part[k]);
    }
}

/* Links the items of every bin, longest first, and adds up the loads. */
static void link_items(const uint32_t *lengths, const uint32_t *order, size_t n,
                       const uint32_t *bin_of, uint32_t *head, uint32_t *next,
                       uint64_t *load)
{
    for (size_t k = n; k-- > 0;) {
        uint32_t i = order[k], b = bin_of[i];
        next[i] = head[b];
        head[b] = i + 1;
        load[b] += lengths[i];
    }
}

static void raise_bins(struct pp_bins *b, const uint32_t *lengths,
                       uint32_t capacity, size_t target)
{
    size_t n = b->n_items;
    uint64_t *load = pp_calloc(target, sizeof *load);
    uint32_t *items = pp_calloc(target, sizeof *items);
    uint32_t *order = pp_pack_order(lengths, n, false);
    uint32_t *bin_of = pp_calloc(n, sizeof *bin_of);
    uint32_t *next = pp_calloc(n, sizeof *next);
    uint32_t *head = pp_calloc(target, sizeof *head);
    if (pp_pack_spread(lengths, order, n, target, load, items, bin_of) >
        capacity) {
        for (size_t k = 0; k < b->n_bins; k++)
            for (size_t i = b->first[k]; i < b->first[k + 1]; i++)
                bin_of[b->items[i]] = (uint32_t)k;
        memset(load, 0, target * sizeof *load);
        link_items(lengths, order, n, bin_of, head, next, load);
        split(lengths, b->n_bins, target, load, items, head, next, bin_of);
    }
    struct pp_bins raised;
    pp_bins_make(&raised, order, bin_of, n, target);
    pp_bins_finish(b);
    *b = raised;
    free(load);
    free(items);
    free(order);
    free(bin_of);
    free(next);
    free(head);
}

/* Computes the number of bins to make. */
static int find_target(const struct pp_bins *b, size_t least, size_t multiple,
                       size_t *target, struct pp_err *err)
{
    size_t n = b->n_bins > least ? b->n_bins : least;
    size_t over = n % multiple, more = over ? multiple - over : 0;
    bool fits =
        !__builtin_add_overflow(n, more, target) && *target <= b->n_items;
    const char *noun = b->noun ? b->noun : "sequences";
    if (!fits && multiple == 1)
        return pp_fail(err, PP_EXIT_INPUT,
                       "at least '%zu' bins need as many %s, but there are %zu",
                       n, noun, b->n_items);
    /* Fewer bins would have enough, if they were larger. */
    bool helps = n > least && b->n_items >= multiple && b->n_items >= least;
    if (!fits)
        return pp_fail(err, PP_EXIT_INPUT,
                       "a multiple of '%zu' bins needs %zu %s, but there are "
                       "%zu%s",
                       multiple, n + more, noun, b->n_items,
                       helps ? "; a larger capacity makes fewer bins" : "");
    return 0;
}

int pp_bins_multiple(struct pp_bins *b, const uint32_t *lengths,
                     uint32_t capacity, size_t least, size_t multiple,
                     struct pp_err *err)
{
    size_t target;
    if (find_target(b, least, multiple, &target, err) != 0)
        return -1;
    if (target != b->n_bins)
        raise_bins(b, lengths, capacity, target);
    return 0;
}

/* Returns the bins by descending number of items; among equals the last is
 * first. */
static uint32_t *order_by_count(const struct pp_bins *b)
{
    uint32_t *count = pp_calloc(b->n_bins, sizeof *count);
    for (size_t k = 0; k < b->n_bins; k++)
        count[k] = (uint32_t)(b->first[k + 1] - b->first[k]);
    uint32_t *order = pp_pack_order(count, b->n_bins, true);
    free(count);
    return order;
}

/* Raises the number of bins to target. Bins in that order give up their last
 * items, one to a new bin each, until they have one left. */
static void pop_items(struct pp_bins *b, const uint32_t *order, size_t target)
{
    uint32_t *bin_of = pp_calloc(b->n_items, sizeof *bin_of);
    struct pp_bins raised;
    for (size_t k = 0; k < b->n_bins; k++)
        for (size_t i = b->first[k]; i < b->first[k + 1]; i++)
            bin_of[b->items[i]] = (uint32_t)k;
    size_t n_bins = b->n_bins;
    for (size_t k = 0; n_bins < target; k++) {
        size_t first = b->first[order[k]], end = b->first[order[k] + 1];
        while (n_bins < target && --end > first)
            bin_of[b->items[end]] = (uint32_t)n_bins++;
    }
    pp_bins_make(&raised, b->items, bin_of, b->n_items, target);
    pp_bins_finish(b);
    *b = raised;
    free(bin_of);
}

/* Returns the bins from the last to the first. */
static uint32_t *order_from_tail(const struct pp_bins *b)
{
    uint32_t *order = pp_calloc(b->n_bins, sizeof *order);
    for (size_t k = 0; k < b->n_bins; k++)
        order[k] = (uint32_t)(b->n_bins - 1 - k);
    return order;
}

static int raise_in_order(struct pp_bins *b, size_t least, size_t multiple,
                          uint32_t *(*order_bins)(const struct pp_bins *),
                          struct pp_err *err)
{
    size_t target;
    if (find_target(b, least, multiple, &target, err) != 0)
        return -1;
    if (target == b->n_bins)
        return 0;
    uint32_t *order = order_bins(b);
    pop_items(b, order, target);
    free(order);
    return 0;
}

int pp_bins_multiple_by_popping(struct pp_bins *b, size_t least,
                                size_t multiple, struct pp_err *err)
{
    return raise_in_order(b, least, multiple, order_by_count, err);
}

int pp_bins_multiple_from_tail(struct pp_bins *b, size_t least, size_t multiple,
                               struct pp_err *err)
{
    return raise_in_order(b, least, multiple, order_from_tail, err);
}

void pp_bins_move(struct pp_bins *b, const uint32_t *place)
{
    uint32_t *bin_of = pp_calloc(b->n_items, sizeof *bin_of);
    struct pp_bins moved;
    for (size_t k = 0; k < b->n_bins; k++)
        for (size_t i = b->first[k]; i < b->first[k + 1]; i++)
            bin_of[b->items[i]] = place[k];
    pp_bins_make(&moved, b->items, bin_of, b->n_items, b->n_bins);
    pp_bins_finish(b);
    *b = moved;
    free(bin_of);
}

void pp_bins_shuffle(struct pp_bins *b, uint64_t seed)
{
    uint64_t key = pp_rng_key(seed, "bins");
    uint32_t *place = pp_calloc(b->n_bins, sizeof *place);
    for (size_t i = 0; i < b->n_bins; i++) {
        size_t j = (size_t)(pp_rng_uniform(key, i) * (double)(i + 1));
        place[i] = place[j];
        place[j] = (uint32_t)i;
    }
    pp_bins_move(b, place);
    free(place);
}

/* The order of bins over steps, microbatches and data-parallel ranks.
 *
 * A step ends when the slowest data-parallel rank does, so bins of about equal
 * cost run at the same time. Bins sorted by cost are cut into rounds of one bin
 * per data-parallel rank. Rounds are dealt forwards and backwards in turn, so
 * that the ranks' sums become equal. Rounds are dealt over the steps likewise,
 * so that every step has cheap and costly ones. Cheap rounds are at both ends
 * of a step: there the pipeline fills and drains, and every rank waits for them
 * in turn. verl orders its micro-batches like that. */

/* Returns the place of the kth of n rounds, sorted by descending cost: even k
 * go backwards, then odd k follow. */
static size_t place_in_step(size_t k, size_t n)
{
    size_t n_even = (n + 1) / 2;
    return k % 2 ? n_even + k / 2 : n_even - 1 - k / 2;
}

/* Returns which of n hands gets the kth card when dealing back and forth. */
static size_t hand(size_t k, size_t n)
{
    size_t at = k % n;
    return k / n % 2 ? n - 1 - at : at;
}

void pp_bins_deal(struct pp_bins *b, const uint64_t *cost, size_t dp,
                  size_t per_step)
{
    size_t n = b->n_bins, steps = per_step ? n / per_step : 0;
    size_t rounds = per_step / dp; /* rounds in a step */
    uint64_t *load = pp_calloc(n, sizeof *load);
    struct pp_by_cost *keys = pp_calloc(n, sizeof *keys);
    uint32_t *sorted = pp_calloc(n, sizeof *sorted);
    uint32_t *place = pp_calloc(n, sizeof *place);
    for (size_t k = 0; k < n; k++)
        for (size_t i = b->first[k]; i < b->first[k + 1]; i++)
            load[k] += cost[b->items[i]];
    pp_sort_by_cost(load, n, keys, sorted);
    for (size_t k = 0; k < steps * per_step; k++) {
        size_t round = k / dp, step = hand(round, steps);
        size_t at = place_in_step(round / steps, rounds);
        size_t rank = round / steps % 2 ? dp - 1 - k % dp : k % dp;
        place[sorted[k]] = (uint32_t)(step * per_step + at * dp + rank);
    }
    pp_bins_move(b, place);
    free(load);
    free(keys);
    free(sorted);
    free(place);
}
