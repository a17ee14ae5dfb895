/* SPDX-License-Identifier: MIT */
/* bound - lower bounds on the number of bins.
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

#include "base/alloc.h"
#include "pack/patterns.h"

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

void pp_pack_lower_bound(const uint32_t *lengths, size_t n, uint32_t capacity,
                         size_t *bound)
{
    struct bound b = {.capacity = capacity, .n = n};
    pp_classes_init(&b.classes, lengths, n);
    b.count = pp_calloc(b.classes.n + 1, sizeof *b.count);
    b.sum = pp_calloc(b.classes.n + 1, sizeof *b.sum);
    *bound = (size_t)best_bound(&b);
    pp_classes_finish(&b.classes);
    free(b.count);
    free(b.sum);
}

void pp_pack_weighted_bound(const struct pp_classes *classes, uint32_t capacity,
                            const uint64_t *weight, size_t *bound)
{
    size_t width = (size_t)capacity + 1;
    uint64_t *heaviest = pp_calloc(width, sizeof *heaviest), total = 0;
    for (size_t c = 0; c < classes->n; c++) {
        uint64_t length = classes->length[c];
        uint64_t left = length ? capacity / length : 0;
        total += weight[c] * classes->count[c];
        left = left < classes->count[c] ? left : classes->count[c];
        for (uint64_t k = 1; left; k *= 2) {
            k = k < left ? k : left;
            left -= k;
            for (size_t at = width; at-- > k * length;) {
                uint64_t with = heaviest[at - k * length] + k * weight[c];
                heaviest[at] = heaviest[at] < with ? with : heaviest[at];
            }
        }
    }
    uint64_t most = heaviest[capacity];
    *bound = most ? (size_t)ceil_div(total, most) : classes->n > 0;
    free(heaviest);
}
