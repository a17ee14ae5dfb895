/* SPDX-License-Identifier: MIT */
/* A bound for one rank: a machine that may be preempted, with a head and a tail
 * for every action. No order ends before the one that always serves the
 * available action with the longest tail (Jackson's rule).
 *
 * If microbatches are alike, the actions of one kind on one stage have rising
 * heads and falling tails, so each kind is a queue. If they differ, nothing
 * fixes their order: heads and tails come from each microbatch's own data,
 * and the machine needs a heap. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "schedule/bound/parts.h"

struct queue {
    const double *head, *tail;
    double time, left; /* time of each action; time left for the first */
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

/* Returns the queue to serve at time now, or NULL. Sets *arrival to the next
 * time at which the first action of a queue arrives. */
static struct queue *next_queue(struct queue *q, int n, double now,
                                double *arrival)
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
                        int n_stages)
{
    struct queue *q = pp_calloc((size_t)n_stages * PP_BOUND_OPS + 1, sizeof *q);
    int n = fill_queues(c, stages, n_stages, q);
    double now = 0, arrival, bound = 0;
    for (;;) {
        struct queue *best = next_queue(q, n, now, &arrival);
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

/* --- microbatches that differ --- */

struct job {
    double head, tail, left;
};

void pp_bound_own_paths(struct pp_bound_case *c)
{
    size_t n = (size_t)c->data.n * c->n;
    int op, s;
    memset(c->head[0], 0, n * sizeof *c->head[0]);
    memset(c->tail[0], 0, n * sizeof *c->tail[0]);
    for (size_t k = 0; k < c->n; k++) {
        for (int i = 0; i < c->data.n; i++) {
            pp_bound_at(c, i, &op, &s);
            pp_bound_raise_head(c, op, s, k, true);
        }
        for (int i = c->data.n - 1; i >= 0; i--) {
            pp_bound_at(c, i, &op, &s);
            pp_bound_raise_tail(c, op, s, k, true);
        }
    }
}

static int by_head(const void *pa, const void *pb)
{
    const struct job *a = pa, *b = pb;
    return (a->head > b->head) - (a->head < b->head);
}

/* Pushes onto a heap with the longest tail on top. */
static void push(struct job *heap, size_t n, struct job j)
{
    size_t at = n;
    for (; at > 0 && heap[(at - 1) / 2].tail < j.tail; at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = j;
}

static void pop(struct job *heap, size_t n)
{
    struct job last = heap[n - 1];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < n - 1; at = child) {
        if (child + 1 < n - 1 && heap[child + 1].tail > heap[child].tail)
            child++;
        if (heap[child].tail <= last.tail)
            break;
        heap[at] = heap[child];
    }
    heap[at] = last;
}

static double serve_jobs(const struct job *jobs, size_t n, struct job *heap)
{
    double now = 0, bound = 0;
    size_t next = 0, n_heap = 0;
    while (next < n || n_heap > 0) {
        if (n_heap == 0 && jobs[next].head > now)
            now = jobs[next].head;
        for (; next < n && jobs[next].head <= now; next++)
            push(heap, n_heap++, jobs[next]);
        double end = now + heap[0].left;
        if (next < n && jobs[next].head < end) {
            heap[0].left -= jobs[next].head - now;
            now = jobs[next].head;
            continue;
        }
        now = end;
        pp_bound_raise(&bound, now + heap[0].tail);
        pop(heap, n_heap--);
    }
    return bound;
}

/* Sorts jobs by head and serves them. The heap has room for all. */
static double serve_all(struct job *jobs, size_t n, struct job *heap)
{
    qsort(jobs, n, sizeof *jobs, by_head);
    return serve_jobs(jobs, n, heap);
}

/* Returns the least head, tail and time of an action of a stage in all copies,
 * by data alone: the head of the first microbatch and the tail of the last. */
static struct job least_job(const struct pp_bound_case *c, int op, int stage)
{
    struct job least = {INFINITY, INFINITY, INFINITY};
    for (int s = stage; s < c->g->n_stages;
         s += c->g->n_stages / c->g->n_copies) {
        size_t at = (size_t)s * c->n;
        least.head = pp_bound_least(least.head, c->head[op][at]);
        least.tail = pp_bound_least(least.tail, c->tail[op][at + c->n - 1]);
        least.left = pp_bound_least(least.left, c->stages[s].time[op]);
    }
    return least;
}

double pp_bound_shared(const struct pp_bound_case *c, const int *stages,
                       int n_stages, size_t n)
{
    size_t n_jobs = 0, most = (size_t)n_stages * n * PP_BOUND_OPS;
    struct job *jobs = pp_calloc(most + 1, sizeof *jobs);
    struct job *heap = pp_calloc(most + 1, sizeof *heap);
    for (int i = 0; i < n_stages; i++)
        for (int op = 0; op < PP_BOUND_OPS; op++)
            for (size_t k = 0; k < n; k++)
                jobs[n_jobs++] = least_job(c, op, stages[i]);
    double bound = serve_all(jobs, n_jobs, heap);
    free(jobs);
    free(heap);
    return bound;
}

double pp_bound_unequal(const struct pp_bound_case *c, const int *stages,
                        int n_stages)
{
    size_t n = 0, most = (size_t)n_stages * c->n * PP_BOUND_OPS;
    struct job *jobs = pp_calloc(most + 1, sizeof *jobs);
    struct job *heap = pp_calloc(most + 1, sizeof *heap);
    for (int i = 0; i < n_stages; i++)
        for (int op = 0; op < PP_BOUND_OPS; op++)
            for (size_t k = 0; k < c->n; k++) {
                size_t at = (size_t)stages[i] * c->n + k;
                jobs[n++] = (struct job){c->head[op][at], c->tail[op][at],
                                         c->times[op][at]};
            }
    double bound = serve_all(jobs, n, heap);
    free(jobs);
    free(heap);
    return bound;
}
