/* SPDX-License-Identifier: MIT */
/* layer_projector - y = linear2(gelu(linear1(features))): the way from an
 * encoder to the language model. That of audio has linear2 alone.
 *
 * The features of LLaVA (Liu et al., "Improved Baselines with Visual
 * Instruction Tuning", CVPR 2024) are some rows of the encoder: those of
 * patches, with or without the class token, of one or several hidden states
 * side by side. Those of Qwen's are several neighbours
 * each, after a norm of every patch, and Qwen2.5-VL's go back from the order of
 * windows to that of the image. A feature of audio is the mean of two rows, and
 * then normed; the last row of an odd number is in none. If the encoder has a
 * mesh of its own, its tensor-parallel ranks divide what is between the
 * products; else ranks divide the images alone. If it has one, and ranks of the
 * language model divide tokens, the output is sorted by the rank that takes it:
 * each then gets one message. */
#include "model/vision.h"
#include "run/parts/layer_impl.h"

/* Rows and widths: features, norms of one, and a patch; what the first product
 * reads, what it writes on this rank, and what the language model gets. */
struct projector {
    bool norms, pools;
    size_t n, merge, states, patch, in, middle, out;
    size_t last; /* the slot of what the last product reads */
    void *s[PP_MAX_SAVED];
};

static struct projector projector_of(const struct pp_layer *l,
                                     const struct pp_microbatch *mb,
                                     enum pp_saved_when when,
                                     const struct pp_layer_blocks *b)
{
    const struct pp_model *m = l->env->model;
    const struct pp_vision *v = pp_layer_encoder(l);
    bool pools = pp_vision_hears(v);
    struct projector p = {.norms = pools || pp_vision_merges(v),
                          .pools = pools,
                          .n = mb->n_features,
                          .merge = pools ? 1 : v->merge,
                          .states = pp_vision_states(v),
                          .patch = v->hidden,
                          .out = m->hidden};
    p.in = p.merge * p.states * p.patch;
    p.middle = pools ? p.in : pp_vision_middle(m, v) / pp_vision_tp(v);
    p.last = pools ? PP_S_FEATURES : PP_S_PROJECTED_ACT;
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
    in->env = l->env->images[l->unit.encoder];
    return pp_norm_ops(pp_family_of(in->env->model->architecture)->norm);
}

/* Copies the rows of features, each of `merge` patches or of several states,
 * from their places in the encoder. */
static int take_rows(const struct pp_layer *l, const struct pp_microbatch *mb,
                     const struct projector *p, void *y, const void *x,
                     struct pp_err *err)
{
    const struct pp_kernels *k = l->env->kernels;
    PP_LAYER_RUN(
        mb->feature_rows
            ? k->embedding_fwd(y, mb->feature_rows, x, p->n * p->states,
                               p->in / p->states, l->env->stream)
            : k->copy(y, x, p->n, p->in, p->in, p->in, l->env->stream));
    return 0;
}

/* Writes the means of two rows each, the first of which is listed. */
static int pool_rows(const struct pp_layer *l, const struct pp_microbatch *mb,
                     const struct projector *p, void *y, const void *x,
                     struct pp_err *err)
{
    const struct pp_kernels *k = l->env->kernels;
    void *stream = l->env->stream;
    PP_LAYER_RUN(k->embedding_fwd(y, mb->feature_rows, x, p->n, p->in, stream));
    PP_LAYER_RUN(k->embedding_add(y, mb->feature_rows, pp_layer_at(l, x, p->in),
                                  p->n, p->in, stream));
    PP_LAYER_RUN(k->scale_by(y, 0.5, p->n * p->in, stream));
    return 0;
}

/* Finds what the first product reads. */
static int read_features(const struct pp_layer *l,
                         const struct pp_microbatch *mb,
                         const struct projector *p, const void *x,
                         struct pp_err *err)
{
    struct pp_layer in;
    size_t to = p->norms ? PP_S_MERGER_X : PP_S_FEATURES;
    if (p->pools ? pool_rows(l, mb, p, p->s[to], x, err)
                 : take_rows(l, mb, p, p->s[to], x, err))
        return -1;
    return p->norms
               ? norm_of_patches(l, &in)->fwd(
                     &in, &of_patches, p->n * p->merge, p->s[PP_S_FEATURES],
                     p->s[PP_S_MERGER_X], NULL, p->s, err)
               : 0;
}

static int first_product(const struct pp_layer *l, const struct projector *p,
                         struct pp_err *err)
{
    const struct pp_kernels *k = l->env->kernels;
    PP_LAYER_RUN(k->linear_fwd(p->s[PP_S_PROJECTED], p->s[PP_S_FEATURES],
                               l->w[PP_P_LINEAR1], l->w[PP_P_LINEAR1_BIAS],
                               NULL, p->n, p->in, p->middle, p->middle, p->in,
                               l->env->stream));
    PP_LAYER_RUN(k->gelu_fwd(
        p->s[PP_S_PROJECTED_ACT], p->s[PP_S_PROJECTED], p->n * p->middle,
        pp_layer_encoder(l)->projector_gelu, l->env->stream));
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
    if (read_features(l, mb, &p, x, err) ||
        (!p.pools && first_product(l, &p, err)))
        return -1;
    bool adds_bias = p.pools || pp_layer_adds_bias(l);
    PP_LAYER_RUN(k->linear_fwd(made, p.s[p.last], l->w[PP_P_LINEAR2],
                               adds_bias ? l->w[PP_P_LINEAR2_BIAS] : NULL, NULL,
                               p.n, p.middle, p.out, p.out, p.middle,
                               l->env->stream));
    if (!p.pools && pp_layer_add_up(l, b, made, p.n, p.out, err))
        return -1;
    if (mb->routes)
        PP_LAYER_RUN(k->embedding_fwd(y, mb->routes->order, made, p.n, p.out,
                                      l->env->stream));
    return 0;
}

/* Computes the gradient `to` of what the first product reads. */
static int first_product_bwd(const struct pp_layer *l,
                             const struct pp_layer_blocks *b,
                             const struct projector *p, void *to,
                             struct pp_err *err)
{
    const struct pp_kernels *k = l->env->kernels;
    void *d = p->s[PP_S_DPROJECTED];
    PP_LAYER_RUN(k->gelu_bwd(d, d, p->s[PP_S_PROJECTED], p->n * p->middle,
                             pp_layer_encoder(l)->projector_gelu,
                             l->env->stream));
    if (!to)
        return 0;
    PP_LAYER_RUN(k->linear_bwd_input(to, d, l->w[PP_P_LINEAR1], p->n, p->in,
                                     p->middle, p->in, p->middle,
                                     l->env->stream));
    return pp_layer_add_up(l, b, to, p->n, p->in, err);
}

/* Computes dx from the gradient of the features, which is in the scratch if
 * they are some rows of the encoder or in another order; rows that the language
 * model does not get have a gradient of 0. */
static int read_gradient(const struct pp_layer *l,
                         const struct pp_microbatch *mb,
                         const struct projector *p, void *dx, void *rows,
                         struct pp_err *err)
{
    const struct pp_kernels *k = l->env->kernels;
    struct pp_layer in;
    if (p->norms && norm_of_patches(l, &in)->bwd_input(
                        &in, &of_patches, p->n * p->merge, rows,
                        p->s[PP_S_DMERGER], NULL, p->s, err))
        return -1;
    if (!mb->feature_rows)
        return 0;
    PP_LAYER_RUN(
        k->zero(dx, mb->tokens * p->states * p->patch, l->env->stream));
    if (p->pools)
        PP_LAYER_RUN(k->scale_by(rows, 0.5, p->n * p->in, l->env->stream));
    for (size_t i = 0; i < (p->pools ? 2 : 1); i++)
        PP_LAYER_RUN(k->scatter(pp_layer_at(l, dx, i * p->in), rows,
                                mb->feature_rows, p->n * p->states,
                                p->in / p->states, l->env->stream));
    return 0;
}

static int projector_bwd_input(const struct pp_layer *l,
                               const struct pp_microbatch *mb, void *dx,
                               const void *dy, const struct pp_layer_blocks *b,
                               void *scratch, struct pp_err *err)
{
    const struct pp_kernels *k = l->env->kernels;
    struct projector p = projector_of(l, mb, PP_IN_BACKWARD, b);
    void *rows = mb->feature_rows ? scratch : dx;
    void *to = p.norms ? p.s[PP_S_DMERGER] : dx ? rows : NULL;
    void *d = p.pools ? to : p.s[PP_S_DPROJECTED];
    void *own = p.s[PP_S_PROJECTOR_DY];
    if (mb->routes)
        PP_LAYER_RUN(
            k->scatter(own, dy, mb->routes->order, p.n, p.out, l->env->stream));
    else
        PP_LAYER_RUN(
            k->copy(own, dy, p.n, p.out, p.out, p.out, l->env->stream));
    PP_LAYER_RUN(k->linear_bwd_input(d, own, l->w[PP_P_LINEAR2], p.n, p.middle,
                                     p.out, p.middle, p.out, l->env->stream));
    if (!p.pools && first_product_bwd(l, b, &p, to, err))
        return -1;
    return dx ? read_gradient(l, mb, &p, dx, rows, err) : 0;
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
            p.s[p.last], p.n, p.middle, p.out, p.out, p.middle,
            l->env->stream));
    if (l->g[PP_P_LINEAR1])
        PP_LAYER_RUN(k->linear_bwd_weight(
            l->g[PP_P_LINEAR1], l->g[PP_P_LINEAR1_BIAS], p.s[PP_S_DPROJECTED],
            p.s[PP_S_FEATURES], p.n, p.in, p.middle, p.middle, p.in,
            l->env->stream));
    struct pp_layer in;
    return p.norms ? norm_of_patches(l, &in)->bwd_weight(
                         &in, &of_patches, p.n * p.merge, p.s, err)
                   : 0;
}

const struct pp_layer_ops pp_layer_projector = {
    .fwd = projector_fwd,
    .bwd_input = projector_bwd_input,
    .bwd_weight = projector_bwd_weight,
};
