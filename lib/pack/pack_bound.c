/* SPDX-License-Identifier: MIT */
/* pack_bound - lower bounds on the number of bins, and a search that decides
 * whether sequences fit into a given number of bins.
 *
 * Martello and Toth, "Lower bounds and reduction procedures for the bin packing
 * problem", Discrete Applied Mathematics 28, 1990: the bound L2. Take a
 * threshold a and the capacity C. Items above C - a share no bin with an item
 * of size a or more. Items above C/2 share no bin with each other. Items of [a,
 * C/2] first fill the space left by the second kind, then bins of their own.
 * Only values of a that are item lengths matter, so one sweep over sorted items
 * finds the best.
 *
 * A dual feasible function maps lengths so that items that fit into a bin still
 * fit; the sum of the mapped lengths is a bound. Fekete and Schepers, "New
 * classes of fast lower bounds for bin packing problems", Mathematical
 * Programming 91, 2001: u(k) maps a share x of a bin to floor((k + 1) x) / k if
 * (k + 1) x is not whole. Before that the sweep rounds items above C - a to a
 * whole bin, and items below a to nothing. Carlier, Clautiaux and Moukrim, "New
 * reduction procedures and lower bounds for the two-dimensional bin packing
 * problem with fixed orientation", Computers & Operations Research 34, 2007:
 * lengths are in units of a. Lengths below half a bin are rounded down; for
 * longer ones, the space that they leave is rounded down. */
#include <stdlib.h>

#include "pack/pack_rule.h"

/* MOST_K: the largest k of u(k). MOST_UNITS and WORK: how many units a the last
 * bound tries, and how much work it may do in all. */
enum { MOST_K = 16, MOST_UNITS = 128, WORK = 1 << 22 };

struct bound {
    struct pp_classes classes;
    uint64_t capacity;
    size_t n;
    uint64_t *count, *sum; /* count and sum of the first k classes */
};

static uint64_t ceil_div(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

/* Returns the bound L2. Items of classes [0, big) are above C/2. */
static uint64_t sweep_l2(const struct bound *b)
{
    const uint32_t *length = b->classes.length;
    uint64_t capacity = b->capacity;
    size_t big = 0;
    while (big < b->classes.n && 2 * (uint64_t)length[big] > capacity)
        big++;
    uint64_t n_big = b->count[big], best = n_big;
    size_t alone = big; /* classes above capacity - a: fewer as a falls */
    for (size_t k = big; k < b->classes.n; k++) {
        while (alone > 0 && length[alone - 1] <= capacity - length[k])
            alone--;
        uint64_t n_alone = b->count[alone];
        uint64_t small = b->sum[k + 1] - b->sum[big];
        uint64_t left =
            (n_big - n_alone) * capacity - (b->sum[big] - b->sum[alone]);
        uint64_t more = small > left ? small - left : 0;
        uint64_t bound = n_big + ceil_div(more, capacity);
        best = bound > best ? bound : best;
    }
    return best;
}

/* Sums the lengths as u(k) maps them. A whole bin maps to k times the
 * capacity. */
static void sum_rounded(struct bound *b, uint64_t k)
{
    for (size_t c = 0; c < b->classes.n; c++) {
        uint64_t length = b->classes.length[c], times = (k + 1) * length;
        uint64_t part = times % b->capacity ? times / b->capacity * b->capacity
                                            : length * k;
        b->sum[c + 1] = b->sum[c] + part * b->classes.count[c];
    }
}

static uint64_t sweep_rounded(const struct bound *b, uint64_t whole)
{
    const uint32_t *length = b->classes.length;
    uint64_t best = 0;
    size_t alone = b->classes.n;
    for (size_t k = 0; k < b->classes.n; k++) {
        if (2 * (uint64_t)length[k] > b->capacity)
            continue;
        while (alone > 0 && length[alone - 1] <= b->capacity - length[k])
            alone--;
        uint64_t bound =
            b->count[alone] + ceil_div(b->sum[k + 1] - b->sum[alone], whole);
        best = bound > best ? bound : best;
    }
    return best;
}

/* Returns the bound in units of a. Lengths are doubled, so that half a bin is a
 * whole number. */
static uint64_t bound_by_unit(const struct bound *b, uint64_t a)
{
    uint64_t units = b->capacity / a, sum = 0;
    for (size_t c = 0; c < b->classes.n; c++) {
        uint64_t length = b->classes.length[c], part;
        if (2 * length > b->capacity)
            part = 2 * (units - (b->capacity - length) / a);
        else
            part = 2 * length == b->capacity ? units : 2 * (length / a);
        sum += part * b->classes.count[c];
    }
    return ceil_div(sum, 2 * units);
}

static uint64_t best_by_unit(const struct bound *b)
{
    uint64_t best = 0;
    size_t n = b->classes.n, first = 0, most = WORK / (n + 1);
    most = most > MOST_UNITS ? MOST_UNITS : most;
    while (first < n && 2 * (uint64_t)b->classes.length[first] > b->capacity)
        first++;
    size_t step = most ? (n - first) / most + 1 : n;
    for (size_t c = first; c < n; c += step)
        if (b->classes.length[c]) {
            uint64_t bound = bound_by_unit(b, b->classes.length[c]);
            best = bound > best ? bound : best;
        }
    return best;
}

static uint64_t best_bound(struct bound *b)
{
    for (size_t c = 0; c < b->classes.n; c++) {
        uint64_t count = b->classes.count[c];
        b->count[c + 1] = b->count[c] + count;
        b->sum[c + 1] = b->sum[c] + count * b->classes.length[c];
    }
    uint64_t best = sweep_l2(b), bound = best_by_unit(b), limit;
    best = bound > best ? bound : best;
    for (uint64_t k = 2; k <= MOST_K; k++) {
        if (__builtin_mul_overflow(b->n, k * b->capacity, &limit))
            break;
        sum_rounded(b, k);
        bound = sweep_rounded(b, k * b->capacity);
        best = bound > best ? bound : best;
    }
    /* Items of length 0 need a bin too. */
    return b->n && !best ? 1 : best;
}

int pp_pack_lower_bound(const uint32_t *lengths, size_t n, uint32_t capacity,
                        size_t *bound, struct pp_err *err)
{
    struct bound b = {.capacity = capacity, .n = n};
    if (pp_classes_init(&b.classes, lengths, n, err) != 0)
        return -1;
    b.count = pp_pack_alloc(b.classes.n + 1, sizeof *b.count, err);
    b.sum = pp_pack_alloc(b.classes.n + 1, sizeof *b.sum, err);
    int rc = b.count && b.sum ? 0 : -1;
    if (rc == 0)
        *bound = (size_t)best_bound(&b);
    pp_classes_finish(&b.classes);
    free(b.count);
    free(b.sum);
    return rc;
}

/* The search is bin completion: Korf, "A new algorithm for optimal bin
 * packing", AAAI 2002. The longest sequence left opens a bin. The bin is
 * completed in every way that leaves no room for another sequence, since adding
 * one never hurts. The empty space of all bins is limited: it is the number of
 * bins times the capacity, minus all lengths. Equal lengths are one class, so
 * that a completion is tried once. */

/* A choice: one sequence of the class goes into the open bin. */
struct bin_choice {
    uint32_t class;
    bool opens; /* it is the first of its bin */
};

struct completion_search {
    struct pp_classes classes;
    uint32_t *left;            /* by class: sequences left */
    struct bin_choice *chosen; /* one for each sequence, in order */
    size_t n_chosen, n;
    uint64_t steps; /* left */
    uint64_t spare; /* space that bins may still leave empty */
    uint32_t capacity;
};

/* Returns the longest class from c on that has sequences left and fits. */
static size_t next_left_class(struct completion_search *s, size_t c,
                              uint64_t space)
{
    if (c < s->classes.n && s->classes.length[c] > space)
        c = pp_classes_within(&s->classes, c, space);
    for (; c < s->classes.n && !s->left[c]; c++)
        s->steps -= s->steps > 0;
    return c;
}

/* Returns whether some sequence left fits: then the bin is not complete. */
static bool fits_more(struct completion_search *s, uint64_t space)
{
    for (size_t c = s->classes.n; c-- > 0; s->steps -= s->steps > 0)
        if (s->left[c])
            return s->classes.length[c] <= space;
    return false;
}

static void choose_class(struct completion_search *s, size_t c, bool opens)
{
    s->chosen[s->n_chosen++] = (struct bin_choice){(uint32_t)c, opens};
    s->left[c]--;
}

/* Undoes choices up to one that can be exchanged for a shorter one in its bin.
 * *c is the class to try next, and *space the space of that bin. Returns false
 * if there is no such choice. */
static bool undo_choice(struct completion_search *s, size_t *c, uint64_t *space)
{
    while (s->n_chosen > 0) {
        struct bin_choice last = s->chosen[--s->n_chosen];
        s->left[last.class]++;
        *space += s->classes.length[last.class];
        if (!last.opens) {
            *c = last.class + 1;
            return true;
        }
        /* The previous bin is open again, with the space that it had left. */
        *space = 0;
        if (s->n_chosen == 0)
            return false;
        uint64_t load = 0;
        for (size_t k = s->n_chosen; k-- > 0;) {
            load += s->classes.length[s->chosen[k].class];
            if (s->chosen[k].opens)
                break;
        }
        *space = s->capacity - load;
        s->spare += *space;
    }
    return false;
}

static enum pp_pack_answer run_search(struct completion_search *s)
{
    uint64_t space = 0;
    size_t c = 0;
    bool closed = true; /* the open bin is complete, or there is none yet */
    while (s->n_chosen < s->n || !closed) {
        if (s->steps == 0)
            return PP_PACK_UNKNOWN;
        s->steps--;
        if (closed) {
            c = next_left_class(s, 0, s->capacity);
            choose_class(s, c, true);
            space = s->capacity - s->classes.length[c];
            closed = false;
        } else if ((c = next_left_class(s, c, space)) < s->classes.n) {
            choose_class(s, c, false);
            space -= s->classes.length[c];
        } else if (space <= s->spare && !fits_more(s, space)) {
            s->spare -= space;
            closed = true;
        } else if (!undo_choice(s, &c, &space))
            return PP_PACK_IMPOSSIBLE;
    }
    return PP_PACK_FOUND;
}

static int init_search(struct completion_search *s, const uint32_t *lengths,
                       struct pp_err *err)
{
    if (pp_classes_init(&s->classes, lengths, s->n, err) != 0)
        return -1;
    s->left = pp_pack_alloc(s->classes.n, sizeof *s->left, err);
    s->chosen = pp_pack_alloc(s->n, sizeof *s->chosen, err);
    if (!s->left || !s->chosen)
        return -1;
    for (size_t c = 0; c < s->classes.n; c++)
        s->left[c] = s->classes.count[c];
    return 0;
}

/* Makes the bins of the choices; sequences of a class are in their order. */
static int make_found_bins(const struct completion_search *s,
                           struct pp_bins *out, struct pp_err *err)
{
    int rc = -1;
    uint32_t *bin_of = pp_pack_alloc(s->n, sizeof *bin_of, err);
    size_t *next = pp_pack_alloc(s->classes.n, sizeof *next, err);
    uint32_t *placed = pp_pack_alloc(s->n, sizeof *placed, err);
    if (bin_of && next && placed) {
        for (size_t c = 0; c < s->classes.n; c++)
            next[c] = s->classes.first[c];
        size_t n_bins = 0;
        for (size_t k = 0; k < s->n; k++) {
            n_bins += s->chosen[k].opens;
            placed[k] = s->classes.order[next[s->chosen[k].class]++];
            bin_of[placed[k]] = (uint32_t)(n_bins - 1);
        }
        rc = pp_bins_make(out, placed, bin_of, s->n, n_bins, err);
    }
    free(bin_of);
    free(next);
    free(placed);
    return rc;
}

int pp_pack_search(const uint32_t *lengths, size_t n, uint32_t capacity,
                   size_t n_bins, enum pp_pack_answer *answer,
                   struct pp_bins *out, struct pp_err *err)
{
    enum { STEPS = 10000000 };
    uint64_t total = 0;
    for (size_t i = 0; i < n; i++)
        total += lengths[i];
    uint64_t room = (uint64_t)n_bins * capacity;
    *answer =
        room < total || (n && !n_bins) ? PP_PACK_IMPOSSIBLE : PP_PACK_UNKNOWN;
    if (*answer == PP_PACK_IMPOSSIBLE)
        return 0;
    struct completion_search s = {
        .n = n, .capacity = capacity, .steps = STEPS, .spare = room - total};
    int rc = init_search(&s, lengths, err);
    if (rc == 0) {
        *answer = run_search(&s);
        if (*answer == PP_PACK_FOUND && out)
            rc = make_found_bins(&s, out, err);
    }
    pp_classes_finish(&s.classes);
    free(s.left);
    free(s.chosen);
    return rc;
}
