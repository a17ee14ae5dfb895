/* SPDX-License-Identifier: MIT */
/* sync_tied - gradients of a tied embedding and head become their sum. */
#ifndef PP_RUN_EXECUTE_SYNC_TIED_H
#define PP_RUN_EXECUTE_SYNC_TIED_H

#include "run/execute/exec.h"

/* Both ranks add embedding + head in that order: the same bits everywhere. */
int pp_sync_tied(const struct pp_worker *w, const struct pp_tied *t,
                 struct pp_err *err) PP_MUST_USE;

#endif
