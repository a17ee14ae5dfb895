/* SPDX-License-Identifier: MIT */
/* kinds - what the kind_*.c files share with the table, private to
 * lib/schedule/kinds.
 */
#ifndef PP_SCHEDULE_KINDS_KINDS_H
#define PP_SCHEDULE_KINDS_KINDS_H

#include "schedule/kinds/kind.h"

extern const struct pp_kind pp_kind_gpipe;
extern const struct pp_kind pp_kind_1f1b;
extern const struct pp_kind pp_kind_eager_1f1b;
extern const struct pp_kind pp_kind_interleaved;
extern const struct pp_kind pp_kind_looped_bfs;
extern const struct pp_kind pp_kind_zb_h1;
extern const struct pp_kind pp_kind_zb_h2;
extern const struct pp_kind pp_kind_zb_interleaved;
extern const struct pp_kind pp_kind_zbv;
extern const struct pp_kind pp_kind_hanayo;
extern const struct pp_kind pp_kind_v_half;
extern const struct pp_kind pp_kind_v_min;
extern const struct pp_kind pp_kind_dualpipev;
extern const struct pp_kind pp_kind_dualpipe;
extern const struct pp_kind pp_kind_seq1f1b;

/* Appends a compute action to the row of the rank that holds stage. */
int pp_emit(struct pp_schedule *s, enum pp_op op, int stage, int microbatch,
            struct pp_err *err) PP_MUST_USE;

/* The same of a slice. */
int pp_emit_slice(struct pp_schedule *s, enum pp_op op, int stage,
                  int microbatch, int slice, struct pp_err *err) PP_MUST_USE;

/* n empty cells on rank, when the options ask for them. */
int pp_emit_idle(struct pp_schedule *s, const struct pp_kind_options *o,
                 int row, int n, struct pp_err *err) PP_MUST_USE;

/* Refuses a graph that has not one stage on each rank. */
int pp_one_stage_each(const struct pp_schedule *s,
                      struct pp_err *err) PP_MUST_USE;

/* Refuses branches, naming the kinds that take them. */
int pp_chain_only(const struct pp_schedule *s, struct pp_err *err) PP_MUST_USE;

/* Refuses what is not a chain of two stages on each rank, there and back. */
int pp_two_in_a_v(const struct pp_schedule *s, struct pp_err *err) PP_MUST_USE;

/* 1F1B on a pipeline that passes each rank once; refuses another. A rank runs
 * `ahead` forwards ahead for each rank between it and the loss. */
int pp_emit_1f1b(struct pp_schedule *s, const struct pp_kind_options *o,
                 int ahead, struct pp_err *err) PP_MUST_USE;

#endif
