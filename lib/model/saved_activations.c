/* SPDX-License-Identifier: MIT */
/* What a unit keeps between forward and backward, per token: the sums of the
 * tables for architectures that are trained, and the same accounting for those
 * that are planned. A layer that will be trained gets a table instead. */
#include "model/model.h"

/* The sum of the tensors that the unit's layer lays out. */
static size_t listed(const struct pp_model *m, struct pp_unit_id u,
                     enum pp_recompute r, enum pp_saved_block block)
{
    struct pp_saved s[PP_MAX_SAVED];
    size_t most = 0;
    for (int when = PP_IN_FORWARD; when <= PP_IN_BACKWARD; when++) {
        size_t n = pp_unit_saved(m, u, r, (enum pp_saved_when)when, s), sum = 0;
        for (size_t i = 0; i < n; i++)
            if (s[i].block == block)
                sum += s[i].width;
        most = sum > most ? sum : most;
    }
    return most;
}

/* Sums of one part of a layer, and what of them a selective recomputation
 * makes again. */
struct widths {
    size_t block[PP_N_SAVED_BLOCKS];
    size_t again[PP_N_SAVED_BLOCKS];
};

/* Latent attention keeps what enters every product: the low ranks before and
 * after their norms, then q, k and v as attention reads them. */
static struct widths mla(const struct pp_model *m)
{
    const struct pp_mla *a = &m->mla;
    size_t nh = m->n_heads, q = nh * (a->nope_dim + a->rope_dim);
    size_t kv_a = a->kv_rank + a->rope_dim,
           kv_b = nh * (a->nope_dim + a->v_dim);
    size_t low = a->q_rank + a->kv_rank;
    size_t norms = (a->q_rank > 0) + (size_t)1;
    return (struct widths){
        {
            [PP_SAVED_ACT_I] = 2 * q + nh * a->v_dim + nh,
            [PP_SAVED_ACT_W] = 2 * low + norms + nh * a->v_dim,
            [PP_SAVED_GRAD_W] = q + kv_b + kv_a + a->q_rank + low,
        },
        {nh, nh * a->v_dim}};
}

/* As the layers that are trained: q, k and v in a row, raw where they are
 * normalised, and the output. */
static struct widths attention(const struct pp_model *m)
{
    size_t qk = m->n_heads + m->n_kv_heads, hd = m->head_dim;
    size_t qkv = (qk + m->n_kv_heads) * hd, norm = m->qk_norm;
    return (struct widths){
        {
            [PP_SAVED_ACT_I] = qkv + m->n_heads,
            [PP_SAVED_ACT_W] = norm * qk * (hd + 1) + m->n_heads * hd,
            [PP_SAVED_GRAD_W] = norm * qk * hd + qkv,
        },
        {m->n_heads, m->n_heads * hd}};
}

/* Gate and up before the activation, and what it makes of them. */
static struct widths gated(size_t width)
{
    return (struct widths){{2 * width, width, 2 * width}, {0, width}};
}

/* Every token is copied for each of its experts, whose outputs are kept for the
 * router's gradient; the router keeps a probability for every expert. */
static struct widths experts(const struct pp_model *m)
{
    const struct pp_moe *e = &m->moe;
    size_t k = e->top_k;
    struct widths w = gated(k * e->intermediate + e->shared);
    w.block[PP_SAVED_ACT_I] += k * m->hidden + e->n_experts;
    w.block[PP_SAVED_ACT_W] += k * m->hidden;
    w.block[PP_SAVED_GRAD_W] += k * m->hidden + e->n_experts;
    return w;
}

static struct widths mlp(const struct pp_model *m, size_t layer)
{
    size_t i = m->intermediate;
    if (pp_layer_set_has(&m->moe.layers, layer))
        return experts(m);
    /* GPT-2's has one product before the activation. */
    if (m->architecture == PP_GPT2)
        return (struct widths){{i, i, i}, {0, i}};
    return gated(i);
}

/* Beside attention and MLP: the input, the middle, both normed, statistics; and
 * the gradients of the normed, the middle and the output. LayerNorm keeps a
 * mean too. */
static struct widths layer_widths(const struct pp_model *m, size_t layer)
{
    size_t statistics = m->architecture == PP_GPT2 ? 4 : 2;
    struct widths w = m->mla.kv_rank ? mla(m) : attention(m);
    struct widths inner = mlp(m, layer);
    w.block[PP_SAVED_ACT_W] += 4 * m->hidden + statistics;
    w.block[PP_SAVED_GRAD_W] += 4 * m->hidden;
    w.again[PP_SAVED_ACT_W] += 2 * m->hidden + statistics;
    /* Both inputs normed, side by side, and the embedding's row. */
    if (layer >= m->n_layers) {
        w.block[PP_SAVED_ACT_W] += 4 * m->hidden + 3;
        w.block[PP_SAVED_GRAD_W] += 3 * m->hidden;
        w.again[PP_SAVED_ACT_W] += 2 * m->hidden + 3;
    }
    for (int b = 0; b < PP_N_SAVED_BLOCKS; b++) {
        w.block[b] += inner.block[b];
        w.again[b] += inner.again[b];
    }
    return w;
}

static size_t planned(const struct pp_model *m, size_t layer,
                      enum pp_recompute r, enum pp_saved_block block)
{
    struct widths w = layer_widths(m, layer);
    size_t *again = w.again;
    if (r == PP_RECOMPUTE_NONE)
        again[PP_SAVED_ACT_I] = again[PP_SAVED_ACT_W] = 0;
    if (r == PP_RECOMPUTE_FULL) {
        again[PP_SAVED_ACT_I] = w.block[PP_SAVED_ACT_I];
        again[PP_SAVED_ACT_W] = w.block[PP_SAVED_ACT_W] - m->hidden;
    }
    switch (block) {
    case PP_SAVED_GRAD_W:
        return w.block[block] + again[PP_SAVED_ACT_W];
    case PP_SAVED_WORKSPACE: /* in F, which has all of it */
        return again[PP_SAVED_ACT_I] + again[PP_SAVED_ACT_W];
    default:
        return w.block[block] - again[block];
    }
}

size_t pp_unit_saved_width(const struct pp_model *m, struct pp_unit_id u,
                           enum pp_recompute r, enum pp_saved_block block)
{
    if (u.kind != PP_UNIT_LAYER || pp_architecture_trained(m->architecture))
        return listed(m, u, r, block);
    return planned(m, u.layer, r, block);
}
