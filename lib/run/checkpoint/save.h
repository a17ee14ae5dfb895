/* SPDX-License-Identifier: MIT */
/* save - a checkpoint on its way to the disk, in phases: the data of
 * tensors, their checksums, and the rest with the commit.
 *
 * The work of a rank in a phase sends no message, so a thread can do it beside
 * training. A phase ends with an agreement of all ranks: no rank goes on alone,
 * and the commit comes after all ranks have synced. The data are read from the
 * parameters themselves. They must stay as they are until pp_saving_wait; the
 * weights change only when the optimizer updates them. */
#ifndef PP_RUN_CHECKPOINT_SAVE_H
#define PP_RUN_CHECKPOINT_SAVE_H

#include "run/checkpoint/ckpt.h"
#include "run/checkpoint/sums.h"

/* Copies what a checkpoint copies from source (pp_ckpt_check_source), and adds
 * the checksums to sums, or only reads them if to is NULL. */
int pp_ckpt_copy_companions(const char *source, const char *to,
                            struct pp_ckpt_sums *sums,
                            struct pp_err *err) PP_MUST_USE;

struct pp_saving;

/* Collective. Makes the directory and the files, and begins the first phase: in
 * a thread with `background`, else here. A thread does not read the memory of a
 * device with queues: its data are written here. The pointers in c stay valid
 * until pp_saving_end. Fails on every rank or on none; *out is NULL then. */
int pp_saving_begin(const struct pp_ckpt *c, const struct pp_ckpt_state *state,
                    bool background, struct pp_saving **out,
                    struct pp_err *err) PP_MUST_USE;

/* Returns when this rank has written its data: the parameters may change. */
void pp_saving_wait(struct pp_saving *s);

/* Returns whether this rank has done its work in the phase. */
bool pp_saving_is_idle(struct pp_saving *s);

/* Collective. Waits for the work of all ranks and begins the next phase. With
 * *done the checkpoint is complete. Fails on every rank or on none. */
int pp_saving_next(struct pp_saving *s, bool *done,
                   struct pp_err *err) PP_MUST_USE;

/* Frees it, and removes a checkpoint that is not complete. Accepts NULL. */
void pp_saving_end(struct pp_saving *s);

#endif
