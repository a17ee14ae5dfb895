/* SPDX-License-Identifier: MIT */
/* latent - multi-head latent attention (DeepSeek-AI, "DeepSeek-V2", 2024,
 * section 2.1).
 *
 * The normed input becomes latent values of low rank, for keys and values and,
 * with q_rank, for queries. They have norms of their own, and then products
 * make heads of them. Only the last rope_dim elements of a query head rotate;
 * the same elements of the keys come straight from the input, and all heads
 * share them. From QKV on everything is as in attention.c, with values narrower
 * or wider than keys.
 *
 * Tensor-parallel ranks divide the heads. All of them compute the latent
 * values; their gradients there are the sums over the heads of a rank, and what
 * follows is linear in them, so the sums over the ranks are right. */
#include "run/parts/attention/attention.h"

/* transformers gives these norms no other. */
#define LATENT_EPS 1e-6

/* One of the two latent parts of a row: its columns, and its norm's number and
 * weight. */
struct low_rank {
    size_t at, rank, norm;
    int weight;
};

/* Widths of rows in elements. A row of LATENT holds latent queries, then latent
 * keys and values; one of LATENT_RAW also the shared part of the keys. */
struct latent {
    size_t NH;                /* heads of this rank */
    size_t qk, nope, rope, v; /* of a head */
    bool narrows;             /* queries are of low rank, too */
    struct low_rank q, kv;
    size_t low, raw, norms; /* LATENT; LATENT_RAW; LATENT_RSTD */
    size_t up; /* keys without the shared part, and values, of all heads */
    struct pp_qkv_widths w;
    /* The product of queries, or the two of low rank; the products of keys and
     * values.
     */
    struct pp_product queries, q_down, q_up, kv_down, kv_up;
};

static struct latent latent_of(const struct pp_call *c)
{
    const struct pp_mla *a = &c->m->mla;
    size_t heads = pp_call_heads(c).n;
    struct latent d = {
        .NH = heads,
        .qk = c->m->head_dim,
        .nope = a->nope_dim,
        .rope = a->rope_dim,
        .v = a->v_dim,
        .narrows = a->q_rank > 0,
        .q = {0, a->q_rank, 0, PP_P_Q_A_NORM},
        .kv = {a->q_rank, a->kv_rank, a->q_rank > 0, PP_P_KV_A_NORM},
        .low = a->q_rank + a->kv_rank,
        .raw = a->q_rank + a->kv_rank + a->rope_dim,
        .norms = a->q_rank > 0 ? 2 : 1,
        .up = heads * (a->nope_dim + a->v_dim),
        .w = pp_qkv_widths(c),
    };
    d.queries =
        (struct pp_product){PP_P_Q, PP_NO_SLOT, c->C, d.w.q, .ldy = d.w.qkv};
    d.q_down = (struct pp_product){PP_P_Q_A, PP_P_Q_A_BIAS, c->C, d.q.rank,
                                   .ldy = d.raw};
    d.q_up = (struct pp_product){PP_P_Q_B, PP_NO_SLOT,   d.q.rank,
                                 d.w.q,    .ldx = d.low, .ldy = d.w.qkv};
    d.kv_down = (struct pp_product){PP_P_KV_A, PP_P_KV_A_BIAS, c->C,
                                    d.kv.rank + d.rope, .ldy = d.raw};
    d.kv_up = (struct pp_product){PP_P_KV_B, PP_NO_SLOT, d.kv.rank, d.up,
                                  .ldx = d.low};
    return d;
}

/* Heads that rotate: n of each row, which is ld elements behind the one before;
 * heads are ldg apart. */
struct rotated {
    void *at;
    size_t n, ld, ldg;
};

static void rotate(const struct pp_call *c, struct rotated x, int direction)
{
    const struct pp_mla *a = &c->m->mla;
    PP_RUN(c, rope, x.at, c->env->rope_cos, c->env->rope_sin, c->mb->positions,
           c->T, x.n, a->rope_dim, x.ld, x.ldg, c->m->adjacent, direction);
}

static struct rotated query_heads(const struct pp_call *c,
                                  const struct latent *d, void *qkv)
{
    return (struct rotated){pp_at(c, qkv, d->nope), d->NH, d->w.qkv, d->qk};
}

/* The part of the keys that all heads share, in LATENT_RAW or its gradient. */
static struct rotated shared_keys(const struct pp_call *c,
                                  const struct latent *d, void *raw)
{
    return (struct rotated){pp_at(c, raw, d->low), 1, d->raw, d->rope};
}

/* --- forward --- */

static void low_norm_fwd(const struct pp_call *c, const struct latent *d,
                         const struct low_rank *p)
{
    PP_RUN(c, rmsnorm_fwd, pp_at(c, c->s[PP_S_LATENT], p->at),
           pp_statistic_at(c, c->s[PP_S_LATENT_RSTD], p->norm),
           pp_at(c, c->s[PP_S_LATENT_RAW], p->at), c->w[p->weight], NULL, c->T,
           1, p->rank, d->low, d->norms, d->raw, 0, LATENT_EPS, NULL);
}

/* Writes the latent values from x (T, C). */
static void latents_fwd(const struct pp_call *c, const struct latent *d,
                        const void *x)
{
    if (d->narrows) {
        pp_product_fwd(c, &d->q_down, c->T, c->s[PP_S_LATENT_RAW], x, NULL);
        low_norm_fwd(c, d, &d->q);
    }
    pp_product_fwd(c, &d->kv_down, c->T,
                   pp_at(c, c->s[PP_S_LATENT_RAW], d->kv.at), x, NULL);
    low_norm_fwd(c, d, &d->kv);
    rotate(c, shared_keys(c, d, c->s[PP_S_LATENT_RAW]), 1);
}

/* Writes the queries of QKV, from x if they are not of low rank. */
static void queries_fwd(const struct pp_call *c, const struct latent *d,
                        const void *x)
{
    void *qkv = c->s[PP_S_QKV];
    if (d->narrows)
        pp_product_fwd(c, &d->q_up, c->T, qkv, c->s[PP_S_LATENT], NULL);
    else
        pp_product_fwd(c, &d->queries, c->T, qkv, x, NULL);
    rotate(c, query_heads(c, d, qkv), 1);
}

/* Copies the keys without the shared part and the values between QKV, or its
 * gradient, and the product that makes them, up. */
static void copy_up(const struct pp_call *c, const struct latent *d, void *qkv,
                    void *up, bool to_up)
{
    for (size_t h = 0; h < d->NH; h++) {
        size_t at = h * (d->nope + d->v);
        const struct {
            void *qkv, *up;
            size_t n;
        } part[] = {
            {pp_at(c, qkv, d->w.q + h * d->qk), pp_at(c, up, at), d->nope},
            {pp_at(c, qkv, d->w.qk + h * d->v), pp_at(c, up, at + d->nope),
             d->v},
        };
        for (size_t i = 0; i < 2; i++)
            PP_RUN(c, copy, to_up ? part[i].up : part[i].qkv,
                   to_up ? part[i].qkv : part[i].up, c->T, part[i].n,
                   to_up ? d->up : d->w.qkv, to_up ? d->w.qkv : d->up);
    }
}

/* Writes the keys and values of QKV. */
static void keys_fwd(const struct pp_call *c, const struct latent *d)
{
    void *qkv = c->s[PP_S_QKV], *up = c->scratch;
    const struct rotated shared = shared_keys(c, d, c->s[PP_S_LATENT_RAW]);
    pp_product_fwd(c, &d->kv_up, c->T, up,
                   pp_at(c, c->s[PP_S_LATENT], d->kv.at), NULL);
    copy_up(c, d, qkv, up, false);
    for (size_t h = 0; h < d->NH; h++)
        PP_RUN(c, copy, pp_at(c, qkv, d->w.q + h * d->qk + d->nope), shared.at,
               c->T, d->rope, d->w.qkv, d->raw);
}

static void latent_inner(const struct pp_call *c, enum pp_recompute parts)
{
    const struct latent d = latent_of(c);
    bool reads =
        (parts & PP_AGAIN_LATENT) || (!d.narrows && (parts & PP_AGAIN_QKV));
    const void *x = reads ? pp_layer_gather(c, c->s[PP_S_NORM1]) : NULL;
    if (parts & PP_AGAIN_LATENT)
        latents_fwd(c, &d, x);
    if (parts & PP_AGAIN_QKV) {
        queries_fwd(c, &d, x);
        keys_fwd(c, &d);
    }
    if (parts & PP_AGAIN_ATTENTION)
        pp_attention_heads_fwd(c);
}

/* --- input gradient --- */

/* Takes the gradient of a latent part through its norm. */
static void low_norm_bwd_input(const struct pp_call *c, const struct latent *d,
                               const struct low_rank *p)
{
    PP_RUN(c, rmsnorm_bwd_input, pp_at(c, c->s[PP_S_DLATENT_RAW], p->at),
           pp_at(c, c->s[PP_S_DLATENT], p->at),
           pp_at(c, c->s[PP_S_LATENT_RAW], p->at),
           pp_statistic_at(c, c->s[PP_S_LATENT_RSTD], p->norm), c->w[p->weight],
           NULL, c->T, 1, p->rank, d->raw, d->low, d->raw, d->norms, 0, NULL);
}

/* Adds up the gradients of the shared part of the keys over the heads. sum and
 * one are (T, rope). */
static void shared_keys_bwd(const struct pp_call *c, const struct latent *d,
                            void *sum, void *one)
{
    const struct rotated shared = shared_keys(c, d, c->s[PP_S_DLATENT_RAW]);
    for (size_t h = 0; h < d->NH; h++) {
        size_t at = d->w.q + h * d->qk + d->nope;
        PP_RUN(c, copy, h ? one : sum, pp_at(c, c->s[PP_S_DQKV], at), c->T,
               d->rope, d->rope, d->w.qkv);
        if (h)
            PP_RUN(c, add, sum, sum, one, c->T * d->rope);
    }
    PP_RUN(c, copy, shared.at, sum, c->T, d->rope, d->raw, d->rope);
    rotate(c, shared, -1);
}

/* Writes the gradients of the latent values from DQKV. */
static void latents_bwd(const struct pp_call *c, const struct latent *d)
{
    void *dqkv = c->s[PP_S_DQKV], *dlatent = c->s[PP_S_DLATENT];
    void *up = c->scratch, *sum = pp_at(c, up, c->T * d->up);
    shared_keys_bwd(c, d, sum, pp_at(c, sum, c->T * d->rope));
    copy_up(c, d, dqkv, up, true);
    pp_product_bwd_input(c, &d->kv_up, c->T, pp_at(c, dlatent, d->kv.at), up);
    low_norm_bwd_input(c, d, &d->kv);
    if (!d->narrows)
        return;
    pp_product_bwd_input(c, &d->q_up, c->T, dlatent, dqkv);
    low_norm_bwd_input(c, d, &d->q);
}

/* Writes the gradient of the normed input; the scratch has room for (T, C). */
static void input_bwd(const struct pp_call *c, const struct latent *d)
{
    void *dx = pp_layer_part(c, c->s[PP_S_DNORM1]), *product = c->scratch;
    const void *draw = c->s[PP_S_DLATENT_RAW];
    if (d->narrows)
        pp_product_bwd_input(c, &d->q_down, c->T, dx, draw);
    else
        pp_product_bwd_input(c, &d->queries, c->T, dx, c->s[PP_S_DQKV]);
    pp_product_bwd_input(c, &d->kv_down, c->T, product,
                         pp_at(c, draw, d->kv.at));
    PP_RUN(c, add, dx, dx, product, c->T * c->C);
    pp_layer_reduce(c, c->s[PP_S_DNORM1]);
}

static void latent_bwd_input(const struct pp_call *c, const void *dy)
{
    const struct latent d = latent_of(c);
    pp_attention_heads_bwd(c, dy);
    rotate(c, query_heads(c, &d, c->s[PP_S_DQKV]), -1);
    latents_bwd(c, &d);
    input_bwd(c, &d);
}

/* --- weight gradient --- */

static void low_norm_bwd_weight(const struct pp_call *c, const struct latent *d,
                                const struct low_rank *p)
{
    if (c->g[p->weight])
        PP_RUN(c, rmsnorm_bwd_weight, pp_call_gradient(c, p->weight),
               pp_at(c, c->s[PP_S_DLATENT], p->at),
               pp_at(c, c->s[PP_S_LATENT_RAW], p->at),
               pp_statistic_at(c, c->s[PP_S_LATENT_RSTD], p->norm), c->T, 1,
               p->rank, d->low, d->raw, d->norms);
}

static void latent_bwd_weight(const struct pp_call *c)
{
    const struct latent d = latent_of(c);
    const struct pp_product o = pp_attention_output(c);
    void *dqkv = c->s[PP_S_DQKV], *latent = c->s[PP_S_LATENT];
    const void *draw = c->s[PP_S_DLATENT_RAW];
    pp_join_bwd_weight(c, &o, c->s[PP_S_DOUT1], c->s[PP_S_ATTN]);
    if (pp_product_trains(c, &d.kv_up)) {
        copy_up(c, &d, dqkv, c->scratch, true);
        pp_product_bwd_weight(c, &d.kv_up, c->T, c->scratch,
                              pp_at(c, latent, d.kv.at));
    }
    low_norm_bwd_weight(c, &d, &d.kv);
    if (d.narrows) {
        pp_product_bwd_weight(c, &d.q_up, c->T, dqkv, latent);
        low_norm_bwd_weight(c, &d, &d.q);
    }
    if (!pp_product_trains(c, &d.kv_down) &&
        !pp_product_trains(c, d.narrows ? &d.q_down : &d.queries))
        return;
    const void *x = pp_layer_gather(c, c->s[PP_S_NORM1]);
    pp_product_bwd_weight(c, &d.kv_down, c->T, pp_at(c, draw, d.kv.at), x);
    if (d.narrows)
        pp_product_bwd_weight(c, &d.q_down, c->T, draw, x);
    else
        pp_product_bwd_weight(c, &d.queries, c->T, dqkv, x);
}

const struct pp_block_ops pp_part_latent_attention = {
    .inner = latent_inner,
    .last = pp_attention_last,
    .bwd_input = latent_bwd_input,
    .bwd_weight = latent_bwd_weight,
};
