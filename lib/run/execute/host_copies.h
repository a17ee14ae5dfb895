/* SPDX-License-Identifier: MIT */
/* host_copies - OFFLOAD and RELOAD: activations leave the arena of a rank for
 * one on the host, and come back.
 *
 * Each direction makes its copies one after the other, in the order of the row,
 * beside the computation: on a thread, or in a queue of the GPU. A copy to the
 * host begins when its forward is computed, and OFFLOAD waits for its end.
 * RELOAD begins the copy back, and the first backward behind it waits. Whole
 * buffers are copied, as planned, whatever the microbatch has of them. */
#ifndef PP_RUN_EXECUTE_HOST_COPIES_H
#define PP_RUN_EXECUTE_HOST_COPIES_H

#include "device/device.h"
#include "schedule/ir/action.h"

struct pp_exec;
struct pp_host_copies;

/* Memory of the host for a rank's offloaded activations. */
struct pp_host_arena {
    unsigned char *at; /* NULL if there is none */
    size_t bytes;
    bool is_file;
    struct pp_device *device; /* that allocated it otherwise */
};

/* Allocates what copies of d reach fast; or maps a new file in dir, which
 * nobody else sees and which goes with the process. */
int pp_host_arena_open(struct pp_host_arena *h, struct pp_device *d,
                       size_t bytes, const char *dir,
                       struct pp_err *err) PP_MUST_USE;
/* Accepts a zeroed struct. */
void pp_host_arena_close(struct pp_host_arena *h);

/* Makes e->copies; leaves it NULL if the row of e has no copies. */
int pp_host_copies_open(struct pp_exec *e, struct pp_err *err) PP_MUST_USE;
/* Ends copies that run. Accepts NULL. */
void pp_host_copies_close(struct pp_host_copies *c);

/* The functions below do nothing if the row has no copies. */

/* Begins a pass. The copies of the one before have been waited for. */
void pp_host_copies_pass(struct pp_exec *e);

/* Waits for the copy that the compute action at e->pc needs. */
int pp_host_copies_await(struct pp_exec *e, struct pp_err *err) PP_MUST_USE;

/* Begins the copies to the host that waited for the compute action at e->pc. */
int pp_host_copies_computed(struct pp_exec *e, struct pp_err *err) PP_MUST_USE;

/* Performs the OFFLOAD or RELOAD at e->pc. */
int pp_host_copies_perform(struct pp_exec *e, struct pp_err *err) PP_MUST_USE;

/* Copies the activations of an OFFLOAD or a RELOAD, on a handle of the device.
 * The default entry of pp_exec_ops. */
int pp_host_copy(const struct pp_exec *e, struct pp_device *on,
                 struct pp_action a, struct pp_err *err) PP_MUST_USE;

#endif
