/* SPDX-License-Identifier: MIT */
/* heads - attention of a context-parallel rank by an all-to-all over
 * heads: each rank gets a share of the heads for the rows of all ranks, and
 * computes whole sequences (Jacobs et al., "DeepSpeed Ulysses", 2023).
 *
 * Every row that travels holds the columns of a member's heads, and the rows of
 * a rank follow each other. Received rows are put in the order of the
 * sequences. PP_S_LSE has the values of this rank's heads for all rows, which
 * are as many as the values of all heads for its own rows. */
#include "run/parts/attention/attention.h"

#include "comm/collective.h"

static size_t n_members(const struct pp_call *c)
{
    return (size_t)c->env->context.group.n;
}

void pp_bundle_add(struct pp_bundle *b, const void *from, size_t ld, size_t at,
                   size_t width)
{
    b->block[b->n++] = (struct pp_columns){from, ld, at, width};
    b->width += width;
}

/* Queries, keys and values of a tensor like QKV. */
static struct pp_bundle bundle_of(const struct pp_call *c, const void *qkv)
{
    struct pp_qkv_widths w = pp_qkv_widths(c);
    size_t share = n_members(c);
    struct pp_bundle b = {.n = 0};
    pp_bundle_add(&b, qkv, w.row, 0, w.q / share);
    pp_bundle_add(&b, qkv, w.row, w.q, (w.qk - w.q) / share);
    pp_bundle_add(&b, qkv, w.row, w.qk, (w.qkv - w.qk) / share);
    return b;
}

/* Exchanges rows of a width: part i of out goes to member i. */
static void swap_rows(const struct pp_call *c, void *in, const void *out,
                      size_t width)
{
    size_t at[PP_MOST_A2A_RANKS + 1], part = c->T * width;
    size_t own = (size_t)c->env->context.group.index * part;
    for (size_t i = 0; i <= n_members(c); i++)
        at[i] = i * part;
    PP_RUN(c, copy, pp_at(c, in, own), pp_at(c, out, own), c->T, width, width,
           width);
    PP_TRY(c, pp_all_to_all(&c->env->context, in, at, out, at, c->err));
}

/* Copies the columns of every member between the tensors of a bundle and x,
 * where the rows of a member follow each other. */
static void copy_columns(const struct pp_call *c, const struct pp_bundle *b,
                         void *x, bool to_x)
{
    for (size_t i = 0; i < n_members(c); i++) {
        void *at = pp_at(c, x, i * c->T * b->width);
        for (size_t j = 0; j < b->n; j++) {
            const struct pp_columns *k = &b->block[j];
            void *own = pp_at(c, k->from, k->at + i * k->width);
            PP_RUN(c, copy, to_x ? at : own, to_x ? own : at, c->T, k->width,
                   to_x ? b->width : k->ld, to_x ? k->ld : b->width);
            at = pp_at(c, at, k->width);
        }
    }
}

void pp_to_heads(const struct pp_call *c, const struct pp_bundle *b, void *x,
                 void *y)
{
    copy_columns(c, b, x, true);
    swap_rows(c, y, x, b->width);
    PP_RUN(c, embedding_fwd, x, c->mb->keys.order, y, c->mb->keys.n, b->width);
}

void pp_from_heads(const struct pp_call *c, const struct pp_bundle *b, void *x,
                   void *y)
{
    PP_RUN(c, scatter, y, x, c->mb->keys.order, c->mb->keys.n, b->width);
    swap_rows(c, x, y, b->width);
    copy_columns(c, b, x, false);
}

/* Returns the shape of whole sequences with a share of the heads; rows have ld
 * elements, and rows of outputs ldo. */
static struct pp_attention_shape
shape_of_heads(const struct pp_call *c, const struct pp_attention_shape *a,
               size_t ld, size_t ldo)
{
    struct pp_attention_shape h = *a;
    h.N = c->mb->keys.n;
    h.NH /= n_members(c);
    h.NKV /= n_members(c);
    h.ldq = h.ldkv = ld;
    h.ldo = ldo;
    h.n_sequences = c->mb->keys.n_whole;
    h.cu = c->mb->keys.whole_cu;
    h.cu_padded = c->mb->keys.whole_cu_padded;
    return h;
}

struct pp_lse_rows pp_lse_rows(const struct pp_call *c)
{
    const struct pp_group *g = &c->env->context.group;
    size_t heads = pp_call_heads(c).n;
    if (c->env->exchange != &pp_exchange_heads)
        return (struct pp_lse_rows){c->T, 0, heads};
    heads /= (size_t)g->n;
    return (struct pp_lse_rows){c->mb->keys.n, (size_t)g->index * heads, heads};
}

void pp_sinks_bwd_input(const struct pp_call *c, const void *dattn,
                        const void *attn, size_t ld)
{
    struct pp_lse_rows r = pp_lse_rows(c);
    if (c->w[PP_P_SINKS])
        PP_RUN(c, experts->sinks_bwd_input, c->s[PP_S_DSINKS], dattn, attn,
               c->s[PP_S_LSE], pp_at(c, c->w[PP_P_SINKS], r.first), r.n,
               r.heads, pp_call_heads(c).v, ld);
}

static void heads_fwd(const struct pp_call *c,
                      const struct pp_attention_shape *a, void *tiles)
{
    struct pp_bundle qkv = bundle_of(c, c->s[PP_S_QKV]), o = {.n = 0};
    size_t ldo = a->ldo / n_members(c);
    struct pp_attention_shape h = shape_of_heads(c, a, qkv.width, ldo);
    void *x = pp_at(c, tiles, c->k->attention_scratch(&h));
    void *y = pp_at(c, x, c->mb->keys.n * qkv.width);
    size_t q = qkv.block[0].width, qk = q + qkv.block[1].width;
    const void *sinks = c->w[PP_P_SINKS];
    if (sinks)
        sinks = pp_at(c, sinks, pp_lse_rows(c).first);
    pp_bundle_add(&o, c->s[PP_S_ATTN], a->ldo, 0, ldo);
    pp_to_heads(c, &qkv, x, y);
    PP_RUN(c, attention_fwd, y, c->s[PP_S_LSE], x, pp_at(c, x, q),
           pp_at(c, x, qk), sinks, &h, tiles);
    pp_from_heads(c, &o, y, x);
}

static void heads_bwd(const struct pp_call *c,
                      const struct pp_attention_shape *a, const void *dattn,
                      void *tiles)
{
    struct pp_bundle all = bundle_of(c, c->s[PP_S_QKV]);
    struct pp_bundle grads = bundle_of(c, c->s[PP_S_DQKV]);
    size_t q = grads.block[0].width, qk = q + grads.block[1].width;
    size_t o = a->ldo / n_members(c);
    pp_bundle_add(&all, c->s[PP_S_ATTN], a->ldo, 0, o);
    pp_bundle_add(&all, dattn, a->ldo, 0, o);
    struct pp_attention_shape h = shape_of_heads(c, a, all.width, all.width);
    void *x = pp_at(c, tiles, c->k->attention_scratch(&h));
    void *y = pp_at(c, x, c->mb->keys.n * all.width);
    const void *attn = pp_at(c, x, grads.width), *d = pp_at(c, attn, o);
    pp_to_heads(c, &all, x, y);
    pp_sinks_bwd_input(c, d, attn, all.width);
    PP_RUN(c, attention_bwd, y, pp_at(c, y, q), pp_at(c, y, qk), d, x,
           pp_at(c, x, q), pp_at(c, x, qk), attn, c->s[PP_S_LSE], &h, tiles);
    PP_RUN(c, copy, x, y, c->mb->keys.n, grads.width, grads.width, all.width);
    pp_from_heads(c, &grads, x, y);
}

const struct pp_attention_exchange pp_exchange_heads = {heads_fwd, heads_bwd};
