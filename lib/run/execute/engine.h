/* SPDX-License-Identifier: MIT */
/* engine - computes actions: one queue of a device, the stages bound to it, and
 * the arrays of a microbatch.
 *
 * A rank has one engine. It has a second one if its row has overlap pairs and
 * its device has queues: the forward of a pair runs there, beside the backward.
 * The thread of the rank drives both. They share the weights, and the memory
 * plan gives them different saved blocks. */
#ifndef PP_RUN_EXECUTE_ENGINE_H
#define PP_RUN_EXECUTE_ENGINE_H

#include "run/execute/batch.h"
#include "run/execute/generated.h"
#include "run/execute/image_batch.h"
#include "run/parts/stage.h"

struct pp_job;

struct pp_engine {
    const struct pp_env *env; /* borrowed; NULL if there is no such engine */
    struct pp_stage *stages;  /* (n_stages) zeroed if on another rank */
    int n_stages;
    struct pp_edges *passed; /* (n_stages) what each stage passes on */
    struct pp_batch batch;
    struct pp_image_batch images[PP_MAX_ENCODERS]; /* zeroed if the rank has
                                                      none of the encoder */
    struct pp_generated generated; /* zeroed without a generator */
    void *event;                   /* the other engine waits for it; or NULL */
};

/* Binds the stages of the rank, whose tables have these counts. */
int pp_engine_init(struct pp_engine *e, const struct pp_job *j,
                   const struct pp_env *env, const struct pp_table_counts *c,
                   struct pp_err *err) PP_MUST_USE;
/* Accepts a zeroed struct. */
void pp_engine_finish(struct pp_engine *e);

/* Lets later work of e wait for all earlier work of other. */
int pp_engine_wait_for(struct pp_engine *e, struct pp_engine *other,
                       struct pp_err *err) PP_MUST_USE;

#endif
