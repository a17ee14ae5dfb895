/* SPDX-License-Identifier: MIT */
/* layer_plain_mlp - y = mid + down(gelu(up)) of the normed mid. */
#include "run/parts/layer_impl.h"

static struct pp_joined down_of(const struct pp_layer *l)
{
    return (struct pp_joined){PP_P_DOWN, PP_P_DOWN_BIAS,
                              l->model->intermediate};
}

static int first_product(const struct pp_layer *l,
                         const struct pp_microbatch *mb,
                         const struct pp_layer_blocks *b, void *const *s,
                         struct pp_err *err)
{
    size_t C = l->model->hidden, I = l->model->intermediate;
    const void *x = pp_layer_gather(l, mb, b, s[PP_S_NORM2], err);
    if (!x)
        return -1;
    PP_LAYER_RUN(l->kernels->linear_fwd(s[PP_S_GATE_UP], x, l->w[PP_P_UP],
                                        l->w[PP_P_UP_BIAS], NULL, mb->tokens, C,
                                        I, I, C, l->stream));
    return 0;
}

static int gelu(const struct pp_layer *l, size_t T, void *const *s,
                struct pp_err *err)
{
    const struct pp_model *m = l->model;
    PP_LAYER_RUN(l->kernels->gelu_fwd(s[PP_S_ACT], s[PP_S_GATE_UP],
                                      T * m->intermediate, m->exact_gelu,
                                      l->stream));
    return 0;
}

static int plain_fwd(const struct pp_layer *l, const struct pp_microbatch *mb,
                     void *y, const struct pp_layer_blocks *b, void *const *s,
                     void *scratch, struct pp_err *err)
{
    (void)scratch;
    const struct pp_joined p = down_of(l);
    return first_product(l, mb, b, s, err) || gelu(l, mb->tokens, s, err) ||
                   pp_layer_join_fwd(l, mb, b, y, s[PP_S_ACT], &p, s[PP_S_MID],
                                     err)
               ? -1
               : 0;
}

static int plain_recompute(const struct pp_layer *l,
                           const struct pp_microbatch *mb,
                           const struct pp_layer_blocks *b, void *const *s,
                           void *scratch, struct pp_err *err)
{
    (void)scratch;
    if (l->recompute == PP_RECOMPUTE_FULL && first_product(l, mb, b, s, err))
        return -1;
    return gelu(l, mb->tokens, s, err);
}

/* The gradient of the activation becomes that of its input in place. */
static int plain_bwd_input(const struct pp_layer *l,
                           const struct pp_microbatch *mb, const void *dy,
                           const struct pp_layer_blocks *b, void *const *s,
                           void *scratch, struct pp_err *err)
{
    (void)scratch;
    const struct pp_joined p = down_of(l);
    size_t I = l->model->intermediate;
    void *d = s[PP_S_DGATE_UP];
    if (pp_layer_join_bwd_input(l, mb, b, d, dy, &p, err))
        return -1;
    PP_LAYER_RUN(l->kernels->gelu_bwd(d, d, s[PP_S_GATE_UP], mb->tokens * I,
                                      l->model->exact_gelu, l->stream));
    return pp_layer_split_bwd_input(l, mb, b, s[PP_S_DNORM2], d, PP_P_UP, I,
                                    err);
}

static int plain_bwd_weight(const struct pp_layer *l,
                            const struct pp_microbatch *mb,
                            const struct pp_layer_blocks *b, void *const *s,
                            struct pp_err *err)
{
    const struct pp_joined p = down_of(l);
    size_t C = l->model->hidden, I = l->model->intermediate;
    if (pp_layer_join_bwd_weight(l, mb, b, s[PP_S_DY], s[PP_S_ACT], &p, err))
        return -1;
    const void *x = pp_layer_gather(l, mb, b, s[PP_S_NORM2], err);
    if (!x)
        return -1;
    if (l->g[PP_P_UP])
        PP_LAYER_RUN(l->kernels->linear_bwd_weight(
            l->g[PP_P_UP], l->g[PP_P_UP_BIAS], s[PP_S_DGATE_UP], x, mb->tokens,
            C, I, I, C, l->stream));
    return 0;
}

const struct pp_block_ops pp_part_plain_mlp = {
    .fwd = plain_fwd,
    .recompute = plain_recompute,
    .bwd_input = plain_bwd_input,
    .bwd_weight = plain_bwd_weight,
};
