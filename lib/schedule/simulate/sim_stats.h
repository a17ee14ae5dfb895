/* SPDX-License-Identifier: MIT */
/* messages - which transfer went from where to where, and when, read off the
 * spans of a run, simulated or measured. */
#ifndef PP_SCHEDULE_SIMULATE_SIM_STATS_H
#define PP_SCHEDULE_SIMULATE_SIM_STATS_H

#include "schedule/memory/memory.h"
#include "schedule/simulate/sim.h"

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
