/* SPDX-License-Identifier: MIT */
/* layer_heads - attention of a context-parallel rank by an all-to-all over
 * heads: each rank gets a share of the heads for the rows of all ranks, and
 * computes whole sequences (Jacobs et al., "DeepSpeed Ulysses", 2023).
 *
 * Every row that travels holds the columns of a member's heads, and the rows of
 * a rank follow each other. Received rows are put in the order of the
 * sequences. PP_S_LSE has the values of this rank's heads for all rows, which
 * are as many as those of all heads for its own rows. */
#include "run/parts/layer_impl.h"

#include "comm/collective.h"

enum { MAX_BLOCKS = 5 };

/* Neighbouring columns of a tensor of this rank: those of member i begin at
 * column at + i * width. */
struct columns {
    const void *from;
    size_t ld, at, width;
};

/* The columns that travel together, and their sum of widths. */
struct bundle {
    struct columns block[MAX_BLOCKS];
    size_t n, width;
};

static void add_block(struct bundle *b, const void *from, size_t ld, size_t at,
                      size_t width)
{
    b->block[b->n++] = (struct columns){from, ld, at, width};
    b->width += width;
}

/* Queries, keys and values of a tensor like QKV. */
static struct bundle bundle_of(const struct pp_layer *l, const void *qkv)
{
    struct pp_qkv_widths w = pp_qkv_widths(l->env->model);
    size_t share = (size_t)l->env->context.group.n;
    struct bundle b = {.n = 0};
    add_block(&b, qkv, w.qkv, 0, w.q / share);
    add_block(&b, qkv, w.qkv, w.q, (w.qk - w.q) / share);
    add_block(&b, qkv, w.qkv, w.qk, (w.qkv - w.qk) / share);
    return b;
}

/* Exchanges rows of a width: part i of out goes to member i. */
static int exchange(const struct pp_layer *l, const struct pp_microbatch *mb,
                    void *in, const void *out, size_t width, struct pp_err *err)
{
    const struct pp_group *g = &l->env->context.group;
    size_t at[PP_MOST_A2A_RANKS + 1], part = mb->tokens * width;
    size_t own = (size_t)g->index * part;
    for (int i = 0; i <= g->n; i++)
        at[i] = (size_t)i * part;
    PP_LAYER_RUN(l->env->kernels->copy(pp_layer_at(l, in, own),
                                       pp_layer_at(l, out, own), mb->tokens,
                                       width, width, width, l->env->stream));
    return pp_all_to_all(&l->env->context, in, at, out, at, err);
}

/* Sends every member its columns. Leaves the rows of all ranks in the order of
 * the sequences in x; y is scratch. */
static int to_heads(const struct pp_layer *l, const struct pp_microbatch *mb,
                    const struct bundle *b, void *x, void *y,
                    struct pp_err *err)
{
    const struct pp_kernels *k = l->env->kernels;
    for (int i = 0; i < l->env->context.group.n; i++) {
        size_t to = (size_t)i * mb->tokens * b->width;
        for (size_t j = 0; j < b->n; j++) {
            const struct columns *c = &b->block[j];
            PP_LAYER_RUN(
                k->copy(pp_layer_at(l, x, to),
                        pp_layer_at(l, c->from, c->at + (size_t)i * c->width),
                        mb->tokens, c->width, b->width, c->ld, l->env->stream));
            to += c->width;
        }
    }
    if (exchange(l, mb, y, x, b->width, err))
        return -1;
    PP_LAYER_RUN(k->embedding_fwd(x, mb->order, y, mb->key_rows, b->width,
                                  l->env->stream));
    return 0;
}

/* Takes rows x, in the order of the sequences, back to the ranks that own them:
 * the columns of every member go where `from` of the bundle points. */
static int from_heads(const struct pp_layer *l, const struct pp_microbatch *mb,
                      const struct bundle *b, void *x, void *y,
                      struct pp_err *err)
{
    const struct pp_kernels *k = l->env->kernels;
    PP_LAYER_RUN(
        k->scatter(y, x, mb->order, mb->key_rows, b->width, l->env->stream));
    if (exchange(l, mb, x, y, b->width, err))
        return -1;
    for (int i = 0; i < l->env->context.group.n; i++) {
        size_t at = (size_t)i * mb->tokens * b->width;
        for (size_t j = 0; j < b->n; j++) {
            const struct columns *c = &b->block[j];
            PP_LAYER_RUN(
                k->copy(pp_layer_at(l, c->from, c->at + (size_t)i * c->width),
                        pp_layer_at(l, x, at), mb->tokens, c->width, c->ld,
                        b->width, l->env->stream));
            at += c->width;
        }
    }
    return 0;
}

/* Returns the shape of whole sequences with a share of the heads; rows have ld
 * elements. */
static struct pp_attention_shape
shape_of_heads(const struct pp_layer *l, const struct pp_microbatch *mb,
               const struct pp_attention_shape *a, size_t ld)
{
    size_t share = (size_t)l->env->context.group.n;
    struct pp_attention_shape h = *a;
    h.N = mb->key_rows;
    h.NH /= share;
    h.NKV /= share;
    h.ldq = h.ldkv = ld;
    h.n_sequences = mb->n_whole;
    h.cu = mb->whole_cu;
    h.cu_padded = mb->whole_cu_padded;
    return h;
}

static int heads_exchange_fwd(const struct pp_layer *l,
                              const struct pp_microbatch *mb,
                              const struct pp_attention_shape *a,
                              const struct pp_layer_blocks *b, void *const *s,
                              void *tiles, struct pp_err *err)
{
    (void)b;
    struct bundle qkv = bundle_of(l, s[PP_S_QKV]), o = {.n = 0};
    struct pp_attention_shape h = shape_of_heads(l, mb, a, qkv.width);
    void *x = pp_layer_at(l, tiles, l->env->kernels->attention_scratch(&h));
    void *y = pp_layer_at(l, x, mb->key_rows * qkv.width);
    size_t q = qkv.block[0].width, k = qkv.block[1].width;
    const void *sinks = l->w[PP_P_SINKS];
    if (sinks)
        sinks = pp_layer_at(l, sinks, pp_lse_rows(l, mb).first);
    h.ldo = a->ldo / (size_t)l->env->context.group.n;
    add_block(&o, s[PP_S_ATTN], a->ldo, 0, h.ldo);
    if (to_heads(l, mb, &qkv, x, y, err))
        return -1;
    PP_LAYER_RUN(l->env->kernels->attention_fwd(
        y, s[PP_S_LSE], x, pp_layer_at(l, x, q), pp_layer_at(l, x, q + k),
        sinks, &h, tiles, l->env->stream));
    return from_heads(l, mb, &o, y, x, err);
}

static int heads_exchange_bwd(const struct pp_layer *l,
                              const struct pp_microbatch *mb,
                              const struct pp_attention_shape *a,
                              const void *dattn,
                              const struct pp_layer_blocks *b, void *const *s,
                              void *tiles, struct pp_err *err)
{
    (void)b;
    const struct pp_kernels *k = l->env->kernels;
    struct bundle all = bundle_of(l, s[PP_S_QKV]);
    struct bundle grads = bundle_of(l, s[PP_S_DQKV]);
    size_t q = grads.block[0].width, qk = q + grads.block[1].width;
    size_t o = a->ldo / (size_t)l->env->context.group.n;
    add_block(&all, s[PP_S_ATTN], a->ldo, 0, o);
    add_block(&all, dattn, a->ldo, 0, o);
    struct pp_attention_shape h = shape_of_heads(l, mb, a, all.width);
    h.ldo = all.width;
    void *x = pp_layer_at(l, tiles, k->attention_scratch(&h));
    void *y = pp_layer_at(l, x, mb->key_rows * all.width);
    if (to_heads(l, mb, &all, x, y, err))
        return -1;
    if (pp_sinks_bwd_input(l, mb, s, pp_layer_at(l, x, grads.width + o),
                           pp_layer_at(l, x, grads.width), all.width, err))
        return -1;
    PP_LAYER_RUN(k->attention_bwd(
        y, pp_layer_at(l, y, q), pp_layer_at(l, y, qk),
        pp_layer_at(l, x, grads.width + o), x, pp_layer_at(l, x, q),
        pp_layer_at(l, x, qk), pp_layer_at(l, x, grads.width), s[PP_S_LSE], &h,
        tiles, l->env->stream));
    PP_LAYER_RUN(k->copy(x, y, mb->key_rows, grads.width, grads.width,
                         all.width, l->env->stream));
    return from_heads(l, mb, &grads, x, y, err);
}

const struct pp_attention_exchange pp_exchange_heads = {heads_exchange_fwd,
                                                        heads_exchange_bwd};
