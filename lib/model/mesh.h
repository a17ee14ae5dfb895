/* SPDX-License-Identifier: MIT */
/* mesh - the sizes of the parallel groups, and what one rank of them has of a
 * unit. Pure.
 *
 * Tensor-parallel ranks divide heads, widths of MLPs and experts, and rows of
 * embedding and head; with sequence parallelism (Korthikanti et al., "Reducing
 * Activation Recomputation in Large Transformer Models", MLSys 2023) they also
 * divide the tokens of everything else, so that each has 1 / tp of the
 * operations and activations, and of a message. Context-parallel ranks divide
 * every sequence. Expert-parallel ranks are dp * cp / ep groups of ep, whose
 * ranks divide the experts and exchange tokens, on average as many as each has.
 * What ranks hold alike they reduce and step together: each keeps its part of
 * the optimizer's state (ZeRO-1; Rajbhandari et al., SC 2020). */
#ifndef PP_MODEL_MESH_H
#define PP_MODEL_MESH_H

#include <stdint.h>

#include "base/err.h"
#include "model/model.h"
#include "model/precision.h"

struct pp_mesh {
    int pp, dp, tp, cp, ep;
};

/* Whether the model and sequences of seq_len tokens divide by the mesh; the
 * vocabulary need not, one rank then has fewer rows. Messages name options. */
int pp_mesh_check(const struct pp_mesh *x, const struct pp_model *m,
                  size_t seq_len, struct pp_err *err) PP_MUST_USE;

/* The part of a unit's operations, activations and messages that one rank
 * has. */
static inline double pp_mesh_share(const struct pp_mesh *x)
{
    return 1.0 / ((double)x->tp * (double)x->cp);
}

/* Elements of the unit's weights that the rank with most of them holds: those
 * that dp * cp ranks hold alike, and those of experts, that dp * cp / ep do. */
struct pp_held {
    uint64_t dense, experts;
};
struct pp_held pp_mesh_held(const struct pp_mesh *x, const struct pp_model *m,
                            struct pp_unit_id u);

/* Bytes that the rank trains them with: weights and gradients whole, AdamW's
 * moments and master weights by its part. On a mesh of 1 what
 * pp_precision_trained_bytes says. */
double pp_mesh_state_bytes(const struct pp_mesh *x, struct pp_held held,
                           const struct pp_precision *p);

#endif
