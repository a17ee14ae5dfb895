/* SPDX-License-Identifier: MIT */
/* sync - sums of gradients, in an order that gives every rank the same bits. */
#include "run/execute/sync.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "comm/collective.h"
#include "kernel_sizes.h"

/* The gradients that a rank has of a copy of the weights of a stage. */
struct copied {
    char *at; /* NULL: none */
    size_t n;
};

/* Finds a part of the gradients of a copy: of its tensor t, what this rank
 * owns, or with NULL all of them. */
static struct copied find_copied(const struct pp_worker *w, int stage,
                                 const struct pp_parameter *t)
{
    const struct pp_parameters *p = w->env->params;
    struct copied c = {0};
    if (!t) {
        c.at = pp_parameters_stage_grads(p, stage, &c.n);
        return c;
    }
    t = pp_parameters_find(p, pp_copy_number(w->graph, stage), t->unit,
                           t->slot);
    if (t && t->stage == stage && t->load)
        c = (struct copied){t->load, t->n};
    else if (t && t->stage == stage && t->g)
        c = (struct copied){(char *)t->g + t->own.first * p->accumulator_bytes,
                            t->own.n};
    return c;
}

struct pp_group pp_group_of_copies(const struct pp_layout *l,
                                   const struct pp_place *p,
                                   const struct pp_graph *graph, int stage)
{
    struct pp_group g = pp_layout_group(l, p, PP_GROUP_PP);
    struct pp_copy_rows rows;
    pp_copy_rows(graph, stage, &rows); /* a job's are evenly spaced */
    int before = p->row - g.index;     /* rows of other components */
    g.first += (rows.first - before) * g.step;
    g.index = (p->row - rows.first) / rows.step;
    g.step *= rows.step;
    g.n = rows.n;
    return g;
}

static int add_here(const struct pp_worker *w, void *to, const void *more,
                    size_t n, struct pp_err *err)
{
    int failed = w->env->kernels->add_gradient(to, to, more, n, w->env->stream);
    return failed ? pp_fail(err, PP_EXIT_SYSTEM, "add failed: %d", failed) : 0;
}

static int copy_here(const struct pp_worker *w, void *to, const void *from,
                     size_t n, struct pp_err *err)
{
    struct pp_device *d = w->env->device;
    return d->ops->copy(d, to, from, n * w->env->kernels->accumulator_bytes,
                        err);
}

/* Adds gradients over a group, in the order of its ranks. */
static int add_over(const struct pp_worker *w, struct pp_group group,
                    struct copied c, struct pp_err *err)
{
    const struct pp_collective all = {.comm = w->env->comm,
                                      .group = group,
                                      .direction = PP_DIRECTION_SYNC,
                                      .value_bytes =
                                          w->env->kernels->accumulator_bytes,
                                      .sum = w->env->kernels->add_gradient,
                                      .stream = w->env->stream,
                                      .room = w->room,
                                      .room_values = w->room_values};
    return pp_all_reduce(&all, c.at, c.n, err);
}

/* Adds gradients of a stage over all copies: first copies that this rank has
 * itself, then over the ranks. */
static int add_copies(const struct pp_worker *w, int stage,
                      const struct pp_parameter *t, struct pp_err *err)
{
    const struct pp_env *env = w->env;
    int n = w->graph->n_stages / w->graph->n_copies;
    struct copied sum = {0}, c;
    for (int s = stage; s < w->graph->n_stages; s += n) {
        c = find_copied(w, s, t);
        if (!sum.at)
            sum = c;
        else if (c.at && add_here(w, sum.at, c.at, c.n, err))
            return -1;
    }
    if (!sum.at || !sum.n)
        return 0;
    if (add_over(w,
                 pp_group_of_copies(&env->layout, &env->place, w->graph, stage),
                 sum, err))
        return -1;
    for (int s = stage; s < w->graph->n_stages; s += n) {
        c = find_copied(w, s, t);
        if (c.at && c.at != sum.at && copy_here(w, c.at, sum.at, c.n, err))
            return -1;
    }
    return 0;
}

/* Adds what each rank owns of the gradients of a stage. */
static int add_owned(const struct pp_worker *w, int stage, struct pp_err *err)
{
    const struct pp_parameters *p = w->env->params;
    int here = stage; /* the first copy on this rank */
    while (here < w->graph->n_stages &&
           w->graph->stages[here].row != w->env->place.row)
        here += w->graph->n_stages / w->graph->n_copies;
    for (size_t i = 0; i < p->n; i++)
        if (p->at[i].stage == here && add_copies(w, stage, &p->at[i], err))
            return -1;
    return 0;
}

int pp_sync_copies(const struct pp_worker *w, struct pp_err *err)
{
    for (int s = 0; s < w->graph->n_stages / w->graph->n_copies; s++)
        if (w->env->params->shares.owners > 1 ? add_owned(w, s, err)
                                              : add_copies(w, s, NULL, err))
            return -1;
    return 0;
}

int pp_sync_tied(const struct pp_worker *w, const struct pp_tied *t,
                 struct pp_err *err)
{
    int me = w->env->comm->rank;
    if (t->n == 0)
        return 0;
    if (t->embed && t->head)
        return add_here(w, t->embed, t->head, t->n, err) ||
                       copy_here(w, t->head, t->embed, t->n, err)
                   ? -1
                   : 0;
    return add_over(w,
                    t->embed ? pp_group_pair(me, t->peer, 0)
                             : pp_group_pair(t->peer, me, 1),
                    (struct copied){t->embed ? t->embed : t->head, t->n}, err);
}

/* Returns the tensor-parallel ranks that hold the same piece as this one. They
 * are consecutive. */
static struct pp_group holders_of(const struct pp_worker *w,
                                  const struct pp_parameter *t)
{
    struct pp_group g = w->env->tensor.group;
    size_t size = (size_t)g.n, mine = t->piece.offset[0];
    int first = g.n, n = 0;
    for (size_t i = 0; i < size; i++)
        if (pp_tensor_piece(&t->info, size, i).offset[0] == mine) {
            first = (int)i < first ? (int)i : first;
            n++;
        }
    g.first += first * g.step;
    g.index -= first;
    g.n = n;
    return g;
}

/* --- tensors of one group after the other --- */

/* Exchanges buffers of a group. */
typedef int exchange_fn(const struct pp_collective *c,
                        const struct pp_values *v, size_t n,
                        struct pp_err *err);

/* Tensors that go in one exchange. */
struct tensors {
    exchange_fn *exchange;
    struct pp_collective by;
    struct pp_values at[PP_BATCH_MOST];
    size_t n;
};

static int flush(struct tensors *x, struct pp_err *err)
{
    size_t n = x->n;
    x->n = 0;
    return n > 0 ? x->exchange(&x->by, x->at, n, err) : 0;
}

static bool is_same_group(const struct pp_group *a, const struct pp_group *b)
{
    bool same = a->n == b->n && a->index == b->index;
    for (int i = 0; i < a->n && same; i++)
        same = pp_group_rank(a, i) == pp_group_rank(b, i);
    return same;
}

/* Adds a tensor, after an exchange of the tensors that it cannot go with. */
static int add_tensor(struct tensors *x, exchange_fn *exchange,
                      const struct pp_collective *by, struct pp_values v,
                      struct pp_err *err)
{
    bool goes_with = x->n < PP_BATCH_MOST && x->exchange == exchange &&
                     is_same_group(&x->by.group, &by->group);
    if (by->group.n == 1)
        return 0;
    if (!goes_with && flush(x, err))
        return -1;
    x->exchange = exchange;
    x->by = *by;
    x->at[x->n++] = v;
    return 0;
}

int pp_sync_tensor(const struct pp_worker *w, struct pp_err *err)
{
    const struct pp_parameters *p = w->env->params;
    /* The ranks of an encoder have whole gradients of what each holds. */
    if (pp_env_encodes(w->env))
        return 0;
    struct tensors x = {0};
    struct pp_collective c = w->env->tensor;
    c.value_bytes = w->env->kernels->accumulator_bytes;
    c.sum = w->env->kernels->add_gradient;
    c.room = w->room;
    c.room_values = w->room_values;
    for (size_t i = 0; w->env->tensor.group.n > 1 && i < p->n; i++) {
        const struct pp_parameter *t = &p->at[i];
        /* The ranks of an encoder have whole gradients too, and gradients of
         * whole experts are summed over all ranks that hold them. */
        if (t->encoder || (p->experts_whole && t->expert))
            continue;
        c.group = holders_of(w, t);
        if (p->experts_whole && t->load &&
            add_tensor(&x, pp_all_reduce_many, &c,
                       (struct pp_values){t->load, NULL, t->n, 0}, err))
            return -1;
        if (!t->g)
            continue;
        /* Owners of optimizer state need the sum of their own elements. */
        char *own = (char *)t->g + t->own.first * p->accumulator_bytes;
        if (add_tensor(&x, pp_all_reduce_many, &c,
                       (struct pp_values){own, NULL, t->own.n, 0}, err))
            return -1;
    }
    return flush(&x, err);
}

/* The means to exchange values of a tensor with the ranks that hold the same
 * weights; NULL: of a tensor that all ranks of the row hold. */
static struct pp_collective replicas(const struct pp_worker *w,
                                     const struct pp_parameter *t,
                                     size_t value_bytes)
{
    enum pp_group_kind kind = t && t->expert    ? PP_GROUP_EXPERT_DATA
                              : t && t->encoder ? PP_GROUP_ENCODER_DATA
                                                : PP_GROUP_DATA;
    return (struct pp_collective){
        .comm = w->env->comm,
        .group = pp_layout_group(&w->env->layout, &w->env->place, kind),
        .direction = PP_DIRECTION_WEIGHTS,
        .value_bytes = value_bytes,
        .sum = w->env->kernels->add_gradient,
        .stream = w->env->stream,
        .room = w->room,
        .room_values = w->room_values,
        .grain = PP_SQUARES_BLOCK,
        .by_transport = w->sums_by_transport};
}

/* A tensor's values in a buffer, divided among the owners of its state. */
static struct pp_values owned(const struct pp_parameter *t, void *buf)
{
    return (struct pp_values){buf, NULL, t->n,
                              pp_tensor_turn(&t->info, t->slot)};
}

enum { ALL_UNITS = -1 };

/* Adds the gradients of a stage, or of a unit of it, over its replicas, with
 * kernels on a stream: what has not begun before. */
static int add_replicas(struct pp_worker *w, int stage, int64_t unit,
                        void *stream, struct pp_err *err)
{
    const struct pp_parameters *p = w->env->params;
    size_t n, bytes = w->env->kernels->accumulator_bytes;
    void *grads = pp_parameters_stage_grads(p, stage, &n);
    bool *has_begun = w->reducer.has_begun;
    struct pp_collective c = replicas(w, NULL, bytes);
    struct tensors x = {0};
    c.stream = stream;
    if (!has_begun && p->shares.owners == 1 && pp_env_ep(w->env) == 1 &&
        !p->encoder_apart && !p->experts_whole)
        return grads ? pp_all_reduce(&c, grads, n, err) : 0;
    for (size_t i = 0; i < p->n; i++) {
        const struct pp_parameter *t = &p->at[i];
        void *g = t->load ? t->load : t->g;
        bool is_due = !has_begun || !has_begun[i];
        if (t->stage != stage || !g ||
            (unit != ALL_UNITS && (size_t)unit != t->unit))
            continue;
        if (has_begun)
            has_begun[i] = unit != ALL_UNITS;
        if (!is_due)
            continue;
        c = replicas(w, t, bytes);
        c.stream = stream;
        /* Every rank updates the bias of a router by all loads. */
        bool all = pp_parameter_shares(p, t)->owners == 1 || t->load;
        if (add_tensor(&x, all ? pp_all_reduce_many : pp_reduce_scatter_many,
                       &c, owned(t, g), err))
            return -1;
    }
    return flush(&x, err);
}

/* The same on the reducer, behind what is queued so far. */
static int reduce_beside(struct pp_worker *w, int stage, int64_t unit,
                         struct pp_err *err)
{
    const struct pp_env *env = w->env;
    struct pp_reducer *r = &w->reducer;
    if (pp_device_follow(r->device, env->device, r->begun, err))
        return -1;
    r->is_running = true;
    env->comm->device = r->device;
    int rc = add_replicas(w, stage, unit, r->device->stream, err);
    env->comm->device = env->device;
    return rc;
}

int pp_sync_replicas(struct pp_worker *w, int stage, struct pp_err *err)
{
    return w->reducer.device
               ? reduce_beside(w, stage, ALL_UNITS, err)
               : add_replicas(w, stage, ALL_UNITS, w->env->stream, err);
}

int pp_sync_unit(struct pp_worker *w, int stage, size_t unit,
                 struct pp_err *err)
{
    return reduce_beside(w, stage, (int64_t)unit, err);
}

int pp_sync_join(struct pp_worker *w, struct pp_err *err)
{
    struct pp_reducer *r = &w->reducer;
    if (!r->is_running)
        return 0;
    r->is_running = false;
    return pp_device_follow(w->env->device, r->device, r->done, err);
}

int pp_reducer_init(struct pp_reducer *r, struct pp_device *d, size_t n_params,
                    struct pp_err *err)
{
    const struct pp_stream_ops *q = d->ops->streams;
    if (!q)
        return 0;
    r->has_begun = pp_try_calloc(n_params, sizeof *r->has_begun, err);
    return !r->has_begun || d->ops->branch(d, &r->device, err) ||
                   q->event_open(d, &r->begun, err) ||
                   q->event_open(d, &r->done, err)
               ? -1
               : 0;
}

void pp_reducer_finish(struct pp_reducer *r)
{
    free(r->has_begun);
    if (r->device) {
        r->device->ops->streams->event_close(r->begun);
        r->device->ops->streams->event_close(r->done);
        r->device->ops->close(r->device);
    }
    *r = (struct pp_reducer){0};
}

/* Takes this rank's own elements of a tensor, and adds it to the tensors that
 * ranks gather. */
static int add_whole(const struct pp_worker *w, struct tensors *x,
                     const struct pp_parameter *t, void *to, struct pp_err *err)
{
    struct pp_device *d = w->env->device;
    size_t element = w->env->params->element_bytes;
    const struct pp_collective c = replicas(w, t, element);
    char *own = (char *)to + t->own.first * element;
    return (t->own.n && d->ops->copy(d, own, t->w, t->own.n * element, err)) ||
                   add_tensor(x, pp_all_gather_many, &c, owned(t, to), err)
               ? -1
               : 0;
}

int pp_sync_whole(const struct pp_worker *w, const struct pp_parameter *t,
                  void *to, struct pp_err *err)
{
    struct tensors x = {0};
    return add_whole(w, &x, t, to, err) || flush(&x, err) ? -1 : 0;
}

/* Gathers all tensors of a stage. */
static int unshard(const struct pp_worker *w, int stage, void *whole,
                   struct pp_err *err)
{
    const struct pp_parameters *p = w->env->params;
    struct tensors x = {0};
    for (size_t i = 0; i < p->n; i++) {
        const struct pp_parameter *t = &p->at[i];
        char *to = (char *)whole + t->whole * p->element_bytes;
        if (t->stage == stage && add_whole(w, &x, t, to, err))
            return -1;
    }
    return flush(&x, err);
}

int pp_sync_weights(const struct pp_exec *e, struct pp_action a,
                    struct pp_err *err)
{
    struct pp_worker *w = e->worker;
    const struct pp_buffer *b = pp_memory_weights(
        &e->memory, &e->schedule->rows[e->env->place.row], e->pc, a.stage);
    void *whole = a.op == PP_UNSHARD && b ? e->arena + b->offset : NULL;
    if (!e->env->params->divided)
        return 0;
    if (whole && unshard(w, a.stage, whole, err))
        return -1;
    pp_stage_take_weights(&w->engine.stages[a.stage], whole);
    if (w->overlap.env)
        pp_stage_take_weights(&w->overlap.stages[a.stage], whole);
    return 0;
}

int pp_sync_gather(const struct pp_worker *w, enum pp_weights_block block,
                   struct pp_err *err)
{
    const struct pp_parameters *p = w->env->params;
    if (block == PP_BLOCK_W && p->divided)
        return 0; /* UNSHARD does */
    struct tensors x = {0};
    for (size_t i = 0; i < p->n; i++) {
        const struct pp_parameter *t = &p->at[i];
        const struct pp_collective c =
            replicas(w, t, pp_parameters_bytes(p, block));
        /* Without master weights every rank updates whole biases. */
        bool stays = t->info.frozen && (block != PP_BLOCK_W || !t->master);
        if (stays || pp_parameter_shares(p, t)->owners == 1)
            continue;
        if (add_tensor(&x, pp_all_gather_many, &c,
                       owned(t, block == PP_BLOCK_W ? t->w : t->g), err))
            return -1;
    }
    return flush(&x, err);
}
