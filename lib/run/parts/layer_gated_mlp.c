/* SPDX-License-Identifier: MIT */
/* layer_gated_mlp - y = mid + down(silu(gate) * up) of the normed mid. */
#include "run/parts/layer_impl.h"

static int gate_and_up(const struct pp_layer *l, size_t T, void *const *s,
                       struct pp_err *err)
{
    size_t C = l->model->hidden, I = l->model->intermediate;
    PP_LAYER_RUN(l->kernels->linear_fwd(
        s[PP_S_GATE_UP], s[PP_S_NORM2], l->w[PP_P_GATE], l->w[PP_P_GATE_BIAS],
        NULL, T, C, 2 * I, 2 * I, C, l->stream));
    return 0;
}

static int swiglu(const struct pp_layer *l, size_t T, void *const *s,
                  struct pp_err *err)
{
    PP_LAYER_RUN(l->kernels->swiglu_fwd(s[PP_S_ACT], s[PP_S_GATE_UP], T,
                                        l->model->intermediate, l->stream));
    return 0;
}

static int mlp_fwd(const struct pp_layer *l, const struct pp_microbatch *mb,
                   void *y, const struct pp_layer_blocks *b, void *const *s,
                   void *scratch, struct pp_err *err)
{
    (void)b, (void)scratch;
    size_t T = mb->tokens, C = l->model->hidden, I = l->model->intermediate;
    if (gate_and_up(l, T, s, err) || swiglu(l, T, s, err))
        return -1;
    PP_LAYER_RUN(l->kernels->linear_fwd(y, s[PP_S_ACT], l->w[PP_P_DOWN],
                                        l->w[PP_P_DOWN_BIAS], s[PP_S_MID], T, I,
                                        C, C, I, l->stream));
    return 0;
}

static int mlp_recompute(const struct pp_layer *l,
                         const struct pp_microbatch *mb,
                         const struct pp_layer_blocks *b, void *const *s,
                         void *scratch, struct pp_err *err)
{
    (void)b, (void)scratch;
    if (l->recompute == PP_RECOMPUTE_FULL && gate_and_up(l, mb->tokens, s, err))
        return -1;
    return swiglu(l, mb->tokens, s, err);
}

/* The gradient of the activation, (T, I), is in the scratch. */
static int mlp_bwd_input(const struct pp_layer *l,
                         const struct pp_microbatch *mb, const void *dy,
                         const struct pp_layer_blocks *b, void *const *s,
                         void *scratch, struct pp_err *err)
{
    (void)b;
    const struct pp_kernels *k = l->kernels;
    size_t T = mb->tokens, C = l->model->hidden, I = l->model->intermediate;
    PP_LAYER_RUN(k->linear_bwd_input(scratch, dy, l->w[PP_P_DOWN], T, I, C, I,
                                     C, l->stream));
    PP_LAYER_RUN(k->swiglu_bwd(s[PP_S_DGATE_UP], scratch, s[PP_S_GATE_UP], T, I,
                               l->stream));
    PP_LAYER_RUN(k->linear_bwd_input(s[PP_S_DNORM2], s[PP_S_DGATE_UP],
                                     l->w[PP_P_GATE], T, C, 2 * I, C, 2 * I,
                                     l->stream));
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
    return 0;
}

const struct pp_block_ops pp_part_gated_mlp = {
    .fwd = mlp_fwd,
    .recompute = mlp_recompute,
    .bwd_input = mlp_bwd_input,
    .bwd_weight = mlp_bwd_weight,
};
