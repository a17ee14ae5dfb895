/* SPDX-License-Identifier: MIT */
/* progress - the place of a rank in its job, which another thread may read: the
 * phase of the job, the step and the action. It costs one store an action. */
#ifndef PP_RUN_EXECUTE_PROGRESS_H
#define PP_RUN_EXECUTE_PROGRESS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct pp_job;

enum pp_phase {
    PP_PHASE_START, /* before the first step */
    PP_PHASE_TRAIN,
    PP_PHASE_UPDATE, /* the end of a step: norm, update, report */
    PP_PHASE_EVALUATE,
    PP_PHASE_SAVE,
    PP_PHASE_END /* after the last step */
};

/* Zero it. The rank's own thread writes it. */
struct pp_progress {
    _Atomic uint64_t place; /* see progress.c */
};

/* Sets the phase and the step, counted from 1. p may be NULL. */
void pp_progress_phase(struct pp_progress *p, enum pp_phase phase,
                       int64_t step);

/* Sets the index of the current action in its row. p may be NULL. */
void pp_progress_action(struct pp_progress *p, size_t index);

/* Writes the place of a rank of the job, such as "step 12: 1F3". Any thread may
 * call it. */
void pp_progress_format(struct pp_progress *p, const struct pp_job *j, int rank,
                        char *text, size_t room);

#endif
