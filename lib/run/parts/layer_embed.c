/* SPDX-License-Identifier: MIT */
/* layer_embed - the token embedding, and the learned positions that a model may
 * add to it. Features of images and of audio take the place of words: their
 * rows have no word, so that W passes them over, and their gradient is that of
 * the input. A generator also adds a product of the language model's last
 * hidden states. */
#include "run/parts/layer_impl.h"

#include <math.h>
#include <string.h>

/* Multiplies rows of this rank by the root of hidden, if the model does.
 * transformers rounds it to the type of the weights, or to fp32. */
static int scale_rows(const struct pp_layer *l, const struct pp_microbatch *mb,
                      void *x, struct pp_err *err)
{
    const struct pp_model *m = l->env->model;
    float scale = (float)sqrt((double)m->hidden);
    if (!pp_family_of(m->architecture)->scales_embedding)
        return 0;
    if (l->env->kernels->element_bytes == 2) { /* bf16: to the nearest */
        uint32_t bits;
        memcpy(&bits, &scale, sizeof bits);
        bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
        memcpy(&scale, &bits, sizeof bits);
    }
    PP_LAYER_RUN(l->env->kernels->scale_by(
        x, (double)scale, pp_layer_rows(l, mb) * m->hidden, l->env->stream));
    return 0;
}

/* Writes the features of every encoder, at x, to their rows. */
static int put_features(const struct pp_layer *l,
                        const struct pp_microbatch *mb, void *y,
                        const void *const *x, void *scratch, struct pp_err *err)
{
    for (size_t k = 0; k < PP_MAX_ENCODERS; k++) {
        const struct pp_taken_features *f = &mb->taken[k];
        if (!l->env->projector[k])
            continue;
        const void *features =
            pp_layer_features_fwd(l, mb, k, x[k], scratch, err);
        if (!features)
            return -1;
        PP_LAYER_RUN(l->env->kernels->scatter(
            y, features, f->rows, f->n, l->env->model->hidden, l->env->stream));
    }
    return 0;
}

/* --- the connector of a generator: y = x W^T + b + embedding --- */

static bool connects(const struct pp_layer *l)
{
    return l->env->model->reads > 0;
}

/* The rows of x may be in the order of the ranks that sent them. */
static int connect(const struct pp_layer *l, const struct pp_microbatch *mb,
                   void *y, const void *embedding, const void *x,
                   const struct pp_layer_blocks *b, struct pp_err *err)
{
    const struct pp_kernels *k = l->env->kernels;
    size_t R = pp_layer_rows(l, mb), C = l->env->model->hidden;
    size_t reads = l->env->model->reads;
    void *s[PP_MAX_SAVED], *stream = l->env->stream;
    pp_layer_saved(l, mb->tokens, PP_IN_FORWARD, b, s);
    void *kept = s[PP_S_EMBED_X];
    PP_LAYER_RUN(mb->bridge
                     ? k->embedding_fwd(kept, mb->bridge, x, R, reads, stream)
                     : k->copy(kept, x, R, reads, reads, reads, stream));
    PP_LAYER_RUN(k->linear_fwd(y, kept, l->w[PP_P_CONNECTOR],
                               l->w[PP_P_CONNECTOR_BIAS], embedding, R, reads,
                               C, C, reads, stream));
    return 0;
}

static int connect_bwd(const struct pp_layer *l, const struct pp_microbatch *mb,
                       void *dx, const void *dy, void *scratch,
                       struct pp_err *err)
{
    const struct pp_kernels *k = l->env->kernels;
    size_t R = pp_layer_rows(l, mb), C = l->env->model->hidden;
    size_t reads = l->env->model->reads;
    void *stream = l->env->stream, *to = mb->bridge ? scratch : dx;
    PP_LAYER_RUN(k->linear_bwd_input(to, dy, l->w[PP_P_CONNECTOR], R, reads, C,
                                     reads, C, stream));
    if (mb->bridge)
        PP_LAYER_RUN(k->scatter(dx, to, mb->bridge, R, reads, stream));
    return 0;
}

static int embed_fwd(const struct pp_layer *l, const struct pp_microbatch *mb,
                     void *y, const void *x, const struct pp_layer_blocks *b,
                     void *scratch, struct pp_err *err)
{
    const struct pp_kernels *k = l->env->kernels;
    size_t C = l->env->model->hidden;
    void *e = connects(l) ? scratch : y;
    /* A word is on one rank. The others add zeros. */
    PP_LAYER_RUN(k->embedding_fwd(pp_layer_part(l, b, e), mb->input_ids,
                                  l->w[PP_P_WEIGHT], mb->tokens, C,
                                  l->env->stream));
    if (pp_layer_reduce(l, mb, b, e, err) || scale_rows(l, mb, e, err))
        return -1;
    if (x && !connects(l) && put_features(l, mb, y, x, scratch, err))
        return -1;
    if (l->w[PP_P_POSITIONS])
        PP_LAYER_RUN(k->embedding_add(
            e, mb->positions + pp_layer_first_row(l, mb), l->w[PP_P_POSITIONS],
            pp_layer_rows(l, mb), C, l->env->stream));
    return connects(l) ? connect(l, mb, y, e, x, b, err) : 0;
}

static int embed_bwd_input(const struct pp_layer *l,
                           const struct pp_microbatch *mb, void *dx,
                           const void *dy, const struct pp_layer_blocks *b,
                           void *scratch, struct pp_err *err)
{
    void *s[PP_MAX_SAVED];
    pp_layer_saved(l, mb->tokens, PP_IN_BACKWARD, b, s);
    if (pp_layer_keep(l, mb, s[PP_S_EMBED_DY], dy, err))
        return -1;
    if (connects(l)) /* W scales what the embedding needs */
        return dx ? connect_bwd(l, mb, dx, dy, scratch, err) : 0;
    void *const *to = dx;
    for (size_t k = 0; to && k < PP_MAX_ENCODERS; k++)
        if (to[k] && pp_layer_features_bwd(l, mb, k, to[k], dy, scratch, err))
            return -1;
    return scale_rows(l, mb, s[PP_S_EMBED_DY], err);
}

static int embed_bwd_weight(const struct pp_layer *l,
                            const struct pp_microbatch *mb,
                            const struct pp_layer_blocks *b, void *scratch,
                            struct pp_err *err)
{
    (void)scratch;
    void *s[PP_MAX_SAVED];
    pp_layer_saved(l, mb->tokens, PP_IN_BACKWARD, b, s);
    size_t reads = l->env->model->reads, C = l->env->model->hidden;
    if (connects(l)) {
        PP_LAYER_RUN(l->env->kernels->linear_bwd_weight(
            l->g[PP_P_CONNECTOR], l->g[PP_P_CONNECTOR_BIAS], s[PP_S_EMBED_DY],
            s[PP_S_EMBED_X], pp_layer_rows(l, mb), reads, C, C, reads,
            l->env->stream));
        if (scale_rows(l, mb, s[PP_S_EMBED_DY], err))
            return -1;
    }
    const void *dy = pp_layer_gather(l, mb, b, s[PP_S_EMBED_DY], err);
    if (!dy)
        return -1;
    if (l->g[PP_P_WEIGHT])
        PP_LAYER_RUN(l->env->kernels->embedding_bwd_weight(
            l->g[PP_P_WEIGHT], dy, mb->input_ids, mb->tokens, C,
            l->env->stream));
    if (l->g[PP_P_POSITIONS])
        PP_LAYER_RUN(l->env->kernels->embedding_bwd_weight(
            l->g[PP_P_POSITIONS], s[PP_S_EMBED_DY],
            mb->positions + pp_layer_first_row(l, mb), pp_layer_rows(l, mb), C,
            l->env->stream));
    return 0;
}

static void *embed_kept(const struct pp_layer *l,
                        const struct pp_microbatch *mb, enum pp_saved_when when,
                        const struct pp_layer_blocks *b)
{
    void *s[PP_MAX_SAVED];
    pp_layer_saved(l, mb->tokens, when, b, s);
    return when == PP_IN_BACKWARD ? s[PP_S_EMBED_DY] : NULL;
}

const struct pp_layer_ops pp_layer_embed = {
    .fwd = embed_fwd,
    .bwd_input = embed_bwd_input,
    .bwd_weight = embed_bwd_weight,
    .kept = embed_kept,
};
