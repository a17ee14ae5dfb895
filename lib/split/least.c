/* SPDX-License-Identifier: MIT */
/* A lower bound of the step for every split, placement and order. */
#include "split/least.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "split/places.h"

const char *const pp_least_rule_names[] = {
    [PP_LEAST_WORK] = "work",
    [PP_LEAST_UNITS] = "whole units",
    [PP_LEAST_UNIT] = "one unit",
};

/* Units of different costs are scaled in turn, and each such that 1, 2, ... of
 * them count as one. */
enum { MAX_SCALES = 1024, MAX_COUNT = 8, N_BISECTIONS = 60 };

/* Units of few different costs are divided in steps that are longer than the
 * last one refused by up to this share: little room to spare saves work. */
#define MORE_PLACES 0.03

struct least {
    const struct pp_split_least *p;
    double *cost;   /* per unit: all work of a microbatch */
    double *before; /* per unit, n_units + 1: forwards of the units before */
    double *after;  /* per unit: gradients of the units before, and the work of
                       the first unit that follows them */
    double *head;   /* per rank, by first unit that takes time: its work begins
                       no earlier */
    double *speed;  /* per rank, the fastest first */
    double *scales; /* n_scales */
    size_t n_scales;
    double total; /* sum of cost */
    double *room; /* scratch, per rank */
    struct pp_places places;
};

static double least_backward(const double t[PP_N_TIMES])
{
    return fmin(t[PP_TIME_B], t[PP_TIME_I] + t[PP_TIME_W]);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

/* Fills the sums over units and ranks. */
static void add_units(struct least *x)
{
    const struct pp_split_least *p = x->p;
    double gradients = 0, message = INFINITY;
    for (size_t r = 0; r < p->n_ranks; r++)
        x->speed[r] = p->speeds ? p->speeds[r] : 1;
    qsort(x->speed, p->n_ranks, sizeof *x->speed, by_size);
    for (size_t i = 0; i < p->n_units; i++) {
        const double *t = p->times[i];
        x->cost[i] = t[PP_TIME_F] + least_backward(t);
        x->total += x->cost[i];
        x->before[i + 1] = x->before[i] + t[PP_TIME_F] / x->speed[0];
        x->after[i] = gradients / x->speed[0];
        gradients +=
            i == 0 ? least_backward(t) : fmin(t[PP_TIME_I], t[PP_TIME_B]);
        if (i + 1 < p->n_units)
            message = fmin(message, p->messages ? p->messages[i] : 0);
    }
    for (size_t r = 0, i = 0; r < p->n_ranks; r++) {
        while (i < p->n_units && x->cost[i] <= 0)
            i++;
        x->head[r] = x->before[i] + (r > 0 ? (double)r * message : 0);
        i += i < p->n_units;
    }
}

/* Sets the scales by which units are counted. */
static void set_scales(struct least *x)
{
    for (size_t i = 0; i < x->p->n_units; i++) {
        bool known = x->cost[i] <= 0;
        for (size_t k = 0; k < i && !known; k++)
            known = x->cost[k] == x->cost[i];
        for (int n = 1; n <= MAX_COUNT && !known; n++)
            if (x->n_scales < MAX_SCALES)
                x->scales[x->n_scales++] = n / x->cost[i];
    }
}

/* --- all ranks --- */

/* Returns the work of a microbatch for which the k-th rank has time in a step.
 */
static double room(const struct least *x, size_t k, double step)
{
    double time = step - x->head[k];
    return time > 0 ? time * x->speed[k] / (double)x->p->n_microbatches : 0;
}

/* Returns true if the ranks together have no time for the work in a step. The
 * fastest rank has the earliest start: no other assignment has more room. */
static bool lacks_room(struct least *x, double step)
{
    double sum = 0;
    for (size_t k = 0; k < x->p->n_ranks; k++)
        sum += room(x, k, step);
    return x->total > sum * (1 + 1e-12);
}

/* Fills the room of each rank for whole units. If speeds differ, no rank is
 * known to start late. */
static void set_rooms(struct least *x, double step)
{
    const struct pp_split_least *p = x->p;
    for (size_t k = 0; k < p->n_ranks; k++)
        x->room[k] = p->speeds ? step * x->speed[k] / (double)p->n_microbatches
                               : room(x, k, step);
}

/* Returns true if units cannot be divided among ranks in a step, by counts. If
 * all costs are multiplied by a scale and rounded down, the sum of a rank is at
 * most its room, likewise multiplied and rounded. */
static bool lacks_counts(struct least *x, double step)
{
    const struct pp_split_least *p = x->p;
    set_rooms(x, step);
    for (size_t n = 0; n < x->n_scales; n++) {
        double units = 0, places = 0, scale = x->scales[n];
        for (size_t i = 0; i < p->n_units; i++)
            units += floor(x->cost[i] * scale * (1 + 1e-12));
        for (size_t k = 0; k < p->n_ranks; k++)
            places += floor(x->room[k] * scale * (1 + 1e-9));
        if (units > places)
            return true;
    }
    return false;
}

/* Returns true if units of few different costs cannot be divided at all. */
static bool lacks_places(struct least *x, double step)
{
    set_rooms(x, step);
    return pp_places_refuse(&x->places, x->room, x->p->n_ranks);
}

/* Returns the largest step found that refuses excludes. low is excluded or
 * 0; every step below an excluded one is excluded too. */
static double largest(struct least *x, double low, double high,
                      bool (*refuses)(struct least *, double))
{
    for (int i = 0; i < N_BISECTIONS && high > low * (1 + 1e-7); i++) {
        double middle = low + (high - low) / 2;
        if (refuses(x, middle))
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* --- one unit --- */

/* Returns the least step in which the rank of a unit does its work. Of m
 * backwards some, perhaps none, run as I and W. Their W may follow the last
 * gradient of the unit, which then passes the units before; so the step is at
 * least that with all work, and that without W but with the time after. */
static double unit_step(const struct least *x, size_t i)
{
    const struct pp_split_least *p = x->p;
    const double *t = p->times[i];
    double m = (double)p->n_microbatches, speed = x->speed[0];
    double longer = t[PP_TIME_I] + t[PP_TIME_W] - t[PP_TIME_B];
    double sooner = t[PP_TIME_B] - t[PP_TIME_I];
    double halves = 0, whole = m * (t[PP_TIME_F] + t[PP_TIME_B]) / speed;
    if (longer < 0 || sooner < 0)
        return x->before[i] + m * x->cost[i] / speed;
    if (longer + sooner > 0)
        halves = fmin(m, x->after[i] * speed / (longer + sooner));
    return x->before[i] + fmax(whole + halves * longer / speed,
                               whole + x->after[i] - halves * sooner / speed);
}

/* Returns the largest step found in which units have no places. */
static double raise_by_places(struct least *x, double low)
{
    for (;;) {
        double high = low * (1 + MORE_PLACES);
        double found = largest(x, low, high, lacks_places);
        if (found < high * (1 - 1e-6))
            return found;
        low = found;
    }
}

static struct pp_least_found find_least(struct least *x)
{
    size_t last = x->p->n_ranks - 1;
    double all = x->total * (double)x->p->n_microbatches / x->speed[last];
    double high = all + x->head[last];
    struct pp_least_found found = {largest(x, 0, high, lacks_room),
                                   PP_LEAST_WORK, 0};
    double whole = largest(x, found.step, high, lacks_counts);
    whole = raise_by_places(x, whole);
    if (whole > found.step)
        found = (struct pp_least_found){whole, PP_LEAST_UNITS, 0};
    for (size_t i = 0; i < x->p->n_units; i++) {
        double alone = unit_step(x, i);
        if (alone > found.step)
            found = (struct pp_least_found){alone, PP_LEAST_UNIT, i};
    }
    return found;
}

struct pp_least_found pp_split_least(const struct pp_split_least *p)
{
    size_t n = p->n_units;
    struct least x = {.p = p,
                      .cost = pp_calloc(n, sizeof *x.cost),
                      .before = pp_calloc(n + 1, sizeof *x.before),
                      .after = pp_calloc(n, sizeof *x.after),
                      .head = pp_calloc(p->n_ranks, sizeof *x.head),
                      .speed = pp_calloc(p->n_ranks, sizeof *x.speed),
                      .scales = pp_calloc(MAX_SCALES, sizeof *x.scales),
                      .room = pp_calloc(p->n_ranks, sizeof *x.room)};
    add_units(&x);
    set_scales(&x);
    pp_places_init(&x.places, x.cost, n);
    const struct pp_least_found found = find_least(&x);
    pp_places_finish(&x.places);
    free(x.room);
    free(x.cost);
    free(x.before);
    free(x.after);
    free(x.head);
    free(x.speed);
    free(x.scales);
    return found;
}
