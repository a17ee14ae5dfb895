/* SPDX-License-Identifier: MIT */
/* engine - what a rank computes actions with: one queue of its device, the
 * stages bound to it, and what an action writes in passing.
 *
 * A rank has one. Where its list has overlap pairs and its device has queues,
 * it has a second: the forward of a pair runs there beside the backward. Both
 * are driven by the rank's thread, and share weights and saved blocks, which
 * the memory plan keeps apart. */
#ifndef PP_RUN_EXECUTE_ENGINE_H
#define PP_RUN_EXECUTE_ENGINE_H

#include "run/execute/batch.h"
#include "run/parts/stage.h"

struct pp_job;

struct pp_engine {
    struct pp_device *device; /* borrowed; NULL: there is no such engine */
    void *stream;             /* what the kernels take */
    struct pp_stage *stages;  /* (n_stages) other ranks' are zeroed */
    int n_stages;
    struct pp_batch batch;
    void *scratch; /* of the kernels */
    void *event;   /* for the other engine to wait at; NULL: there is none */
};

/* The largest microbatch. */
struct pp_engine_room {
    size_t capacity;  /* its tokens */
    size_t tokens;    /* those of a slice of it */
    size_t positions; /* most tokens of a sequence */
    size_t context;   /* most of them before a slice, 0 where nothing is
                         sliced */
};

/* Elements of scratch that the most demanding of the rank's stages needs. */
size_t pp_engine_scratch(const struct pp_job *j, int rank,
                         const struct pp_engine_room *room);

/* Binds the rank's stages. env says to what; its device and stream are the
 * engine's, its copy and recompute are set here. */
int pp_engine_init(struct pp_engine *e, const struct pp_job *j, int rank,
                   const struct pp_stage_env *env,
                   const struct pp_engine_room *room,
                   struct pp_err *err) PP_MUST_USE;
/* Accepts a zeroed struct. */
void pp_engine_finish(struct pp_engine *e);

/* What e is given from now on begins when what other was given is done. */
int pp_engine_wait_for(struct pp_engine *e, struct pp_engine *other,
                       struct pp_err *err) PP_MUST_USE;

#endif
