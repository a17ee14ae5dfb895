/* SPDX-License-Identifier: MIT */
/* sim - simulation of a schedule, and figures read off its spans.
 *
 * A rank computes one action at a time. A message takes time on its channel and
 * occupies neither rank. A send blocks while depth messages are in its channel.
 * A receive is posted and blocks nothing: the action that reads the message
 * waits for it. A message leaves its channel, in order, when it has arrived and
 * its receive is posted. With unbounded channels (depth INT_MAX) a send blocks
 * nothing either: each action waits only for its own inputs, as closed forms
 * assume. An overlap pair runs as one piece, its actions one after the other.
 * The collectives REDUCE_GRAD and UNSHARD occupy their rank, or run beside its
 * computation; collectives of a rank then follow each other. SYNC_COPIES and
 * SYNC_TIED wait for them, and the actions of a stage for its UNSHARD. */
#ifndef PP_SCHEDULE_SIMULATE_SIM_H
#define PP_SCHEDULE_SIMULATE_SIM_H

#include "schedule/memory/memory.h"

/* Costs that are the same for all stages: F, I, W and a message. A slice costs
 * an equal share. A stage without input gradient costs 0 at I and I + W at W;
 * if textbook, it costs I and W like any other stage. */
struct pp_literal_costs {
    const struct pp_graph *graph;
    double f, i, w, comm;
    bool textbook;
    double reduce, unshard; /* of REDUCE_GRAD and UNSHARD of a stage */
    double copy;            /* of OFFLOAD and RELOAD */
};

/* The time function of pp_costs for a struct pp_literal_costs ctx. */
double pp_literal_time(const void *ctx, struct pp_action a);

struct pp_span {
    struct pp_action action;
    double start, end;
};

struct pp_sim_row {
    struct pp_span *spans; /* one per action of the row, in order */
    size_t n;
    double busy;
};

struct pp_sim {
    int n_rows;
    struct pp_sim_row *rows; /* malloc'ed */
    double makespan;         /* last end; the first start is 0 */
    double bubble;           /* 1 - busy / (n_rows * makespan) */
    double span;             /* largest (last end - first start) of a row */
};

/* Plays s at the given channel depth (INT_MAX: unbounded), as a run does. The
 * span of a receive is the instant at which it is posted. Fails with PP_EXIT_NO
 * if s deadlocks. */
int pp_simulate(const struct pp_schedule *s, const struct pp_costs *costs,
                int depth, struct pp_sim *sim, struct pp_err *err) PP_MUST_USE;

/* Finds only the makespan of pp_simulate; s must be valid. If strict, which
 * needs a bounded depth, each receive waits in its place until its message is
 * there, as the checker has it. No schedule takes less. */
int pp_run_time(const struct pp_schedule *s, const struct pp_costs *costs,
                int depth, bool strict, double *makespan,
                struct pp_err *err) PP_MUST_USE;

/* Frees the spans; accepts a zeroed struct. */
void pp_sim_finish(struct pp_sim *sim);

/* Finds the start and end of the piece of work that the i-th span belongs to.
 * The two spans of an overlap pair are one piece: they may run at once and
 * start in any order. */
void pp_span_piece(const struct pp_span *spans, size_t i, double *start,
                   double *end);

/* Returns the time in which the row computes. */
double pp_sim_busy(const struct pp_sim_row *r);

struct pp_message {
    struct pp_action action;   /* the SEND */
    int from, to;              /* ranks */
    size_t producer, consumer; /* positions of the compute actions */
    size_t send, recv;         /* positions of SEND and RECV */
    double leaves, arrives;
    double waits; /* when the receiver begins to wait for it */
};

struct pp_messages {
    struct pp_message *at; /* sorted by sender and position; malloc'ed */
    size_t n;
};

/* Finds the messages of s, given the spans of its rows; s must be valid. With
 * costs, the spans are pp_simulate's at that depth, and messages take their
 * cost. With costs NULL, the spans are measured: that of a RECV is the wait for
 * its message, which is under way from the start of its SEND to the end of that
 * wait. */
void pp_messages_find(const struct pp_schedule *s,
                      const struct pp_sim_row *rows,
                      const struct pp_costs *costs, int depth,
                      struct pp_messages *m);

/* Frees; accepts a zeroed struct. */
void pp_messages_finish(struct pp_messages *m);

/* The idle time of a row by cause: before its first compute action, before a
 * later forward or backward, and after its last compute action. */
struct pp_idle {
    double fill, wait_forward, wait_backward, drain;
};

/* Returns the idle time of a row of sim, simulated with unbounded channels. A
 * row that computes nothing only fills. */
struct pp_idle pp_idle_of(const struct pp_sim *sim, int row);

struct pp_channel_traffic {
    int from, to; /* ranks */
    bool backward;
    size_t messages;
    double time; /* sum over all messages */
};

/* Lists the channels in use, sorted by from, to and direction, forward first.
 * The caller frees *at. */
void pp_traffic(const struct pp_schedule *s, const struct pp_costs *costs,
                struct pp_channel_traffic **at, size_t *n);

/* One level of a timeline: the row holds value from time on. Times do not
 * decrease. If several levels have one time, the last one stays. */
struct pp_level {
    double time, value;
};

struct pp_memory_timeline {
    struct pp_level *at; /* from 0 at time 0 to 0; malloc'ed */
    size_t n;
    double peak, peak_time; /* first time of the largest value */
};

/* Builds the timeline of slots, which open and close as for pp_row_slots; in a
 * row that only runs forward, F closes its slot itself. An overlap pair is one
 * piece. spans has one entry per action of the row, in order. */
void pp_memory_timeline_slots(const struct pp_graph *g,
                              const struct pp_row *list,
                              const struct pp_span *spans,
                              struct pp_memory_timeline *c);

/* Builds the timeline of bytes. Each buffer of m lives from the start of its
 * first action to the end of its last. The peak is that of m. */
void pp_memory_timeline_bytes(const struct pp_row *list,
                              const struct pp_span *spans,
                              const struct pp_memory *m,
                              struct pp_memory_timeline *c);

/* Multiplies all values, for example to turn slots into bytes. */
void pp_memory_timeline_scale(struct pp_memory_timeline *c, double by);

/* Frees; accepts a zeroed struct. */
void pp_memory_timeline_finish(struct pp_memory_timeline *c);

#endif
