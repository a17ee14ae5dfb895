/* SPDX-License-Identifier: MIT */
/* A pass over the ranks keeps all states that can be left. What is left must
 * fit into the rooms of the ranks to come, all together, so few states are. */
#include "split/places.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum { MAX_STATES = 1 << 20, MAX_WORK = 1 << 21 };

/* Finds the kinds of units. Returns false if they are too many. */
static bool find_kinds(struct pp_places *x, const double *cost, size_t n_units)
{
    for (size_t i = 0; i < n_units; i++) {
        int k = 0;
        while (k < x->n_kinds && x->cost[k] != cost[i])
            k++;
        if (cost[i] <= 0)
            continue;
        if (k == PP_PLACES_KINDS)
            return false;
        x->n_kinds += k == x->n_kinds;
        x->cost[k] = cost[i];
        x->count[k]++;
    }
    x->n_states = 1;
    for (int k = 0; k < x->n_kinds; k++) {
        x->stride[k] = x->n_states;
        if (x->count[k] >= MAX_STATES / x->n_states)
            return false;
        x->n_states *= x->count[k] + 1;
    }
    return true;
}

void pp_places_init(struct pp_places *x, const double *cost, size_t n_units)
{
    *x = (struct pp_places){.work = MAX_WORK};
    if (!find_kinds(x, cost, n_units)) {
        *x = (struct pp_places){.n_kinds = 0};
        return;
    }
    x->reached = pp_calloc(x->n_states, 1);
    x->next = pp_calloc(x->n_states, 1);
}

void pp_places_finish(struct pp_places *x)
{
    free(x->reached);
    free(x->next);
    *x = (struct pp_places){.n_kinds = 0};
}

/* The choice of a rank, kind by kind. */
struct places_choice {
    double room; /* left on the rank */
    double left; /* cost of the units that no rank has taken */
    double rest; /* room of the ranks to come */
};

/* Takes any units of kind k and the kinds after it from a state. Of the last
 * kind it takes as many as fit: less helps no rank to come. */
static void take(struct pp_places *x, int k, size_t state,
                 struct places_choice c)
{
    size_t units = state / x->stride[k] % (x->count[k] + 1);
    double fit = floor(c.room / x->cost[k]);
    size_t most = fit < (double)units ? (size_t)fit : units;
    x->work--;
    for (size_t n = k == x->n_kinds - 1 ? most : 0; n <= most; n++) {
        double cost = (double)n * x->cost[k];
        size_t left = state - n * x->stride[k];
        struct places_choice now = {c.room - cost, c.left - cost, c.rest};
        if (k < x->n_kinds - 1)
            take(x, k + 1, left, now);
        else if (now.left <= now.rest)
            x->next[left] = 1;
    }
}

static double cost_of(const struct pp_places *x, size_t state)
{
    double sum = 0;
    for (int k = 0; k < x->n_kinds; k++)
        sum += (double)(state / x->stride[k] % (x->count[k] + 1)) * x->cost[k];
    return sum;
}

/* Lets a rank take from every state that was reached. */
static void pass_rank(struct pp_places *x, double room, double rest)
{
    memset(x->next, 0, x->n_states);
    for (size_t s = 0; s < x->n_states && x->work > 0; s++)
        if (x->reached[s])
            take(x, 0, s, (struct places_choice){room, cost_of(x, s), rest});
    unsigned char *reached = x->reached;
    x->reached = x->next;
    x->next = reached;
}

bool pp_places_refuse(struct pp_places *x, const double *room, size_t n_ranks)
{
    double rest = 0;
    if (x->n_kinds == 0)
        return false;
    for (size_t r = 0; r < n_ranks; r++)
        rest += room[r] * (1 + 1e-9);
    memset(x->reached, 0, x->n_states);
    x->reached[x->n_states - 1] = 1;
    for (size_t r = 0; r < n_ranks && x->work > 0; r++) {
        double own = room[r] * (1 + 1e-9);
        rest -= own;
        pass_rank(x, own, rest + 1e-9 * own);
    }
    return x->work > 0 && !x->reached[0];
}
