/* SPDX-License-Identifier: MIT */
/* job_memory - what the ranks of a job allocate, before there is one: the same
 * figures for those who ask and those who do. */
#ifndef PP_RUN_TRAIN_JOB_MEMORY_H
#define PP_RUN_TRAIN_JOB_MEMORY_H

#include "run/execute/engine.h"
#include "run/execute/job.h"

/* The largest microbatch of training and evaluation. */
void pp_job_room(const struct pp_job *j, struct pp_engine_room *room);

/* Whether the rank has a second handle of its device, for the forward of
 * overlap pairs: where the device can run it beside the backward. Products and
 * layers are clocked one after the other. */
bool pp_job_overlaps(const struct pp_job *j, int rank);

#endif
