/* SPDX-License-Identifier: MIT */
/* dispatch - takes the rows of experts to the expert-parallel ranks that
 * hold them, and back (Lepikhin et al., "GShard", ICLR 2021).
 *
 * The ranks first tell each other how many rows each has for every expert, so
 * that messages have their exact size. Rows arrive by rank, then by expert, as
 * each rank sorts its own. They are put in the order of experts, and rows of an
 * expert in the order of ranks. A GPU's host keeps the counts that F has told.
 * On a CPU nothing is kept of this: I and W tell the counts again, from what
 * the router chose in F.
 *
 * Rows for which a rank has no room go in further rounds, each as large as the
 * room. Every rank sees the counts of all, so all know how many rounds there
 * are, and which rows belong to each: the rows of a rank are cut where they are
 * in the order of experts. So an expert's weights meet most of its rows at
 * once.
 *
 * With padding nobody tells counts: a rank sends every expert as many rows as
 * the capacity of the largest microbatch, of which the last ones are zeros.
 * They add nothing to gradients, and their outputs are dropped. Where these
 * rows need more than one round, ranks tell the counts instead. */
#include "run/parts/experts/layer_experts.h"

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

/* Returns the rows that come to a rank in all rounds. */
static size_t rows_to(const struct pp_call *c, const struct pp_dispatch *d,
                      size_t to)
{
    size_t E = c->m->moe.n_experts, n = n_held(c), sum = 0;
    for (size_t from = 0; from < pp_env_ep(c->env); from++)
        for (size_t i = 0; i < n; i++)
            sum += (size_t)d->all[from * E + to * n + i];
    return sum;
}

/* Returns the rows that a rank sends each expert with padding. Its share of a
 * microbatch has at most as many tokens as it has room for. */
static size_t padded_rows(const struct pp_call *c, const struct pp_dispatch *d)
{
    const struct pp_moe *m = &c->m->moe;
    const struct pp_mesh *x = &c->env->shard.mesh;
    double share = (double)(d->tokens * pp_mesh_routers(x) * m->top_k) /
                   (double)m->n_experts;
    double kept = ceil(share * x->expert_capacity);
    return kept < (double)d->tokens ? (size_t)kept : d->tokens;
}

bool pp_dispatch_is_padded(const struct pp_call *c, const struct pp_dispatch *d)
{
    return c->env->shard.mesh.expert_padding &&
           c->m->moe.n_experts * padded_rows(c, d) <= d->room;
}

void pp_dispatch_count(const struct pp_call *c, struct pp_dispatch *d)
{
    size_t E = c->m->moe.n_experts;
    struct pp_collective of = c->env->experts;
    int32_t *own = d->counts + own_index(c) * E;
    PP_RUN(c, experts->count, own, &d->routing, d->rows, E);
    if (of.group.n == 1 || pp_dispatch_is_padded(c, d))
        return;
    of.value_bytes = sizeof *own;
    PP_TRY(c,
           pp_all_gather(&of, d->counts, NULL, (size_t)of.group.n * E, c->err));
}

/* Fills d->counts and d->all. A GPU does not tell which rows are kept. */
static void pad_counts(const struct pp_call *c, struct pp_dispatch *d)
{
    size_t n = pp_env_ep(c->env) * c->m->moe.n_experts;
    int32_t rows = (int32_t)padded_rows(c, d);
    bool is_host = pp_env_is_host(c->env);
    for (size_t i = 0; i < n; i++)
        d->all[i] = rows;
    d->sent = is_host ? pp_routing_kept(&d->routing, d->rows) : d->rows;
    if (!is_host)
        pp_call_put(c, d->counts, d->all, n * sizeof *d->counts);
}

static size_t count_sent(const struct pp_call *c, const struct pp_dispatch *d)
{
    size_t E = c->m->moe.n_experts, sent = 0;
    for (size_t e = 0; !pp_call_failed(c) && e < E; e++)
        sent += (size_t)d->all[own_index(c) * E + e];
    return sent;
}

static size_t count_rounds(const struct pp_call *c, const struct pp_dispatch *d)
{
    size_t most = 0;
    for (size_t to = 0; to < pp_env_ep(c->env); to++) {
        size_t rows = rows_to(c, d, to);
        most = rows > most ? rows : most;
    }
    return most > d->room && d->room ? (most + d->room - 1) / d->room : 1;
}

/* Returns the rows of at .. at + n - 1 that are before `end`. */
static size_t before(size_t at, size_t n, size_t end)
{
    return end < at ? 0 : end - at < n ? end - at : n;
}

/* Writes the counts of a round of several to where its kernels and the host
 * read them. */
static const int32_t *count_round(const struct pp_call *c,
                                  const struct pp_dispatch *d, int32_t *counts)
{
    size_t E = c->m->moe.n_experts, n = n_held(c), ep = pp_env_ep(c->env);
    size_t first = d->round * d->room;
    int32_t *host = pp_env_is_host(c->env) ? counts : c->env->expert_counts + E;
    for (size_t to = 0; to < ep; to++)
        for (size_t i = 0, at = 0; i < n; i++)
            for (size_t from = 0; from < ep; from++) {
                size_t k = from * E + to * n + i, rows = (size_t)d->all[k];
                host[k] = (int32_t)(before(at, rows, first + d->room) -
                                    before(at, rows, first));
                at += rows;
            }
    if (host != counts)
        pp_call_put(c, counts, host, ep * E * sizeof *counts);
    return host;
}

/* Finds the parts of this rank's rows that it sends each member in a round, and
 * of what it receives from each. */
static void find_parts(const struct pp_call *c, struct pp_dispatch *d)
{
    size_t E = c->m->moe.n_experts, n = n_held(c), me = own_index(c);
    const int32_t *own = d->all + me * E;
    d->received = 0;
    for (size_t i = 0, at = 0; i < pp_env_ep(c->env); i++) {
        size_t sends = 0, all = 0;
        d->in_begin[i] = d->received;
        for (size_t k = 0; k < n; k++) {
            sends += (size_t)d->of_round[me * E + i * n + k];
            all += (size_t)own[i * n + k];
            d->received += (size_t)d->of_round[i * E + me * n + k];
        }
        d->in_end[i] = d->received;
        d->out_begin[i] = d->round ? d->out_end[i] : at;
        d->out_end[i] = d->out_begin[i] + sends;
        at += all;
    }
}

static void open_round(const struct pp_call *c, struct pp_dispatch *d)
{
    size_t E = c->m->moe.n_experts, ep = pp_env_ep(c->env);
    int32_t *counts = d->n_rounds > 1 ? d->counts + ep * E : d->counts;
    if (pp_call_failed(c))
        return;
    d->of_round = d->n_rounds > 1 ? count_round(c, d, counts) : d->all;
    find_parts(c, d);
    PP_RUN(c, experts->arrivals, d->arrival, d->expert, counts, ep, E,
           own_index(c) * n_held(c), n_held(c));
}

void pp_dispatch_open(const struct pp_call *c, struct pp_dispatch *d)
{
    bool is_host = pp_env_is_host(c->env), pads = pp_dispatch_is_padded(c, d);
    if (is_host)
        d->all = d->counts;
    if (pads)
        pad_counts(c, d);
    else if (is_host)
        pp_dispatch_count(c, d);
    if (!pads)
        d->sent = count_sent(c, d);
    d->round = 0;
    d->n_rounds = pp_call_failed(c) ? 1 : count_rounds(c, d);
    open_round(c, d);
}

bool pp_dispatch_next(const struct pp_call *c, struct pp_dispatch *d)
{
    if (pp_call_failed(c) || d->round + 1 >= d->n_rounds)
        return false;
    d->round++;
    open_round(c, d);
    return true;
}

void pp_dispatch_rows(const struct pp_call *c, const struct pp_dispatch *d,
                      struct pp_expert_rows *rows)
{
    size_t E = c->m->moe.n_experts, ep = pp_env_ep(c->env), me = own_index(c);
    int32_t *counts = c->env->expert_counts;
    *rows = (struct pp_expert_rows){d->received, d->expert, NULL, n_held(c)};
    if (!counts)
        return;
    for (size_t i = 0; i < n_held(c); i++) {
        counts[i] = 0;
        for (size_t from = 0; from < ep; from++)
            counts[i] += d->of_round[from * E + me * n_held(c) + i];
    }
    rows->counts = counts;
}

/* Begins to send the parts of x, and to receive the parts of y, all rows of r.
 */
static void swap_parts(const struct pp_call *c, const struct pp_moved *r,
                       void *y, struct pp_parts in, const void *x,
                       struct pp_parts out)
{
    struct pp_collective of = c->env->experts;
    size_t me = own_index(c), bytes = r->width * r->value_bytes;
    of.value_bytes = bytes;
    PP_TRY(c, pp_all_to_all_begin(&of, y, in, x, out, c->err));
    pp_call_move(c, (char *)y + in.begin[me] * bytes,
                 (const char *)x + out.begin[me] * bytes,
                 (in.end[me] - in.begin[me]) * bytes);
}

/* Returns the elements of a row as kernels that move them count. */
static size_t elements_of(const struct pp_call *c, const struct pp_moved *r)
{
    return r->width * r->value_bytes / c->k->element_bytes;
}

/* The parts that a rank receives, of r->room, and the parts that it sends: of
 * its own rows, or with padding of r->at. */
static struct pp_parts parts_in(const struct pp_dispatch *d)
{
    return (struct pp_parts){d->in_begin, d->in_end};
}

static struct pp_parts parts_out(const struct pp_dispatch *d)
{
    return (struct pp_parts){d->out_begin, d->out_end};
}

void pp_dispatch_send_begin(const struct pp_call *c,
                            const struct pp_dispatch *d,
                            const struct pp_moved *r, bool early)
{
    bool pads = moves(c) && pp_dispatch_is_padded(c, d);
    struct pp_comm *comm = c->env->experts.comm;
    if (!moves(c))
        return;
    if (pads)
        PP_RUN(c, experts->pad, r->at, r->own, &d->routing, d->rows,
               c->m->moe.n_experts, padded_rows(c, d), elements_of(c, r));
    else if (early)
        comm->device = c->env->reader.device;
    swap_parts(c, r, r->room, parts_in(d), pads ? r->at : r->own, parts_out(d));
    comm->device = c->env->device;
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
    PP_RUN(c, scatter, r->room, r->at, d->arrival, d->received,
           elements_of(c, r));
    swap_parts(c, r, pp_dispatch_is_padded(c, d) ? r->at : r->own, parts_out(d),
               r->room, parts_in(d));
}

void pp_dispatch_return_wait(const struct pp_call *c,
                             const struct pp_dispatch *d,
                             const struct pp_moved *r)
{
    if (!moves(c))
        return;
    PP_TRY(c, pp_all_to_all_wait(&c->env->experts, c->err));
    if (pp_dispatch_is_padded(c, d))
        PP_RUN(c, experts->close_up, r->own, r->at, &d->routing, d->rows,
               c->m->moe.n_experts, padded_rows(c, d), elements_of(c, r));
}
