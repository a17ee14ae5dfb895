/* SPDX-License-Identifier: MIT */
/* A rank by itself: a machine that may be preempted, with a head and a tail for
 * every action. Whatever the order, it takes no less than serving, at every
 * moment, the available action with the longest tail (Jackson's rule). The
 * actions of one kind on one stage come with rising heads and falling tails, so
 * each kind is a queue that is served from its front. */
#include <math.h>
#include <stdlib.h>

#include "schedule/bound/bound_parts.h"

struct queue {
    const double *head, *tail;
    double time, left; /* of an action; of the one in front */
    size_t n;          /* not served yet */
};

static int fill_queues(const struct pp_bound_case *c, const int *stages,
                       int n_stages, struct queue *q)
{
    int n = 0;
    for (int i = 0; i < n_stages; i++)
        for (int op = 0; op < PP_BOUND_OPS; op++) {
            double time = c->stages[stages[i]].time[op];
            size_t at = (size_t)stages[i] * c->n;
            if (time > 0)
                q[n++] = (struct queue){&c->head[op][at], &c->tail[op][at],
                                        time, time, c->n};
        }
    return n;
}

/* The queue to serve at time now, and the next time that a front arrives. */
static struct queue *choose(struct queue *q, int n, double now, double *arrival)
{
    struct queue *best = NULL;
    *arrival = INFINITY;
    for (int i = 0; i < n; i++) {
        if (q[i].n == 0)
            continue;
        if (*q[i].head > now)
            *arrival = *q[i].head < *arrival ? *q[i].head : *arrival;
        else if (!best || *q[i].tail > *best->tail)
            best = &q[i];
    }
    return best;
}

double pp_bound_machine(const struct pp_bound_case *c, const int *stages,
                        int n_stages, struct pp_err *err)
{
    struct queue *q = calloc((size_t)n_stages * PP_BOUND_OPS + 1, sizeof *q);
    if (!q) {
        pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
        return -1;
    }
    int n = fill_queues(c, stages, n_stages, q);
    double now = 0, arrival, bound = 0;
    for (;;) {
        struct queue *best = choose(q, n, now, &arrival);
        if (!best && arrival == INFINITY)
            break;
        if (!best) {
            now = arrival;
            continue;
        }
        if (now + best->left > arrival) {
            best->left -= arrival - now;
            now = arrival;
            continue;
        }
        now += best->left;
        bound = now + *best->tail > bound ? now + *best->tail : bound;
        best->left = best->time;
        best->head++;
        best->tail++;
        best->n--;
    }
    free(q);
    return bound;
}
