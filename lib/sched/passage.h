/* SPDX-License-Identifier: MIT */
/* passage - a pipeline that passes each rank once, private to lib/sched.
 *
 * Ranks then form a DAG as stages do: rank a comes before rank b where a stage
 * on a feeds one on b, and no way leads back. One stage on each rank is the
 * usual case; encoders that share a rank, with each other or with the first
 * stage of the model that they feed, are another. A rank runs a microbatch
 * through all of its stages at once, so kinds that know one stage a rank need
 * not care. */
#ifndef PP_SCHED_PASSAGE_H
#define PP_SCHED_PASSAGE_H

#include "sched/schedule.h"

struct pp_passage {
    const struct pp_graph *graph;
    int *depth;  /* per rank: the longest path to a rank without outputs */
    int longest; /* of them, and 1: as many ranks as the longest way has */
    int *first;  /* per rank, and one more: where its stages begin in */
    int *stages; /* all of them, by rank, ascending */
};

/* Refuses with PP_EXIT_INPUT a rank without stages, and one that is passed
 * twice. finish takes a zeroed struct too. */
int pp_passage_init(struct pp_passage *p, const struct pp_schedule *s,
                    struct pp_err *err) PP_MUST_USE;
void pp_passage_finish(struct pp_passage *p);

/* One microbatch through all stages of a rank: ascending with F, descending
 * with B, I and W. */
int pp_passage_emit(struct pp_schedule *s, const struct pp_passage *p,
                    enum pp_op op, int rank, int microbatch,
                    struct pp_err *err) PP_MUST_USE;

#endif
