/* SPDX-License-Identifier: MIT */
/* attention - what the files of attention share: rows of QKV, ways to
 * keys and values on other ranks or in other slices, and steps that do not
 * depend on how QKV is made. */
#ifndef PP_RUN_PARTS_ATTENTION_ATTENTION_H
#define PP_RUN_PARTS_ATTENTION_ATTENTION_H

#include "run/parts/layer_impl.h"

/* Widths of a row of QKV in elements: queries; and keys; and values; and the
 * gate. o is that of the outputs. And the heads of this rank. */
struct pp_qkv_widths {
    size_t q, qk, qkv, row, o;
    struct pp_heads of;
};

/* Returns the heads of the layer on this rank. */
static inline struct pp_heads pp_call_heads(const struct pp_call *c)
{
    return pp_shard_heads(&c->env->shard, c->l->unit);
}

static inline struct pp_qkv_widths pp_qkv_widths(const struct pp_call *c)
{
    const struct pp_heads h = pp_call_heads(c);
    size_t q = h.n * h.qk, o = h.n * h.v;
    size_t qk = q + h.n_kv * h.qk, qkv = qk + h.n_kv * h.v;
    return (struct pp_qkv_widths){q, qk, qkv, qkv + (c->m->gates ? o : 0),
                                  o, h};
}

/* Keys and values in a row of QKV, in elements: their width, that of the keys,
 * where they begin, and the width of the row. */
struct pp_kv_columns {
    size_t width, keys, at, row;
};

static inline struct pp_kv_columns pp_kv_columns(const struct pp_call *c)
{
    struct pp_qkv_widths w = pp_qkv_widths(c);
    return (struct pp_kv_columns){w.qkv - w.q, w.qk - w.q, w.q, w.row};
}

/* How attention reaches keys and values that are not in the microbatch. a is
 * the shape of its rows; tiles is the scratch of the kernel, then that of the
 * exchange. */
struct pp_attention_exchange {
    /* Computes PP_S_ATTN and PP_S_LSE from PP_S_QKV. */
    void (*fwd)(const struct pp_call *c, const struct pp_attention_shape *a,
                void *tiles);
    /* Computes PP_S_DQKV from dattn. */
    void (*bwd)(const struct pp_call *c, const struct pp_attention_shape *a,
                const void *dattn, void *tiles);
};

/* A slice: a part of its keys and values, and of their gradients, is in the
 * blocks of the earlier slices. The last slice of a microbatch must come first
 * in backward. Context-parallel ranks: every rank gathers all keys and values.
 */
extern const struct pp_attention_exchange pp_exchange_gather;
/* Context-parallel ranks: every rank gets a share of the heads for all rows. */
extern const struct pp_attention_exchange pp_exchange_heads;
/* The same: keys and values of one rank after the other pass by. */
extern const struct pp_attention_exchange pp_exchange_ring;

/* Neighbouring columns of a tensor of this rank: member i's begin at column
 * at + i * width. */
struct pp_columns {
    const void *from;
    size_t ld, at, width;
};

/* Columns that travel together, and their sum of widths. */
struct pp_bundle {
    struct pp_columns block[6];
    size_t n, width;
};
void pp_bundle_add(struct pp_bundle *b, const void *from, size_t ld, size_t at,
                   size_t width);

/* Send every context-parallel rank its columns (heads.c). to_heads leaves the
 * rows of all ranks in the order of the sequences in x, (keys.n, width).
 * from_heads takes such rows x back to the ranks that own them: the columns of
 * every member go where `from` of the bundle points. y is scratch, as x. */
void pp_to_heads(const struct pp_call *c, const struct pp_bundle *b, void *x,
                 void *y);
void pp_from_heads(const struct pp_call *c, const struct pp_bundle *b, void *x,
                   void *y);

/* A span as a microbatch of its own: a call on fewer ranks (spans.c). Of saved
 * tensors it has those that have a row for each token of all tensor-parallel
 * ranks. */
struct pp_span_call {
    struct pp_call call;
    struct pp_env env;
    struct pp_microbatch mb;
};
void pp_span_call(const struct pp_call *c, const struct pp_cp_span *span,
                  struct pp_span_call *v);

/* QK-norm (qk_norm.c). fwd writes the queries and keys of QKV from the
 * raw ones. bwd_input keeps their gradients in DQKV, then takes them through
 * the norm in place. Both overwrite c->gathered and c->summed. */
void pp_qk_norm_fwd(const struct pp_call *c);
void pp_qk_norm_bwd_input(const struct pp_call *c);
void pp_qk_norm_bwd_weight(const struct pp_call *c);

/* Rotates queries and keys of all rows by their positions on several axes
 * (axes.c). mb has axes. */
void pp_rotate_axes(const struct pp_call *c, void *qkv, int direction);

/* PP_S_LSE has n rows of these heads: of this rank's heads, or of the exchange
 * of heads. */
struct pp_lse_rows {
    size_t n, first, heads;
};
struct pp_lse_rows pp_lse_rows(const struct pp_call *c);

/* Computes PP_S_DSINKS, if there are sinks, from attn and its gradient, of the
 * rows and heads of PP_S_LSE; rows are ld apart. */
void pp_sinks_bwd_input(const struct pp_call *c, const void *dattn,
                        const void *attn, size_t ld);

/* The steps of attention that do not depend on how QKV is made: ATTN and LSE
 * from QKV; DQKV from dy, with the room of pp_attention_room; and the product
 * behind ATTN. */
void pp_attention_heads_fwd(const struct pp_call *c);
void pp_attention_heads_bwd(const struct pp_call *c, const void *dy);
struct pp_product pp_attention_output(const struct pp_call *c);
void pp_attention_last(const struct pp_call *c, void *y, const void *residual);

#endif
