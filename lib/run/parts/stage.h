/* SPDX-License-Identifier: MIT */
/* stage - consecutive layers on one rank; F, I, W and B of all of them. */
#ifndef PP_RUN_PARTS_STAGE_H
#define PP_RUN_PARTS_STAGE_H

#include <stdbool.h>

#include "run/timing/timestamps.h"
#include "run/parts/layer.h"
#include "run/parameters/parameters.h"

/* The units of a stage. */
struct pp_stage_units {
    size_t first, n; /* if n is 0, the stage copies its input to its output */
    int copy;        /* of the weights: 0 or 1 */
    enum pp_recompute recompute;
    bool input_grad; /* the stage sends one */
};

/* One end of a stage: what passes there, or its gradient, by kind of rows
 * (edge.h). NULL for what does not pass. */
struct pp_passed {
    void *at[PP_N_ROWS];
};

/* Returns what passes and is not features of an encoder, or NULL: a stage
 * passes on rows of one kind. */
static inline void *pp_passed_rows(const struct pp_passed *p)
{
    void *rows = NULL;
    for (size_t r = 0; !rows && r < PP_ROWS_FEATURES; r++)
        rows = p->at[r];
    return rows;
}

struct pp_stage {
    const struct pp_env *env; /* borrowed */
    int copy;                 /* of the weights */
    size_t n_layers;          /* units that do not run are none (vision.h) */
    struct pp_layer *layers;
    /* By layer and kind of rows: bytes per row before its part of the block; of
     * the workspace, bytes per row that it recomputes. */
    size_t (*offsets[PP_N_UNIT_BLOCKS])[PP_N_ROWS];
    struct pp_edge *edges; /* (n_layers + 1) before and after each layer; the
                              first one of an encoder reads nothing */
    struct pp_edges out;   /* what it passes on */
    const struct pp_layer *projectors[PP_MAX_ENCODERS]; /* here, or NULL */
    bool holds[PP_MAX_ENCODERS];                        /* see pp_stage_holds */
    size_t states_bytes;       /* of its layers in PP_SAVED_STATES */
    size_t told_bytes;         /* of its layers in mb->experts.told */
    size_t gathered_row_bytes; /* 0: one rank (unit_bytes.h) */
    bool input_grad;
    struct pp_layer_times *layer_times; /* borrowed; NULL: not recorded */
};

int pp_stage_init(struct pp_stage *s, const struct pp_env *env,
                  const struct pp_stage_units *units,
                  struct pp_err *err) PP_MUST_USE;
void pp_stage_finish(struct pp_stage *s);

/* Points the layers to the whole weights of the stage, if ranks divide them.
 * NULL takes them away; the stage may not be used then. */
void pp_stage_take_weights(struct pp_stage *s, void *whole);

/* The memory of a stage: the saved blocks of its units for this microbatch, the
 * workspace (unit_bytes.h), and the end of it. An action that ends the backward
 * of the microbatch may have, in place of PP_SAVED_GRAD_W, the room of one unit
 * at a time. */
enum { PP_WORKSPACE_END = PP_N_UNIT_BLOCKS, PP_GRAD_LAYER, PP_N_STAGE_BLOCKS };

/* y and dy are what `out` says, x and dx what the inputs of the stage pass on.
 * dx has NULL for what needs no gradient. */
int pp_stage_fwd(const struct pp_stage *s, const struct pp_microbatch *mb,
                 const struct pp_passed *y, const struct pp_passed *x,
                 void *const *blocks, struct pp_err *err) PP_MUST_USE;
int pp_stage_bwd_input(const struct pp_stage *s, const struct pp_microbatch *mb,
                       const struct pp_passed *dx, const struct pp_passed *dy,
                       void *const *blocks, struct pp_err *err) PP_MUST_USE;
int pp_stage_bwd_weight(const struct pp_stage *s,
                        const struct pp_microbatch *mb, void *const *blocks,
                        struct pp_err *err) PP_MUST_USE;
/* Does both, layer by layer, with the same bits; faster if a layer has a bwd.
 * Calls layer_done, unless that is NULL, when it has queued all of a layer. */
typedef int pp_layer_done_fn(void *ctx, const struct pp_layer *l,
                             struct pp_err *err);
int pp_stage_bwd(const struct pp_stage *s, const struct pp_microbatch *mb,
                 const struct pp_passed *dx, const struct pp_passed *dy,
                 void *const *blocks, pp_layer_done_fn *layer_done, void *ctx,
                 struct pp_err *err) PP_MUST_USE;

#endif
