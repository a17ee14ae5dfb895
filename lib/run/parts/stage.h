/* SPDX-License-Identifier: MIT */
/* stage - a run of layers on one rank, as F, I and W see it. */
#ifndef PP_RUN_PARTS_STAGE_H
#define PP_RUN_PARTS_STAGE_H

#include <stdbool.h>

#include "run/timing/timestamps.h"
#include "run/parts/layer.h"
#include "run/parameters/parameters.h"
#include "schedule/memory/memory.h"

/* What a stage's layers share on one rank. */
struct pp_stage_env {
    const struct pp_model *model;
    const struct pp_kernels *kernels;
    const struct pp_parameters *params;
    int copy; /* whose of them */
    enum pp_recompute recompute;
    const void *rope_cos, *rope_sin;
    struct pp_device *device; /* NULL: the CPU */
    void *stream;             /* what the kernels take */
};

struct pp_stage {
    const struct pp_kernels *kernels;
    void *stream;
    size_t n_layers;
    struct pp_layer *layers;
    size_t *offsets[PP_N_UNIT_BLOCKS]; /* by layer: bytes per token before its
                                          part of the block */
    size_t in_width, out_width; /* elements per token at its two ends: hidden,
                                   or 0 before the embedding and after the
                                   head */
    size_t hidden, element_bytes;
    bool input_grad;
    struct pp_layer_times *layer_times; /* borrowed, or NULL: nobody asks */
};

/* The units first .. first + n - 1 of the model; n may be 0: the stage then
 * passes its input on. */
int pp_stage_init(struct pp_stage *s, const struct pp_stage_env *env,
                  size_t first, size_t n, bool input_grad,
                  struct pp_err *err) PP_MUST_USE;
void pp_stage_finish(struct pp_stage *s);

/* Elements per token at the boundary before unit number at. */
size_t pp_boundary_width(const struct pp_model *m, size_t at);

/* Bytes of the stage's buffers for a microbatch of that many tokens: what the
 * memory plan takes. Needs no stage: a plan is made without parameters. */
void pp_stage_sizes(const struct pp_model *m, size_t first, size_t n,
                    enum pp_recompute r, const struct pp_kernels *k,
                    size_t tokens, struct pp_stage_bytes *out);

/* Elements of scratch that the functions below need; context as in
 * layer.h. */
size_t pp_stage_scratch(const struct pp_model *m, const struct pp_kernels *k,
                        size_t first, size_t n, size_t tokens, size_t context);

/* blocks: the stage's saved blocks for this microbatch, and the passing one. x,
 * y, dx and dy are (tokens, width) or NULL where the width is 0. */
int pp_stage_fwd(const struct pp_stage *s, const struct pp_microbatch *mb,
                 void *y, const void *x, void *const *blocks, void *scratch,
                 struct pp_err *err) PP_MUST_USE;
int pp_stage_bwd_input(const struct pp_stage *s, const struct pp_microbatch *mb,
                       void *dx, const void *dy, void *const *blocks,
                       void *scratch, struct pp_err *err) PP_MUST_USE;
int pp_stage_bwd_weight(const struct pp_stage *s,
                        const struct pp_microbatch *mb, void *const *blocks,
                        void *scratch, struct pp_err *err) PP_MUST_USE;
/* Both, in less time where a layer knows how, with the same bits. */
int pp_stage_bwd(const struct pp_stage *s, const struct pp_microbatch *mb,
                 void *dx, const void *dy, void *const *blocks, void *scratch,
                 struct pp_err *err) PP_MUST_USE;

#endif
