/* SPDX-License-Identifier: MIT */
/* layer_decoder - a Llama-style decoder layer: x + attention(norm(x)), then the
 * same with the MLP. The MLP half is here, the attention half in
 * layer_attention.c.
 *
 * I computes all gradients of activations, and keeps in the grad_w block what W
 * multiplies. W is products and sums only. */
#include "run/parts/layer_impl.h"

/* Computes PP_S_NORM2 to PP_S_ACT from PP_S_MID. Without gates, PP_S_GATE_UP
 * was kept. */
static int mlp_inner(const struct pp_layer *l, size_t T, bool gates,
                     void *const *s, struct pp_err *err)
{
    const struct pp_kernels *k = l->kernels;
    const struct pp_model *m = l->model;
    size_t C = m->hidden, I = m->intermediate;
    PP_LAYER_RUN(k->rmsnorm_fwd(s[PP_S_NORM2], s[PP_S_RSTD2], s[PP_S_MID],
                                l->w[PP_P_NORM2], T, 1, C, C, 1, C, m->norm_eps,
                                l->stream));
    if (gates)
        PP_LAYER_RUN(k->linear_fwd(s[PP_S_GATE_UP], s[PP_S_NORM2],
                                   l->w[PP_P_GATE], l->w[PP_P_GATE_BIAS], NULL,
                                   T, C, 2 * I, 2 * I, C, l->stream));
    PP_LAYER_RUN(k->swiglu_fwd(s[PP_S_ACT], s[PP_S_GATE_UP], T, I, l->stream));
    return 0;
}

/* Computes y = mid + down(silu(gate) * up) of norm(mid). */
static int mlp_fwd(const struct pp_layer *l, size_t T, void *y, void *const *s,
                   struct pp_err *err)
{
    const struct pp_kernels *k = l->kernels;
    size_t C = l->model->hidden, I = l->model->intermediate;
    if (mlp_inner(l, T, true, s, err))
        return -1;
    PP_LAYER_RUN(k->linear_fwd(y, s[PP_S_ACT], l->w[PP_P_DOWN],
                               l->w[PP_P_DOWN_BIAS], s[PP_S_MID], T, I, C, C, I,
                               l->stream));
    return 0;
}

/* Computes dmid from dy. dact (T, I) is scratch. */
static int mlp_bwd_input(const struct pp_layer *l, size_t T, const void *dy,
                         void *const *s, void *dact, struct pp_err *err)
{
    const struct pp_kernels *k = l->kernels;
    size_t C = l->model->hidden, I = l->model->intermediate;
    PP_LAYER_RUN(k->linear_bwd_input(dact, dy, l->w[PP_P_DOWN], T, I, C, I, C,
                                     l->stream));
    PP_LAYER_RUN(k->swiglu_bwd(s[PP_S_DGATE_UP], dact, s[PP_S_GATE_UP], T, I,
                               l->stream));
    PP_LAYER_RUN(k->linear_bwd_input(s[PP_S_DNORM2], s[PP_S_DGATE_UP],
                                     l->w[PP_P_GATE], T, C, 2 * I, C, 2 * I,
                                     l->stream));
    PP_LAYER_RUN(k->rmsnorm_bwd_input(s[PP_S_DMID], s[PP_S_DNORM2], s[PP_S_MID],
                                      s[PP_S_RSTD2], l->w[PP_P_NORM2], T, 1, C,
                                      C, C, C, 1, l->stream));
    PP_LAYER_RUN(k->add(s[PP_S_DMID], s[PP_S_DMID], dy, T * C, l->stream));
    return 0;
}

static int mlp_bwd_weight(const struct pp_layer *l, size_t T, void *const *s,
                          struct pp_err *err)
{
    const struct pp_kernels *k = l->kernels;
    size_t C = l->model->hidden, I = l->model->intermediate;
    if (l->g[PP_P_DOWN])
        PP_LAYER_RUN(k->linear_bwd_weight(l->g[PP_P_DOWN], l->g[PP_P_DOWN_BIAS],
                                          s[PP_S_DY], s[PP_S_ACT], T, I, C, C,
                                          I, l->stream));
    if (l->g[PP_P_GATE])
        PP_LAYER_RUN(k->linear_bwd_weight(l->g[PP_P_GATE], l->g[PP_P_GATE_BIAS],
                                          s[PP_S_DGATE_UP], s[PP_S_NORM2], T, C,
                                          2 * I, 2 * I, C, l->stream));
    if (l->g[PP_P_NORM2])
        PP_LAYER_RUN(k->rmsnorm_bwd_weight(l->g[PP_P_NORM2], s[PP_S_DNORM2],
                                           s[PP_S_MID], s[PP_S_RSTD2], T, 1, C,
                                           C, C, 1, l->stream));
    return 0;
}

static int decoder_fwd(const struct pp_layer *l, const struct pp_microbatch *mb,
                       void *y, const void *x, const struct pp_layer_blocks *b,
                       void *scratch, struct pp_err *err)
{
    size_t T = mb->tokens, C = l->model->hidden;
    void *s[PP_MAX_SAVED];
    pp_layer_saved(l, T, PP_IN_FORWARD, b, s);
    PP_LAYER_RUN(l->kernels->copy(s[PP_S_X], x, T, C, C, C, l->stream));
    if (pp_layer_attention_fwd(l, mb, b, s, scratch, err))
        return -1;
    return mlp_fwd(l, T, y, s, err);
}

/* Computes again what the forward did not keep. The kernels and their inputs
 * are those of the forward, so the bits are the same. */
static int recompute(const struct pp_layer *l, const struct pp_microbatch *mb,
                     const struct pp_layer_blocks *b, void *const *s,
                     void *scratch, struct pp_err *err)
{
    bool full = l->recompute == PP_RECOMPUTE_FULL;
    return pp_layer_attention_recompute(l, mb, b, s, scratch, err) ||
                   mlp_inner(l, mb->tokens, full, s, err)
               ? -1
               : 0;
}

static int decoder_bwd_input(const struct pp_layer *l,
                             const struct pp_microbatch *mb, void *dx,
                             const void *dy, const struct pp_layer_blocks *b,
                             void *scratch, struct pp_err *err)
{
    size_t T = mb->tokens, C = l->model->hidden;
    void *s[PP_MAX_SAVED];
    pp_layer_saved(l, T, PP_IN_BACKWARD, b, s);
    if (l->recompute && recompute(l, mb, b, s, scratch, err))
        return -1;
    PP_LAYER_RUN(l->kernels->copy(s[PP_S_DY], dy, T, C, C, C, l->stream));
    if (mlp_bwd_input(l, T, dy, s, scratch, err))
        return -1;
    return pp_layer_attention_bwd_input(l, mb, dx, b, s, scratch, err);
}

static int decoder_bwd_weight(const struct pp_layer *l,
                              const struct pp_microbatch *mb,
                              const struct pp_layer_blocks *b, void *scratch,
                              struct pp_err *err)
{
    (void)scratch;
    void *s[PP_MAX_SAVED];
    pp_layer_saved(l, mb->tokens, PP_IN_BACKWARD, b, s);
    if (mlp_bwd_weight(l, mb->tokens, s, err))
        return -1;
    return pp_layer_attention_bwd_weight(l, mb->tokens, s, err);
}

const struct pp_layer_ops pp_layer_decoder = {
    .fwd = decoder_fwd,
    .bwd_input = decoder_bwd_input,
    .bwd_weight = decoder_bwd_weight,
};
