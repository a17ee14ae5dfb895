/* SPDX-License-Identifier: MIT */
/* Longest paths from the start (heads) and to the end (tails) of the event
 * graph. Its edges are data, the order of microbatches, the work that a rank
 * must have done before or must still do, and memory.
 *
 * Memory bounds heads: when F(s,k) starts, s and the stages before it on its
 * rank have begun k + 1 microbatches each, so enough must have been freed.
 * Nothing is freed before its head; the least time by which the heads allow
 * enough is a head for F. Memory bounds tails: while I(s,j) runs, the same
 * stages hold every microbatch from j on that they have begun, so all forwards
 * that do not fit beside it are still to come. */
#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "schedule/bound/parts.h"

enum { STREAMS = 2 * (PP_BOUND_ABOVE + 1) };

/* Events of one kind on one stage, in order. Each frees amount; for tails each
 * takes it. */
struct stream {
    int op, stage;
    double amount;
    size_t next;
};

/* The memory that a stage waits for. */
struct watch {
    struct stream streams[STREAMS];
    int n;
    double each;  /* memory of one more microbatch on all the stages */
    double moved; /* memory freed or taken by the events passed so far */
    double time;  /* time of the last of these events */
};

struct events {
    struct pp_bound_case *c;
    struct watch *forward;  /* per stage: memory for F */
    struct watch *backward; /* per stage: forwards that must follow I */
    struct watch *weight;   /* per stage: forwards that must follow W */
    struct pp_bound_sets *sets;
};

static void add_stream(struct watch *w, int op, int stage, double amount,
                       size_t next)
{
    if (amount > 0)
        w->streams[w->n++] = (struct stream){op, stage, amount, next};
}

static void watch_stage(struct events *e, int of, int stage)
{
    struct pp_load l = e->c->stages[stage].load;
    struct watch *ahead = &e->forward[of], *back = &e->backward[of];
    bool gains = l.i_to_w > l.f_to_i; /* I frees nothing on balance */
    ahead->each += pp_bound_held(l);
    add_stream(ahead, PP_BOUND_I, stage, gains ? 0 : l.f_to_i - l.i_to_w, 0);
    add_stream(ahead, PP_BOUND_W, stage,
               l.f_to_w + (gains ? l.f_to_i : l.i_to_w), 0);
    back->each += pp_bound_held(l);
    add_stream(back, PP_BOUND_F, stage, pp_bound_held(l), e->c->n);
}

static void watch_all(struct events *e)
{
    const struct pp_bound_case *c = e->c;
    size_t n = (size_t)c->g->n_stages;
    if (!c->limit)
        return;
    e->forward = pp_calloc(n, sizeof *e->forward);
    e->backward = pp_calloc(n, sizeof *e->backward);
    e->weight = pp_calloc(n, sizeof *e->weight);
    e->sets = pp_bound_sets_create(c);
    for (int s = 0; s < c->g->n_stages; s++) {
        const struct pp_bound_stage *stage = &c->stages[s];
        double kept = pp_bound_kept(stage->load);
        watch_stage(e, s, s);
        for (int i = 0; i < stage->n_above; i++)
            watch_stage(e, s, stage->above[i]);
        e->weight[s].each = kept;
        add_stream(&e->weight[s], PP_BOUND_F, s, kept, c->n);
    }
}

/* Passes ends of I and W before microbatch k, the earliest first, until k + 1
 * forwards fit. Raises *head to the last of them. */
static int make_room(const struct events *e, int s, size_t k, double *head,
                     struct pp_err *err)
{
    const struct pp_bound_case *c = e->c;
    struct watch *w = &e->forward[s];
    double limit = c->limit[c->g->stages[s].row] * (1 + 1e-12);
    while ((double)(k + 1) * w->each - w->moved > limit) {
        struct stream *first = NULL;
        double time = 0;
        for (int i = 0; i < w->n; i++) {
            struct stream *t = &w->streams[i];
            if (t->next >= k)
                continue;
            double end = c->head[t->op][(size_t)t->stage * c->n + t->next] +
                         c->stages[t->stage].time[t->op];
            if (!first || end < time) {
                first = t;
                time = end;
            }
        }
        if (!first)
            return pp_fail(err, PP_EXIT_NO,
                           "rank %d cannot hold one microbatch of stage %d",
                           c->g->stages[s].row, s);
        first->next++;
        w->moved += first->amount;
        pp_bound_raise(&w->time, time);
    }
    pp_bound_raise(head, w->time);
    return 0;
}

/* Passes forwards after microbatch j, the last one first, until the rest fits
 * beside it. All that were passed run after it; raises *tail accordingly. */
static void leave_room(const struct events *e, struct watch *w, int s, size_t j,
                       double *tail)
{
    const struct pp_bound_case *c = e->c;
    double limit = c->limit[c->g->stages[s].row] * (1 + 1e-12);
    while ((double)(c->n - j) * w->each - w->moved > limit) {
        struct stream *first = NULL;
        double time = 0;
        for (int i = 0; i < w->n; i++) {
            struct stream *t = &w->streams[i];
            if (t->next <= j + 1)
                continue;
            double after =
                c->tail[PP_BOUND_F][(size_t)t->stage * c->n + t->next - 1] +
                c->stages[t->stage].time[PP_BOUND_F];
            if (!first || after < time) {
                first = t;
                time = after;
            }
        }
        if (!first)
            break;
        first->next--;
        w->moved += first->amount;
        pp_bound_raise(&w->time, time);
    }
    pp_bound_raise(tail, w->time);
}

/* Raises op's head for microbatch k by order and the rank's own work. */
static void raise_head(const struct pp_bound_case *c, int s, int op, size_t k,
                       double *head)
{
    const struct pp_bound_stage *stage = &c->stages[s];
    const double *own = &c->head[op][(size_t)s * c->n + k];
    if (k > 0)
        pp_bound_raise(head, own[-1] + stage->time[op]);
    pp_bound_raise(head, c->row_head[c->g->stages[s].row] +
                             (double)(k + 1) * stage->before[op] -
                             stage->time[op]);
}

/* Raises the head by the work that the rank must have run before. */
static void raise_head_by_set(const struct events *e, int s, int op, size_t k)
{
    const struct pp_bound_case *c = e->c;
    if (c->limit)
        pp_bound_raise(&c->head[op][(size_t)s * c->n + k],
                       pp_bound_set_head(e->sets, s, op, k));
}

static int heads_of(struct events *e, size_t k, struct pp_err *err)
{
    const struct pp_bound_case *c = e->c;
    for (int32_t i = 0; i < c->data.n; i++) {
        int op, s;
        pp_bound_at(c, i, &op, &s);
        double *head = &c->head[op][(size_t)s * c->n + k];
        pp_bound_raise_head(c, op, s, k, false);
        raise_head(c, s, op, k, head);
        if (c->limit && op == PP_BOUND_F && make_room(e, s, k, head, err))
            return -1;
        raise_head_by_set(e, s, op, k);
    }
    return 0;
}

static void raise_tail(const struct pp_bound_case *c, int s, int op, size_t k,
                       double *tail)
{
    const struct pp_bound_stage *stage = &c->stages[s];
    const double *own = &c->tail[op][(size_t)s * c->n + k];
    if (k + 1 < c->n)
        pp_bound_raise(tail, own[1] + stage->time[op]);
    pp_bound_raise(tail, c->row_tail[c->g->stages[s].row] +
                             (double)(c->n - k) * stage->after[op] -
                             stage->time[op]);
}

static void raise_tail_by_set(const struct events *e, int s, int op, size_t k)
{
    const struct pp_bound_case *c = e->c;
    if (c->limit)
        pp_bound_raise(&c->tail[op][(size_t)s * c->n + k],
                       pp_bound_set_tail(e->sets, s, op, k));
}

static void tails_of(struct events *e, size_t k)
{
    const struct pp_bound_case *c = e->c;
    for (int32_t i = c->data.n - 1; i >= 0; i--) {
        int op, s;
        pp_bound_at(c, i, &op, &s);
        double *tail = &c->tail[op][(size_t)s * c->n + k];
        pp_bound_raise_tail(c, op, s, k, false);
        raise_tail(c, s, op, k, tail);
        if (c->limit && op != PP_BOUND_F)
            leave_room(e, op == PP_BOUND_I ? &e->backward[s] : &e->weight[s], s,
                       k, tail);
        raise_tail_by_set(e, s, op, k);
    }
}

/* Returns the tail, by data alone, of a stage's last action that takes time. */
static double last_tail(const struct pp_bound_case *c, int s)
{
    int op = PP_BOUND_W;
    while (op > PP_BOUND_F && c->stages[s].time[op] == 0)
        op--;
    return c->tail[op][(size_t)s * c->n + c->n - 1];
}

/* Fills the least head and the least last tail of each rank, by data alone. */
static void find_row_ends(struct pp_bound_case *c)
{
    const struct pp_graph *g = c->g;
    for (int r = 0; r < g->n_rows; r++)
        c->row_head[r] = c->row_tail[r] = -1;
    for (int s = 0; s < g->n_stages; s++) {
        double head = c->head[PP_BOUND_F][(size_t)s * c->n];
        double tail = last_tail(c, s);
        double *at_head = &c->row_head[g->stages[s].row];
        double *at_tail = &c->row_tail[g->stages[s].row];
        *at_head = *at_head < 0 || head < *at_head ? head : *at_head;
        *at_tail = *at_tail < 0 || tail < *at_tail ? tail : *at_tail;
    }
}

static double path_through(const struct pp_bound_case *c, int copy)
{
    double path = 0;
    for (int s = 0; s < c->g->n_stages; s++)
        if (pp_copy_number(c->g, s) == copy)
            pp_bound_raise(
                &path, c->head[PP_BOUND_F][(size_t)s * c->n] +
                           c->stages[s].time[PP_BOUND_F] +
                           c->tail[PP_BOUND_F][(size_t)s * c->n + c->n - 1]);
    return path;
}

double pp_bound_path(struct pp_bound_case *c)
{
    /* With row_head and row_tail at -INFINITY only data counts. The first heads
     * and last tails that this computes stay valid for pp_bound_events. */
    struct events e = {.c = c};
    const double *limit = c->limit;
    double path = INFINITY;
    c->limit = NULL;
    for (int r = 0; r < c->g->n_rows; r++)
        c->row_head[r] = c->row_tail[r] = -INFINITY;
    heads_of(&e, 0, NULL);
    tails_of(&e, c->n - 1);
    c->limit = limit;
    find_row_ends(c);
    for (int copy = 0; copy < c->g->n_copies; copy++) {
        double through = path_through(c, copy);
        path = through < path ? through : path;
    }
    return path;
}

int pp_bound_events(struct pp_bound_case *c, struct pp_err *err)
{
    struct events e = {.c = c};
    watch_all(&e);
    int rc = 0;
    for (size_t k = 0; k < c->n && !rc; k++)
        rc = heads_of(&e, k, err);
    for (size_t k = c->n; k-- > 0 && !rc;)
        tails_of(&e, k);
    free(e.forward);
    free(e.backward);
    free(e.weight);
    pp_bound_sets_destroy(e.sets);
    return rc;
}
