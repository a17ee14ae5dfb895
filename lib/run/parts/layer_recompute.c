/* SPDX-License-Identifier: MIT */
/* layer_again - what I makes again of a decoder layer that did not keep it. */
#include "run/parts/layer_impl.h"

int pp_layer_recompute(const struct pp_layer *l, const struct pp_microbatch *mb,
                       const struct pp_layer_blocks *b, void *const *s,
                       void *scratch, struct pp_err *err)
{
    bool full = l->recompute == PP_RECOMPUTE_FULL;
    return pp_layer_attention_recompute(l, mb, b, s, scratch, err) ||
                   pp_layer_mlp_inner(l, mb->tokens, full, s, err)
               ? -1
               : 0;
}
