/* SPDX-License-Identifier: MIT */
/* sim - when everything happens, by clocks handed to the player.
 *
 * A rank computes one action at a time; a message takes comm time on its
 * channel and occupies neither rank; a send blocks while depth messages of its
 * channel have not been received, and a receive until its message is there, as
 * in a run. With unbounded channels (depth INT_MAX) a receive is in nobody's
 * way either: each action waits for its own inputs only, which is what closed
 * forms assume. An overlap pair runs as one piece, its actions one after the
 * other. */
#ifndef PP_SCHEDULE_SIMULATE_SIM_H
#define PP_SCHEDULE_SIMULATE_SIM_H

#include "schedule/ir/schedule.h"

struct pp_costs {
    /* Time of a compute action, or of a message (SEND). */
    double (*time)(const void *ctx, struct pp_action a);
    const void *ctx;
    /* The part of their two times that an overlap pair saves, of its sum; 0:
     * none. Negative where they are in each other's way. */
    double pair_saving;
};

/* Literal costs, one stage like the other: F, I, W, and a message; a slice
 * costs its equal part. A stage without input gradient costs 0 at I and I + W
 * at W when textbook is false; literal figures (F=1 I=1 W=1 everywhere) when
 * true. */
struct pp_literal_costs {
    const struct pp_graph *graph;
    double f, i, w, comm;
    bool textbook;
};
double pp_literal_time(const void *ctx, struct pp_action a);

struct pp_span {
    struct pp_action action;
    double start, end;
};

struct pp_sim_row {
    struct pp_span *spans; /* the row's actions in order */
    size_t n;
    double busy;
};

struct pp_sim {
    int n_rows;
    struct pp_sim_row *rows; /* malloc'ed */
    double makespan;         /* last end, first start being 0 */
    double bubble;           /* 1 - busy / (n_ranks * makespan) */
    double span;             /* largest (last end - first start) of a rank */
    size_t n_messages;
};

/* Plays s at the given channel depth (INT_MAX: unbounded). PP_EXIT_NO when it
 * does not reach its end. */
int pp_simulate(const struct pp_schedule *s, const struct pp_costs *costs,
                int depth, struct pp_sim *sim, struct pp_err *err) PP_MUST_USE;

void pp_sim_finish(struct pp_sim *sim);

/* From when to when a rank is at the i-th of its spans, the two of an overlap
 * pair being one piece of work: they may run at once, and begin in any
 * order. */
void pp_span_piece(const struct pp_span *spans, size_t i, double *start,
                   double *end);

/* Time in which the rank computes something. */
double pp_sim_busy(const struct pp_sim_row *r);

#endif
