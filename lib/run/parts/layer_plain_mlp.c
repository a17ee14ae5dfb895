/* SPDX-License-Identifier: MIT */
/* layer_plain_mlp - y = mid + down(gelu(up)) of the normed mid. */
#include "run/parts/layer_impl.h"

static int first_product(const struct pp_layer *l, size_t T, void *const *s,
                         struct pp_err *err)
{
    size_t C = l->model->hidden, I = l->model->intermediate;
    PP_LAYER_RUN(l->kernels->linear_fwd(s[PP_S_GATE_UP], s[PP_S_NORM2],
                                        l->w[PP_P_UP], l->w[PP_P_UP_BIAS], NULL,
                                        T, C, I, I, C, l->stream));
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
    (void)b, (void)scratch;
    size_t T = mb->tokens, C = l->model->hidden, I = l->model->intermediate;
    if (first_product(l, T, s, err) || gelu(l, T, s, err))
        return -1;
    PP_LAYER_RUN(l->kernels->linear_fwd(y, s[PP_S_ACT], l->w[PP_P_DOWN],
                                        l->w[PP_P_DOWN_BIAS], s[PP_S_MID], T, I,
                                        C, C, I, l->stream));
    return 0;
}

static int plain_recompute(const struct pp_layer *l,
                           const struct pp_microbatch *mb,
                           const struct pp_layer_blocks *b, void *const *s,
                           void *scratch, struct pp_err *err)
{
    (void)b, (void)scratch;
    if (l->recompute == PP_RECOMPUTE_FULL &&
        first_product(l, mb->tokens, s, err))
        return -1;
    return gelu(l, mb->tokens, s, err);
}

/* The gradient of the activation becomes that of its input in place. */
static int plain_bwd_input(const struct pp_layer *l,
                           const struct pp_microbatch *mb, const void *dy,
                           const struct pp_layer_blocks *b, void *const *s,
                           void *scratch, struct pp_err *err)
{
    (void)b, (void)scratch;
    const struct pp_kernels *k = l->kernels;
    size_t T = mb->tokens, C = l->model->hidden, I = l->model->intermediate;
    void *d = s[PP_S_DGATE_UP];
    PP_LAYER_RUN(
        k->linear_bwd_input(d, dy, l->w[PP_P_DOWN], T, I, C, I, C, l->stream));
    PP_LAYER_RUN(k->gelu_bwd(d, d, s[PP_S_GATE_UP], T * I, l->model->exact_gelu,
                             l->stream));
    PP_LAYER_RUN(k->linear_bwd_input(s[PP_S_DNORM2], d, l->w[PP_P_UP], T, C, I,
                                     C, I, l->stream));
    return 0;
}

static int plain_bwd_weight(const struct pp_layer *l, size_t T, void *const *s,
                            struct pp_err *err)
{
    const struct pp_kernels *k = l->kernels;
    size_t C = l->model->hidden, I = l->model->intermediate;
    if (l->g[PP_P_DOWN])
        PP_LAYER_RUN(k->linear_bwd_weight(l->g[PP_P_DOWN], l->g[PP_P_DOWN_BIAS],
                                          s[PP_S_DY], s[PP_S_ACT], T, I, C, C,
                                          I, l->stream));
    if (l->g[PP_P_UP])
        PP_LAYER_RUN(k->linear_bwd_weight(l->g[PP_P_UP], l->g[PP_P_UP_BIAS],
                                          s[PP_S_DGATE_UP], s[PP_S_NORM2], T, C,
                                          I, I, C, l->stream));
    return 0;
}

const struct pp_block_ops pp_part_plain_mlp = {
    .fwd = plain_fwd,
    .recompute = plain_recompute,
    .bwd_input = plain_bwd_input,
    .bwd_weight = plain_bwd_weight,
};
