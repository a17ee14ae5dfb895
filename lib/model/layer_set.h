/* SPDX-License-Identifier: MIT */
/* layer_set - some layers of a model. */
#ifndef PP_MODEL_LAYER_SET_H
#define PP_MODEL_LAYER_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A set of layers. A model that needs one has at most PP_SET_LAYERS layers. */
#define PP_SET_LAYERS 1024
struct pp_layer_set {
    uint64_t bits[PP_SET_LAYERS / 64];
};

static inline void pp_layer_set_add(struct pp_layer_set *s, size_t layer)
{
    s->bits[layer / 64] |= UINT64_C(1) << layer % 64;
}

static inline bool pp_layer_set_has(const struct pp_layer_set *s, size_t layer)
{
    return layer < PP_SET_LAYERS && s->bits[layer / 64] >> layer % 64 & 1;
}

/* Returns the number of layers of the set before this one. */
static inline size_t pp_layer_set_before(const struct pp_layer_set *s,
                                         size_t layer)
{
    size_t n = 0;
    for (size_t i = 0; i < layer; i++)
        n += pp_layer_set_has(s, i);
    return n;
}

#endif
