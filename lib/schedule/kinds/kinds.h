/* SPDX-License-Identifier: MIT */
/* kinds - what the kind_*.c files share with the table, private to lib/sched.
 */
#ifndef PP_SCHED_KINDS_H
#define PP_SCHED_KINDS_H

#include "sched/kind.h"

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
                 int rank, int n, struct pp_err *err) PP_MUST_USE;

/* Refuses a graph that has not one stage on each rank. */
int pp_one_stage_each(const struct pp_schedule *s,
                      struct pp_err *err) PP_MUST_USE;

/* Refuses branches, naming the kinds that take them. */
int pp_chain_only(const struct pp_schedule *s, struct pp_err *err) PP_MUST_USE;

/* Refuses what is not a chain of two stages on each rank, there and back. */
int pp_two_in_a_v(const struct pp_schedule *s, struct pp_err *err) PP_MUST_USE;

/* The order of one rank that forwards and backwards pass in both directions:
 * the part that dualpipe and dualpipev share. */
struct pp_two_ways {
    int stage[2]; /* of the way that begins nearer, and of the other */
    int first[2]; /* microbatch of each */
    int m;        /* microbatches of each */
    int rank, p;  /* place of the rank, and how many until the ways turn */
};
int pp_emit_two_ways(struct pp_schedule *s, const struct pp_two_ways *w,
                     struct pp_err *err) PP_MUST_USE;

/* 1F1B on a pipeline that passes each rank once; refuses another. A rank runs
 * `ahead` forwards ahead for each rank between it and the loss. */
int pp_emit_1f1b(struct pp_schedule *s, const struct pp_kind_options *o,
                 int ahead, struct pp_err *err) PP_MUST_USE;

/* The order in which the interleaved kinds go round: p ranks of c chunks, m
 * microbatches in groups of g. */
struct pp_rounds {
    int p, c, m, g;
};

/* Fills all but g; refuses what is not a chain placed in a loop with as many
 * stages on each rank. */
int pp_rounds_init(struct pp_rounds *z, const struct pp_schedule *s,
                   const struct pp_kind_options *o,
                   struct pp_err *err) PP_MUST_USE;

/* PyTorch's group, m / max(1, m div p), or 0 when that is not whole. */
int pp_rounds_group(int m, int p);

/* Fails with the numbers of microbatches next to z's that have a group; more,
 * ", or --group 4", ends the message. */
int pp_rounds_fail(const struct pp_rounds *z, const char *kind,
                   const char *more, struct pp_err *err);

/* Appends forward k of rank, or with I or B the backward that mirrors it. */
int pp_rounds_emit(struct pp_schedule *s, const struct pp_rounds *z,
                   enum pp_op op, int rank, size_t k,
                   struct pp_err *err) PP_MUST_USE;

#endif
