/* SPDX-License-Identifier: MIT */
/* events - a schedule as a marked graph, private to lib/schedule/check.
 *
 * Orders are fixed, so a run is a marked graph (Commoner, Holt, Even and
 * Pnueli, "Marked directed graphs", JCSS 1971): all ranks reach their ends
 * exactly where the graph of events has no cycle, in whatever order things
 * happen. An event is an action; on a channel of depth 0 a SEND and its RECV
 * are one event, and so is a pair. Edges: each stream runs in the order of its
 * row; a SEND comes after its forward or backward; a RECV after its SEND, and
 * before its consumer; on a channel of depth k, RECV i before SEND i + k. */
#ifndef PP_SCHEDULE_CHECK_CHECK_PARTS_H
#define PP_SCHEDULE_CHECK_CHECK_PARTS_H

#include <stdint.h>

#include "schedule/ir/numbering.h"
#include "schedule/ir/schedule.h"

struct pp_end {
    struct pp_action action;
    int row;
    size_t place; /* in its row */
};

struct pp_fifo {
    struct pp_channels channels;
    bool tagged;                /* see pp_fifo_init */
    struct pp_end *send, *recv; /* by channel, n_messages of each */
    size_t *first;              /* per channel: its first message; n + 1 */
    size_t n_messages;
};

/* Lists the messages of s, whose rows are right (check_rows.h), and makes sure
 * that every channel receives in the order it sends, PP_EXIT_NO where one does
 * not. tagged: forward and backward messages from one rank to another travel
 * apart; otherwise they share the channel that pp_channel_between names. */
int pp_fifo_init(struct pp_fifo *f, const struct pp_schedule *s, bool tagged,
                 struct pp_err *err) PP_MUST_USE;

/* Accepts a zeroed struct. */
void pp_fifo_finish(struct pp_fifo *f);

/* What runs in the order of its row on a rank. Compute actions always do,
 * among themselves. */
enum pp_streams {
    PP_STREAM_NONE,      /* messages by themselves */
    PP_STREAM_DIRECTION, /* messages to one peer, and those from it */
    PP_STREAM_PAIR,      /* messages to and from one peer */
    PP_STREAM_RANK,      /* all messages */
    PP_STREAM_PROGRAM    /* messages and compute actions */
};

#define PP_NO_EVENT UINT32_MAX
#define PP_NO_STREAM SIZE_MAX

/* Actions are numbered row after row. */
struct pp_events {
    const struct pp_schedule *schedule;
    const struct pp_fifo *fifo;
    enum pp_streams streams;
    const int *depth;  /* of the last run: per channel of fifo */
    size_t n;          /* actions */
    size_t *base;      /* per rank: its first action; n_ranks + 1 */
    size_t *index;     /* per action: that of a message in fifo */
    uint32_t *channel; /* per message of fifo: its channel */
    size_t n_streams;
    uint32_t *event; /* per action: the one that stands for its event */
    uint32_t *left;  /* per event, after a run: what it still waits for */
    /* Where actions do not wait for all that is before them in their row: */
    struct pp_cells cells;
    uint32_t *made;     /* 2 per cell: its forward, and its I or B */
    uint32_t *received; /* 2 per link: RECV_F and RECV_B */
    /* The run's: what follows each event, and the last of each stream. */
    uint32_t *first, *next, *last;
};

/* s and f are borrowed; s has right rows and f lists its messages. */
int pp_events_init(struct pp_events *e, const struct pp_schedule *s,
                   const struct pp_fifo *f, enum pp_streams streams,
                   struct pp_err *err) PP_MUST_USE;
void pp_events_finish(struct pp_events *e);

/* 0 when every event can happen, PP_AGAIN (play.h) when some cannot, -1 when
 * out of memory. depth has one entry per channel of the fifo. Linear. */
int pp_events_run(struct pp_events *e, const int *depth,
                  struct pp_err *err) PP_MUST_USE;

/* After a run: whether action x has happened. */
static inline bool pp_events_done(const struct pp_events *e, size_t x)
{
    return e->left[e->event[x]] == 0;
}

/* The stream on rank that a runs in, below n_streams; or PP_NO_STREAM. */
size_t pp_events_stream(const struct pp_events *e, int row, struct pp_action a);

/* Calls visit for every action that x waits for by itself, beside those before
 * it in its stream: receives of a compute action (of both, for the first of a
 * pair); of a SEND its producer and, on a full channel, the RECV that makes
 * room, or its own at depth 0; of a RECV its SEND. */
void pp_events_waits(const struct pp_events *e, int row, size_t x,
                     void (*visit)(void *ctx, size_t on), void *ctx);

#endif
