/* SPDX-License-Identifier: MIT */
/* makespan - the makespan of one order of the work for many sets of times.
 *
 * If only the times change, a makespan is the longest path through a fixed
 * graph. The graph is built once; each set of times then costs one pass over
 * it. The result is that of pp_simulate at depth INT_MAX, with pairs that save
 * nothing. */
#ifndef PP_SCHEDULE_SIMULATE_MAKESPAN_H
#define PP_SCHEDULE_SIMULATE_MAKESPAN_H

#include <stdint.h>

#include "schedule/ir/schedule.h"

/* The times of a slice of a stage. A stage without input gradient does its
 * whole backward at W. */
enum { PP_TIME_F, PP_TIME_I, PP_TIME_W, PP_TIME_B, PP_N_TIMES };

/* Returns which time a compute action takes, or -1 for none. input_grad is that
 * of its stage. */
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

/* A set of times: PP_N_TIMES for each slice of each stage, and one message, in
 * either direction, between a slice of a stage and the next stage. Both arrays
 * are indexed by stage * n_slices + slice. */
struct pp_times {
    double (*slice)[PP_N_TIMES];
    double *message;
};

/* The times of one of several unequal microbatches: of its actions, indexed by
 * 4 * (stage * n_slices + slice) + enum pp_op, and of its messages, indexed as
 * above. */
struct pp_microbatch_times {
    const double *op, *message;
};

/* One action, or an overlap pair, as one piece of work. */
struct pp_makespan_piece {
    int32_t before;  /* the previous piece of the row, or -1 */
    uint32_t wait;   /* its first entry in waits; the next piece's first entry
                        ends them */
    int32_t time[2]; /* 4 * (stage * n_slices + slice) + op; -1: none */
};

/* A piece of another row that must be done, and its message. */
struct pp_makespan_wait {
    int32_t piece, message, microbatch;
};

/* The longest path from the end of a piece on. */
struct pp_makespan_tail {
    double length;
    int32_t next, message; /* -1: none */
};

struct pp_makespan {
    const struct pp_graph *graph;
    struct pp_makespan_piece *pieces; /* in an order that respects waits */
    struct pp_makespan_wait *waits;
    int32_t (*microbatch)[2]; /* of a piece's actions */
    double *done;             /* end of each piece in the last pass */
    double *op;    /* scratch: times of the four ops of every slice */
    int32_t *last; /* the last piece of each row, or -1 */
    int32_t end;   /* the piece that ended the last pass last, or -1 */
    struct pp_makespan_tail *tails; /* of pp_makespan_row_paths, or NULL */
    bool tailed;                    /* the tails are of the last pass */
    size_t n_pieces, n_waits;
};

/* Builds the graph from the compute actions of s. Fails with PP_EXIT_NO if they
 * deadlock. Borrows the stage graph; s may be freed. */
int pp_makespan_init(struct pp_makespan *x, const struct pp_schedule *s,
                     struct pp_err *err) PP_MUST_USE;

/* Returns the makespan with these times. */
double pp_makespan(struct pp_makespan *x, const struct pp_times *t);

/* Returns the makespan of microbatches that differ: times[k] are the times of
 * microbatch k. */
double pp_makespan_unequal(struct pp_makespan *x,
                           const struct pp_microbatch_times *times);

/* Counts how often each time and each message is on a longest path of the last
 * pass, whose times are t. The makespan with other times is at least the sum of
 * these counts times them. */
void pp_makespan_path(const struct pp_makespan *x, const struct pp_times *t,
                      const struct pp_times *counts);

/* Calls each, with counts filled, for one path per row after a pass with times
 * t. The path stays in the row except for at most a first and a last `part`, 0
 * to 1/2, of the row's work. It is about as long as any such path. As with
 * pp_makespan_path, the counts give a lower bound of every makespan. A second
 * call after one pass takes less time. */
void pp_makespan_row_paths(struct pp_makespan *x, const struct pp_times *t,
                           const struct pp_times *counts, double part,
                           void (*each)(void *ctx), void *ctx);

/* Frees the graph; accepts a zeroed struct. */
void pp_makespan_finish(struct pp_makespan *x);

#endif
