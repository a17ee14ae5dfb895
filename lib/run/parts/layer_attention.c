/* SPDX-License-Identifier: MIT */
/* layer_attention - mid = x + o_proj(attention(qkv_proj(normed x))).
 *
 * A row of QKV holds the query heads, the key heads and the value heads. With
 * QK-norm the layer also keeps the raw queries and keys; a product of their own
 * writes them in their place. */
#include "run/parts/layer_impl.h"

#include <math.h>

static struct pp_attention_shape shape(const struct pp_layer *l,
                                       const struct pp_microbatch *mb)
{
    const struct pp_model *m = l->env->model;
    struct pp_qkv_widths w = pp_qkv_widths(m);
    double scale = m->mla.score_scale;
    double width = m->query_scalar > 0 ? m->query_scalar : (double)m->head_dim;
    bool in_windows =
        mb->cu_windows &&
        pp_layer_set_has(&pp_layer_encoder(l)->windowed, l->unit.layer);
    return (struct pp_attention_shape){
        .N = mb->tokens,
        .NH = m->n_heads,
        .NKV = m->n_kv_heads,
        .HDQK = m->head_dim,
        .HDV = pp_model_v_dim(m),
        .ldq = w.qkv,
        .ldkv = w.qkv,
        .ldo = w.o,
        .n_sequences = in_windows ? mb->n_windows : mb->n_sequences,
        .cu = in_windows ? mb->cu_windows : mb->cu_seqlens,
        .cu_padded = in_windows ? mb->cu_windows : mb->cu_seqlens_padded,
        .scale = (scale > 0 ? scale : 1) / sqrt(width),
        .cap = m->score_cap,
        .window = pp_unit_window(m, l->unit),
        .whole = pp_family_of(m->architecture)->whole,
    };
}

/* Products of queries, keys and values on their own, since keys have no bias.
 */
static int three_fwd(const struct pp_layer *l, size_t T, void *qkv,
                     const void *x, struct pp_err *err)
{
    const struct pp_qkv_widths w = pp_qkv_widths(l->env->model);
    const size_t bounds[] = {0, w.q, w.qk, w.qkv};
    size_t C = l->env->model->hidden;
    for (size_t i = 0; i < 3; i++)
        PP_LAYER_RUN(l->env->kernels->linear_fwd(
            pp_layer_at(l, qkv, bounds[i]), x, l->w[PP_P_Q + i],
            l->w[PP_P_Q_BIAS + i], NULL, T, C, bounds[i + 1] - bounds[i], w.qkv,
            C, l->env->stream));
    return 0;
}

static int three_bwd_weight(const struct pp_layer *l, size_t T,
                            const void *dqkv, const void *x, struct pp_err *err)
{
    const struct pp_qkv_widths w = pp_qkv_widths(l->env->model);
    const size_t bounds[] = {0, w.q, w.qk, w.qkv};
    size_t C = l->env->model->hidden;
    for (size_t i = 0; i < 3 && l->g[PP_P_Q]; i++)
        PP_LAYER_RUN(l->env->kernels->linear_bwd_weight(
            l->g[PP_P_Q + i], l->g[PP_P_Q_BIAS + i],
            pp_layer_at(l, dqkv, bounds[i]), x, T, C, bounds[i + 1] - bounds[i],
            w.qkv, C, l->env->stream));
    return 0;
}

static int qkv_fwd(const struct pp_layer *l, const struct pp_microbatch *mb,
                   const struct pp_layer_blocks *b, void *const *s,
                   struct pp_err *err)
{
    const struct pp_kernels *k = l->env->kernels;
    const struct pp_model *m = l->env->model;
    struct pp_qkv_widths w = pp_qkv_widths(m);
    size_t T = mb->tokens, C = m->hidden;
    const void *x = pp_layer_gather(l, mb, b, s[PP_S_NORM1], err);
    if (!x)
        return -1;
    if (m->no_k_bias)
        return three_fwd(l, T, s[PP_S_QKV], x, err);
    if (!m->qk_norm) {
        PP_LAYER_RUN(k->linear_fwd(s[PP_S_QKV], x, l->w[PP_P_Q],
                                   l->w[PP_P_Q_BIAS], NULL, T, C, w.qkv, w.qkv,
                                   C, l->env->stream));
        return 0;
    }
    PP_LAYER_RUN(k->linear_fwd(s[PP_S_QKV_RAW], x, l->w[PP_P_Q],
                               l->w[PP_P_Q_BIAS], NULL, T, C, w.qk, w.qk, C,
                               l->env->stream));
    PP_LAYER_RUN(k->linear_fwd(pp_layer_at(l, s[PP_S_QKV], w.qk), x,
                               l->w[PP_P_V], l->w[PP_P_V_BIAS], NULL, T, C,
                               w.qkv - w.qk, w.qkv, C, l->env->stream));
    return pp_qk_norm_fwd(l, b, T, s, err);
}

/* Rotates queries and keys by their positions. */
static int rotate(const struct pp_layer *l, const struct pp_microbatch *mb,
                  void *qkv, int direction, struct pp_err *err)
{
    const struct pp_env *e = l->env;
    const struct pp_model *m = e->model;
    bool own = e->windowed_cos && pp_unit_window(m, l->unit);
    if (mb->axes)
        return pp_layer_rotate_axes(l, mb, qkv, direction, err);
    if (pp_unit_rotates(m, l->unit))
        PP_LAYER_RUN(e->kernels->rope(
            qkv, own ? e->windowed_cos : e->rope_cos,
            own ? e->windowed_sin : e->rope_sin, mb->positions, mb->tokens,
            m->n_heads + m->n_kv_heads, pp_model_rotary(m),
            pp_qkv_widths(m).qkv, m->head_dim, false, direction, e->stream));
    return 0;
}

struct pp_joined pp_attention_output(const struct pp_layer *l)
{
    return (struct pp_joined){PP_P_O, PP_P_O_BIAS,
                              pp_qkv_widths(l->env->model).o};
}

/* All keys and values are in the microbatch. */
static int here_fwd(const struct pp_layer *l, const struct pp_microbatch *mb,
                    const struct pp_attention_shape *a,
                    const struct pp_layer_blocks *b, void *const *s,
                    void *tiles, struct pp_err *err)
{
    (void)mb, (void)b;
    struct pp_qkv_widths w = pp_qkv_widths(l->env->model);
    PP_LAYER_RUN(l->env->kernels->attention_fwd(
        s[PP_S_ATTN], s[PP_S_LSE], s[PP_S_QKV],
        pp_layer_at(l, s[PP_S_QKV], w.q), pp_layer_at(l, s[PP_S_QKV], w.qk),
        l->w[PP_P_SINKS], a, tiles, l->env->stream));
    return 0;
}

static int here_bwd(const struct pp_layer *l, const struct pp_microbatch *mb,
                    const struct pp_attention_shape *a, const void *dattn,
                    const struct pp_layer_blocks *b, void *const *s,
                    void *tiles, struct pp_err *err)
{
    (void)mb, (void)b;
    struct pp_qkv_widths w = pp_qkv_widths(l->env->model);
    PP_LAYER_RUN(l->env->kernels->attention_bwd(
        s[PP_S_DQKV], pp_layer_at(l, s[PP_S_DQKV], w.q),
        pp_layer_at(l, s[PP_S_DQKV], w.qk), dattn, s[PP_S_QKV],
        pp_layer_at(l, s[PP_S_QKV], w.q), pp_layer_at(l, s[PP_S_QKV], w.qk),
        s[PP_S_ATTN], s[PP_S_LSE], a, tiles, l->env->stream));
    return 0;
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
    return n_slices > 1 ? &pp_exchange_slices
           : x->cp > 1  ? of_ranks[x->cp_exchange]
                        : &exchange_here;
}

struct pp_lse_rows pp_lse_rows(const struct pp_layer *l,
                               const struct pp_microbatch *mb)
{
    size_t NH = l->env->model->n_heads, n = (size_t)l->env->context.group.n;
    if (l->env->exchange != &pp_exchange_heads)
        return (struct pp_lse_rows){mb->tokens, 0, NH};
    size_t heads = NH / n;
    return (struct pp_lse_rows){
        mb->key_rows, (size_t)l->env->context.group.index * heads, heads};
}

int pp_sinks_bwd_input(const struct pp_layer *l, const struct pp_microbatch *mb,
                       void *const *s, const void *dattn, const void *attn,
                       size_t ld, struct pp_err *err)
{
    const struct pp_model *m = l->env->model;
    struct pp_lse_rows r = pp_lse_rows(l, mb);
    if (l->w[PP_P_SINKS])
        PP_LAYER_RUN(l->env->kernels->experts->sinks_bwd_input(
            s[PP_S_DSINKS], dattn, attn, s[PP_S_LSE],
            pp_layer_at(l, l->w[PP_P_SINKS], r.first), r.n, r.heads,
            pp_model_v_dim(m), ld, l->env->stream));
    return 0;
}

static const struct pp_attention_exchange *
exchange_of(const struct pp_layer *l, const struct pp_cp_span *span)
{
    return span->ranks > 1 ? l->env->exchange : &exchange_here;
}

int pp_attention_heads_fwd(const struct pp_layer *l,
                           const struct pp_microbatch *mb,
                           const struct pp_layer_blocks *b, void *const *s,
                           void *scratch, struct pp_err *err)
{
    struct pp_attention_shape a = shape(l, mb);
    struct pp_cp_span_view v;
    if (!mb->spans)
        return l->env->exchange->fwd(l, mb, &a, b, s, scratch, err);
    for (size_t i = 0; i < mb->n_spans; i++) {
        const struct pp_cp_span *span = &mb->spans[i];
        pp_cp_span_view(l, mb, s, span, &v);
        a = shape(&v.layer, &v.mb);
        if (exchange_of(l, span)->fwd(&v.layer, &v.mb, &a, b, v.s, scratch,
                                      err))
            return -1;
    }
    return 0;
}

static int attention_fwd(const struct pp_layer *l,
                         const struct pp_microbatch *mb, void *y,
                         const void *residual, const struct pp_layer_blocks *b,
                         void *const *s, void *scratch, struct pp_err *err)
{
    const struct pp_joined o = pp_attention_output(l);
    return qkv_fwd(l, mb, b, s, err) || rotate(l, mb, s[PP_S_QKV], 1, err) ||
                   pp_attention_heads_fwd(l, mb, b, s, scratch, err) ||
                   pp_layer_join_fwd(l, mb, b, y, s[PP_S_ATTN], &o, residual,
                                     err)
               ? -1
               : 0;
}

/* Takes dattn through attention, and through the sinks unless the exchange has
 * done so. */
static int bwd_by(const struct pp_attention_exchange *by,
                  const struct pp_layer *l, const struct pp_microbatch *mb,
                  const void *dattn, const struct pp_layer_blocks *b,
                  void *const *s, void *tiles, struct pp_err *err)
{
    struct pp_attention_shape a = shape(l, mb);
    if (by != &pp_exchange_heads &&
        pp_sinks_bwd_input(l, mb, s, dattn, s[PP_S_ATTN], a.ldo, err))
        return -1;
    return by->bwd(l, mb, &a, dattn, b, s, tiles, err);
}

static int exchange_bwd(const struct pp_layer *l,
                        const struct pp_microbatch *mb, const void *dattn,
                        const struct pp_layer_blocks *b, void *const *s,
                        void *tiles, struct pp_err *err)
{
    size_t width = pp_qkv_widths(l->env->model).o;
    struct pp_cp_span_view v;
    if (!mb->spans)
        return bwd_by(l->env->exchange, l, mb, dattn, b, s, tiles, err);
    for (size_t i = 0; i < mb->n_spans; i++) {
        const struct pp_cp_span *span = &mb->spans[i];
        const void *part = pp_layer_at(l, dattn, span->first_row * width);
        pp_cp_span_view(l, mb, s, span, &v);
        if (bwd_by(exchange_of(l, span), &v.layer, &v.mb, part, b, v.s, tiles,
                   err))
            return -1;
    }
    return 0;
}

int pp_attention_heads_bwd(const struct pp_layer *l,
                           const struct pp_microbatch *mb, const void *dy,
                           const struct pp_layer_blocks *b, void *const *s,
                           void *scratch, struct pp_err *err)
{
    const struct pp_joined o = pp_attention_output(l);
    void *dattn = scratch,
         *tiles = pp_layer_at(l, scratch, o.width * mb->tokens);
    return pp_layer_join_bwd_input(l, mb, b, dattn, dy, &o, err) ||
                   exchange_bwd(l, mb, dattn, b, s, tiles, err)
               ? -1
               : 0;
}

static int attention_bwd_input(const struct pp_layer *l,
                               const struct pp_microbatch *mb, const void *dy,
                               const struct pp_layer_blocks *b, void *const *s,
                               void *scratch, struct pp_err *err)
{
    const struct pp_model *m = l->env->model;
    struct pp_qkv_widths w = pp_qkv_widths(m);
    if (pp_attention_heads_bwd(l, mb, dy, b, s, scratch, err))
        return -1;
    if (rotate(l, mb, s[PP_S_DQKV], -1, err))
        return -1;
    if (m->qk_norm && pp_qk_norm_bwd_input(l, b, mb->tokens, s, err))
        return -1;
    return pp_layer_split_bwd_input(l, mb, b, s[PP_S_DNORM1], s[PP_S_DQKV],
                                    PP_P_Q, w.qkv, err);
}

static int add_sinks(const struct pp_layer *l, const struct pp_microbatch *mb,
                     void *const *s, struct pp_err *err)
{
    const struct pp_kernels *k = l->env->kernels;
    struct pp_lse_rows r = pp_lse_rows(l, mb);
    PP_LAYER_RUN(k->experts->sinks_bwd_weight(
        (char *)l->g[PP_P_SINKS] + r.first * k->accumulator_bytes,
        s[PP_S_DSINKS], r.n, r.heads, l->env->stream));
    return 0;
}

static int sinks_bwd_weight(const struct pp_layer *l,
                            const struct pp_microbatch *mb, void *const *s,
                            struct pp_err *err)
{
    struct pp_cp_span_view v;
    if (!mb->spans)
        return add_sinks(l, mb, s, err);
    for (size_t i = 0; i < mb->n_spans; i++) {
        pp_cp_span_view(l, mb, s, &mb->spans[i], &v);
        if (add_sinks(&v.layer, &v.mb, v.s, err))
            return -1;
    }
    return 0;
}

static int attention_bwd_weight(const struct pp_layer *l,
                                const struct pp_microbatch *mb,
                                const struct pp_layer_blocks *b, void *const *s,
                                void *scratch, struct pp_err *err)
{
    (void)scratch;
    const struct pp_kernels *k = l->env->kernels;
    struct pp_qkv_widths w = pp_qkv_widths(l->env->model);
    const struct pp_joined o = pp_attention_output(l);
    size_t C = l->env->model->hidden, T = mb->tokens;
    if (pp_layer_join_bwd_weight(l, mb, b, s[PP_S_DOUT1], s[PP_S_ATTN], &o,
                                 err))
        return -1;
    if (l->env->model->qk_norm && pp_qk_norm_bwd_weight(l, T, s, err))
        return -1;
    if (l->g[PP_P_SINKS] && sinks_bwd_weight(l, mb, s, err))
        return -1;
    const void *x = pp_layer_gather(l, mb, b, s[PP_S_NORM1], err);
    if (!x)
        return -1;
    if (l->env->model->no_k_bias)
        return three_bwd_weight(l, T, s[PP_S_DQKV], x, err);
    if (l->g[PP_P_Q])
        PP_LAYER_RUN(k->linear_bwd_weight(l->g[PP_P_Q], l->g[PP_P_Q_BIAS],
                                          s[PP_S_DQKV], x, T, C, w.qkv, w.qkv,
                                          C, l->env->stream));
    return 0;
}

const struct pp_block_ops pp_part_attention = {
    .fwd = attention_fwd,
    .recompute = pp_attention_heads_fwd,
    .bwd_input = attention_bwd_input,
    .bwd_weight = attention_bwd_weight,
};
