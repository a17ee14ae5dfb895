/* SPDX-License-Identifier: MIT */
/* makespan - how long one order of the work takes, for many sets of times.
 *
 * While only times change, a makespan is the longest path through a graph that
 * stays: built once, each set of times then costs one pass over it. The answer
 * is pp_simulate's at depth INT_MAX, where receives are in nobody's way, with
 * pairs that save nothing and microbatches that are all alike. */
#ifndef PP_SCHEDULE_SIMULATE_MAKESPAN_H
#define PP_SCHEDULE_SIMULATE_MAKESPAN_H

#include <stdint.h>

#include "schedule/ir/schedule.h"

/* Times of a stage's slice. A stage without input gradient does all of B at
 * W. */
enum { PP_TIME_F, PP_TIME_I, PP_TIME_W, PP_TIME_B, PP_N_TIMES };

/* Which of them a compute action takes; -1: none. input_grad: of its stage. */
static inline int pp_time_of(enum pp_op op, bool input_grad)
{
    switch (op) {
    case PP_F:
        return PP_TIME_F;
    case PP_B:
        return PP_TIME_B;
    case PP_I:
        return input_grad ? PP_TIME_I : -1;
    default:
        return input_grad ? PP_TIME_W : PP_TIME_B;
    }
}

/* What a set of times consists of: PP_N_TIMES for each slice of each stage,
 * and a message, there or back, between a slice of a stage and the next. Both
 * are indexed by stage * n_slices + slice. */
struct pp_times {
    double (*slice)[PP_N_TIMES];
    double *message;
};

/* One action, or a pair of them that is one piece of work. */
struct pp_makespan_piece {
    int32_t before;  /* the row's piece before it, or -1 */
    uint32_t wait;   /* its first entry in waits; the next piece's ends them */
    int32_t time[2]; /* 4 * (stage * n_slices + slice) + op; -1: none */
};

/* A piece of another rank that must be done, and its message. */
struct pp_makespan_wait {
    int32_t piece, message;
};

struct pp_makespan {
    const struct pp_graph *graph;
    struct pp_makespan_piece
        *pieces; /* each after all that it waits for; malloc'ed */
    struct pp_makespan_wait *waits;
    double *done; /* of each piece, in the last pass */
    double *op;   /* scratch: the times of every slice's four actions */
    int32_t end;  /* the piece that ended the last pass, or -1 */
    size_t n_pieces, n_waits, wait_capacity;
};

/* Reads the compute actions of s. PP_EXIT_NO when they cannot run to their
 * end. The graph is borrowed, s is not needed any more. */
int pp_makespan_init(struct pp_makespan *x, const struct pp_schedule *s,
                     struct pp_err *err) PP_MUST_USE;

/* The makespan at these times. */
double pp_makespan(struct pp_makespan *x, const struct pp_times *t);

/* A longest path of the last pass, whose times t are: how often each time and
 * each message is on it. The makespan at other times is at least the sum of
 * these counts times them. */
void pp_makespan_path(const struct pp_makespan *x, const struct pp_times *t,
                      const struct pp_times *counts);

/* For every rank, after a pass with times t, a path that keeps to the rank's
 * row but for a first and a last part of its work at most, 0 to 1/2 of it, and
 * is about as long as any that does: as pp_makespan_path, a sum that no
 * makespan goes below. each is called with counts filled. */
int pp_makespan_row_paths(const struct pp_makespan *x, const struct pp_times *t,
                          const struct pp_times *counts, double part,
                          void (*each)(void *ctx), void *ctx,
                          struct pp_err *err) PP_MUST_USE;

/* Accepts a zeroed struct. */
void pp_makespan_finish(struct pp_makespan *x);

#endif
