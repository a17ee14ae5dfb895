/* SPDX-License-Identifier: MIT */
/* kinds - what the kind_*.c files share with the table, private to lib/sched.
 */
#ifndef PP_SCHED_KINDS_H
#define PP_SCHED_KINDS_H

#include "sched/kind.h"

extern const struct pp_kind pp_kind_gpipe;
extern const struct pp_kind pp_kind_1f1b;
extern const struct pp_kind pp_kind_interleaved;

/* Appends a compute action to the row of the rank that holds stage. */
int pp_emit(struct pp_schedule *s, enum pp_op op, int stage, int microbatch,
            struct pp_err *err) PP_MUST_USE;

/* 1F1B on a graph with one stage on each rank; refuses another. */
int pp_emit_1f1b(struct pp_schedule *s, const struct pp_kind_options *o,
                 struct pp_err *err) PP_MUST_USE;

#endif
