/* SPDX-License-Identifier: MIT */
/* job_channels - which channels a job's messages take, for a transport that
 * connects them before the first step. */
#ifndef PP_RUN_TRAIN_JOB_CHANNELS_H
#define PP_RUN_TRAIN_JOB_CHANNELS_H

#include "comm/comm.h"
#include "schedule/ir/schedule.h"

/* The channels of all ranks, of the schedule's messages and of gradients of
 * what is there twice, each once, in an order in which neighbours can connect
 * two by two at the same time. *at is malloc'ed. */
int pp_job_channels(const struct pp_schedule *s, struct pp_comm_channel **at,
                    size_t *n, struct pp_err *err) PP_MUST_USE;

#endif
