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

#endif
