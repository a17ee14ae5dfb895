/* SPDX-License-Identifier: MIT */
/* layer_impl - shared by the layer_*.c files. Private to them. */
#ifndef PP_RUN_PARTS_LAYER_IMPL_H
#define PP_RUN_PARTS_LAYER_IMPL_H

#include "model/parts.h"
#include "run/parts/layer.h"

extern const struct pp_layer_ops pp_layer_embed, pp_layer_decoder, pp_layer_mtp,
    pp_layer_norm, pp_layer_head, pp_layer_patches, pp_layer_frames,
    pp_layer_projector;

/* Finds the saved tensors of the unit for a microbatch, by slot. An entry is
 * NULL if its block is NULL. */
void pp_layer_saved(const struct pp_layer *l, size_t tokens,
                    enum pp_saved_when when, const struct pp_layer_blocks *b,
                    void *at[PP_MAX_SAVED]);

/* The same for an earlier slice of the microbatch; b has the blocks of this
 * one. Those that outlive F are in the same place as for I. */
void pp_layer_saved_before(const struct pp_layer *l,
                           const struct pp_slice_blocks *slice,
                           const struct pp_layer_blocks *b,
                           void *at[PP_MAX_SAVED]);

/* Copies the rows of a layer to where it keeps them, unless they are there. */
int pp_layer_keep(const struct pp_layer *l, const struct pp_microbatch *mb,
                  void *kept, const void *x, struct pp_err *err);

/* Returns the encoder of a layer of one. */
static inline const struct pp_vision *pp_layer_encoder(const struct pp_layer *l)
{
    return pp_unit_encoder(l->env->model, l->unit);
}

/* Returns p moved by n elements of the type of the layer. */
static inline void *pp_layer_at(const struct pp_layer *l, const void *p,
                                size_t n)
{
    return (char *)p + n * l->env->kernels->element_bytes;
}

/* Returns p moved by n values of the accumulated type. */
static inline void *pp_layer_statistic_at(const struct pp_layer *l,
                                          const void *p, size_t n)
{
    return (char *)p + n * l->env->kernels->accumulator_bytes;
}

/* A block of logits, of the words of this rank, with the log-sum-exp of all
 * words, and unused room beside it. */
struct pp_head_block {
    void *logits;
    const void *lse;
    void *room;
    size_t room_bytes;
    const struct pp_layer_blocks *blocks;
    double cap; /* of the logits, or 0; only a backward needs it */
};

/* Returns the ranks that divide the words, and the words of this one. */
size_t pp_head_ranks(const struct pp_layer *l);
size_t pp_head_words(const struct pp_layer *l);

/* Words first .. first + n - 1. */
struct pp_head_span {
    size_t first, n;
};
struct pp_head_span pp_head_span(const struct pp_layer *l, size_t rank);

/* Writes mb->details of n rows from `at` on, whose block begins with them, over
 * the words of all ranks. */
int pp_head_details(const struct pp_layer *l, const struct pp_microbatch *mb,
                    const struct pp_head_block *h, size_t at, size_t n,
                    struct pp_err *err);

/* The same if mb has a sampler. */
int pp_head_sample(const struct pp_layer *l, const struct pp_microbatch *mb,
                   const struct pp_head_block *h, size_t at, size_t n,
                   struct pp_err *err);

/* For a microbatch with a teacher, whose distributions are the targets. fwd
 * writes logp (n), the negative divergence from them at each row; bwd replaces
 * the logits with the gradient of the sum of scale (n) times the divergence. */
int pp_head_teacher_fwd(const struct pp_layer *l,
                        const struct pp_microbatch *mb,
                        const struct pp_head_block *h, void *logp, size_t at,
                        size_t n, struct pp_err *err);
int pp_head_teacher_bwd(const struct pp_layer *l,
                        const struct pp_microbatch *mb,
                        const struct pp_head_block *h, const void *scale,
                        size_t at, size_t n, struct pp_err *err);

/* The row of t predicts the token of t + 2: mb->predicts of multi-token
 * prediction. */
enum { PP_PREDICTS_AHEAD = 2 };

/* Writes the derivative of the loss by minus the log-probability of each scored
 * row, without an objective. */
int pp_head_write_scale(const struct pp_layer *l,
                        const struct pp_microbatch *mb, void *const *s,
                        struct pp_err *err);

/* Adds up the loss of the scored rows from logp (n_scored), and hands them to
 * an objective, whose derivatives it writes. all_logps has room for the rows of
 * all context-parallel ranks if the loss is exact. */
int pp_head_sum_loss(const struct pp_layer *l, const struct pp_microbatch *mb,
                     const struct pp_layer_blocks *b, void *const *s,
                     const void *logp, void *all_logps, struct pp_err *err);

/* The head of a language model with a generator behind it: writes its rows x
 * (rows of this rank, C) to y, in the order of the ranks that take them; adds
 * their gradient dy, in that order, to dx. room is as large as dx. */
int pp_head_pass_on(const struct pp_layer *l, const struct pp_microbatch *mb,
                    void *y, const void *x, struct pp_err *err);
int pp_head_add_passed(const struct pp_layer *l, const struct pp_microbatch *mb,
                       void *dx, const void *dy, void *room,
                       struct pp_err *err);

/* Copies host memory to the layer's. */
int pp_layer_put(const struct pp_layer *l, void *to, const void *from,
                 size_t bytes, struct pp_err *err);

/* Writes the inputs of all rows of an encoder, `width` values each, to the
 * layer's memory: on a GPU through room in host memory. fill writes those of n
 * rows from `at` on, in the type of the layer. */
typedef void pp_layer_fill_fn(const struct pp_layer *l,
                              const struct pp_microbatch *mb, void *to,
                              size_t at, size_t n);
int pp_layer_put_rows(const struct pp_layer *l, const struct pp_microbatch *mb,
                      void *to, size_t width, pp_layer_fill_fn *fill,
                      struct pp_err *err);

/* Fails because a kernel returned code. */
int pp_layer_fail(const struct pp_layer *l, int code, struct pp_err *err);

/* Runs a kernel; the calling function has l and err and returns on failure. */
#define PP_LAYER_RUN(call)                       \
    do {                                         \
        int code_ = (call);                      \
        if (code_)                               \
            return pp_layer_fail(l, code_, err); \
    } while (0)

/* Reports whether tensor-parallel ranks hold whole experts. */
static inline bool pp_layer_is_whole(const struct pp_layer *l)
{
    return l->env->model->moe.whole;
}

/* The tokens that the router of this rank sees (layer_routed.c). Return those
 * of a microbatch among its rows; those of sequence i among them, without
 * padding; and the number of all that are not padding. */
struct pp_token_range pp_layer_routed(const struct pp_layer *l,
                                      const struct pp_microbatch *mb);
struct pp_token_range pp_layer_routed_of(const struct pp_layer *l,
                                         const struct pp_microbatch *mb,
                                         size_t i);
size_t pp_layer_routed_tokens(const struct pp_layer *l,
                              const struct pp_microbatch *mb);

/* Returns the tokens that their arrays have room for, each of which begins on a
 * cache line on a GPU. */
size_t pp_layer_routed_room(const struct pp_layer *l, size_t tokens,
                            size_t room);

/* The auxiliary losses of a router read these. tokens: those that it sees. */
struct pp_router_rows {
    const void *probs; /* (tokens, E) */
    struct pp_routing routing;
    void *logits; /* (tokens, E) of fwd; overwritten, and as much behind them
                     as the workspace has for more tokens */
    double *sums; /* room for two on a GPU */
};

/* Without mb->router they do nothing. fwd adds to its sums and to l->load. bwd
 * adds the gradient to dlogits (tokens, E); norm has the inputs of the router,
 * rows of this rank, and b->gathered is overwritten if it sees more. */
int pp_layer_router_fwd(const struct pp_layer *l,
                        const struct pp_microbatch *mb,
                        const struct pp_router_rows *r, struct pp_err *err);
int pp_layer_router_bwd(const struct pp_layer *l,
                        const struct pp_microbatch *mb,
                        const struct pp_layer_blocks *b,
                        const struct pp_router_rows *r, void *dlogits,
                        const void *norm, struct pp_err *err);

/* Routers with given experts (layer_replay.c). replays reports whether the
 * router chooses none; replay writes the experts to row, as route takes them;
 * record takes what the tokens got, if that is wanted. */
bool pp_layer_replays(const struct pp_layer *l, const struct pp_microbatch *mb);
int pp_layer_replay(const struct pp_layer *l, const struct pp_microbatch *mb,
                    int32_t *row, struct pp_err *err);
int pp_layer_record(const struct pp_layer *l, const struct pp_microbatch *mb,
                    const struct pp_routing *r, struct pp_err *err);

/* Returns the routing of a microbatch, or a slice, that is saved at `at`. */
struct pp_routing pp_routing_at(const struct pp_layer *l, size_t tokens,
                                size_t room, void *at);
/* Finds the rows that experts drop (layer_capacity.c). r and weight are what
 * the router chose without a capacity; r->row becomes what route takes as
 * given. Collective over the ranks that divide the tokens, which need room for
 * the choices of all (pp_experts_room), and for E counts. */
int pp_layer_capacity(const struct pp_layer *l, const struct pp_microbatch *mb,
                      const struct pp_layer_blocks *b, struct pp_routing *r,
                      const void *weight, int32_t *counts, void *room,
                      struct pp_err *err);
/* Returns the rows of R before the first one that is dropped. They are in host
 * memory. */
size_t pp_routing_kept(const struct pp_routing *r, size_t R);

/* The rows of experts on ranks that divide the experts (layer_dispatch.c). */
struct pp_dispatch {
    int32_t *counts; /* (ranks, E) rows of each rank for each expert */
    const int32_t *host_counts; /* the same in host memory */
    struct pp_routing routing;  /* of the rows of this rank */
    size_t rows;                /* of these, with dropped ones */
    size_t sent, received;
    size_t room;      /* most rows that may come */
    int32_t *arrival; /* (received) of the rows by expert: when each came */
    int32_t *expert;  /* (received) number among those of this rank; ascends */
};

/* Tells the ranks how many of the rows to send go to each expert, which is
 * collective; with padding all know. Fills what *d points to, d->sent (all
 * rows, if a GPU has not told which are kept) and d->received. Fails with
 * PP_EXIT_NO, on every rank, if a rank has no room. */
int pp_dispatch_open(const struct pp_layer *l, struct pp_dispatch *d,
                     struct pp_err *err);

/* Returns the rows at the experts of this rank, after open. */
void pp_dispatch_rows(const struct pp_layer *l, const struct pp_dispatch *d,
                      struct pp_expert_rows *rows);

/* Some columns of all rows, and as much room. */
struct pp_moved {
    void *at, *room;
    size_t width, value_bytes;
};

/* Collective. Replaces the rows that are sent by those that are received, by
 * expert; return does the opposite. begin posts the messages, wait has the
 * rows: nothing else may use r between them, but any other work may run. One
 * rank alone moves nothing, and needs no open. */
int pp_dispatch_send_begin(const struct pp_layer *l,
                           const struct pp_dispatch *d,
                           const struct pp_moved *r, struct pp_err *err);
int pp_dispatch_send_wait(const struct pp_layer *l, const struct pp_dispatch *d,
                          const struct pp_moved *r, struct pp_err *err);
int pp_dispatch_return_begin(const struct pp_layer *l,
                             const struct pp_dispatch *d,
                             const struct pp_moved *r, struct pp_err *err);
int pp_dispatch_return_wait(const struct pp_layer *l,
                            const struct pp_dispatch *d,
                            const struct pp_moved *r, struct pp_err *err);

/* A shared expert (layer_shared.c): an MLP of every token, which a layer of
 * experts may add to the sum of those that the router chose. S is 0, and the
 * functions do nothing, if there is none. */
struct pp_shared_expert {
    size_t T, C, S; /* tokens of all ranks, hidden, its width */
    void *act;      /* (T, S), room */
    void *weights;  /* (T), room; accumulated type */
};

/* Writes the weight of each token, if the layer has such a gate. */
int pp_shared_gate_fwd(const struct pp_layer *l,
                       const struct pp_shared_expert *e, const void *x,
                       void *const *s, struct pp_err *err);
/* The product of gate and up, and the activation. */
int pp_shared_up_fwd(const struct pp_layer *l, const struct pp_shared_expert *e,
                     const void *x, void *const *s, struct pp_err *err);
int pp_shared_activate(const struct pp_layer *l,
                       const struct pp_shared_expert *e, void *const *s,
                       struct pp_err *err);
/* Writes the output, with its weight, to y (T, C). */
int pp_shared_down_fwd(const struct pp_layer *l,
                       const struct pp_shared_expert *e, void *y,
                       void *const *s, struct pp_err *err);
/* Writes the gradients of gate and up and of the weight, from dy (T, C); */
int pp_shared_down_bwd(const struct pp_layer *l,
                       const struct pp_shared_expert *e, const void *dy,
                       void *const *s, struct pp_err *err);
/* then that of the input by gate and up. */
int pp_shared_up_bwd(const struct pp_layer *l, const struct pp_shared_expert *e,
                     void *dx, void *const *s, struct pp_err *err);
/* Add to the gradients of the matrices: that of down, and the others. */
int pp_shared_down_bwd_weight(const struct pp_layer *l,
                              const struct pp_shared_expert *e, const void *dy,
                              void *const *s, struct pp_err *err);
int pp_shared_up_bwd_weight(const struct pp_layer *l,
                            const struct pp_shared_expert *e, const void *x,
                            void *const *s, struct pp_err *err);

/* Tensor-parallel ranks (layer_tensor.c). x, y and dy are rows of this rank,
 * (rows, hidden), unless stated otherwise. */

/* Returns the rows of all ranks, (tokens, hidden): x itself, or b->gathered.
 * Returns NULL with *err filled on failure. */
const void *pp_layer_gather(const struct pp_layer *l,
                            const struct pp_microbatch *mb,
                            const struct pp_layer_blocks *b, const void *x,
                            struct pp_err *err);

/* Returns the number of this rank's first row among those of all. */
size_t pp_layer_first_row(const struct pp_layer *l,
                          const struct pp_microbatch *mb);

/* Returns where a kernel writes what pp_layer_reduce then adds up over the
 * ranks, (tokens, hidden): y itself, or b->summed. The sum's rows of this rank
 * go to y. It overwrites b->gathered. */
void *pp_layer_part(const struct pp_layer *l, const struct pp_layer_blocks *b,
                    void *y);
int pp_layer_reduce(const struct pp_layer *l, const struct pp_microbatch *mb,
                    const struct pp_layer_blocks *b, void *y,
                    struct pp_err *err);

/* Replaces y (rows, width) by its sums over the ranks, on each of which it is
 * all rows. It overwrites b->gathered. */
int pp_layer_add_up(const struct pp_layer *l, const struct pp_layer_blocks *b,
                    void *y, size_t rows, size_t width, struct pp_err *err);

/* Reports whether this rank adds a bias to the sum over the ranks: one does. */
bool pp_layer_adds_bias(const struct pp_layer *l);

/* A product whose inputs are divided: each rank has `width` of them, (tokens,
 * width), and the sum over the ranks has hidden outputs. */
struct pp_joined {
    size_t weight, bias; /* slots of parameters */
    size_t width;
};

/* y = residual + x w^T + b; without residual if it is NULL */
int pp_layer_join_fwd(const struct pp_layer *l, const struct pp_microbatch *mb,
                      const struct pp_layer_blocks *b, void *y, const void *x,
                      const struct pp_joined *p, const void *residual,
                      struct pp_err *err);
/* dx (tokens, width) */
int pp_layer_join_bwd_input(const struct pp_layer *l,
                            const struct pp_microbatch *mb,
                            const struct pp_layer_blocks *b, void *dx,
                            const void *dy, const struct pp_joined *p,
                            struct pp_err *err);
int pp_layer_join_bwd_weight(const struct pp_layer *l,
                             const struct pp_microbatch *mb,
                             const struct pp_layer_blocks *b, const void *dy,
                             const void *x, const struct pp_joined *p,
                             struct pp_err *err);

/* The input gradient of a product whose outputs are divided: dy (tokens, width)
 * has those of this rank. */
int pp_layer_split_bwd_input(const struct pp_layer *l,
                             const struct pp_microbatch *mb,
                             const struct pp_layer_blocks *b, void *dx,
                             const void *dy, size_t weight, size_t width,
                             struct pp_err *err);

/* Replaces the log-sum-exp and the log-probabilities of n scored rows over the
 * words of this rank by those over all words. room has two statistics of every
 * rank for each row. */
int pp_layer_merge_words(const struct pp_layer *l, void *room, void *lse,
                         void *logp, size_t n, struct pp_err *err);

/* Returns the bytes of every rank, in their order, in the layer's memory: own
 * itself, or b->summed, which has room for pp_layer_collected_bytes of each
 * rank. Returns NULL with *err filled on failure. */
size_t pp_layer_collected_bytes(const struct pp_layer *l,
                                const struct pp_microbatch *mb);
const void *pp_layer_collect(const struct pp_layer *l,
                             const struct pp_layer_blocks *b, const void *own,
                             size_t bytes, struct pp_err *err);

/* Rotates queries and keys of all rows by their positions on several axes
 * (layer_axes.c). mb has axes. */
int pp_layer_rotate_axes(const struct pp_layer *l,
                         const struct pp_microbatch *mb, void *qkv,
                         int direction, struct pp_err *err);

/* Take the features of an encoder, (images->n_features, hidden), to the ranks
 * that have their tokens, (n, hidden), and their gradients back
 * (layer_features.c). fwd returns where they are: x itself on one rank, or in
 * the scratch, or NULL with *err filled on failure. bwd writes dx, from dy of
 * the rows of this rank. */
const void *pp_layer_features_fwd(const struct pp_layer *l,
                                  const struct pp_microbatch *mb,
                                  size_t encoder, const void *x, void *scratch,
                                  struct pp_err *err);
int pp_layer_features_bwd(const struct pp_layer *l,
                          const struct pp_microbatch *mb, size_t encoder,
                          void *dx, const void *dy, void *scratch,
                          struct pp_err *err);

/* The operations of parts, whose tensors are in model/parts.h. s are the saved
 * tensors of the unit by slot. */

/* A norm of T rows, at slots n. */
struct pp_norm_ops {
    /* y = norm + residual, without residual if it is NULL. */
    int (*fwd)(const struct pp_layer *l, const struct pp_norm_slots *n,
               size_t T, void *y, const void *x, const void *residual,
               void *const *s, struct pp_err *err);
    /* dx = gradient + residual, without residual if it is NULL. */
    int (*bwd_input)(const struct pp_layer *l, const struct pp_norm_slots *n,
                     size_t T, void *dx, const void *dy, const void *residual,
                     void *const *s, struct pp_err *err);
    /* Reads the gradient of the output from its slot. */
    int (*bwd_weight)(const struct pp_layer *l, const struct pp_norm_slots *n,
                      size_t T, void *const *s, struct pp_err *err);
};

/* Returns what RMSNorm adds to its weights. */
static inline double pp_norm_shift(const struct pp_model *m)
{
    return pp_family_of(m->architecture)->from_zero ? 1 : 0;
}

/* Attention or an MLP: y = residual + f(normed x), without residual if it is
 * NULL. Attention reads the normed x from PP_S_NORM1, an MLP from PP_S_NORM2.
 */
struct pp_block_ops {
    int (*fwd)(const struct pp_layer *l, const struct pp_microbatch *mb,
               void *y, const void *residual, const struct pp_layer_blocks *b,
               void *const *s, void *scratch, struct pp_err *err);
    /* Computes again what l->recompute does not keep. With full recomputation
     * only an MLP has it: attention runs forward again. */
    int (*recompute)(const struct pp_layer *l, const struct pp_microbatch *mb,
                     const struct pp_layer_blocks *b, void *const *s,
                     void *scratch, struct pp_err *err);
    /* Computes the gradient of the normed input, PP_S_DNORM1 or 2, from dy. */
    int (*bwd_input)(const struct pp_layer *l, const struct pp_microbatch *mb,
                     const void *dy, const struct pp_layer_blocks *b,
                     void *const *s, void *scratch, struct pp_err *err);
    /* dy is in PP_S_DOUT1 for attention, in PP_S_DOUT2 for an MLP. */
    int (*bwd_weight)(const struct pp_layer *l, const struct pp_microbatch *mb,
                      const struct pp_layer_blocks *b, void *const *s,
                      void *scratch, struct pp_err *err);
};

/* Find the operations of a kind of part; NULL if it has none, or is none of
 * these. */
const struct pp_norm_ops *pp_norm_ops(enum pp_part_kind kind);
const struct pp_block_ops *pp_block_ops(enum pp_part_kind kind);

/* A layer norm without parameters has the operations of one with them. */
extern const struct pp_norm_ops pp_part_rms_norm, pp_part_layer_norm;
/* A gated MLP and a plain one have the same operations. */
extern const struct pp_block_ops pp_part_attention, pp_part_latent_attention,
    pp_part_mlp, pp_part_experts;

/* How attention reaches keys and values that are not in the microbatch. a is
 * the shape of its rows; tiles is the scratch of the kernel, then that of the
 * exchange. */
struct pp_attention_exchange {
    /* Computes PP_S_ATTN and PP_S_LSE from PP_S_QKV. */
    int (*fwd)(const struct pp_layer *l, const struct pp_microbatch *mb,
               const struct pp_attention_shape *a,
               const struct pp_layer_blocks *b, void *const *s, void *tiles,
               struct pp_err *err);
    /* Computes PP_S_DQKV from dattn. */
    int (*bwd)(const struct pp_layer *l, const struct pp_microbatch *mb,
               const struct pp_attention_shape *a, const void *dattn,
               const struct pp_layer_blocks *b, void *const *s, void *tiles,
               struct pp_err *err);
};

/* A slice: a part of its keys and values, and of their gradients, is in the
 * blocks of the earlier slices. The last slice of a microbatch must come first
 * in backward. */
extern const struct pp_attention_exchange pp_exchange_slices;
/* Context-parallel ranks: every rank gathers all keys and values. */
extern const struct pp_attention_exchange pp_exchange_gather;
/* The same: every rank gets a share of the heads for all rows. */
extern const struct pp_attention_exchange pp_exchange_heads;
/* The same: keys and values of one rank after the other pass by. */
extern const struct pp_attention_exchange pp_exchange_ring;

/* A span as a microbatch of its own. v->s has only what exchanges use. */
struct pp_cp_span_view {
    struct pp_env env;
    struct pp_layer layer;
    struct pp_microbatch mb;
    void *s[PP_N_LAYER_SAVED];
};
void pp_cp_span_view(const struct pp_layer *l, const struct pp_microbatch *mb,
                     void *const *s, const struct pp_cp_span *span,
                     struct pp_cp_span_view *v);

/* Widths of a row of QKV in elements: queries; and keys; and values. o is that
 * of the outputs. */
struct pp_qkv_widths {
    size_t q, qk, qkv, o;
};

static inline struct pp_qkv_widths pp_qkv_widths(const struct pp_model *m)
{
    size_t q = m->n_heads * m->head_dim, v = pp_model_v_dim(m);
    size_t qk = q + m->n_kv_heads * m->head_dim;
    return (struct pp_qkv_widths){q, qk, qk + m->n_kv_heads * v,
                                  m->n_heads * v};
}

/* QK-norm of T rows (layer_qk_norm.c). fwd writes the queries and keys of QKV
 * from the raw ones. bwd_input keeps their gradients in DQKV, then takes them
 * through the norm in place. Both overwrite the blocks of b. */
int pp_qk_norm_fwd(const struct pp_layer *l, const struct pp_layer_blocks *b,
                   size_t T, void *const *s, struct pp_err *err);
int pp_qk_norm_bwd_input(const struct pp_layer *l,
                         const struct pp_layer_blocks *b, size_t T,
                         void *const *s, struct pp_err *err);
int pp_qk_norm_bwd_weight(const struct pp_layer *l, size_t T, void *const *s,
                          struct pp_err *err);

/* Keys and values in a row of QKV, in elements: their width, that of the keys,
 * where they begin, and the width of the row. */
struct pp_kv_columns {
    size_t width, keys, at, row;
};

static inline struct pp_kv_columns pp_kv_columns(const struct pp_model *m)
{
    struct pp_qkv_widths w = pp_qkv_widths(m);
    return (struct pp_kv_columns){w.qkv - w.q, w.qk - w.q, w.q, w.qkv};
}

/* PP_S_LSE has n rows of these heads: those of this rank, or of the exchange of
 * heads. */
struct pp_lse_rows {
    size_t n, first, heads;
};
struct pp_lse_rows pp_lse_rows(const struct pp_layer *l,
                               const struct pp_microbatch *mb);

/* Computes PP_S_DSINKS, if there are sinks, from attn and its gradient, of the
 * rows and heads of PP_S_LSE; rows are ld apart. */
int pp_sinks_bwd_input(const struct pp_layer *l, const struct pp_microbatch *mb,
                       void *const *s, const void *dattn, const void *attn,
                       size_t ld, struct pp_err *err);

/* The steps of attention that do not depend on how QKV is made: ATTN and LSE
 * from QKV; DQKV from dy, with the room of pp_attention_room; and the product
 * behind ATTN. */
int pp_attention_heads_fwd(const struct pp_layer *l,
                           const struct pp_microbatch *mb,
                           const struct pp_layer_blocks *b, void *const *s,
                           void *scratch, struct pp_err *err);
int pp_attention_heads_bwd(const struct pp_layer *l,
                           const struct pp_microbatch *mb, const void *dy,
                           const struct pp_layer_blocks *b, void *const *s,
                           void *scratch, struct pp_err *err);
struct pp_joined pp_attention_output(const struct pp_layer *l);

#endif
