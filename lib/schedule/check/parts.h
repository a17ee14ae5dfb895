/* SPDX-License-Identifier: MIT */
/* parts - the event graph of a schedule whose messages run in streams of
 * their own, private to lib/schedule/check.
 *
 * The order of each row is fixed, so a run is a marked graph (Commoner, Holt,
 * Even and Pnueli, "Marked directed graphs", JCSS 1971): all ranks reach their
 * ends if and only if the event graph has no cycle, whatever the timing. Its
 * events are the operations of a graph whose rows are streams. Edges: a SEND
 * follows its forward or backward; a RECV follows its SEND and precedes its
 * consumer; on a channel of depth k, RECV i precedes SEND i + k; at depth 0 a
 * SEND waits until its RECV is next in its stream. */
#ifndef PP_SCHEDULE_CHECK_PARTS_H
#define PP_SCHEDULE_CHECK_PARTS_H

#include <stdint.h>

#include "schedule/ir/ops.h"

/* Lists the messages of s, for which pp_check_rows must hold, and matches SENDs
 * with RECVs. Fails with PP_EXIT_NO if a channel does not receive in the order
 * it sends. */
int pp_check_messages(struct pp_fifo *f, const struct pp_schedule *s,
                      bool tagged, struct pp_err *err) PP_MUST_USE;

/* The actions of a rank that run in the order of its row. Compute actions
 * always do. */
enum pp_streams {
    PP_STREAM_NONE,      /* no messages: each waits alone */
    PP_STREAM_DIRECTION, /* messages to one peer, and messages from it */
    PP_STREAM_PAIR,      /* messages to and from one peer together */
    PP_STREAM_RANK,      /* all messages of the rank */
    PP_STREAM_PROGRAM    /* messages and compute actions together */
};

#define PP_NO_EVENT UINT32_MAX
#define PP_NO_STREAM SIZE_MAX

/* The event graph. Actions are numbered row by row. */
struct pp_events {
    const struct pp_schedule *schedule;
    const struct pp_fifo *fifo;
    enum pp_streams streams;
    const int *depth;  /* per channel of fifo, in the last run */
    size_t n;          /* number of actions */
    size_t *base;      /* per row: its first action; n_rows + 1 */
    size_t *index;     /* per action: index of a message in fifo */
    uint32_t *channel; /* per message of fifo: its channel */
    uint32_t *before;  /* per action: the one before it in its stream */
    size_t n_streams;
    /* For streams other than PP_STREAM_PROGRAM: */
    struct pp_cells cells;
    uint32_t *made;     /* 2 per cell: its forward, and its I or B */
    uint32_t *received; /* 2 per link: RECV_F and RECV_B */
    /* The last run. */
    struct pp_ops ops;
    struct pp_paths paths;
};

/* Builds the graph of s, whose messages f lists. Borrows both. pp_check_rows
 * must hold for s. */
int pp_events_init(struct pp_events *e, const struct pp_schedule *s,
                   const struct pp_fifo *f, enum pp_streams streams,
                   struct pp_err *err) PP_MUST_USE;
/* Frees the graph; accepts a zeroed struct. */
void pp_events_finish(struct pp_events *e);

/* Returns 0 if every event can happen, PP_AGAIN (play.h) if some cannot, or -1
 * if there are too many waits. depth has one entry per channel of the fifo.
 * Takes linear time. */
int pp_events_run(struct pp_events *e, const int *depth,
                  struct pp_err *err) PP_MUST_USE;

/* Returns true if action x happened in the last run. */
static inline bool pp_events_done(const struct pp_events *e, size_t x)
{
    return e->paths.ran[x];
}

/* Returns the stream that a on row runs in, below n_streams, or PP_NO_STREAM.
 */
size_t pp_events_stream(const struct pp_events *e, int row, struct pp_action a);

/* Calls visit for every action that x itself waits for, besides the earlier
 * actions of its stream. A compute action waits for its receives (the first of
 * a pair for the receives of both), a RECV for its SEND, and a SEND for its
 * producer and, on a full channel, for the RECV that makes room; at depth 0
 * that is its own RECV. */
void pp_events_waits(const struct pp_events *e, int row, size_t x,
                     void (*visit)(void *ctx, size_t on), void *ctx);

#endif
