/* SPDX-License-Identifier: MIT */
/* balance - moves items between bins so that the costliest bin costs
 * less. The number of bins stays and none exceeds the capacity.
 *
 * It starts from the best of three: the bins as they are; all items dealt anew;
 * and, since full bins all have the same tokens, the long items dealt by their
 * cost above the lowest price of a token, then each short item to the bin with
 * most room. Dealing takes the costliest item first and puts it into the
 * cheapest bin with room (Graham's rule with a capacity); it fails if bins are
 * nearly full. Then rounds follow. A round pairs the costliest bins with the
 * cheapest. Each pair exchanges an item for another item or for none, or
 * divides all its items anew, whichever lowers the costlier most. The next
 * round pairs them differently. It ends when rounds no longer help. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/heap.h"
#include "pack/rule.h"

/* LONG: items above this part of the capacity are long. PASSED: this many cheap
 * bins without room are passed over before the first bin with room is taken.
 * IDLE_ROUNDS: rounds without gain before the end; with a second size, a bin
 * that is full in both fits to few others, so it meets more of them. WORK:
 * comparisons of two items in all. */
enum {
    LONG = 8,
    PASSED = 32,
    IDLE_ROUNDS = 8,
    IDLE_ROUNDS_OF_TWO = 128,
    WORK = 1 << 27
};

struct balance_state {
    const uint32_t *lengths;
    const uint64_t *cost;
    uint64_t *excess;
    size_t n, n_bins;
    uint32_t capacity;
    const struct pp_pack_size *others; /* n_others further sizes */
    size_t n_others;
    uint32_t *bin_of;
    uint64_t *load;          /* by bin: cost */
    uint64_t *weighed;       /* by bin: weight */
    uint32_t *best;          /* by item: its bin in the best so far */
    uint32_t *space;         /* by bin */
    uint32_t *other_space;   /* by bin, then by further size */
    uint32_t *order;         /* items, costliest first */
    uint32_t *head, *next;   /* items of a bin, plus one; 0 ends the list */
    uint32_t *sorted;        /* bins, costliest first */
    struct pp_by_cost *keys; /* n_bins or n */
    uint64_t enough;         /* see pp_bins_balance */
    size_t work;             /* left */
};

/* Returns the space of a bin in each of the further sizes. */
static uint32_t *other_space(const struct balance_state *s, size_t b)
{
    return s->other_space + b * s->n_others;
}

static void put_item(struct balance_state *s, uint32_t i, uint32_t b)
{
    s->bin_of[i] = b;
    s->load[b] += s->cost[i];
    s->space[b] -= s->lengths[i];
    for (size_t k = 0; k < s->n_others; k++)
        other_space(s, b)[k] -= s->others[k].sizes[i];
}

/* Returns further size k of an item, whose number plus one is `item`; 0 is no
 * item. */
static uint64_t other_size(const struct balance_state *s, size_t k,
                           uint32_t item)
{
    return item ? s->others[k].sizes[item - 1] : 0;
}

static bool has_other_room(const struct balance_state *s, size_t b, uint32_t i)
{
    size_t k = 0;
    while (k < s->n_others && other_space(s, b)[k] >= s->others[k].sizes[i])
        k++;
    return k == s->n_others;
}

static void clear_bins(struct balance_state *s)
{
    memset(s->load, 0, s->n_bins * sizeof *s->load);
    for (size_t b = 0; b < s->n_bins; b++) {
        s->space[b] = s->capacity;
        for (size_t k = 0; k < s->n_others; k++)
            other_space(s, b)[k] = s->others[k].capacity;
    }
}

static uint64_t costliest(const struct balance_state *s)
{
    uint64_t most = 0;
    for (size_t b = 0; b < s->n_bins; b++)
        most = s->load[b] > most ? s->load[b] : most;
    return most;
}

/* Returns the cheapest bin with room among the PASSED cheapest, which then
 * leaves the heap, else the first with room, else SIZE_MAX. */
static size_t choose_cheap_bin(struct balance_state *s, struct pp_heap *h,
                               const struct pp_first_fit_tree *tree, uint32_t i)
{
    uint32_t length = s->lengths[i], passed[PASSED];
    size_t n = 0, found = SIZE_MAX;
    while (h->n && n < PASSED && found == SIZE_MAX) {
        uint32_t b = pp_heap_pop(h);
        if (s->space[b] >= length && has_other_room(s, b, i))
            found = b;
        else
            passed[n++] = b;
    }
    while (n)
        pp_heap_push(h, passed[--n]);
    if (found == SIZE_MAX && tree->too_long[1] > length)
        found = pp_first_fit_tree_first(tree, length);
    return found < s->n_bins && has_other_room(s, found, i) ? found : SIZE_MAX;
}

/* Changes the weights of the bins to their tokens. */
static void weigh_tokens(struct balance_state *s, struct pp_heap *h)
{
    h->n = 0;
    for (size_t b = 0; b < s->n_bins; b++) {
        s->weighed[b] = s->capacity - s->space[b];
        pp_heap_push(h, (uint32_t)b);
    }
}

/* Deals the items by weight; with short_apart, short items by tokens. Returns
 * false if an item has no room. The first items open all bins, so that none
 * stays empty. */
static bool deal_items(struct balance_state *s, const uint64_t *weight,
                       bool short_apart, struct pp_heap *h,
                       struct pp_first_fit_tree *tree)
{
    bool by_tokens = false;
    clear_bins(s);
    memset(s->weighed, 0, s->n_bins * sizeof *s->weighed);
    for (size_t k = 0; k < s->n; k++) {
        uint32_t i = s->order[k];
        if (short_apart && !by_tokens && k >= s->n_bins &&
            s->lengths[i] <= s->capacity / LONG) {
            weigh_tokens(s, h);
            by_tokens = true;
        }
        size_t b = k < s->n_bins ? k : choose_cheap_bin(s, h, tree, i);
        if (b == SIZE_MAX)
            return false;
        put_item(s, i, (uint32_t)b);
        s->weighed[b] += by_tokens ? s->lengths[i] : weight[i];
        pp_first_fit_tree_set(tree, b, s->space[b] + 1);
        uint32_t at = h->position[b];
        if (at < h->n && h->items[at] == b)
            pp_heap_update(h, at);
        else
            pp_heap_push(h, (uint32_t)b);
    }
    return true;
}

/* Deals anew by a weight. Keeps the result if it is better than the best so
 * far. */
static void try_deal(struct balance_state *s, const uint64_t *weight,
                     bool short_apart, uint64_t *least)
{
    struct pp_first_fit_tree tree;
    struct pp_heap h = {.items = pp_calloc(s->n_bins, sizeof *h.items),
                        .before = pp_load_is_less,
                        .ctx = s->weighed,
                        .position = pp_calloc(s->n_bins, sizeof *h.position)};
    pp_first_fit_tree_init(&tree, s->n_bins, s->capacity);
    if (deal_items(s, weight, short_apart, &h, &tree) &&
        costliest(s) < *least) {
        *least = costliest(s);
        memcpy(s->best, s->bin_of, s->n * sizeof *s->best);
    }
    pp_first_fit_tree_finish(&tree);
    free(h.items);
    free(h.position);
}

/* Computes the cost of each item above the lowest price per token. Returns
 * whether any is above 0. */
static bool find_excess(struct balance_state *s)
{
    double price = INFINITY;
    bool some = false;
    for (size_t i = 0; i < s->n; i++)
        if (s->lengths[i])
            price = fmin(price, (double)s->cost[i] / s->lengths[i]);
    for (size_t i = 0; i < s->n; i++) {
        double excess = (double)s->cost[i] - price * s->lengths[i];
        s->excess[i] = s->lengths[i] && excess > 0 ? (uint64_t)excess : 0;
        some |= s->excess[i] > 0;
    }
    return some;
}

/* An exchange of x of the costlier bin for y of the cheaper: items plus one, 0
 * for none. */
struct pair_change {
    uint64_t most; /* cost of the costlier bin after it */
    uint32_t x, y;
};

/* Makes the exchange the best if both bins keep to the capacity and the
 * costlier bin becomes cheaper than with the best so far. */
static void consider_exchange(const struct balance_state *s, uint32_t high,
                              uint32_t low, uint32_t x, uint32_t y,
                              struct pair_change *best)
{
    uint64_t given = s->cost[x - 1], got = y ? s->cost[y - 1] : 0;
    uint64_t out = s->lengths[x - 1], in = y ? s->lengths[y - 1] : 0;
    if (given <= got || s->space[low] + in < out || s->space[high] + out < in)
        return;
    for (size_t k = 0; k < s->n_others; k++) {
        uint64_t leaves = other_size(s, k, x), comes = other_size(s, k, y);
        if (other_space(s, low)[k] + comes < leaves ||
            other_space(s, high)[k] + leaves < comes)
            return;
    }
    uint64_t a = s->load[high] - given + got, b = s->load[low] + given - got;
    a = a > b ? a : b;
    if (a < best->most)
        *best = (struct pair_change){a, x, y};
}

static void find_exchange(struct balance_state *s, uint32_t high, uint32_t low,
                          struct pair_change *best)
{
    for (uint32_t x = s->head[high]; x && s->work; x = s->next[x - 1]) {
        /* A bin keeps its last item. */
        if (s->next[s->head[high] - 1])
            consider_exchange(s, high, low, x, 0, best);
        for (uint32_t y = s->head[low]; y && s->work; y = s->next[y - 1]) {
            consider_exchange(s, high, low, x, y, best);
            s->work--;
        }
    }
}

/* Takes the further sizes of an item from the space of a bin, if there is as
 * much. Returns whether there was. */
static bool take_others(const struct balance_state *s, uint32_t i,
                        uint32_t space[PP_MOST_SIZES])
{
    for (size_t k = 0; k < s->n_others; k++)
        if (space[k] < s->others[k].sizes[i])
            return false;
    for (size_t k = 0; k < s->n_others; k++)
        space[k] -= s->others[k].sizes[i];
    return true;
}

/* Divides the items of both bins: costliest first, each to the cheaper bin with
 * room. Returns the cost of the costlier bin, or UINT64_MAX if an item has no
 * room. Changes the bins only if move is set. The lists are sorted. */
static uint64_t divide_pair(struct balance_state *s, uint32_t high,
                            uint32_t low, bool move)
{
    const uint32_t bin[] = {high, low};
    uint32_t at[] = {s->head[high], s->head[low]};
    uint32_t *end[] = {&s->head[high], &s->head[low]};
    uint64_t load[] = {0, 0}, space[] = {s->capacity, s->capacity};
    uint32_t others[2][PP_MOST_SIZES];
    for (size_t k = 0; k < s->n_others; k++)
        others[0][k] = others[1][k] = s->others[k].capacity;
    while (at[0] || at[1]) {
        int from = !at[0] || (at[1] && s->cost[at[1] - 1] > s->cost[at[0] - 1]);
        uint32_t item = at[from], i = item - 1;
        int to = load[1] < load[0];
        at[from] = s->next[i];
        uint64_t length = s->lengths[i];
        if (space[to] < length || !take_others(s, i, others[to])) {
            to = !to;
            if (space[to] < length || !take_others(s, i, others[to]))
                return UINT64_MAX;
        }
        load[to] += s->cost[i];
        space[to] -= length;
        if (move) {
            s->bin_of[i] = bin[to];
            *end[to] = item;
            end[to] = &s->next[i];
        }
    }
    if (move)
        for (int k = 0; k < 2; k++) {
            *end[k] = 0;
            s->load[bin[k]] = load[k];
            s->space[bin[k]] = (uint32_t)space[k];
            if (s->n_others)
                memcpy(other_space(s, bin[k]), others[k],
                       s->n_others * sizeof *s->other_space);
        }
    return load[0] > load[1] ? load[0] : load[1];
}

static void unlink_item(struct balance_state *s, uint32_t b, uint32_t item)
{
    uint32_t *at = &s->head[b];
    while (*at != item)
        at = &s->next[*at - 1];
    *at = s->next[item - 1];
    s->load[b] -= s->cost[item - 1];
    s->space[b] += s->lengths[item - 1];
    for (size_t k = 0; k < s->n_others; k++)
        other_space(s, b)[k] += s->others[k].sizes[item - 1];
}

/* Inserts an item into the sorted list of a bin. */
static void link_item(struct balance_state *s, uint32_t b, uint32_t item)
{
    uint32_t *at = &s->head[b];
    while (*at && s->cost[*at - 1] > s->cost[item - 1])
        at = &s->next[*at - 1];
    s->next[item - 1] = *at;
    *at = item;
    put_item(s, item - 1, b);
}

static void improve_pair(struct balance_state *s, uint32_t high, uint32_t low)
{
    struct pair_change best = {.most = s->load[high]};
    find_exchange(s, high, low, &best);
    if (divide_pair(s, high, low, false) < best.most)
        divide_pair(s, high, low, true);
    else if (best.x) {
        unlink_item(s, high, best.x);
        if (best.y) {
            unlink_item(s, low, best.y);
            link_item(s, high, best.y);
        }
        link_item(s, low, best.x);
    }
}

/* Returns whether it is enough if no other bin costs more than the costliest,
 * the first that is sorted. One with a single item stays the costliest. */
static bool is_enough(const struct balance_state *s)
{
    uint32_t b = s->sorted[0];
    return s->enough && (s->load[b] <= s->enough || !s->next[s->head[b] - 1]);
}

static void improve_bins(struct balance_state *s)
{
    size_t half = s->n_bins / 2;
    size_t patience = s->n_others ? IDLE_ROUNDS_OF_TWO : IDLE_ROUNDS;
    uint64_t before = costliest(s);
    for (size_t round = 0, idle = 0; half && idle < patience && s->work;
         round++) {
        pp_sort_by_cost(s->load, s->n_bins, s->keys, s->sorted);
        if (is_enough(s))
            break;
        for (size_t k = 0; k < half; k++) {
            size_t partner = s->n_bins - 1 - (k + round) % half;
            uint32_t high = s->sorted[k], low = s->sorted[partner];
            if (s->load[high] > s->load[low])
                improve_pair(s, high, low);
        }
        uint64_t most = costliest(s);
        idle = most < before ? 0 : idle + 1;
        before = most;
    }
}

static void link_all_items(struct balance_state *s)
{
    memset(s->head, 0, s->n_bins * sizeof *s->head);
    for (size_t k = s->n; k-- > 0;) {
        uint32_t i = s->order[k], b = s->bin_of[i];
        s->next[i] = s->head[b];
        s->head[b] = i + 1;
    }
}

static void alloc_balance(struct balance_state *s)
{
    size_t n = s->n, m = s->n_bins;
    s->bin_of = pp_calloc(n, sizeof *s->bin_of);
    s->load = pp_calloc(m, sizeof *s->load);
    s->space = pp_calloc(m, sizeof *s->space);
    s->other_space = pp_calloc(m * s->n_others, sizeof *s->other_space);
    s->order = pp_calloc(n, sizeof *s->order);
    s->head = pp_calloc(m, sizeof *s->head);
    s->next = pp_calloc(n, sizeof *s->next);
    s->sorted = pp_calloc(m, sizeof *s->sorted);
    s->keys = pp_calloc(n > m ? n : m, sizeof *s->keys);
    s->excess = pp_calloc(n, sizeof *s->excess);
    s->weighed = pp_calloc(m, sizeof *s->weighed);
    s->best = pp_calloc(n, sizeof *s->best);
}

static void balance_state(struct balance_state *s, struct pp_bins *b)
{
    struct pp_bins balanced;
    clear_bins(s);
    for (size_t k = 0; k < s->n_bins; k++)
        for (size_t i = b->first[k]; i < b->first[k + 1]; i++)
            put_item(s, b->items[i], (uint32_t)k);
    uint64_t least = costliest(s);
    pp_sort_by_cost(s->cost, s->n, s->keys, s->order);
    memcpy(s->best, s->bin_of, s->n * sizeof *s->best);
    try_deal(s, s->cost, false, &least);
    if (find_excess(s))
        try_deal(s, s->excess, true, &least);
    clear_bins(s);
    for (size_t i = 0; i < s->n; i++)
        put_item(s, (uint32_t)i, s->best[i]);
    link_all_items(s);
    improve_bins(s);
    pp_bins_make(&balanced, s->order, s->bin_of, s->n, s->n_bins);
    pp_bins_finish(b);
    *b = balanced;
}

void pp_bins_balance(struct pp_bins *b, const uint32_t *lengths,
                     const uint64_t *cost, uint32_t capacity,
                     const struct pp_pack_size *others, size_t n_others,
                     uint64_t enough)
{
    struct balance_state s = {.lengths = lengths,
                              .cost = cost,
                              .n = b->n_items,
                              .n_bins = b->n_bins,
                              .capacity = capacity,
                              .others = others,
                              .n_others = n_others,
                              .enough = enough,
                              .work = WORK};
    alloc_balance(&s);
    balance_state(&s, b);
    free(s.excess);
    free(s.weighed);
    free(s.best);
    free(s.bin_of);
    free(s.load);
    free(s.space);
    free(s.other_space);
    free(s.order);
    free(s.head);
    free(s.next);
    free(s.sorted);
    free(s.keys);
}
