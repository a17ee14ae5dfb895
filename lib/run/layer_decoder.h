/* SPDX-License-Identifier: MIT */
/* layer_decoder - the attention half of a decoder layer, for its MLP half.
 * s are the layer's saved tensors by slot. */
#ifndef PP_RUN_LAYER_DECODER_H
#define PP_RUN_LAYER_DECODER_H

#include "run/layer.h"

/* PP_S_X to PP_S_MID */
int pp_layer_attention_fwd(const struct pp_layer *l,
                           const struct pp_microbatch *mb, const void *x,
                           void *const *s, void *scratch, struct pp_err *err);

/* dx from PP_S_DMID */
int pp_layer_attention_bwd_input(const struct pp_layer *l,
                                 const struct pp_microbatch *mb, void *dx,
                                 void *const *s, void *scratch,
                                 struct pp_err *err);
int pp_layer_attention_bwd_weight(const struct pp_layer *l, size_t T,
                                  void *const *s, struct pp_err *err);

/* Elements of scratch. */
size_t pp_layer_attention_scratch(const struct pp_model *m,
                                  const struct pp_kernels *k, size_t tokens);

#endif
