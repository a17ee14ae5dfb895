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

#include "schedule/memory/memory.h"

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

struct pp_message {
    struct pp_action action;   /* the SEND */
    int from, to;              /* ranks */
    size_t producer, consumer; /* places of the compute actions in their rows */
    size_t send, recv;         /* places of the two ends */
    double leaves, arrives;
};

struct pp_messages {
    struct pp_message *at; /* by sender, then as its row has them; malloc'ed */
    size_t n;
};

/* Finds the messages of s, whose ranks' spans are given. With costs the spans
 * are pp_simulate's at that depth and messages take their cost; with costs
 * NULL they are measured, and a message is under way from the start of its SEND
 * to the end of its RECV. s must be valid. */
int pp_messages_find(const struct pp_schedule *s, const struct pp_sim_row *rows,
                     const struct pp_costs *costs, int depth,
                     struct pp_messages *m, struct pp_err *err) PP_MUST_USE;

/* Frees; accepts a zeroed struct. */
void pp_messages_finish(struct pp_messages *m);

struct pp_idle {
    double fill, wait_forward, wait_backward, drain;
};

/* Of a rank of sim, simulated with unbounded channels. A rank that computes
 * nothing only fills. */
struct pp_idle pp_idle_of(const struct pp_sim *sim, int row);

struct pp_channel_traffic {
    int from, to; /* ranks */
    bool backward;
    size_t messages;
    double time; /* of all of them, one after the other */
};

/* The channels in use, by from, to and direction, forward first. *at is
 * malloc'ed. */
int pp_traffic(const struct pp_schedule *s, const struct pp_costs *costs,
               struct pp_channel_traffic **at, size_t *n,
               struct pp_err *err) PP_MUST_USE;

/* From time on the rank holds value. Times do not decrease; of several levels
 * at one time all are real, one after the other, the last one lasting. */
struct pp_level {
    double time, value;
};

struct pp_memory_timeline {
    struct pp_level *at; /* the first is 0 at time 0, the last 0; malloc'ed */
    size_t n;
    double peak, peak_time; /* the first time of the largest value */
};

/* Slots, one for each action: F opens one, W or B closes it; in a row that only
 * runs forward F itself does; an overlap pair is one piece. spans has one entry
 * for each action of the row, in order. */
int pp_memory_timeline_slots(const struct pp_row *list,
                             const struct pp_span *spans,
                             struct pp_memory_timeline *c,
                             struct pp_err *err) PP_MUST_USE;

/* Bytes: each buffer of m from the start of its first action to the end of its
 * last. The peak is m's. */
int pp_memory_timeline_bytes(const struct pp_row *list,
                             const struct pp_span *spans,
                             const struct pp_memory *m,
                             struct pp_memory_timeline *c,
                             struct pp_err *err) PP_MUST_USE;

/* Multiplies the values: slots as parts of something larger. */
void pp_memory_timeline_scale(struct pp_memory_timeline *c, double by);

/* Frees; accepts a zeroed struct. */
void pp_memory_timeline_finish(struct pp_memory_timeline *c);

#endif
