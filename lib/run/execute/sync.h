/* SPDX-License-Identifier: MIT */
/* sync - adds the gradients of weights that two ranks hold. */
#ifndef PP_RUN_EXECUTE_SYNC_H
#define PP_RUN_EXECUTE_SYNC_H

#include "run/execute/exec.h"

/* Elements that travel at a time: what another copy's gradients need of memory
 * does not grow with the model. */
enum { PP_COPIED_PART = 1 << 18 };

/* Stages in the order of the stages copied: every rank that holds two of them
 * meets the others' in the same order. First and second copy are added in that
 * order on both ranks, so that both have the same bits. */
int pp_sync_copies(const struct pp_worker *w, struct pp_err *err) PP_MUST_USE;

/* Both ranks add embedding + head in that order: the same bits everywhere. */
int pp_sync_tied(const struct pp_worker *w, const struct pp_tied *t,
                 struct pp_err *err) PP_MUST_USE;

#endif
