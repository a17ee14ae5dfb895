/* SPDX-License-Identifier: MIT */
/* layer_impl - what the layer_*.c files share; nobody else includes it. */
#ifndef PP_RUN_PARTS_LAYER_IMPL_H
#define PP_RUN_PARTS_LAYER_IMPL_H

#include "run/parts/layer.h"

extern const struct pp_layer_ops pp_layer_embed, pp_layer_decoder,
    pp_layer_norm, pp_layer_head;

/* Pointers to the unit's saved tensors of a microbatch, by slot; NULL where
 * the block is. */
void pp_layer_saved(const struct pp_layer *l, size_t tokens,
                    enum pp_saved_when when, const struct pp_layer_blocks *b,
                    void *at[PP_MAX_SAVED]);

/* p moved by n elements of the layer's type. */
static inline void *pp_layer_at(const struct pp_layer *l, const void *p,
                                size_t n)
{
    return (char *)p + n * l->kernels->element_bytes;
}

/* The same by values of the accumulated type. */
static inline void *pp_layer_statistic_at(const struct pp_layer *l,
                                          const void *p, size_t n)
{
    return (char *)p + n * l->kernels->accumulator_bytes;
}

/* The error of a kernel that returned code. */
int pp_layer_fail(const struct pp_layer *l, int code, struct pp_err *err);

/* Runs a kernel; the calling function has l and err and returns on failure. */
#define PP_LAYER_RUN(call)                       \
    do {                                         \
        int code_ = (call);                      \
        if (code_)                               \
            return pp_layer_fail(l, code_, err); \
    } while (0)

/* The halves of a decoder layer. s are the saved tensors of the layer by
 * slot. */

/* PP_S_X to PP_S_MID */
int pp_layer_attention_fwd(const struct pp_layer *l,
                           const struct pp_microbatch *mb,
                           const struct pp_layer_blocks *b, void *const *s,
                           void *scratch, struct pp_err *err);

/* Of PP_S_RSTD1 to PP_S_MID what l->recompute does not keep. */
int pp_layer_attention_recompute(const struct pp_layer *l,
                                 const struct pp_microbatch *mb,
                                 const struct pp_layer_blocks *b,
                                 void *const *s, void *scratch,
                                 struct pp_err *err);

/* dx from PP_S_DMID */
int pp_layer_attention_bwd_input(const struct pp_layer *l,
                                 const struct pp_microbatch *mb, void *dx,
                                 const struct pp_layer_blocks *b,
                                 void *const *s, void *scratch,
                                 struct pp_err *err);
int pp_layer_attention_bwd_weight(const struct pp_layer *l, size_t T,
                                  void *const *s, struct pp_err *err);

/* Attention of a slice, whose keys and values, and their gradients, are partly
 * in the blocks of the slices before. a: the slice's shape, but for the keys
 * and values. tiles: scratch of the kernel, then pp_layer_slice_scratch. */
int pp_layer_slice_attention_fwd(const struct pp_layer *l,
                                 const struct pp_microbatch *mb,
                                 const struct pp_attention_shape *a,
                                 const struct pp_layer_blocks *b,
                                 void *const *s, void *tiles,
                                 struct pp_err *err);
/* PP_S_DQKV from dattn, and what the slices before get of it. Of the
 * microbatch's slices the last one's comes first. */
int pp_layer_slice_attention_bwd(const struct pp_layer *l,
                                 const struct pp_microbatch *mb,
                                 const struct pp_attention_shape *a,
                                 const void *dattn,
                                 const struct pp_layer_blocks *b,
                                 void *const *s, void *tiles,
                                 struct pp_err *err);
size_t pp_layer_slice_scratch(const struct pp_model *m, size_t tokens,
                              size_t context);

/* Whether mb is a slice and no whole microbatch. */
static inline bool pp_is_slice(const struct pp_microbatch *mb)
{
    return mb->n_before > 0 || mb->goes_on;
}

/* Elements of scratch. */
size_t pp_layer_attention_scratch(const struct pp_model *m,
                                  const struct pp_kernels *k, size_t tokens);

#endif
