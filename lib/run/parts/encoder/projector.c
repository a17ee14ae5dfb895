/* SPDX-License-Identifier: MIT */
/* projector - y = linear2(gelu(linear1(features))): the way from an
 * encoder to the language model. That of audio has linear2 alone.
 *
 * The features of LLaVA (Liu et al., "Improved Baselines with Visual
 * Instruction Tuning", CVPR 2024) are some rows of the encoder: rows of
 * patches, with or without the class token, of one or several hidden states
 * side by side. The features of Qwen's encoders are several neighbours each,
 * after a norm of every patch, and Qwen2.5-VL's go back from the order of
 * windows to that of the image. A feature of audio is the mean of two rows, and
 * then normed; the last row of an odd number is in none. If the encoder has a
 * mesh of its own, its tensor-parallel ranks divide what is between the
 * products; else ranks divide the images alone. If it has one, and ranks of the
 * language model divide tokens, the output is sorted by the rank that takes it:
 * each then gets one message. */
#include "model/vision.h"
#include "run/parts/layer_impl.h"

/* Rows and widths: features, norms of one, and a patch; and the two products,
 * the first of which a projector of audio lacks. */
struct projector {
    bool norms, pools;
    size_t n, merge, states, patch;
    struct pp_product first, last;
    const void *last_x; /* what the last product reads */
};

static struct projector projector_of(const struct pp_call *c)
{
    const struct pp_vision *v = pp_layer_encoder(c);
    bool pools = pp_vision_hears(v);
    struct projector p = {.norms = pools || pp_vision_merges(v),
                          .pools = pools,
                          .n = c->mb->encoder.n_features,
                          .merge = pools ? 1 : v->merge,
                          .states = pp_vision_states(v),
                          .patch = v->hidden};
    size_t in = p.merge * p.states * p.patch;
    size_t middle = pools ? in : pp_vision_middle(c->m, v) / pp_env_tp(c->env);
    p.first = (struct pp_product){PP_P_LINEAR1, PP_P_LINEAR1_BIAS, in, middle};
    p.last = (struct pp_product){PP_P_LINEAR2, PP_P_LINEAR2_BIAS, middle, c->C};
    p.last_x = c->s[pools ? PP_S_FEATURES : PP_S_PROJECTED_ACT];
    return p;
}

/* The norm of every patch is that of the encoder's layers. */
static const struct pp_norm_slots of_patches = {
    PP_P_MERGER_NORM, PP_P_MERGER_NORM_BIAS, PP_S_MERGER_X, PP_S_MERGER_RSTD,
    PP_S_MERGER_MEAN, PP_S_FEATURES,         PP_S_DMERGER,  PP_NO_SLOT};

static struct pp_call call_of_norm(const struct pp_call *c)
{
    return pp_call_in(c, pp_env_of(c->env, c->l->unit.component));
}

/* Copies the rows of features, each of `merge` patches or of several states,
 * from their places in the encoder. */
static void take_rows(const struct pp_call *c, const struct projector *p,
                      void *y, const void *x)
{
    size_t in = p->first.in;
    if (c->mb->encoder.feature_rows)
        PP_RUN(c, embedding_fwd, y, c->mb->encoder.feature_rows, x,
               p->n * p->states, in / p->states);
    else
        PP_RUN(c, copy, y, x, p->n, in, in, in);
}

/* Writes the means of two rows each, the first of which is listed. */
static void pool_rows(const struct pp_call *c, const struct projector *p,
                      void *y, const void *x)
{
    size_t in = p->first.in;
    const int32_t *rows = c->mb->encoder.feature_rows;
    PP_RUN(c, embedding_fwd, y, rows, x, p->n, in);
    PP_RUN(c, embedding_add, y, rows, pp_at(c, x, in), p->n, in);
    PP_RUN(c, scale_by, y, 0.5, p->n, in, in);
}

/* Finds what the first product reads. */
static void read_features(const struct pp_call *c, const struct projector *p,
                          const void *x)
{
    const struct pp_call in = call_of_norm(c);
    void *to = c->s[p->norms ? PP_S_MERGER_X : PP_S_FEATURES];
    if (p->pools)
        pool_rows(c, p, to, x);
    else
        take_rows(c, p, to, x);
    if (p->norms)
        pp_norm_fwd(&in, &of_patches, p->n * p->merge, c->s[PP_S_FEATURES],
                    NULL);
}

static void projector_fwd(const struct pp_call *c, void *y, const void *x)
{
    struct projector p = projector_of(c);
    const struct pp_feature_routes *routes = c->mb->encoder.routes;
    void *made = routes ? c->scratch : y;
    read_features(c, &p, x);
    if (!p.pools) {
        pp_product_fwd(c, &p.first, p.n, c->s[PP_S_PROJECTED],
                       c->s[PP_S_FEATURES], NULL);
        PP_RUN(c, gelu_fwd, c->s[PP_S_PROJECTED_ACT], c->s[PP_S_PROJECTED],
               p.n * p.first.out, pp_layer_encoder(c)->projector_gelu);
        if (!pp_layer_adds_bias(c))
            p.last.bias = PP_NO_SLOT;
    }
    pp_product_fwd(c, &p.last, p.n, made, p.last_x, NULL);
    if (!p.pools)
        pp_layer_add_up(c, made, p.n, c->C);
    if (routes)
        PP_RUN(c, embedding_fwd, y, routes->order, made, p.n, c->C);
}

/* Computes the gradient `to` of what the first product reads, or NULL. */
static void first_product_bwd(const struct pp_call *c,
                              const struct projector *p, void *to)
{
    void *d = c->s[PP_S_DPROJECTED];
    PP_RUN(c, gelu_bwd, d, d, c->s[PP_S_PROJECTED], p->n * p->first.out,
           pp_layer_encoder(c)->projector_gelu);
    if (!to)
        return;
    pp_product_bwd_input(c, &p->first, p->n, to, d);
    pp_layer_add_up(c, to, p->n, p->first.in);
}

/* Computes dx from the gradient of the features, which is in the scratch if
 * they are some rows of the encoder or in another order; rows that the language
 * model does not get have a gradient of 0. */
static void read_gradient(const struct pp_call *c, const struct projector *p,
                          void *dx, void *rows)
{
    const struct pp_call norm = call_of_norm(c);
    size_t in = p->first.in;
    if (p->norms)
        pp_norm_bwd_input(&norm, &of_patches, p->n * p->merge, rows,
                          c->s[PP_S_DMERGER], NULL);
    if (!c->mb->encoder.feature_rows)
        return;
    PP_RUN(c, zero, dx, c->T * p->states * p->patch);
    if (p->pools)
        PP_RUN(c, scale_by, rows, 0.5, p->n, in, in);
    for (size_t i = 0; i < (p->pools ? 2 : 1); i++)
        PP_RUN(c, scatter, pp_at(c, dx, i * in), rows,
               c->mb->encoder.feature_rows, p->n * p->states, in / p->states);
}

static void projector_bwd_input(const struct pp_call *c, void *dx,
                                const void *dy)
{
    const struct projector p = projector_of(c);
    const struct pp_feature_routes *routes = c->mb->encoder.routes;
    void *rows = c->mb->encoder.feature_rows ? c->scratch : dx;
    void *to = p.norms ? c->s[PP_S_DMERGER] : dx ? rows : NULL;
    void *own = c->s[PP_S_PROJECTOR_DY];
    if (routes)
        PP_RUN(c, scatter, own, dy, routes->order, p.n, c->C);
    else
        PP_RUN(c, copy, own, dy, p.n, c->C, c->C, c->C);
    pp_product_bwd_input(c, &p.last, p.n, p.pools ? to : c->s[PP_S_DPROJECTED],
                         own);
    if (!p.pools)
        first_product_bwd(c, &p, to);
    if (dx)
        read_gradient(c, &p, dx, rows);
}

static void projector_bwd_weight(const struct pp_call *c)
{
    const struct projector p = projector_of(c);
    const struct pp_call norm = call_of_norm(c);
    pp_product_bwd_weight(c, &p.last, p.n, c->s[PP_S_PROJECTOR_DY], p.last_x);
    if (!p.pools)
        pp_product_bwd_weight(c, &p.first, p.n, c->s[PP_S_DPROJECTED],
                              c->s[PP_S_FEATURES]);
    if (p.norms)
        pp_norm_bwd_weight(&norm, &of_patches, p.n * p.merge);
}

const struct pp_layer_ops pp_layer_projector = {
    .fwd = projector_fwd,
    .bwd_input = projector_bwd_input,
    .bwd_weight = projector_bwd_weight,
    .x = PP_NO_SLOT,
    .dy = PP_NO_SLOT,
};
