/* SPDX-License-Identifier: MIT */
/* kinds - the helpers that the files of kinds share and the table entries,
 * private to lib/schedule/kinds. */
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

/* Appends a compute action to the row that holds stage. */
void pp_emit(struct pp_schedule *s, enum pp_op op, int stage, int microbatch);

/* Appends n empty cells to the row if the options ask for them. */
void pp_emit_idle(struct pp_schedule *s, const struct pp_kind_options *o,
                  int row, int n);

/* Emits the rows of a kind, without slices. */
int pp_emit_whole(const struct pp_kind *k, struct pp_schedule *s,
                  const struct pp_kind_options *o,
                  struct pp_err *err) PP_MUST_USE;

/* Emits the rows of a kind over the slices of the graph. */
int pp_emit_slices(const struct pp_kind *k, struct pp_schedule *s,
                   const struct pp_kind_options *o,
                   struct pp_err *err) PP_MUST_USE;

/* Emits the rows of a kind on the chain before a head of several stages, and
 * the head. */
int pp_emit_head(const struct pp_kind *k, struct pp_schedule *s,
                 const struct pp_kind_options *o,
                 struct pp_err *err) PP_MUST_USE;

/* Fails unless the chain has two stages per rank in a V. */
int pp_two_in_a_v(const struct pp_schedule *s, struct pp_err *err) PP_MUST_USE;

/* Emits 1F1B; fails unless the pipeline passes each rank once. A rank runs
 * `ahead` warmup forwards for each rank between it and the loss. */
int pp_emit_1f1b(struct pp_schedule *s, const struct pp_kind_options *o,
                 int ahead, struct pp_err *err) PP_MUST_USE;

#endif
