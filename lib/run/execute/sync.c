/* SPDX-License-Identifier: MIT */
/* sync - sums of gradients, in an order that gives every rank the same bits. */
#include "run/execute/sync.h"

#include "comm/collective.h"

/* The gradients of a stage that has two copies. */
struct copied {
    char *at[2]; /* first and second copy; NULL if on another rank */
    int peer;    /* rank of the other copy */
    size_t n;
};

static int add(const struct pp_worker *w, void *sum, const void *first,
               const void *second, size_t n, struct pp_err *err)
{
    int failed =
        w->kernels->add_gradient(sum, first, second, n, w->engine.stream);
    return failed ? pp_fail(err, PP_EXIT_SYSTEM, "add failed: %d", failed) : 0;
}

static int add_here(const struct pp_worker *w, const struct copied *c,
                    struct pp_err *err)
{
    if (add(w, c->at[0], c->at[0], c->at[1], c->n, err))
        return -1;
    struct pp_device *d = w->engine.device;
    return d->ops->copy(d, c->at[1], c->at[0],
                        c->n * w->kernels->accumulator_bytes, err);
}

static int add_part(const struct pp_worker *w, const struct copied *c,
                    size_t from, size_t n, struct pp_err *err)
{
    const struct pp_transport *ops = w->comm->ops;
    size_t element = w->kernels->accumulator_bytes;
    bool is_first = c->at[0] != NULL;
    char *mine = (is_first ? c->at[0] : c->at[1]) + from * element;
    if (ops->send(w->comm, c->peer, PP_DIRECTION_SYNC, mine, n * element,
                  err) ||
        pp_comm_receive(w->comm, c->peer, PP_DIRECTION_SYNC, w->room,
                        n * element, err) ||
        ops->send_wait(w->comm, c->peer, PP_DIRECTION_SYNC, 0, err))
        return -1;
    return is_first ? add(w, mine, mine, w->room, n, err)
                    : add(w, mine, w->room, mine, n, err);
}

static int add_stage(const struct pp_worker *w, const struct copied *c,
                     struct pp_err *err)
{
    if (c->n == 0)
        return 0;
    if (c->at[0] && c->at[1])
        return add_here(w, c, err);
    for (size_t from = 0; from < c->n; from += PP_COPIED_PART) {
        size_t left = c->n - from;
        size_t n = left < PP_COPIED_PART ? left : PP_COPIED_PART;
        if (add_part(w, c, from, n, err))
            return -1;
    }
    return 0;
}

int pp_sync_copies(const struct pp_worker *w, struct pp_err *err)
{
    const struct pp_graph *g = w->graph;
    int copied = g->n_stages / g->n_copies;
    for (int s = 0; s < copied; s++) {
        struct copied c = {.peer = -1};
        for (int k = 0; k < g->n_copies; k++) {
            int stage = s + k * copied;
            if (g->stages[stage].row == w->place.row)
                c.at[k] = pp_parameters_stage_grads(w->params, stage, &c.n);
            else
                c.peer = pp_worker_peer(w, g->stages[stage].row);
        }
        if (add_stage(w, &c, err))
            return -1;
    }
    return 0;
}

int pp_sync_tied(const struct pp_worker *w, const struct pp_tied *t,
                 struct pp_err *err)
{
    struct pp_comm *c = w->comm;
    const struct pp_kernels *k = w->kernels;
    void *mine = t->embed ? t->embed : t->head;
    struct pp_device *d = w->engine.device;
    size_t bytes = t->n * k->accumulator_bytes;
    if (t->peer < 0) {
        int failed = k->add_gradient(t->embed, t->embed, t->head, t->n,
                                     w->engine.stream);
        return failed ? pp_fail(err, PP_EXIT_SYSTEM, "add failed: %d", failed)
                      : d->ops->copy(d, t->head, t->embed, bytes, err);
    }
    if (c->ops->send(c, t->peer, PP_DIRECTION_SYNC, mine, bytes, err) ||
        pp_comm_receive(c, t->peer, PP_DIRECTION_SYNC, t->received, bytes,
                        err) ||
        c->ops->send_wait(c, t->peer, PP_DIRECTION_SYNC, 0, err))
        return -1;
    const void *embed = t->embed ? t->embed : t->received;
    const void *head = t->embed ? t->received : t->head;
    int failed = k->add_gradient(mine, embed, head, t->n, w->engine.stream);
    return failed ? pp_fail(err, PP_EXIT_SYSTEM, "add failed: %d", failed) : 0;
}

int pp_sync_replicas(const struct pp_worker *w, int stage, struct pp_err *err)
{
    size_t n;
    void *grads = pp_parameters_stage_grads(w->params, stage, &n);
    const struct pp_collective c = {
        .comm = w->comm,
        .group = pp_layout_group(&w->layout, &w->place, PP_GROUP_DATA),
        .direction = PP_DIRECTION_DATA,
        .value_bytes = w->kernels->accumulator_bytes,
        .sum = w->kernels->add_gradient,
        .stream = w->engine.stream,
        .room = w->room,
        .room_values = PP_COPIED_PART};
    return grads ? pp_all_reduce(&c, grads, n, err) : 0;
}
