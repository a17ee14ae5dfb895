/* SPDX-License-Identifier: MIT */
/* layer_projector - y = linear2(gelu(linear1(features))): the way from an
 * encoder to the language model.
 *
 * The features of LLaVA (Liu et al., "Improved Baselines with Visual
 * Instruction Tuning", CVPR 2024) are some rows of the encoder: those of
 * patches, without the class token. Those of Qwen2-VL are several neighbours
 * each, after a norm of every patch. Tensor-parallel ranks divide the images
 * and not the products. If the encoder has a mesh of its own, and ranks of the
 * language model divide tokens, the output is sorted by the rank that takes
 * it: each then gets one message. */
#include "model/vision.h"
#include "run/parts/layer_impl.h"

/* Rows and widths: features, patches of one, and a patch; what the first
 * product reads, what it writes, and what the language model gets. */
struct projector {
    bool merges;
    size_t n, merge, patch, in, middle, out;
    void *s[PP_MAX_SAVED];
};

static struct projector projector_of(const struct pp_layer *l,
                                     const struct pp_microbatch *mb,
                                     enum pp_saved_when when,
                                     const struct pp_layer_blocks *b)
{
    const struct pp_model *m = l->env->model;
    const struct pp_vision *v = &m->vision;
    struct projector p = {.merges = pp_vision_merges(v),
                          .n = mb->n_features,
                          .merge = v->merge,
                          .patch = v->hidden,
                          .in = v->merge * v->hidden,
                          .out = m->hidden};
    p.middle = p.merges ? p.in : p.out;
    pp_layer_saved(l, p.n, when, b, p.s);
    return p;
}

/* Finds what the first product reads. */
static int read_features(const struct pp_layer *l,
                         const struct pp_microbatch *mb,
                         const struct projector *p, const void *x,
                         struct pp_err *err)
{
    const struct pp_kernels *k = l->env->kernels;
    if (!p->merges) {
        PP_LAYER_RUN(k->embedding_fwd(p->s[PP_S_FEATURES], mb->feature_rows, x,
                                      p->n, p->in, l->env->stream));
        return 0;
    }
    PP_LAYER_RUN(k->copy(p->s[PP_S_MERGER_X], x, p->n, p->in, p->in, p->in,
                         l->env->stream));
    PP_LAYER_RUN(k->layernorm_fwd(
        p->s[PP_S_FEATURES], p->s[PP_S_MERGER_MEAN], p->s[PP_S_MERGER_RSTD], x,
        l->w[PP_P_MERGER_NORM], l->w[PP_P_MERGER_NORM_BIAS], p->n * p->merge,
        p->patch, l->env->model->vision.norm_eps, l->env->stream));
    return 0;
}

static int projector_fwd(const struct pp_layer *l,
                         const struct pp_microbatch *mb, void *y, const void *x,
                         const struct pp_layer_blocks *b, void *scratch,
                         struct pp_err *err)
{
    const struct pp_kernels *k = l->env->kernels;
    struct projector p = projector_of(l, mb, PP_IN_FORWARD, b);
    void *made = mb->routes ? scratch : y;
    if (read_features(l, mb, &p, x, err))
        return -1;
    PP_LAYER_RUN(k->linear_fwd(p.s[PP_S_PROJECTED], p.s[PP_S_FEATURES],
                               l->w[PP_P_LINEAR1], l->w[PP_P_LINEAR1_BIAS],
                               NULL, p.n, p.in, p.middle, p.middle, p.in,
                               l->env->stream));
    PP_LAYER_RUN(k->gelu_fwd(
        p.s[PP_S_PROJECTED_ACT], p.s[PP_S_PROJECTED], p.n * p.middle,
        l->env->model->vision.projector_gelu, l->env->stream));
    PP_LAYER_RUN(k->linear_fwd(made, p.s[PP_S_PROJECTED_ACT],
                               l->w[PP_P_LINEAR2], l->w[PP_P_LINEAR2_BIAS],
                               NULL, p.n, p.middle, p.out, p.out, p.middle,
                               l->env->stream));
    if (mb->routes)
        PP_LAYER_RUN(k->embedding_fwd(y, mb->routes->order, made, p.n, p.out,
                                      l->env->stream));
    return 0;
}

/* Computes dx from the gradient d of the first product. The gradient of what
 * LLaVA's reads is in the scratch; rows that the language model does not get
 * have a gradient of 0. */
static int read_gradient(const struct pp_layer *l,
                         const struct pp_microbatch *mb,
                         const struct projector *p, void *dx, const void *d,
                         void *scratch, struct pp_err *err)
{
    const struct pp_kernels *k = l->env->kernels;
    void *to = p->merges ? p->s[PP_S_DMERGER] : scratch;
    if (!dx && !p->merges)
        return 0;
    PP_LAYER_RUN(k->linear_bwd_input(to, d, l->w[PP_P_LINEAR1], p->n, p->in,
                                     p->middle, p->in, p->middle,
                                     l->env->stream));
    if (p->merges) {
        if (dx)
            PP_LAYER_RUN(k->layernorm_bwd_input(
                dx, to, p->s[PP_S_MERGER_X], p->s[PP_S_MERGER_MEAN],
                p->s[PP_S_MERGER_RSTD], l->w[PP_P_MERGER_NORM], p->n * p->merge,
                p->patch, l->env->stream));
        return 0;
    }
    PP_LAYER_RUN(k->zero(dx, mb->tokens * p->in, l->env->stream));
    PP_LAYER_RUN(
        k->scatter(dx, to, mb->feature_rows, p->n, p->in, l->env->stream));
    return 0;
}

static int projector_bwd_input(const struct pp_layer *l,
                               const struct pp_microbatch *mb, void *dx,
                               const void *dy, const struct pp_layer_blocks *b,
                               void *scratch, struct pp_err *err)
{
    const struct pp_kernels *k = l->env->kernels;
    struct projector p = projector_of(l, mb, PP_IN_BACKWARD, b);
    void *d = p.s[PP_S_DPROJECTED];
    void *own = p.s[PP_S_PROJECTOR_DY];
    if (mb->routes)
        PP_LAYER_RUN(
            k->scatter(own, dy, mb->routes->order, p.n, p.out, l->env->stream));
    else
        PP_LAYER_RUN(
            k->copy(own, dy, p.n, p.out, p.out, p.out, l->env->stream));
    PP_LAYER_RUN(k->linear_bwd_input(d, own, l->w[PP_P_LINEAR2], p.n, p.middle,
                                     p.out, p.middle, p.out, l->env->stream));
    PP_LAYER_RUN(k->gelu_bwd(d, d, p.s[PP_S_PROJECTED], p.n * p.middle,
                             l->env->model->vision.projector_gelu,
                             l->env->stream));
    return read_gradient(l, mb, &p, dx, d, scratch, err);
}

static int projector_bwd_weight(const struct pp_layer *l,
                                const struct pp_microbatch *mb,
                                const struct pp_layer_blocks *b, void *scratch,
                                struct pp_err *err)
{
    (void)scratch;
    const struct pp_kernels *k = l->env->kernels;
    struct projector p = projector_of(l, mb, PP_IN_BACKWARD, b);
    if (l->g[PP_P_LINEAR2])
        PP_LAYER_RUN(k->linear_bwd_weight(
            l->g[PP_P_LINEAR2], l->g[PP_P_LINEAR2_BIAS], p.s[PP_S_PROJECTOR_DY],
            p.s[PP_S_PROJECTED_ACT], p.n, p.middle, p.out, p.out, p.middle,
            l->env->stream));
    if (l->g[PP_P_LINEAR1])
        PP_LAYER_RUN(k->linear_bwd_weight(
            l->g[PP_P_LINEAR1], l->g[PP_P_LINEAR1_BIAS], p.s[PP_S_DPROJECTED],
            p.s[PP_S_FEATURES], p.n, p.in, p.middle, p.middle, p.in,
            l->env->stream));
    if (l->g[PP_P_MERGER_NORM])
        PP_LAYER_RUN(k->layernorm_bwd_weight(
            l->g[PP_P_MERGER_NORM], l->g[PP_P_MERGER_NORM_BIAS],
            p.s[PP_S_DMERGER], p.s[PP_S_MERGER_X], p.s[PP_S_MERGER_MEAN],
            p.s[PP_S_MERGER_RSTD], p.n * p.merge, p.patch, l->env->stream));
    return 0;
}

const struct pp_layer_ops pp_layer_projector = {
    .fwd = projector_fwd,
    .bwd_input = projector_bwd_input,
    .bwd_weight = projector_bwd_weight,
};
