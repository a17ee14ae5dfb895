/* SPDX-License-Identifier: MIT */
#include "run/execute/host_copies.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/num.h"
#include "base/thread.h"
#include "run/execute/exec_impl.h"

/* The copies of one direction. */
struct copy_engine {
    struct pp_exec *exec;
    size_t *places;  /* (n) of the copies in the row */
    size_t n, begun; /* begun: in this pass */

    /* On a GPU. */
    struct pp_device *device; /* a branch, or NULL */
    void *behind, **ends; /* events: what a copy waits for; (n) their ends */

    /* On the CPU. */
    bool has_thread;
    pthread_t thread;
    pthread_mutex_t lock; /* of these: */
    pthread_cond_t changed;
    size_t given, ended; /* of this pass */
    bool stops;
    struct pp_err err; /* of the first copy that failed */
};

struct pp_host_copies {
    struct copy_engine out, in;
    size_t *after;   /* by copy of out: the place of the forward, or of the pair
                        that it is in */
    int32_t *number; /* by place: the copy of an OFFLOAD or RELOAD, or the
                        RELOAD that a backward waits for; or -1 */
};

/* --- one direction --- */

/* Makes copy k, and records its time. */
static int copy_now(struct copy_engine *g, size_t k, struct pp_err *err)
{
    struct pp_exec *e = g->exec;
    size_t place = g->places[k];
    struct pp_action a = e->schedule->rows[e->env->place.row].actions[place];
    if (e->recorder)
        pp_recorder_begin(e->recorder, place, g->device);
    int rc = pp_exec_ops.copy(e, g->device, a, err);
    if (e->recorder)
        pp_recorder_end(e->recorder, place, g->device);
    return rc;
}

static void *run(void *ctx)
{
    struct copy_engine *g = ctx;
    pthread_mutex_lock(&g->lock);
    while (!g->stops) {
        if (g->ended == g->given) {
            pthread_cond_wait(&g->changed, &g->lock);
            continue;
        }
        struct pp_err err = {0};
        size_t k = g->ended;
        pthread_mutex_unlock(&g->lock);
        int rc = copy_now(g, k, &err);
        pthread_mutex_lock(&g->lock);
        if (rc && g->err.code == PP_EXIT_OK)
            g->err = err;
        g->ended++;
        pthread_cond_broadcast(&g->changed);
    }
    pthread_mutex_unlock(&g->lock);
    return NULL;
}

/* Begins the next copy, behind all work that the rank has queued. */
static int begin(struct copy_engine *g, struct pp_err *err)
{
    struct pp_device *d = g->exec->env->device;
    size_t k = g->begun++;
    if (g->device)
        return pp_device_follow(g->device, d, g->behind, err) ||
                       copy_now(g, k, err) ||
                       d->ops->streams->event_record(g->device, g->ends[k],
                                                     NULL, err)
                   ? -1
                   : 0;
    pthread_mutex_lock(&g->lock);
    g->given = g->begun;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
    return 0;
}

/* Lets the later work of the rank wait for copy k. */
static int await(struct copy_engine *g, size_t k, struct pp_err *err)
{
    struct pp_device *d = g->exec->env->device;
    if (g->device)
        return d->ops->streams->wait_event(d, NULL, g->ends[k], err);
    pthread_mutex_lock(&g->lock);
    while (g->ended <= k)
        pthread_cond_wait(&g->changed, &g->lock);
    bool failed = g->err.code != PP_EXIT_OK;
    if (failed)
        *err = g->err;
    pthread_mutex_unlock(&g->lock);
    return failed ? -1 : 0;
}

static int open_queue(struct copy_engine *g, struct pp_err *err)
{
    struct pp_device *d = g->exec->env->device;
    const struct pp_stream_ops *q = d->ops->streams;
    g->ends = pp_try_calloc(g->n, sizeof *g->ends, err);
    if (!g->ends || d->ops->branch(d, &g->device, err) ||
        q->event_open(d, &g->behind, err))
        return -1;
    for (size_t k = 0; k < g->n; k++)
        if (q->event_open(d, &g->ends[k], err))
            return -1;
    return 0;
}

static int open_engine(struct copy_engine *g, struct pp_err *err)
{
    if (!pp_env_is_host(g->exec->env))
        return open_queue(g, err);
    if (pp_thread_start(&g->thread, run, g, err))
        return -1;
    g->has_thread = true;
    return 0;
}

static void close_engine(struct copy_engine *g)
{
    if (g->has_thread) {
        pthread_mutex_lock(&g->lock);
        g->stops = true;
        pthread_cond_broadcast(&g->changed);
        pthread_mutex_unlock(&g->lock);
        pthread_join(g->thread, NULL);
    }
    pthread_cond_destroy(&g->changed);
    pthread_mutex_destroy(&g->lock);
    if (g->device) {
        const struct pp_stream_ops *q = g->device->ops->streams;
        q->event_close(g->behind);
        for (size_t k = 0; k < g->n; k++)
            q->event_close(g->ends[k]);
        g->device->ops->close(g->device);
    }
    free(g->ends);
    free(g->places);
}

/* --- both --- */

/* The places of a stage and a microbatch in the row. */
struct copied_cell {
    size_t forward; /* place of it, or of the end of its pair */
    int32_t reload; /* number of it, or -1 */
};

/* Numbers the copies of the row, and what waits for each. */
static int number_copies(struct pp_host_copies *c, const struct pp_schedule *s,
                         const struct pp_row *row, struct pp_err *err)
{
    size_t microbatches = (size_t)s->n_microbatches;
    struct copied_cell *cells = pp_try_calloc(
        (size_t)s->graph->n_stages * microbatches, sizeof *cells, err);
    if (!cells)
        return -1;
    for (size_t i = 0; i < row->n; i++) {
        struct pp_action a = row->actions[i];
        c->number[i] = -1;
        if (!pp_is_compute(a.op) && !pp_is_copy(a.op))
            continue;
        struct copied_cell *cell =
            &cells[(size_t)a.stage * microbatches + (size_t)a.microbatch];
        struct copy_engine *g = a.op == PP_OFFLOAD ? &c->out : &c->in;
        if (a.op == PP_F) {
            *cell = (struct copied_cell){i + a.overlap, -1};
        } else if (pp_is_copy(a.op)) {
            c->number[i] = (int32_t)g->n;
            if (a.op == PP_OFFLOAD)
                c->after[g->n] = cell->forward;
            else
                cell->reload = c->number[i];
            g->places[g->n++] = i;
        } else {
            c->number[i] = cell->reload;
            cell->reload = -1;
        }
    }
    free(cells);
    return 0;
}

int pp_host_copies_open(struct pp_exec *e, struct pp_err *err)
{
    const struct pp_row *row = &e->schedule->rows[e->env->place.row];
    size_t n = 0;
    for (size_t i = 0; i < row->n; i++)
        n += row->actions[i].op == PP_OFFLOAD;
    struct pp_host_copies *c = n ? pp_try_calloc(1, sizeof *c, err) : NULL;
    e->copies = c;
    if (!c)
        return n ? -1 : 0;
    struct copy_engine *both[] = {&c->out, &c->in};
    c->after = pp_try_calloc(n, sizeof *c->after, err);
    c->number = pp_try_calloc(row->n, sizeof *c->number, err);
    for (int i = 0; i < 2; i++) {
        struct copy_engine *g = both[i];
        g->exec = e;
        pthread_mutex_init(&g->lock, NULL);
        pthread_cond_init(&g->changed, NULL);
        g->places = pp_try_calloc(n, sizeof *g->places, err);
    }
    if (!c->after || !c->number || !c->out.places || !c->in.places ||
        number_copies(c, e->schedule, row, err))
        return -1;
    return open_engine(&c->out, err) || open_engine(&c->in, err) ? -1 : 0;
}

void pp_host_copies_close(struct pp_host_copies *c)
{
    if (!c)
        return;
    close_engine(&c->out);
    close_engine(&c->in);
    free(c->after);
    free(c->number);
    free(c);
}

void pp_host_copies_pass(struct pp_exec *e)
{
    struct pp_host_copies *c = e->copies;
    struct copy_engine *both[] = {c ? &c->out : NULL, c ? &c->in : NULL};
    for (int i = 0; c && i < 2; i++) {
        pthread_mutex_lock(&both[i]->lock);
        both[i]->begun = both[i]->given = both[i]->ended = 0;
        pthread_mutex_unlock(&both[i]->lock);
    }
}

int pp_host_copies_await(struct pp_exec *e, struct pp_err *err)
{
    struct pp_host_copies *c = e->copies;
    if (!c || c->number[e->pc] < 0)
        return 0;
    return await(&c->in, (size_t)c->number[e->pc], err);
}

int pp_host_copies_computed(struct pp_exec *e, struct pp_err *err)
{
    struct pp_host_copies *c = e->copies;
    while (c && c->out.begun < c->out.n && c->after[c->out.begun] <= e->pc)
        if (begin(&c->out, err))
            return -1;
    return 0;
}

int pp_host_copies_perform(struct pp_exec *e, struct pp_err *err)
{
    struct pp_host_copies *c = e->copies;
    const struct pp_row *row = &e->schedule->rows[e->env->place.row];
    if (!c)
        return 0;
    return row->actions[e->pc].op == PP_RELOAD
               ? begin(&c->in, err)
               : await(&c->out, (size_t)c->number[e->pc], err);
}

int pp_host_copy(const struct pp_exec *e, struct pp_device *on,
                 struct pp_action a, struct pp_err *err)
{
    static const enum pp_buffer_kind kinds[] = {PP_BUF_ACT_I, PP_BUF_ACT_W};
    const struct pp_device_ops *ops = pp_device_ops(on);
    bool out = a.op == PP_OFFLOAD;
    unsigned char *host =
        e->host + pp_exec_find(e, PP_BUF_HOST, a.stage, a, -1)->offset;
    for (int k = 0; k < 2; k++) {
        const struct pp_buffer *b =
            pp_exec_find(e, kinds[k], a.stage, a, out ? -1 : 0);
        unsigned char *here = e->arena + b->offset;
        if (b->bytes &&
            ops->copy(on, out ? host : here, out ? here : host, b->bytes, err))
            return -1;
        host += pp_round_up(b->bytes, PP_LINE_BYTES);
    }
    return 0;
}
