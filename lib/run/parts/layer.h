/* SPDX-License-Identifier: MIT */
/* layer - a unit that computes: forward, input gradient, weight gradient.
 *
 * A stage is a sequence of layers and knows nothing else of transformers. The
 * widths and offsets of saved tensors come from model/model.h. */
#ifndef PP_RUN_PARTS_LAYER_H
#define PP_RUN_PARTS_LAYER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "kernels.h"
#include "model/edge.h"
#include "model/unit_bytes.h"
#include "run/parts/env.h"
#include "run/parts/microbatch.h"

/* An adapter of a layer: the slots of W and of A, before B, the rows of W on
 * this rank, the rows of A, and the factor of B A x. */
struct pp_adapter {
    int weight, a;
    size_t rows, rank;
    double scale;
};

/* One unit bound to its parameters on one rank. */
struct pp_layer {
    const struct pp_env *env; /* borrowed */
    struct pp_unit_id unit;   /* of the env's model */
    size_t number;            /* of the unit in the whole model */
    size_t rows;              /* of what it saves (edge.h) */
    enum pp_role role;
    enum pp_recompute recompute;
    /* The tensor of its head, and the rows that it has of it; NULL, 0: all
     * words. */
    const struct pp_tensor_info *words;
    size_t n_words;
    void *w[PP_N_LAYER_PARAMS]; /* by slot; NULL if there is none */
    void *g[PP_N_LAYER_PARAMS]; /* gradients; all NULL if only forward runs */
    /* By slot, or NULL. One that is mapped has no w. */
    const struct pp_parameter *tensor[PP_N_LAYER_PARAMS];
    struct pp_adapter adapters[PP_N_ADAPTED];
    size_t n_adapters;
    size_t states; /* bytes of the layers before it in PP_SAVED_STATES */
    void *load;  /* (experts) accumulated type; in a step that trains F adds the
                    tokens of each expert; or NULL */
    size_t told; /* likewise in mb->experts.told, where F of a layer of experts
                    on a GPU leaves what I and W need of its routing */
};

/* Reports whether a layer has some words of a head, and the loss is behind it.
 */
static inline bool pp_layer_divides_head(const struct pp_layer *l)
{
    return l->words && l->words->of_rows;
}

/* Returns how attention reaches the keys of other slices, or of the
 * context-parallel ranks of a mesh. */
const struct pp_attention_exchange *
pp_attention_exchange(int n_slices, const struct pp_mesh *x);

/* Returns frequency number i of rotary / 2. pp_rope_tables fills tables of a
 * rotary embedding in host memory: (positions, rotary / 2) values of
 * value_bytes each. Both compute in double. */
double pp_rope_frequency(const struct pp_rope *r, size_t rotary, size_t i);
void pp_rope_tables(const struct pp_rope *r, size_t rotary, size_t positions,
                    size_t value_bytes, void *cos, void *sin);

/* Multiplies both tables by the scale of queries at each position. */
void pp_rope_scale(const struct pp_model *m, size_t positions,
                   size_t value_bytes, void *cos_table, void *sin_table);

#endif
