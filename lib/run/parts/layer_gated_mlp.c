/* SPDX-License-Identifier: MIT */
/* layer_gated_mlp - y = mid + down(silu(gate) * up) of the normed mid. */
#include "run/parts/layer_impl.h"

static struct pp_joined down(const struct pp_layer *l)
{
    return (struct pp_joined){PP_P_DOWN, PP_P_DOWN_BIAS,
                              l->model->intermediate};
}

static int gate_and_up(const struct pp_layer *l, const struct pp_microbatch *mb,
                       const struct pp_layer_blocks *b, void *const *s,
                       struct pp_err *err)
{
    size_t C = l->model->hidden, I = l->model->intermediate;
    const void *x = pp_layer_gather(l, mb, b, s[PP_S_NORM2], err);
    if (!x)
        return -1;
    PP_LAYER_RUN(l->kernels->linear_fwd(s[PP_S_GATE_UP], x, l->w[PP_P_GATE],
                                        l->w[PP_P_GATE_BIAS], NULL, mb->tokens,
                                        C, 2 * I, 2 * I, C, l->stream));
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
    (void)scratch;
    const struct pp_joined p = down(l);
    return gate_and_up(l, mb, b, s, err) || swiglu(l, mb->tokens, s, err) ||
                   pp_layer_join_fwd(l, mb, b, y, s[PP_S_ACT], &p, s[PP_S_MID],
                                     err)
               ? -1
               : 0;
}

static int mlp_recompute(const struct pp_layer *l,
                         const struct pp_microbatch *mb,
                         const struct pp_layer_blocks *b, void *const *s,
                         void *scratch, struct pp_err *err)
{
    (void)scratch;
    if (l->recompute == PP_RECOMPUTE_FULL && gate_and_up(l, mb, b, s, err))
        return -1;
    return swiglu(l, mb->tokens, s, err);
}

/* The gradient of the activation, (T, I), is in the scratch. */
static int mlp_bwd_input(const struct pp_layer *l,
                         const struct pp_microbatch *mb, const void *dy,
                         const struct pp_layer_blocks *b, void *const *s,
                         void *scratch, struct pp_err *err)
{
    const struct pp_joined p = down(l);
    size_t I = l->model->intermediate;
    if (pp_layer_join_bwd_input(l, mb, b, scratch, dy, &p, err))
        return -1;
    PP_LAYER_RUN(l->kernels->swiglu_bwd(
        s[PP_S_DGATE_UP], scratch, s[PP_S_GATE_UP], mb->tokens, I, l->stream));
    return pp_layer_split_bwd_input(l, mb, b, s[PP_S_DNORM2], s[PP_S_DGATE_UP],
                                    PP_P_GATE, 2 * I, err);
}

static int mlp_bwd_weight(const struct pp_layer *l,
                          const struct pp_microbatch *mb,
                          const struct pp_layer_blocks *b, void *const *s,
                          struct pp_err *err)
{
    const struct pp_joined p = down(l);
    size_t C = l->model->hidden, I = l->model->intermediate;
    if (pp_layer_join_bwd_weight(l, mb, b, s[PP_S_DY], s[PP_S_ACT], &p, err))
        return -1;
    const void *x = pp_layer_gather(l, mb, b, s[PP_S_NORM2], err);
    if (!x)
        return -1;
    if (l->g[PP_P_GATE])
        PP_LAYER_RUN(l->kernels->linear_bwd_weight(
            l->g[PP_P_GATE], l->g[PP_P_GATE_BIAS], s[PP_S_DGATE_UP], x,
            mb->tokens, C, 2 * I, 2 * I, C, l->stream));
    return 0;
}

const struct pp_block_ops pp_part_gated_mlp = {
    .fwd = mlp_fwd,
    .recompute = mlp_recompute,
    .bwd_input = mlp_bwd_input,
    .bwd_weight = mlp_bwd_weight,
};
