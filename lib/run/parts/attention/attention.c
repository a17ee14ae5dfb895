/* SPDX-License-Identifier: MIT */
/* attention - mid = x + o_proj(attention(qkv_proj(normed x))).
 *
 * A row of QKV holds the query heads, the key heads and the value heads. With
 * QK-norm the layer also keeps the raw queries and keys; a product of their own
 * writes them in their place. */
#include "run/parts/attention/attention.h"

#include <math.h>

static struct pp_attention_shape shape(const struct pp_call *c)
{
    const struct pp_model *m = c->m;
    const struct pp_microbatch *mb = c->mb;
    struct pp_qkv_widths w = pp_qkv_widths(c);
    double scale = m->mla.score_scale;
    double width = m->query_scalar > 0 ? m->query_scalar : (double)w.of.qk;
    bool in_windows =
        mb->encoder.cu_windows &&
        pp_layer_set_has(&pp_layer_encoder(c)->windowed, c->l->unit.layer);
    return (struct pp_attention_shape){
        .N = c->T,
        .NH = w.of.n,
        .NKV = w.of.n_kv,
        .HDQK = w.of.qk,
        .HDV = w.of.v,
        .ldq = w.row,
        .ldkv = w.row,
        .ldo = w.o,
        .n_sequences = in_windows ? mb->encoder.n_windows : mb->n_sequences,
        .cu = in_windows ? mb->encoder.cu_windows : mb->cu_seqlens,
        .cu_padded =
            in_windows ? mb->encoder.cu_windows : mb->cu_seqlens_padded,
        .scale = (scale > 0 ? scale : 1) / sqrt(width),
        .cap = m->score_cap,
        .window = pp_unit_window(m, c->l->unit),
        .chunked = m->chunked,
        .whole = pp_family_of(m->architecture)->whole,
    };
}

/* --- rotary positions --- */

/* Rotates so many heads from a column of rows on, which are ld apart. */
static void rotate_heads(const struct pp_call *c, void *at, size_t heads,
                         size_t ld, const void *cos, const void *sin,
                         int direction)
{
    PP_RUN(c, rope, at, cos, sin, c->mb->positions, c->T, heads,
           pp_model_rotary(c->m, pp_unit_window(c->m, c->l->unit)), ld,
           pp_call_heads(c).qk, c->m->adjacent, direction);
}

/* Rotates queries and keys by their positions. Rows have them first, and are ld
 * apart. */
static void rotate(const struct pp_call *c, void *rows, size_t ld,
                   int direction)
{
    const struct pp_env *e = c->env;
    const struct pp_qkv_widths w = pp_qkv_widths(c);
    bool own = e->windowed_cos && pp_unit_window(c->m, c->l->unit);
    const void *cos = own ? e->windowed_cos : e->rope_cos;
    const void *sin = own ? e->windowed_sin : e->rope_sin;
    bool rotates = pp_unit_rotates(c->m, c->l->unit);
    bool scales = e->query_cos && c->m->unrotated_queries == !rotates;
    size_t heads = w.of.n + w.of.n_kv, scaled = scales ? w.of.n : 0;
    if (c->mb->axes) {
        pp_rotate_axes(c, rows, direction);
        return;
    }
    if (scaled)
        rotate_heads(c, rows, scaled, ld, e->query_cos, e->query_sin,
                     direction);
    if (rotates)
        rotate_heads(c, pp_at(c, rows, scaled * w.of.qk), heads - scaled, ld,
                     cos, sin, direction);
}

static bool norms(const struct pp_call *c)
{
    return pp_unit_norms_qk(c->m, c->l->unit);
}

static bool norms_rotated(const struct pp_call *c)
{
    return norms(c) && pp_family_of(c->m->architecture)->norms_rotated;
}

/* --- the products of QKV --- */

/* Returns the gates of a tensor like QKV. */
static void *gates_of(const struct pp_call *c, const void *qkv)
{
    return pp_at(c, qkv, pp_qkv_widths(c).qkv);
}

/* One product of queries, keys and values; three, since keys have no bias; or
 * two, since queries and keys have norms. */
enum { MOST_PRODUCTS = 3 };

/* A product, and what it writes: columns of QKV from `at` on. */
struct qkv_product {
    struct pp_product p;
    size_t at;
};

static size_t qkv_products(const struct pp_call *c,
                           struct qkv_product of[MOST_PRODUCTS])
{
    const struct pp_qkv_widths w = pp_qkv_widths(c);
    const size_t bounds[] = {0, w.q, w.qk, w.qkv};
    size_t n = c->m->no_k_bias ? MOST_PRODUCTS : 1;
    for (size_t i = 0; i < n; i++)
        of[i] = (struct qkv_product){
            {PP_P_Q + (int)i, PP_P_Q_BIAS + (int)i, c->C,
             n > 1 ? bounds[i + 1] - bounds[i] : w.row, .ldy = w.row},
            bounds[i]};
    return n;
}

/* Copies the queries of all heads, or their gates, between rows of one pair for
 * each head and rows of all queries. */
static void move_heads(const struct pp_call *c, void *pairs, void *heads,
                       size_t ld, size_t ld_heads, bool to_pairs)
{
    const struct pp_heads of = pp_call_heads(c);
    size_t HD = of.qk;
    for (size_t h = 0; h < of.n; h++) {
        void *a = pp_at(c, pairs, 2 * h * HD), *b = pp_at(c, heads, h * HD);
        if (to_pairs)
            PP_RUN(c, copy, a, b, c->T, HD, ld, ld_heads);
        else
            PP_RUN(c, copy, b, a, c->T, HD, ld_heads, ld);
    }
}

/* Queries and gates, of a tensor that holds both. */
static void paired_fwd(const struct pp_call *c, const void *x)
{
    const struct pp_qkv_widths w = pp_qkv_widths(c);
    const struct pp_product q = {PP_P_Q, PP_P_Q_BIAS, c->C, 2 * w.q};
    const struct pp_product k = {PP_P_K, PP_P_K_BIAS, c->C, w.qk - w.q,
                                 .ldy = w.qk};
    void *pairs = c->scratch;
    pp_product_fwd(c, &q, c->T, pairs, x, NULL);
    move_heads(c, pairs, c->s[PP_S_QKV_RAW], q.out, w.qk, false);
    move_heads(c, pp_at(c, pairs, w.of.qk), gates_of(c, c->s[PP_S_QKV]), q.out,
               w.row, false);
    pp_product_fwd(c, &k, c->T, pp_at(c, c->s[PP_S_QKV_RAW], w.q), x, NULL);
}

/* Brings the gradients of a row in the order of the weights: the gates' beside
 * the queries'. */
static void pair_gradients(const struct pp_call *c)
{
    const struct pp_qkv_widths w = pp_qkv_widths(c);
    void *row = c->scratch, *dqkv = c->s[PP_S_DQKV];
    PP_RUN(c, copy, row, dqkv, c->T, w.row, w.row, w.row);
    move_heads(c, dqkv, row, w.row, w.row, true);
    move_heads(c, pp_at(c, dqkv, w.of.qk), gates_of(c, row), w.row, w.row,
               true);
    PP_RUN(c, copy, pp_at(c, dqkv, 2 * w.q), pp_at(c, row, w.q), c->T,
           w.qkv - w.q, w.row, w.row);
}

/* Queries and keys before their norm, and values. */
static void normed_qkv_fwd(const struct pp_call *c, const void *x)
{
    const struct pp_qkv_widths w = pp_qkv_widths(c);
    const struct pp_product qk = {PP_P_Q, PP_P_Q_BIAS, c->C, w.qk};
    bool paired = pp_model_gates_beside(c->m);
    const struct pp_product v = {PP_P_V, PP_P_V_BIAS, c->C,
                                 (paired ? w.qkv : w.row) - w.qk, .ldy = w.row};
    if (paired)
        paired_fwd(c, x);
    else
        pp_product_fwd(c, &qk, c->T, c->s[PP_S_QKV_RAW], x, NULL);
    pp_product_fwd(c, &v, c->T, pp_at(c, c->s[PP_S_QKV], w.qk), x, NULL);
    if (norms_rotated(c))
        rotate(c, c->s[PP_S_QKV_RAW], w.qk, 1);
    pp_qk_norm_fwd(c);
}

/* Multiplies the values of rows like QKV, or their gradients, by the scale of
 * the model. */
static void scale_values(const struct pp_call *c, void *rows)
{
    const struct pp_qkv_widths w = pp_qkv_widths(c);
    if (c->m->value_scale > 0)
        PP_RUN(c, scale_by, pp_at(c, rows, w.qk), c->m->value_scale, c->T,
               w.qkv - w.qk, w.row);
}

static void qkv_fwd(const struct pp_call *c)
{
    struct qkv_product of[MOST_PRODUCTS];
    const void *x = pp_layer_gather(c, c->s[PP_S_NORM1]);
    size_t n = qkv_products(c, of);
    if (norms(c) && !c->m->no_k_bias) {
        normed_qkv_fwd(c, x);
        return;
    }
    for (size_t i = 0; i < n; i++)
        pp_product_fwd(c, &of[i].p, c->T, pp_at(c, c->s[PP_S_QKV], of[i].at), x,
                       NULL);
}

/* The weights of queries, keys and values are adjacent, and so are their
 * gradients. */
static void qkv_bwd_weight(const struct pp_call *c)
{
    struct qkv_product of[MOST_PRODUCTS];
    size_t n = qkv_products(c, of), trained = 0;
    for (size_t i = 0; i < n; i++)
        trained += pp_product_trains(c, &of[i].p);
    if (!trained)
        return;
    const void *x = pp_layer_gather(c, c->s[PP_S_NORM1]);
    for (size_t i = 0; i < n; i++)
        pp_product_bwd_weight(c, &of[i].p, c->T,
                              pp_at(c, c->s[PP_S_DQKV], of[i].at), x);
}

struct pp_product pp_attention_output(const struct pp_call *c)
{
    return (struct pp_product){PP_P_O, PP_P_O_BIAS, pp_qkv_widths(c).o, c->C};
}

/* --- heads --- */

/* All keys and values are in the microbatch. */
static void here_fwd(const struct pp_call *c,
                     const struct pp_attention_shape *a, void *tiles)
{
    struct pp_qkv_widths w = pp_qkv_widths(c);
    const void *q = c->s[PP_S_QKV];
    PP_RUN(c, attention_fwd, c->s[PP_S_ATTN], c->s[PP_S_LSE], q,
           pp_at(c, q, w.q), pp_at(c, q, w.qk), c->w[PP_P_SINKS], a, tiles);
}

static void here_bwd(const struct pp_call *c,
                     const struct pp_attention_shape *a, const void *dattn,
                     void *tiles)
{
    struct pp_qkv_widths w = pp_qkv_widths(c);
    const void *q = c->s[PP_S_QKV];
    void *dq = c->s[PP_S_DQKV];
    PP_RUN(c, attention_bwd, dq, pp_at(c, dq, w.q), pp_at(c, dq, w.qk), dattn,
           q, pp_at(c, q, w.q), pp_at(c, q, w.qk), c->s[PP_S_ATTN],
           c->s[PP_S_LSE], a, tiles);
}

static const struct pp_attention_exchange exchange_here = {here_fwd, here_bwd};

const struct pp_attention_exchange *
pp_attention_exchange(int n_slices, const struct pp_mesh *x)
{
    static const struct pp_attention_exchange *const of_ranks[] = {
        [PP_CP_GATHER] = &pp_exchange_gather,
        [PP_CP_A2A] = &pp_exchange_heads,
        [PP_CP_RING] = &pp_exchange_ring,
    };
    return x->cp > 1      ? of_ranks[x->cp_exchange]
           : n_slices > 1 ? &pp_exchange_gather
                          : &exchange_here;
}

static void sinks_bwd_weight(const struct pp_call *c)
{
    struct pp_lse_rows r = pp_lse_rows(c);
    PP_RUN(c, experts->add_rows,
           pp_statistic_at(c, pp_call_gradient(c, PP_P_SINKS), r.first),
           c->s[PP_S_DSINKS], r.n, r.heads);
}

/* Takes the attention of the rows of a call, all or a span's, through an
 * exchange; dattn is NULL in forward. The exchange of heads has done the sinks.
 */
static void exchange(const struct pp_call *c,
                     const struct pp_attention_exchange *by, const void *dattn,
                     void *tiles)
{
    struct pp_attention_shape a = shape(c);
    if (!dattn) {
        by->fwd(c, &a, tiles);
        return;
    }
    if (by != &pp_exchange_heads)
        pp_sinks_bwd_input(c, dattn, c->s[PP_S_ATTN], a.ldo);
    by->bwd(c, &a, dattn, tiles);
}

static void exchange_all(const struct pp_call *c, const void *dattn,
                         void *tiles)
{
    size_t width = pp_qkv_widths(c).o;
    struct pp_span_call v;
    if (!c->mb->spans)
        exchange(c, c->env->exchange, dattn, tiles);
    for (size_t i = 0; c->mb->spans && i < c->mb->n_spans; i++) {
        const struct pp_cp_span *span = &c->mb->spans[i];
        pp_span_call(c, span, &v);
        exchange(&v.call, span->ranks > 1 ? c->env->exchange : &exchange_here,
                 dattn ? pp_at(c, dattn, span->first_row * width) : NULL,
                 tiles);
    }
}

/* Returns what the product behind attention reads. */
static void *gated(const struct pp_call *c)
{
    return c->s[c->m->gates ? PP_S_GATED : PP_S_ATTN];
}

void pp_attention_heads_fwd(const struct pp_call *c)
{
    const struct pp_qkv_widths w = pp_qkv_widths(c);
    exchange_all(c, NULL, c->scratch);
    if (c->m->gates)
        PP_RUN(c, sigmoid_gate_fwd, c->s[PP_S_GATED], c->s[PP_S_ATTN],
               gates_of(c, c->s[PP_S_QKV]), c->T, w.o, w.row);
}

void pp_attention_heads_bwd(const struct pp_call *c, const void *dy)
{
    const struct pp_product o = pp_attention_output(c);
    void *dattn = c->scratch;
    pp_join_bwd_input(c, &o, dattn, dy, gated(c));
    const void *g = gates_of(c, c->s[PP_S_QKV]);
    size_t row = pp_qkv_widths(c).row;
    if (c->m->gates)
        PP_RUN(c, sigmoid_gate_fwd, dattn, dattn, g, c->T, o.in, row);
    exchange_all(c, dattn, pp_at(c, dattn, o.in * c->T));
    /* An exchange may clear all of DQKV. */
    if (c->m->gates)
        PP_RUN(c, sigmoid_gate_bwd, gates_of(c, c->s[PP_S_DQKV]), dattn,
               c->s[PP_S_ATTN], g, c->T, o.in, row);
}

/* --- attention --- */

static void attention_inner(const struct pp_call *c, enum pp_recompute parts)
{
    if (parts & PP_AGAIN_QKV) {
        qkv_fwd(c);
        scale_values(c, c->s[PP_S_QKV]);
    }
    if ((parts & PP_AGAIN_QKV) && !norms_rotated(c))
        rotate(c, c->s[PP_S_QKV], pp_qkv_widths(c).row, 1);
    if (parts & PP_AGAIN_ATTENTION)
        pp_attention_heads_fwd(c);
}

void pp_attention_last(const struct pp_call *c, void *y, const void *residual)
{
    const struct pp_product o = pp_attention_output(c);
    pp_join_fwd(c, &o, y, gated(c), residual);
}

static void attention_bwd_input(const struct pp_call *c, const void *dy)
{
    const struct pp_product qkv = {PP_P_Q, PP_P_Q_BIAS, c->C,
                                   pp_qkv_widths(c).row};
    pp_attention_heads_bwd(c, dy);
    scale_values(c, c->s[PP_S_DQKV]);
    if (!norms_rotated(c))
        rotate(c, c->s[PP_S_DQKV], qkv.out, -1);
    if (norms(c))
        pp_qk_norm_bwd_input(c);
    if (norms_rotated(c))
        rotate(c, c->s[PP_S_DQKV], qkv.out, -1);
    if (pp_model_gates_beside(c->m))
        pair_gradients(c);
    pp_split_bwd_input(c, &qkv, c->s[PP_S_DNORM1], c->s[PP_S_DQKV]);
}

static void attention_bwd_weight(const struct pp_call *c)
{
    const struct pp_product o = pp_attention_output(c);
    struct pp_span_call v;
    pp_join_bwd_weight(c, &o, c->s[PP_S_DOUT1], gated(c));
    if (norms(c))
        pp_qk_norm_bwd_weight(c);
    if (c->g[PP_P_SINKS] && !c->mb->spans)
        sinks_bwd_weight(c);
    for (size_t i = 0; c->g[PP_P_SINKS] && i < c->mb->n_spans; i++) {
        pp_span_call(c, &c->mb->spans[i], &v);
        sinks_bwd_weight(&v.call);
    }
    qkv_bwd_weight(c);
}

const struct pp_block_ops pp_part_attention = {
    .inner = attention_inner,
    .last = pp_attention_last,
    .bwd_input = attention_bwd_input,
    .bwd_weight = attention_bwd_weight,
};
