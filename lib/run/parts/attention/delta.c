/* SPDX-License-Identifier: MIT */
/* delta - linear attention: mid = x + out_proj(delta(in_proj(normed x))).
 * One product makes queries, keys, values, the gate of the outputs, and what
 * decides how much a token writes and how fast the state decays.
 * Tensor-parallel ranks divide the heads. */
#include "run/parts/attention/attention.h"

static struct pp_product product(const struct pp_call *c)
{
    const struct pp_delta d = pp_shard_delta(&c->env->shard);
    return (struct pp_product){PP_P_DELTA_QKV, PP_NO_SLOT, c->C,
                               pp_delta_outputs(&d)};
}

static struct pp_product output(const struct pp_call *c)
{
    const struct pp_delta d = pp_shard_delta(&c->env->shard);
    return (struct pp_product){PP_P_DELTA_O, PP_NO_SLOT,
                               d.value_heads * d.value_dim, c->C};
}

static struct pp_delta_shape shape(const struct pp_call *c)
{
    const struct pp_delta d = pp_shard_delta(&c->env->shard);
    return (struct pp_delta_shape){.N = c->T,
                                   .NK = d.key_heads,
                                   .NV = d.value_heads,
                                   .DK = d.key_dim,
                                   .DV = d.value_dim,
                                   .taps = d.taps,
                                   .grouped = pp_model_delta_grouped(c->m),
                                   .n_sequences = c->mb->n_sequences,
                                   .cu_padded = c->mb->cu_seqlens_padded,
                                   .eps = c->m->norm_eps};
}

/* Returns what the slice before passes to this one; NULL: this is the first. */
static void *passed(const struct pp_call *c)
{
    const struct pp_slice *s = &c->mb->slice;
    return s->n_before
               ? (char *)s->before[s->n_before - 1].block[PP_SAVED_STATES] +
                     c->l->states
               : NULL;
}

/* Likewise, if a sequence goes on in this slice. */
static void *before(const struct pp_call *c)
{
    return c->mb->slice.context ? passed(c) : NULL;
}

/* Returns what passes to the next slice; NULL: this is the last. */
static void *behind(const struct pp_call *c)
{
    return c->mb->slice.continues ? c->states : NULL;
}

static struct pp_delta_weights weights(const struct pp_call *c)
{
    return (struct pp_delta_weights){c->w[PP_P_DELTA_CONV], c->w[PP_P_DELTA_DT],
                                     c->w[PP_P_DELTA_LOG],
                                     c->w[PP_P_DELTA_NORM]};
}

/* Context-parallel ranks: each gets a share of the heads for the rows of all
 * ranks, as attention does in heads.c, so whole sequences pass a state. Outputs
 * of states, and gradients behind the activation and of the norm, are kept for
 * these rows. */
struct share {
    struct pp_delta_shape s;
    size_t ranks, row, values; /* widths of its rows, and of its outputs */
};

static struct share share_of(const struct pp_call *c)
{
    const struct pp_delta d = pp_shard_delta(&c->env->shard);
    struct share h = {.s = shape(c), .ranks = (size_t)c->env->context.group.n};
    h.row = pp_delta_outputs(&d) / h.ranks;
    h.values = d.value_heads * d.value_dim / h.ranks;
    h.s.before = before(c);
    if (h.ranks == 1)
        return h;
    h.s.N = c->mb->keys.n;
    h.s.NK /= h.ranks;
    h.s.NV /= h.ranks;
    h.s.n_sequences = c->mb->keys.n_whole;
    h.s.cu_padded = c->mb->keys.whole_cu_padded;
    h.s.share = (size_t)c->env->context.group.index;
    h.s.others = h.ranks - 1;
    return h;
}

/* Returns the columns of rows like QKV_RAW, or of outputs. */
static struct pp_bundle inputs(const struct pp_call *c, const struct share *h,
                               const void *rows)
{
    const struct pp_delta d = pp_shard_delta(&c->env->shard);
    size_t keys = d.key_heads * d.key_dim, NV = d.value_heads;
    size_t values = NV * d.value_dim, ld = h->row * h->ranks;
    const size_t apart[] = {keys, keys, values, values, NV, NV};
    const size_t grouped[] = {ld - 2 * NV, 2 * NV};
    const size_t *width = h->s.grouped ? grouped : apart;
    struct pp_bundle b = {.n = 0};
    for (size_t at = 0, i = 0; at < ld; at += width[i++])
        pp_bundle_add(&b, rows, ld, at, width[i] / h->ranks);
    return b;
}

static struct pp_bundle outputs(const struct share *h, const void *rows)
{
    struct pp_bundle b = {.n = 0};
    pp_bundle_add(&b, rows, h->values * h->ranks, 0, h->values);
    return b;
}

/* Room for rows of a share behind `at`; none if the rank has all heads. */
static void *behind_rows(const struct pp_call *c, const struct share *h,
                         void *at, size_t width)
{
    return pp_at(c, at, h->ranks > 1 ? h->s.N * width : 0);
}

/* Returns the rows of the share: in x, with y as scratch, or where they are. */
static const void *take(const struct pp_call *c, const struct share *h,
                        struct pp_bundle b, void *x, void *y)
{
    if (h->ranks == 1)
        return b.block[0].from;
    pp_to_heads(c, &b, x, y);
    return x;
}

/* Slices do not make queries, keys and values again: if they are there, this is
 * I, and the next slice has put gradients in the place of what it read. */
static void heads_fwd(const struct pp_call *c, bool again)
{
    struct share h = share_of(c);
    const struct pp_delta_weights w = weights(c);
    void *x = c->scratch, *y = behind_rows(c, &h, x, h.row);
    void *scratch = behind_rows(c, &h, y, h.row);
    const void *in = take(c, &h, inputs(c, &h, c->s[PP_S_QKV_RAW]), x, y);
    const struct pp_bundle out = outputs(&h, c->s[PP_S_GATED]);
    h.s.behind = again ? NULL : behind(c);
    PP_RUN(c, delta->fwd, h.ranks > 1 ? y : c->s[PP_S_GATED], c->s[PP_S_ATTN],
           in, &w, &h.s, scratch);
    if (h.ranks > 1)
        pp_from_heads(c, &out, y, x);
}

/* Computes DQKV from the gradients of outputs; room is scratch. */
static void heads_bwd_input(const struct pp_call *c, const void *dgated,
                            void *room)
{
    struct share h = share_of(c);
    const struct pp_delta_weights w = weights(c);
    void *x = room, *dout = behind_rows(c, &h, x, h.row);
    void *din = behind_rows(c, &h, dout, h.values);
    void *y = behind_rows(c, &h, din, h.row);
    void *scratch = behind_rows(c, &h, y, h.row);
    const void *in = take(c, &h, inputs(c, &h, c->s[PP_S_QKV_RAW]), x, y);
    const void *dy = take(c, &h, outputs(&h, dgated), dout, y);
    const struct pp_bundle back = inputs(c, &h, c->s[PP_S_DQKV]);
    h.s.behind = behind(c);
    PP_RUN(c, delta->bwd_input, h.ranks > 1 ? din : c->s[PP_S_DQKV],
           c->s[PP_S_DQK_NORM], c->s[PP_S_DSINKS], dy, in, c->s[PP_S_ATTN], &w,
           &h.s, scratch);
    if (h.ranks > 1)
        pp_from_heads(c, &back, din, y);
}

static void heads_bwd_weight(const struct pp_call *c)
{
    struct share h = share_of(c);
    const struct pp_delta_weights w = weights(c);
    const struct pp_delta_gradients g = {pp_call_gradient(c, PP_P_DELTA_CONV),
                                         pp_call_gradient(c, PP_P_DELTA_DT),
                                         pp_call_gradient(c, PP_P_DELTA_LOG),
                                         pp_call_gradient(c, PP_P_DELTA_NORM)};
    void *x = c->scratch, *dx = behind_rows(c, &h, x, h.row);
    void *y = behind_rows(c, &h, dx, h.row);
    const void *in = take(c, &h, inputs(c, &h, c->s[PP_S_QKV_RAW]), x, y);
    const void *din = take(c, &h, inputs(c, &h, c->s[PP_S_DQKV]), dx, y);
    h.s.before = NULL;
    h.s.behind = behind(c);
    PP_RUN(c, delta->bwd_weight, &g, din, c->s[PP_S_DQK_NORM],
           c->s[PP_S_DSINKS], in, &w, &h.s);
}

/* The call of a span, or of the whole microbatch if it has no spans. */
static size_t n_calls(const struct pp_call *c)
{
    return c->mb->spans ? c->mb->n_spans : 1;
}

static const struct pp_call *call_of(const struct pp_call *c, size_t i,
                                     struct pp_span_call *v)
{
    if (!c->mb->spans)
        return c;
    pp_span_call(c, &c->mb->spans[i], v);
    return &v->call;
}

static void delta_inner(const struct pp_call *c, enum pp_recompute parts)
{
    const struct pp_product in = product(c);
    struct pp_span_call v;
    if (parts & PP_AGAIN_QKV)
        pp_product_fwd(c, &in, c->T, c->s[PP_S_QKV_RAW],
                       pp_layer_gather(c, c->s[PP_S_NORM1]), NULL);
    for (size_t i = 0; parts & PP_AGAIN_ATTENTION && i < n_calls(c); i++)
        heads_fwd(call_of(c, i, &v), !(parts & PP_AGAIN_QKV));
}

static void delta_last(const struct pp_call *c, void *y, const void *residual)
{
    const struct pp_product out = output(c);
    pp_join_fwd(c, &out, y, c->s[PP_S_GATED], residual);
}

static void delta_bwd_input(const struct pp_call *c, const void *dy)
{
    const struct pp_product in = product(c), out = output(c);
    struct pp_span_call v;
    /* Nothing here reads what the slice before passes. */
    if (passed(c) && !before(c))
        pp_call_erase(c, passed(c),
                      pp_unit_states(&c->env->shard, c->l->unit,
                                     c->k->accumulator_bytes));
    void *dgated = c->scratch, *room = pp_at(c, dgated, out.in * c->T);
    pp_join_bwd_input(c, &out, dgated, dy, c->s[PP_S_GATED]);
    for (size_t i = 0; i < n_calls(c); i++) {
        size_t first = c->mb->spans ? c->mb->spans[i].first_row : 0;
        heads_bwd_input(call_of(c, i, &v), pp_at(c, dgated, first * out.in),
                        room);
    }
    pp_split_bwd_input(c, &in, c->s[PP_S_DNORM1], c->s[PP_S_DQKV]);
}

static void delta_bwd_weight(const struct pp_call *c)
{
    const struct pp_product in = product(c), out = output(c);
    struct pp_span_call v;
    pp_join_bwd_weight(c, &out, c->s[PP_S_DOUT1], c->s[PP_S_GATED]);
    for (size_t i = 0; c->g[PP_P_DELTA_CONV] && i < n_calls(c); i++)
        heads_bwd_weight(call_of(c, i, &v));
    pp_product_bwd_weight(c, &in, c->T, c->s[PP_S_DQKV],
                          pp_layer_gather(c, c->s[PP_S_NORM1]));
}

const struct pp_block_ops pp_part_delta = {
    .inner = delta_inner,
    .last = delta_last,
    .bwd_input = delta_bwd_input,
    .bwd_weight = delta_bwd_weight,
};
