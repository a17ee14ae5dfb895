/* SPDX-License-Identifier: MIT */
/* layer - a unit that computes: forward, input gradient, weight gradient.
 *
 * A stage is a run of layers and knows nothing else of transformers. Widths
 * and offsets of what a layer saves come from model/model.h. */
#ifndef PP_RUN_PARTS_LAYER_H
#define PP_RUN_PARTS_LAYER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "kernels.h"
#include "model/model.h"
#include "device/device.h"

/* A slice of the same microbatch that came before, and the stage's blocks of
 * it. */
struct pp_slice_blocks {
    size_t tokens;
    void *block[PP_N_UNIT_BLOCKS];
};

/* What every layer sees of one microbatch, or of a slice of it: then rows are
 * the slice's. The integers behind the pointers are device memory. */
struct pp_microbatch {
    size_t tokens; /* rows of every activation, padding included; may be 0 */
    size_t n_sequences;
    const int32_t *cu_seqlens, *cu_seqlens_padded; /* n_sequences + 1 */
    const int32_t *positions; /* (tokens) place in its sequence */
    const int32_t *input_ids; /* (tokens) -1 on padding */

    /* The head's. Rows whose prediction is scored, ascending, and the token
     * that each should predict: already shifted inside its sequence. */
    size_t n_scored;
    const int32_t *scored_rows, *targets; /* (n_scored) */
    double scale;  /* 1 / scored tokens of the whole step */
    double *loss;  /* written by F: sum of -logp over scored rows, in row
                      order, times scale */
    double *logps; /* (n_scored) written by F, or NULL */

    /* Of a slice. */
    size_t first_row; /* tokens of the slices before */
    size_t context;   /* of them, those of the sequence that goes on here */
    size_t n_before;  /* slices before, from the first */
    const struct pp_slice_blocks *before; /* (n_before) */
    bool goes_on;                         /* others come behind */
};

/* One unit bound to its parameters on one rank. */
struct pp_layer {
    struct pp_unit_id unit;
    enum pp_recompute recompute;
    const struct pp_model *model;
    const struct pp_kernels *kernels;
    void *w[PP_N_LAYER_PARAMS]; /* by slot; NULL where there is none */
    void *g[PP_N_LAYER_PARAMS]; /* gradients; all NULL when only forward runs */
    const void *rope_cos, *rope_sin; /* (max position, head_dim / 2) */
    struct pp_device *device;        /* where all of it is; NULL: the CPU */
    void *stream;
};

/* The unit's saved blocks for one microbatch, each at least
 * pp_unit_saved_bytes() * tokens. In forward-only runs the same
 * blocks serve every unit in turn, and the passing one always does. */
struct pp_layer_blocks {
    void *block[PP_N_UNIT_BLOCKS];   /* grad_w may be NULL in forward, passing
                                        where nothing passes */
    size_t offset[PP_N_UNIT_BLOCKS]; /* bytes per token before the unit's in
                                        the stage's blocks */
};

struct pp_layer_ops {
    /* y (tokens, hidden) from x. The embedding has no x, the head no y. */
    int (*fwd)(const struct pp_layer *l, const struct pp_microbatch *mb,
               void *y, const void *x, const struct pp_layer_blocks *b,
               void *scratch, struct pp_err *err);
    /* dx written from dy; keeps in grad_w what bwd_weight needs, and makes
     * again what fwd did not keep. dx is NULL for the embedding, dy for the
     * head. dx and dy do not alias. */
    int (*bwd_input)(const struct pp_layer *l, const struct pp_microbatch *mb,
                     void *dx, const void *dy, const struct pp_layer_blocks *b,
                     void *scratch, struct pp_err *err);
    /* Accumulates into g, after bwd_input of the same microbatch. */
    int (*bwd_weight)(const struct pp_layer *l, const struct pp_microbatch *mb,
                      const struct pp_layer_blocks *b, void *scratch,
                      struct pp_err *err);
    /* Both, with the same bits, for a layer that makes something once instead
     * of twice where they run together; NULL: there is nothing to save. */
    int (*bwd)(const struct pp_layer *l, const struct pp_microbatch *mb,
               void *dx, const void *dy, const struct pp_layer_blocks *b,
               void *scratch, struct pp_err *err);
    /* Elements of scratch that any of them needs for that many tokens,
     * behind a context of so many at most; that is 0 where nothing is sliced.
     */
    size_t (*scratch)(const struct pp_model *m, const struct pp_kernels *k,
                      size_t tokens, size_t context);
};

/* The functions of a unit's kind. */
const struct pp_layer_ops *pp_layer_ops(enum pp_unit_kind kind);

/* Rows of the tables, (positions, head_dim / 2) values of that many bytes
 * each, for the model's RoPE, in host memory. Computed in double. */
void pp_rope_tables(const struct pp_model *m, size_t positions,
                    size_t value_bytes, void *cos, void *sin);

#endif
