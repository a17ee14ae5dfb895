/* SPDX-License-Identifier: MIT */
/* layer_projector - y = linear2(gelu(linear1(features))): the way from an
 * encoder to the language model.
 *
 * The features of LLaVA (Liu et al., "Improved Baselines with Visual
 * Instruction Tuning", CVPR 2024) are some rows of the encoder: those of
 * patches, without the class token. Those of Qwen's are several neighbours
 * each, after a norm of every patch, and Qwen2.5-VL's go back from the order of
 * windows to that of the image. If the encoder has a mesh of its own, its
 * tensor-parallel ranks divide what is between the products; else ranks divide
 * the images alone. If it has one, and ranks of the language model divide
 * tokens, the output is sorted by the rank that takes it: each then gets one
 * message. */
#include "model/vision.h"
#include "run/parts/layer_impl.h"

/* Rows and widths: features, patches of one, and a patch; what the first
 * product reads, what it writes on this rank, and what the language model gets.
 */
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
    p.middle = pp_vision_middle(m) / pp_vision_tp(v);
    pp_layer_saved(l, p.n, when, b, p.s);
    return p;
}

/* The norm of every patch is that of the encoder's layers. */
static const struct pp_norm_slots of_patches = {
    PP_P_MERGER_NORM, PP_P_MERGER_NORM_BIAS, PP_S_MERGER_X, PP_S_MERGER_RSTD,
    PP_S_MERGER_MEAN, PP_S_FEATURES,         PP_S_DMERGER,  PP_NO_SLOT};

/* Returns the operations of that norm. The layer of the encoder that they work
 * on goes to *in. */
static const struct pp_norm_ops *norm_of_patches(const struct pp_layer *l,
                                                 struct pp_layer *in)
{
    *in = *l;
    in->env = l->env->images;
    return pp_norm_ops(pp_family_of(in->env->model->architecture)->norm);
}

/* Copies the rows of features, each of `merge` patches, from their places in
 * the encoder. */
static int take_rows(const struct pp_layer *l, const struct pp_microbatch *mb,
                     const struct projector *p, void *y, const void *x,
                     struct pp_err *err)
{
    const struct pp_kernels *k = l->env->kernels;
    PP_LAYER_RUN(
        mb->feature_rows
            ? k->embedding_fwd(y, mb->feature_rows, x, p->n, p->in,
                               l->env->stream)
            : k->copy(y, x, p->n, p->in, p->in, p->in, l->env->stream));
    return 0;
}

/* Finds what the first product reads. */
static int read_features(const struct pp_layer *l,
                         const struct pp_microbatch *mb,
                         const struct projector *p, const void *x,
                         struct pp_err *err)
{
    struct pp_layer in;
    size_t to = p->merges ? PP_S_MERGER_X : PP_S_FEATURES;
    if (take_rows(l, mb, p, p->s[to], x, err))
        return -1;
    return p->merges
               ? norm_of_patches(l, &in)->fwd(&in, &of_patches, p->n * p->merge,
                                              p->s[PP_S_FEATURES],
                                              p->s[PP_S_MERGER_X], p->s, err)
               : 0;
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
    PP_LAYER_RUN(k->linear_fwd(
        made, p.s[PP_S_PROJECTED_ACT], l->w[PP_P_LINEAR2],
        pp_layer_adds_bias(l) ? l->w[PP_P_LINEAR2_BIAS] : NULL, NULL, p.n,
        p.middle, p.out, p.out, p.middle, l->env->stream));
    if (pp_layer_add_up(l, b, made, p.n, p.out, err))
        return -1;
    if (mb->routes)
        PP_LAYER_RUN(k->embedding_fwd(y, mb->routes->order, made, p.n, p.out,
                                      l->env->stream));
    return 0;
}

/* Computes dx from the gradient d of the first product. The gradient of
 * features is in the scratch if they are some rows of the encoder or in another
 * order; rows that the language model does not get have a gradient of 0. */
static int read_gradient(const struct pp_layer *l,
                         const struct pp_microbatch *mb,
                         const struct pp_layer_blocks *b,
                         const struct projector *p, void *dx, const void *d,
                         void *scratch, struct pp_err *err)
{
    const struct pp_kernels *k = l->env->kernels;
    void *rows = mb->feature_rows ? scratch : dx;
    void *to = p->merges ? p->s[PP_S_DMERGER] : rows;
    struct pp_layer in;
    if (!dx && !p->merges)
        return 0;
    PP_LAYER_RUN(k->linear_bwd_input(to, d, l->w[PP_P_LINEAR1], p->n, p->in,
                                     p->middle, p->in, p->middle,
                                     l->env->stream));
    if (pp_layer_add_up(l, b, to, p->n, p->in, err))
        return -1;
    if (!dx)
        return 0;
    if (p->merges &&
        norm_of_patches(l, &in)->bwd_input(&in, &of_patches, p->n * p->merge,
                                           rows, to, p->s, err))
        return -1;
    if (!mb->feature_rows)
        return 0;
    PP_LAYER_RUN(k->zero(dx, mb->tokens * p->patch, l->env->stream));
    PP_LAYER_RUN(
        k->scatter(dx, rows, mb->feature_rows, p->n, p->in, l->env->stream));
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
    return read_gradient(l, mb, b, &p, dx, d, scratch, err);
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
    struct pp_layer in;
    return p.merges ? norm_of_patches(l, &in)->bwd_weight(
                          &in, &of_patches, p.n * p.merge, p.s, err)
                    : 0;
}

const struct pp_layer_ops pp_layer_projector = {
    .fwd = projector_fwd,
    .bwd_input = projector_bwd_input,
    .bwd_weight = projector_bwd_weight,
};
