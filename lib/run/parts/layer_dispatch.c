/* SPDX-License-Identifier: MIT */
/* layer_dispatch - takes the rows of experts to the expert-parallel ranks that
 * hold them, and back (Lepikhin et al., "GShard", ICLR 2021).
 *
 * The ranks first tell each other how many rows each has for every expert, so
 * that messages have their exact size. Rows arrive by rank, then by expert, as
 * each rank sorts its own. They are put in the order of experts, and those of
 * an expert in the order of ranks. Nothing is kept of this: I and W tell the
 * counts again, from what the router chose in F.
 *
 * Every rank sees the counts of all. So if too many rows come to one, all fail
 * before a row is sent.
 *
 * With padding nobody tells counts: a rank sends every expert as many rows as
 * the capacity of the largest microbatch, of which the last ones are zeros.
 * They add nothing to gradients, and their outputs are dropped. */
#include "run/parts/layer_impl.h"

#include <math.h>

#include "comm/collective.h"

/* Returns the experts of a rank. */
static size_t n_held(const struct pp_layer *l)
{
    return l->env->model->moe.n_experts / pp_env_ep(l->env);
}

/* Returns the rows that rank `from` has for expert i of rank `to`. */
static size_t count_at(const struct pp_layer *l, const struct pp_dispatch *d,
                       size_t from, size_t to, size_t i)
{
    size_t E = l->env->model->moe.n_experts;
    return (size_t)d->host_counts[from * E + to * n_held(l) + i];
}

/* Returns the rows that a rank sends to another. */
static size_t rows_between(const struct pp_layer *l,
                           const struct pp_dispatch *d, size_t from, size_t to)
{
    size_t sum = 0;
    for (size_t i = 0; i < n_held(l); i++)
        sum += count_at(l, d, from, to, i);
    return sum;
}

static size_t rows_to(const struct pp_layer *l, const struct pp_dispatch *d,
                      size_t to)
{
    size_t sum = 0;
    for (size_t from = 0; from < pp_env_ep(l->env); from++)
        sum += rows_between(l, d, from, to);
    return sum;
}

/* Returns the rows that a rank sends each expert with padding. Its share of a
 * microbatch has at most as many tokens as it has room for. */
static size_t padded_rows(const struct pp_layer *l, const struct pp_dispatch *d)
{
    const struct pp_moe *m = &l->env->model->moe;
    size_t tokens = d->room / pp_expert_rows(l->env->model);
    double share =
        (double)(tokens * m->sharers * m->top_k) / (double)m->n_experts;
    double kept = ceil(share * m->capacity);
    return kept < (double)tokens ? (size_t)kept : tokens;
}

/* Fills d->counts and d->host_counts. A GPU does not tell which rows are
 * kept. */
static int pad_counts(const struct pp_layer *l, struct pp_dispatch *d,
                      struct pp_err *err)
{
    struct pp_device *dev = l->env->device;
    size_t n = pp_env_ep(l->env) * l->env->model->moe.n_experts;
    int32_t rows = (int32_t)padded_rows(l, d);
    bool is_host = pp_env_is_host(l->env);
    int32_t *counts = is_host ? d->counts : l->env->expert_counts;
    for (size_t i = 0; i < n; i++)
        counts[i] = rows;
    d->host_counts = counts;
    d->sent = is_host ? pp_routing_kept(&d->routing, d->rows) : d->rows;
    return is_host ? 0
                   : pp_device_ops(dev)->put(dev, d->counts, counts,
                                             n * sizeof *counts, err);
}

/* Does the same. Collective. */
static int tell_counts(const struct pp_layer *l, struct pp_dispatch *d,
                       struct pp_err *err)
{
    size_t E = l->env->model->moe.n_experts;
    struct pp_collective c = l->env->experts;
    size_t n = (size_t)c.group.n * E, me = (size_t)c.group.index;
    int32_t *own = d->counts + me * E;
    PP_LAYER_RUN(l->env->kernels->experts->count(own, &d->routing, d->rows, E,
                                                 l->env->stream));
    c.value_bytes = sizeof *own;
    if (pp_all_gather(&c, d->counts, NULL, n, err))
        return -1;
    d->host_counts = pp_device_read(l->env->device, d->counts, n * sizeof *own,
                                    l->env->expert_counts, err);
    d->sent = 0;
    for (size_t e = 0; d->host_counts && e < E; e++)
        d->sent += (size_t)d->host_counts[me * E + e];
    return d->host_counts ? 0 : -1;
}

static int check_room(const struct pp_layer *l, const struct pp_dispatch *d,
                      struct pp_err *err)
{
    for (size_t to = 0; to < pp_env_ep(l->env); to++) {
        size_t rows = rows_to(l, d, to);
        size_t limit = pp_expert_rows(l->env->model), tokens = d->room / limit;
        char name[PP_FQN_TEXT];
        if (rows <= d->room)
            continue;
        pp_model_fqn(l->env->model, l->unit, name);
        return pp_fail(err, PP_EXIT_NO,
                       "%s: %zu rows of experts come to rank %d, which has "
                       "room for '%zu', %zu for each of %zu tokens; plan with "
                       "a limit of %zu",
                       name, rows,
                       pp_group_rank(&l->env->experts.group, (int)to), d->room,
                       limit, tokens, (rows + tokens - 1) / tokens);
    }
    return 0;
}

int pp_dispatch_open(const struct pp_layer *l, struct pp_dispatch *d,
                     struct pp_err *err)
{
    if (l->env->model->moe.pads ? pad_counts(l, d, err)
                                : tell_counts(l, d, err))
        return -1;
    if (check_room(l, d, err))
        return -1;
    size_t me = (size_t)l->env->experts.group.index, n = n_held(l);
    d->received = rows_to(l, d, me);
    PP_LAYER_RUN(l->env->kernels->experts->arrivals(
        d->arrival, d->expert, d->counts, pp_env_ep(l->env),
        l->env->model->moe.n_experts, me * n, n, l->env->stream));
    return 0;
}

void pp_dispatch_rows(const struct pp_layer *l, const struct pp_dispatch *d,
                      struct pp_expert_rows *rows)
{
    size_t ep = pp_env_ep(l->env), me = (size_t)l->env->experts.group.index;
    int32_t *counts = l->env->expert_counts;
    *rows = (struct pp_expert_rows){d->received, d->expert, NULL, n_held(l)};
    if (!counts)
        return;
    counts += ep * l->env->model->moe.n_experts;
    for (size_t i = 0; i < n_held(l); i++) {
        counts[i] = 0;
        for (size_t from = 0; from < ep; from++)
            counts[i] += (int32_t)count_at(l, d, from, me, i);
    }
    rows->counts = counts;
}

/* The first rows that this rank has for each member, or from each. */
struct dispatch_parts {
    size_t out[PP_MOST_EXPERT_RANKS + 1], in[PP_MOST_EXPERT_RANKS + 1];
};

static void find_parts(const struct pp_layer *l, const struct pp_dispatch *d,
                       struct dispatch_parts *p)
{
    size_t me = (size_t)l->env->experts.group.index;
    p->out[0] = p->in[0] = 0;
    for (size_t i = 0; i < pp_env_ep(l->env); i++) {
        p->out[i + 1] = p->out[i] + rows_between(l, d, me, i);
        p->in[i + 1] = p->in[i] + rows_between(l, d, i, me);
    }
}

/* Begins to send the parts of x that begin at `out`, and to receive those of
 * y. */
static int swap_parts(const struct pp_layer *l, const struct pp_moved *r,
                      void *y, const void *x, const size_t *in,
                      const size_t *out, struct pp_err *err)
{
    const struct pp_device_ops *ops = pp_device_ops(l->env->device);
    struct pp_collective c = l->env->experts;
    size_t me = (size_t)c.group.index, bytes = r->width * r->value_bytes;
    c.value_bytes = bytes;
    return pp_all_to_all_begin(&c, y, in, x, out, err) ||
                   ops->copy(l->env->device, (char *)y + in[me] * bytes,
                             (const char *)x + out[me] * bytes,
                             (in[me + 1] - in[me]) * bytes, err)
               ? -1
               : 0;
}

/* Returns the elements of a row as kernels that move them count. */
static size_t elements_of(const struct pp_layer *l, const struct pp_moved *r)
{
    return r->width * r->value_bytes / l->env->kernels->element_bytes;
}

/* Moves the rows of each expert to where they are with padding, and writes
 * zeros behind them, or moves them back. */
static int move_padded(const struct pp_layer *l, const struct pp_dispatch *d,
                       const struct pp_moved *r, bool pads, struct pp_err *err)
{
    size_t E = l->env->model->moe.n_experts, P = padded_rows(l, d);
    const struct pp_expert_kernels *k = l->env->kernels->experts;
    PP_LAYER_RUN((pads ? k->pad : k->close_up)(r->room, r->at, &d->routing,
                                               d->rows, E, P, elements_of(l, r),
                                               l->env->stream));
    return pp_device_ops(l->env->device)
        ->copy(l->env->device, r->at, r->room,
               (pads ? E * P : d->rows) * r->width * r->value_bytes, err);
}

int pp_dispatch_send_begin(const struct pp_layer *l,
                           const struct pp_dispatch *d,
                           const struct pp_moved *r, struct pp_err *err)
{
    struct dispatch_parts p;
    if (pp_env_ep(l->env) == 1)
        return 0;
    find_parts(l, d, &p);
    if (l->env->model->moe.pads && move_padded(l, d, r, true, err))
        return -1;
    return swap_parts(l, r, r->room, r->at, p.in, p.out, err);
}

int pp_dispatch_send_wait(const struct pp_layer *l, const struct pp_dispatch *d,
                          const struct pp_moved *r, struct pp_err *err)
{
    if (pp_env_ep(l->env) == 1)
        return 0;
    if (pp_all_to_all_wait(&l->env->experts, err))
        return -1;
    PP_LAYER_RUN(l->env->kernels->embedding_fwd(r->at, d->arrival, r->room,
                                                d->received, elements_of(l, r),
                                                l->env->stream));
    return 0;
}

int pp_dispatch_return_begin(const struct pp_layer *l,
                             const struct pp_dispatch *d,
                             const struct pp_moved *r, struct pp_err *err)
{
    struct dispatch_parts p;
    if (pp_env_ep(l->env) == 1)
        return 0;
    find_parts(l, d, &p);
    PP_LAYER_RUN(l->env->kernels->scatter(r->room, r->at, d->arrival,
                                          d->received, elements_of(l, r),
                                          l->env->stream));
    return swap_parts(l, r, r->at, r->room, p.out, p.in, err);
}

int pp_dispatch_return_wait(const struct pp_layer *l,
                            const struct pp_dispatch *d,
                            const struct pp_moved *r, struct pp_err *err)
{
    if (pp_env_ep(l->env) == 1)
        return 0;
    if (pp_all_to_all_wait(&l->env->experts, err))
        return -1;
    return l->env->model->moe.pads ? move_padded(l, d, r, false, err) : 0;
}
