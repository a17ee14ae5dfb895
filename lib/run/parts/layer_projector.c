/* SPDX-License-Identifier: MIT */
/* layer_projector - y = linear2(gelu(linear1(features))): LLaVA's way from an
 * encoder to the language model (Liu et al., "Improved Baselines with Visual
 * Instruction Tuning", CVPR 2024).
 *
 * The features are some rows of the encoder: those of patches, without the
 * class token. Tensor-parallel ranks divide the images and not the products. */
#include "run/parts/layer_impl.h"

static int projector_fwd(const struct pp_layer *l,
                         const struct pp_microbatch *mb, void *y, const void *x,
                         const struct pp_layer_blocks *b, void *scratch,
                         struct pp_err *err)
{
    (void)scratch;
    const struct pp_kernels *k = l->env->kernels;
    const struct pp_model *m = l->env->model;
    size_t N = mb->n_features, V = m->vision.hidden, C = m->hidden;
    void *s[PP_MAX_SAVED];
    pp_layer_saved(l, N, PP_IN_FORWARD, b, s);
    PP_LAYER_RUN(k->embedding_fwd(s[PP_S_FEATURES], mb->feature_rows, x, N, V,
                                  l->env->stream));
    PP_LAYER_RUN(k->linear_fwd(s[PP_S_PROJECTED], s[PP_S_FEATURES],
                               l->w[PP_P_LINEAR1], l->w[PP_P_LINEAR1_BIAS],
                               NULL, N, V, C, C, V, l->env->stream));
    PP_LAYER_RUN(k->gelu_fwd(s[PP_S_PROJECTED_ACT], s[PP_S_PROJECTED], N * C,
                             m->vision.projector_gelu, l->env->stream));
    PP_LAYER_RUN(k->linear_fwd(y, s[PP_S_PROJECTED_ACT], l->w[PP_P_LINEAR2],
                               l->w[PP_P_LINEAR2_BIAS], NULL, N, C, C, C, C,
                               l->env->stream));
    return 0;
}

/* The gradient of the features, (n_features, encoder's hidden), is in the
 * scratch. Rows that the language model does not get have a gradient of 0. */
static int projector_bwd_input(const struct pp_layer *l,
                               const struct pp_microbatch *mb, void *dx,
                               const void *dy, const struct pp_layer_blocks *b,
                               void *scratch, struct pp_err *err)
{
    const struct pp_kernels *k = l->env->kernels;
    const struct pp_model *m = l->env->model;
    size_t N = mb->n_features, V = m->vision.hidden, C = m->hidden;
    void *s[PP_MAX_SAVED];
    pp_layer_saved(l, N, PP_IN_BACKWARD, b, s);
    void *d = s[PP_S_DPROJECTED];
    PP_LAYER_RUN(k->copy(s[PP_S_PROJECTOR_DY], dy, N, C, C, C, l->env->stream));
    PP_LAYER_RUN(k->linear_bwd_input(d, dy, l->w[PP_P_LINEAR2], N, C, C, C, C,
                                     l->env->stream));
    PP_LAYER_RUN(k->gelu_bwd(d, d, s[PP_S_PROJECTED], N * C,
                             m->vision.projector_gelu, l->env->stream));
    if (!dx)
        return 0;
    PP_LAYER_RUN(k->linear_bwd_input(scratch, d, l->w[PP_P_LINEAR1], N, V, C, V,
                                     C, l->env->stream));
    PP_LAYER_RUN(k->zero(dx, mb->tokens * V, l->env->stream));
    PP_LAYER_RUN(
        k->scatter(dx, scratch, mb->feature_rows, N, V, l->env->stream));
    return 0;
}

static int projector_bwd_weight(const struct pp_layer *l,
                                const struct pp_microbatch *mb,
                                const struct pp_layer_blocks *b, void *scratch,
                                struct pp_err *err)
{
    (void)scratch;
    const struct pp_kernels *k = l->env->kernels;
    size_t N = mb->n_features, V = l->env->model->vision.hidden;
    size_t C = l->env->model->hidden;
    void *s[PP_MAX_SAVED];
    pp_layer_saved(l, N, PP_IN_BACKWARD, b, s);
    if (l->g[PP_P_LINEAR2])
        PP_LAYER_RUN(k->linear_bwd_weight(
            l->g[PP_P_LINEAR2], l->g[PP_P_LINEAR2_BIAS], s[PP_S_PROJECTOR_DY],
            s[PP_S_PROJECTED_ACT], N, C, C, C, C, l->env->stream));
    if (l->g[PP_P_LINEAR1])
        PP_LAYER_RUN(k->linear_bwd_weight(
            l->g[PP_P_LINEAR1], l->g[PP_P_LINEAR1_BIAS], s[PP_S_DPROJECTED],
            s[PP_S_FEATURES], N, V, C, C, V, l->env->stream));
    return 0;
}

const struct pp_layer_ops pp_layer_projector = {
    .fwd = projector_fwd,
    .bwd_input = projector_bwd_input,
    .bwd_weight = projector_bwd_weight,
};
