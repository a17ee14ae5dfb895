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
#include "run/parts/layer_experts.h"

#include <math.h>

#include "comm/collective.h"

/* Reports whether rows travel. After an error nobody knows how many. */
static bool moves(const struct pp_call *c)
{
    return pp_env_ep(c->env) > 1 && !pp_call_failed(c);
}

static size_t own_index(const struct pp_call *c)
{
    return (size_t)c->env->experts.group.index;
}

/* Returns the experts of a rank. */
static size_t n_held(const struct pp_call *c)
{
    return pp_shard_experts(&c->env->shard);
}

/* Returns the rows that rank `from` has for expert i of rank `to`. */
static size_t count_at(const struct pp_call *c, const struct pp_dispatch *d,
                       size_t from, size_t to, size_t i)
{
    size_t E = c->m->moe.n_experts;
    return (size_t)d->host_counts[from * E + to * n_held(c) + i];
}

/* Returns the rows that a rank sends to another. */
static size_t rows_between(const struct pp_call *c, const struct pp_dispatch *d,
                           size_t from, size_t to)
{
    size_t sum = 0;
    for (size_t i = 0; i < n_held(c); i++)
        sum += count_at(c, d, from, to, i);
    return sum;
}

static size_t rows_to(const struct pp_call *c, const struct pp_dispatch *d,
                      size_t to)
{
    size_t sum = 0;
    for (size_t from = 0; from < pp_env_ep(c->env); from++)
        sum += rows_between(c, d, from, to);
    return sum;
}

/* Returns the rows that a rank sends each expert with padding. Its share of a
 * microbatch has at most as many tokens as it has room for. */
static size_t padded_rows(const struct pp_call *c, const struct pp_dispatch *d)
{
    const struct pp_moe *m = &c->m->moe;
    const struct pp_mesh *x = &c->env->shard.mesh;
    size_t tokens = d->room / pp_shard_expert_rows(&c->env->shard);
    double share =
        (double)(tokens * pp_mesh_routers(x) * m->top_k) / (double)m->n_experts;
    double kept = ceil(share * x->expert_capacity);
    return kept < (double)tokens ? (size_t)kept : tokens;
}

/* Fills d->counts and d->host_counts. A GPU does not tell which rows are
 * kept. */
static void pad_counts(const struct pp_call *c, struct pp_dispatch *d)
{
    size_t n = pp_env_ep(c->env) * c->m->moe.n_experts;
    int32_t rows = (int32_t)padded_rows(c, d);
    bool is_host = pp_env_is_host(c->env);
    int32_t *counts = is_host ? d->counts : c->env->expert_counts;
    for (size_t i = 0; i < n; i++)
        counts[i] = rows;
    d->host_counts = counts;
    d->sent = is_host ? pp_routing_kept(&d->routing, d->rows) : d->rows;
    if (!is_host)
        pp_call_put(c, d->counts, counts, n * sizeof *counts);
}

/* Does the same. Collective. */
static void tell_counts(const struct pp_call *c, struct pp_dispatch *d)
{
    size_t E = c->m->moe.n_experts, me = own_index(c);
    struct pp_collective of = c->env->experts;
    size_t n = (size_t)of.group.n * E;
    int32_t *own = d->counts + me * E;
    PP_RUN(c, experts->count, own, &d->routing, d->rows, E);
    of.value_bytes = sizeof *own;
    PP_TRY(c, pp_all_gather(&of, d->counts, NULL, n, c->err));
    d->host_counts =
        pp_call_read(c, d->counts, n * sizeof *own, c->env->expert_counts);
    d->sent = 0;
    for (size_t e = 0; d->host_counts && e < E; e++)
        d->sent += (size_t)d->host_counts[me * E + e];
}

static void check_room(const struct pp_call *c, const struct pp_dispatch *d)
{
    for (size_t to = 0; to < pp_env_ep(c->env); to++) {
        size_t rows = rows_to(c, d, to);
        size_t limit = pp_shard_expert_rows(&c->env->shard),
               tokens = d->room / limit;
        char name[PP_FQN_TEXT];
        if (rows <= d->room)
            continue;
        pp_model_fqn(c->m, c->l->unit, name);
        pp_fail(c->err, PP_EXIT_NO,
                "%s: %zu rows of experts come to rank %d, which has "
                "room for '%zu', %zu for each of %zu tokens; plan with "
                "a limit of %zu",
                name, rows, pp_group_rank(&c->env->experts.group, (int)to),
                d->room, limit, tokens, (rows + tokens - 1) / tokens);
    }
}

void pp_dispatch_open(const struct pp_call *c, struct pp_dispatch *d)
{
    size_t me = own_index(c), n = n_held(c);
    if (c->env->shard.mesh.expert_padding)
        pad_counts(c, d);
    else
        tell_counts(c, d);
    if (pp_call_failed(c))
        return;
    check_room(c, d);
    d->received = rows_to(c, d, me);
    PP_RUN(c, experts->arrivals, d->arrival, d->expert, d->counts,
           pp_env_ep(c->env), c->m->moe.n_experts, me * n, n);
}

void pp_dispatch_rows(const struct pp_call *c, const struct pp_dispatch *d,
                      struct pp_expert_rows *rows)
{
    size_t ep = pp_env_ep(c->env), me = own_index(c);
    int32_t *counts = c->env->expert_counts;
    *rows = (struct pp_expert_rows){d->received, d->expert, NULL, n_held(c)};
    if (!counts)
        return;
    counts += ep * c->m->moe.n_experts;
    for (size_t i = 0; i < n_held(c); i++) {
        counts[i] = 0;
        for (size_t from = 0; from < ep; from++)
            counts[i] += (int32_t)count_at(c, d, from, me, i);
    }
    rows->counts = counts;
}

/* The first rows that this rank has for each member, or from each. */
struct dispatch_parts {
    size_t out[PP_MOST_EXPERT_RANKS + 1], in[PP_MOST_EXPERT_RANKS + 1];
};

static struct dispatch_parts parts_of(const struct pp_call *c,
                                      const struct pp_dispatch *d)
{
    struct dispatch_parts p;
    size_t me = own_index(c);
    p.out[0] = p.in[0] = 0;
    for (size_t i = 0; i < pp_env_ep(c->env); i++) {
        p.out[i + 1] = p.out[i] + rows_between(c, d, me, i);
        p.in[i + 1] = p.in[i] + rows_between(c, d, i, me);
    }
    return p;
}

/* Begins to send the parts of x that begin at `out`, and to receive those of y,
 * all rows of r. */
static void swap_parts(const struct pp_call *c, const struct pp_moved *r,
                       void *y, const void *x, const size_t *in,
                       const size_t *out)
{
    struct pp_collective of = c->env->experts;
    size_t me = own_index(c), bytes = r->width * r->value_bytes;
    of.value_bytes = bytes;
    PP_TRY(c, pp_all_to_all_begin(&of, y, in, x, out, c->err));
    pp_call_move(c, (char *)y + in[me] * bytes,
                 (const char *)x + out[me] * bytes,
                 (in[me + 1] - in[me]) * bytes);
}

/* Returns the elements of a row as kernels that move them count. */
static size_t elements_of(const struct pp_call *c, const struct pp_moved *r)
{
    return r->width * r->value_bytes / c->k->element_bytes;
}

/* Moves the rows of each expert to where they are with padding, and writes
 * zeros behind them, or moves them back. */
static void move_padded(const struct pp_call *c, const struct pp_dispatch *d,
                        const struct pp_moved *r, bool pads)
{
    size_t E = c->m->moe.n_experts, P = padded_rows(c, d);
    size_t n = elements_of(c, r);
    if (pads)
        PP_RUN(c, experts->pad, r->room, r->at, &d->routing, d->rows, E, P, n);
    else
        PP_RUN(c, experts->close_up, r->room, r->at, &d->routing, d->rows, E, P,
               n);
    pp_call_move(c, r->at, r->room,
                 (pads ? E * P : d->rows) * r->width * r->value_bytes);
}

void pp_dispatch_send_begin(const struct pp_call *c,
                            const struct pp_dispatch *d,
                            const struct pp_moved *r)
{
    if (!moves(c))
        return;
    const struct dispatch_parts p = parts_of(c, d);
    if (c->env->shard.mesh.expert_padding)
        move_padded(c, d, r, true);
    swap_parts(c, r, r->room, r->at, p.in, p.out);
}

void pp_dispatch_send_wait(const struct pp_call *c, const struct pp_dispatch *d,
                           const struct pp_moved *r)
{
    if (!moves(c))
        return;
    PP_TRY(c, pp_all_to_all_wait(&c->env->experts, c->err));
    PP_RUN(c, embedding_fwd, r->at, d->arrival, r->room, d->received,
           elements_of(c, r));
}

void pp_dispatch_return_begin(const struct pp_call *c,
                              const struct pp_dispatch *d,
                              const struct pp_moved *r)
{
    if (!moves(c))
        return;
    const struct dispatch_parts p = parts_of(c, d);
    PP_RUN(c, scatter, r->room, r->at, d->arrival, d->received,
           elements_of(c, r));
    swap_parts(c, r, r->at, r->room, p.out, p.in);
}

void pp_dispatch_return_wait(const struct pp_call *c,
                             const struct pp_dispatch *d,
                             const struct pp_moved *r)
{
    if (!moves(c))
        return;
    PP_TRY(c, pp_all_to_all_wait(&c->env->experts, c->err));
    if (c->env->shard.mesh.expert_padding)
        move_padded(c, d, r, false);
}
