/* SPDX-License-Identifier: MIT */
/* embed - the token embedding, and the learned positions that a model may
 * add to it. Features of images and of audio take the place of words: their
 * rows have no word, so that W passes them over, and their gradient is that of
 * the input. A generator also adds a product of the language model's last
 * hidden states. */
#include "run/parts/layer_impl.h"

#include <math.h>
#include <string.h>

#include "run/parameters/weights.h"

/* Multiplies rows of this rank by the scale of the model, or by the root of
 * hidden, which transformers rounds to the type of the weights, or to fp32. */
static void scale_rows(const struct pp_call *c, void *x)
{
    float scale = (float)sqrt((double)c->C);
    if (c->m->embed_scale > 0)
        PP_RUN(c, scale_by, x, c->m->embed_scale, c->R, c->C, c->C);
    if (!pp_family_of(c->m->architecture)->scales_embedding)
        return;
    if (c->k->element_bytes == 2) { /* bf16: to the nearest */
        uint32_t bits;
        memcpy(&bits, &scale, sizeof bits);
        bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
        memcpy(&scale, &bits, sizeof bits);
    }
    PP_RUN(c, scale_by, x, (double)scale, c->R, c->C, c->C);
}

/* Writes the features of every encoder to their rows; x is by kind of rows. */
static void put_features(const struct pp_call *c, void *y, const void *const *x)
{
    for (size_t k = 0; k < PP_MAX_ENCODERS; k++) {
        const struct pp_taken_features *f = &c->mb->taken[k];
        if (!pp_env_of(c->env, PP_ROWS_FEATURES + k))
            continue;
        const void *features =
            pp_layer_features_fwd(c, k, x[PP_ROWS_FEATURES + k]);
        PP_RUN(c, scatter, y, features, f->rows, f->n, c->C);
    }
}

/* --- the connector of a generator: y = x W^T + b + embedding --- */

static bool connects(const struct pp_call *c)
{
    return c->m->reads > 0;
}

static struct pp_product connector(const struct pp_call *c)
{
    return (struct pp_product){PP_P_CONNECTOR, PP_P_CONNECTOR_BIAS, c->m->reads,
                               c->C};
}

/* The rows of x may be in the order of the ranks that sent them. */
static void connect(const struct pp_call *c, void *y, const void *embedding,
                    const void *x)
{
    const struct pp_product p = connector(c);
    void *kept = c->s[PP_S_EMBED_X];
    if (c->mb->bridge)
        PP_RUN(c, embedding_fwd, kept, c->mb->bridge, x, c->R, p.in);
    else
        PP_RUN(c, copy, kept, x, c->R, p.in, p.in, p.in);
    pp_product_fwd(c, &p, c->R, y, kept, embedding);
}

static void connect_bwd(const struct pp_call *c, void *dx, const void *dy)
{
    const struct pp_product p = connector(c);
    void *to = c->mb->bridge ? c->scratch : dx;
    pp_product_bwd_input(c, &p, c->R, to, dy);
    if (c->mb->bridge)
        PP_RUN(c, scatter, dx, to, c->mb->bridge, c->R, p.in);
}

/* --- the embedding --- */

/* The positions of the rows of this rank. */
static const int32_t *positions(const struct pp_call *c)
{
    return c->mb->positions + pp_layer_first_row(c);
}

/* Looks words up. A word is on one rank; the others write zeros. */
static void look_up(const struct pp_call *c, void *y)
{
    const struct pp_parameter *t = c->l->tensor[PP_P_WEIGHT];
    size_t bytes = c->C * c->k->element_bytes;
    if (!t || !t->info.mapped) {
        PP_RUN(c, embedding_fwd, y, c->mb->input_ids, c->w[PP_P_WEIGHT], c->T,
               c->C);
        return;
    }
    for (size_t i = 0; i < c->T && !pp_call_failed(c); i++) {
        char *to = pp_at(c, y, i * c->C);
        int32_t word = c->mb->input_ids[i];
        if (word < 0)
            memset(to, 0, bytes);
        else
            PP_TRY(c, pp_weights_widen(c->env->params, t, (size_t)word, 1, to,
                                       c->err));
    }
}

static void embed_fwd(const struct pp_call *c, void *y, const void *x)
{
    void *e = connects(c) ? c->scratch : y;
    look_up(c, pp_layer_part(c, e));
    pp_layer_reduce(c, e);
    scale_rows(c, e);
    if (x && !connects(c))
        put_features(c, y, x);
    if (c->w[PP_P_POSITIONS])
        PP_RUN(c, embedding_add, e, positions(c), c->w[PP_P_POSITIONS], c->R,
               c->C);
    if (connects(c))
        connect(c, y, e, x);
}

/* With a connector W scales what the embedding needs. */
static void embed_bwd_input(const struct pp_call *c, void *dx, const void *dy)
{
    void *const *to = dx;
    if (connects(c)) {
        if (dx)
            connect_bwd(c, dx, dy);
        return;
    }
    for (size_t k = 0; to && k < PP_MAX_ENCODERS; k++)
        if (to[PP_ROWS_FEATURES + k])
            pp_layer_features_bwd(c, k, to[PP_ROWS_FEATURES + k], dy);
    scale_rows(c, c->s[PP_S_EMBED_DY]);
}

static void embed_bwd_weight(const struct pp_call *c)
{
    void *own = c->s[PP_S_EMBED_DY];
    if (connects(c)) {
        const struct pp_product p = connector(c);
        pp_product_bwd_weight(c, &p, c->R, own, c->s[PP_S_EMBED_X]);
        scale_rows(c, own);
    }
    const void *dy = pp_layer_gather(c, own);
    if (c->g[PP_P_WEIGHT])
        PP_RUN(c, embedding_bwd_weight, pp_call_gradient(c, PP_P_WEIGHT), dy,
               c->mb->input_ids, c->T, c->C);
    if (c->g[PP_P_POSITIONS])
        PP_RUN(c, embedding_bwd_weight, pp_call_gradient(c, PP_P_POSITIONS),
               own, positions(c), c->R, c->C);
}

const struct pp_layer_ops pp_layer_embed = {
    .fwd = embed_fwd,
    .bwd_input = embed_bwd_input,
    .bwd_weight = embed_bwd_weight,
    .x = PP_NO_SLOT,
    .dy = PP_S_EMBED_DY,
};
