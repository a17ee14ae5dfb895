/* SPDX-License-Identifier: MIT */
/* layer_impl - shared by the files of layers. Private to them. Attention,
 * experts and the head have headers of their own. */
#ifndef PP_RUN_PARTS_LAYER_IMPL_H
#define PP_RUN_PARTS_LAYER_IMPL_H

#include "model/parts.h"
#include "run/parts/call.h"

/* The functions of a kind of unit, as call.h describes them. */
struct pp_layer_ops {
    void (*fwd)(const struct pp_call *c, void *y, const void *x);
    void (*bwd_input)(const struct pp_call *c, void *dx, const void *dy);
    void (*bwd_weight)(const struct pp_call *c);
    /* NULL if I and W share nothing. */
    void (*bwd)(const struct pp_call *c, void *dx, const void *dy);
    /* The slots where x is before fwd, and dy before bwd_input; or PP_NO_SLOT.
     */
    int x, dy;
};

extern const struct pp_layer_ops pp_layer_embed, pp_layer_decoder, pp_layer_mtp,
    pp_layer_norm, pp_layer_head, pp_layer_words, pp_layer_loss,
    pp_layer_patches, pp_layer_frames, pp_layer_projector;

/* Returns the call with another env of this rank. */
struct pp_call pp_call_in(const struct pp_call *c, const struct pp_env *env);

/* Returns what I of the layer computes again. */
static inline enum pp_recompute pp_layer_recomputes(const struct pp_call *c)
{
    return pp_unit_recompute(c->m, c->l->unit, c->l->recompute);
}

/* Finds the saved tensors of an earlier slice of the microbatch. Tensors that
 * outlive F are in the same place as for I. */
void pp_layer_saved_before(const struct pp_call *c,
                           const struct pp_slice_blocks *slice,
                           void *at[PP_MAX_SAVED]);

/* Returns the encoder of a layer of one. */
static inline const struct pp_vision *pp_layer_encoder(const struct pp_call *c)
{
    return pp_unit_encoder(c->m, c->l->unit);
}

/* Writes the inputs of all rows of an encoder, `width` values each, to the
 * layer's memory: on a GPU through room in host memory. fill writes the inputs
 * of n rows from `at` on, in the type of the layer. */
typedef void pp_layer_fill_fn(const struct pp_call *c, void *to, size_t at,
                              size_t n);
void pp_layer_put_rows(const struct pp_call *c, void *to, size_t width,
                       pp_layer_fill_fn *fill);

/* --- products --- */

/* A product y = x W^T + b of the layer: the slots of its parameters, its widths
 * on this rank, and the elements from one row to the next. */
struct pp_product {
    int weight, bias; /* bias may be PP_NO_SLOT */
    size_t in, out;
    size_t ldx, ldy; /* 0: the widths */
};

/* x is (N, in), y (N, out), r (N, out) or NULL is added to y. */
void pp_product_fwd(const struct pp_call *c, const struct pp_product *p,
                    size_t N, void *y, const void *x, const void *r);
void pp_product_bwd_input(const struct pp_call *c, const struct pp_product *p,
                          size_t N, void *dx, const void *dy);
/* Reports whether W of a product has something to do here: the weight has a
 * gradient, or an adapter has. Else its input may not be there. */
bool pp_product_trains(const struct pp_call *c, const struct pp_product *p);

/* Computes the gradients of the weight and the bias, if they have one here. */
void pp_linear_bwd_weight(const struct pp_call *c, const struct pp_product *p,
                          size_t N, const void *dy, const void *x);
/* Computes them, and the gradients of adapters. */
void pp_product_bwd_weight(const struct pp_call *c, const struct pp_product *p,
                           size_t N, const void *dy, const void *x);

/* Add the parts of the adapters of a product (adapter.c): to y, to dx,
 * and to the gradients of adapters. */
void pp_adapters_fwd(const struct pp_call *c, const struct pp_product *p,
                     size_t N, void *y, const void *x);
void pp_adapters_bwd_input(const struct pp_call *c, const struct pp_product *p,
                           size_t N, void *dx, const void *dy);
void pp_adapters_bwd_weight(const struct pp_call *c, const struct pp_product *p,
                            size_t N, const void *dy, const void *x);

/* --- tensor-parallel ranks (tensor.c) --- */

/* Below x, y and dy are rows of this rank, (R, C), unless stated otherwise. */

/* Returns the rows of all ranks, (T, C): x itself, or c->gathered. */
const void *pp_layer_gather(const struct pp_call *c, const void *x);

/* Returns the number of this rank's first row among the rows of all. */
size_t pp_layer_first_row(const struct pp_call *c);

/* Returns where a kernel writes what pp_layer_reduce then adds up over the
 * ranks, (T, C): y itself, or c->summed. The sum's rows of this rank go to y.
 * It overwrites c->gathered. */
void *pp_layer_part(const struct pp_call *c, void *y);
void pp_layer_reduce(const struct pp_call *c, void *y);

/* Replaces y (rows, width) by its sums over the ranks, on each of which it is
 * all rows. It overwrites c->gathered. */
void pp_layer_add_up(const struct pp_call *c, void *y, size_t rows,
                     size_t width);

/* Reports whether this rank adds a bias to the sum over the ranks: one does. */
bool pp_layer_adds_bias(const struct pp_call *c);

/* A product whose inputs are divided: each rank has some of them, x (T, in),
 * and the sum over the ranks is y (R, C). If the call does both, I has done W,
 * so that rows of dy are gathered once. */
void pp_join_fwd(const struct pp_call *c, const struct pp_product *p, void *y,
                 const void *x, const void *residual); /* may be NULL */
void pp_join_bwd_input(const struct pp_call *c, const struct pp_product *p,
                       void *dx, const void *dy, const void *x);
void pp_join_bwd_weight(const struct pp_call *c, const struct pp_product *p,
                        const void *dy, const void *x);

/* The input gradient of a product whose outputs are divided: dy (T, out) has
 * this rank's. */
void pp_split_bwd_input(const struct pp_call *c, const struct pp_product *p,
                        void *dx, const void *dy);

/* Returns the bytes of every rank, in their order, in the layer's memory: own
 * itself, or c->summed, which has room for pp_layer_collected_bytes of each
 * rank. */
size_t pp_layer_collected_bytes(const struct pp_call *c);
const void *pp_layer_collect(const struct pp_call *c, const void *own,
                             size_t bytes);

/* --- parts, whose tensors are in model/parts.h --- */

/* A norm of N rows, at slots n (norm.c). fwd reads x from its slot,
 * bwd_weight the gradient of the output from its slot. The residual is added to
 * y or dx, or is NULL. */
void pp_norm_fwd(const struct pp_call *c, const struct pp_norm_slots *n,
                 size_t N, void *y, const void *residual);
void pp_norm_bwd_input(const struct pp_call *c, const struct pp_norm_slots *n,
                       size_t N, void *dx, const void *dy,
                       const void *residual);
void pp_norm_bwd_weight(const struct pp_call *c, const struct pp_norm_slots *n,
                        size_t N);

/* Returns what RMSNorm adds to its weights. */
static inline double pp_norm_shift(const struct pp_model *m)
{
    return pp_family_of(m->architecture)->from_zero ? 1 : 0;
}

/* Attention or an MLP: y = residual + f(normed x), without residual if it is
 * NULL. Attention reads the normed x from PP_S_NORM1, an MLP from PP_S_NORM2.
 */
struct pp_block_ops {
    /* Computes these parts of what the last product reads, all in a forward;
     * then the last product. */
    void (*inner)(const struct pp_call *c, enum pp_recompute parts);
    void (*last)(const struct pp_call *c, void *y, const void *residual);
    bool whole; /* last does both */
    /* Computes the gradient of the normed input, PP_S_DNORM1 or 2, from dy. */
    void (*bwd_input)(const struct pp_call *c, const void *dy);
    /* dy is in PP_S_DOUT1 for attention, in PP_S_DOUT2 for an MLP. */
    void (*bwd_weight)(const struct pp_call *c);
};

/* Finds the operations of a kind of part; NULL if it is no block. A gated MLP
 * and a plain one have the same operations. */
const struct pp_block_ops *pp_block_ops(enum pp_part_kind kind);
extern const struct pp_block_ops pp_part_attention, pp_part_latent_attention,
    pp_part_delta, pp_part_mlp, pp_part_experts;

/* --- features of encoders (encoder/features.c) --- */

/* Take the features of an encoder, (images->n_features, C), to the ranks that
 * have their tokens, (n, C), and their gradients back. fwd returns where they
 * are: x itself on one rank, or in the scratch. bwd writes dx, from dy of the
 * rows of this rank. */
const void *pp_layer_features_fwd(const struct pp_call *c, size_t encoder,
                                  const void *x);
void pp_layer_features_bwd(const struct pp_call *c, size_t encoder, void *dx,
                           const void *dy);

#endif
