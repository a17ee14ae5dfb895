/* SPDX-License-Identifier: MIT */
/* trace - what happened when, as JSON for Perfetto and chrome://tracing. The
 * spans may be simulated or measured; both give the same tracks.
 *
 * Each rank is a process. Its thread 1 is what it computes and 2 its
 * synchronisation; then there are, for each channel, a track of the messages
 * under way from it and one of what it waits for: messages of one track that
 * overlap (channel depth above 1) take a further one. An arrow leads from the
 * action that makes a message to the one that uses it. Counters say how many
 * slots and bytes a rank holds. The forward of an overlap pair whose two
 * actions really ran at once has a track of its own. A measured trace has
 * further passes of the schedule behind the first, and a track of what else a
 * rank does in a step. Format: "Trace Event Format", the Chromium project. */
#ifndef PP_SCHEDULE_DRAW_TRACE_H
#define PP_SCHEDULE_DRAW_TRACE_H

#include <stdint.h>
#include <stdio.h>

#include "schedule/simulate/sim.h"

/* A part of a step that is not the schedule: "update". */
struct pp_trace_part {
    const char *name;
    int row;
    double start, end;
};

/* One pass of a schedule. All pointers are borrowed. */
struct pp_trace {
    const struct pp_schedule *schedule;
    const struct pp_sim_row *rows; /* spans of all actions, in order */
    const struct pp_messages *messages;
    const struct pp_memory_timeline *slots, *bytes; /* per rank, or NULL */
    double ns;        /* nanoseconds of the trace to a unit of spans' time */
    double error;     /* most that the times of two ranks may be off; 0: none */
    const char *unit; /* the spans' unit, for the metadata: "flop", "ns" */
    /* Of measured passes: */
    int64_t step;                      /* its number, from 1; 0: simulated */
    int pass;                          /* among the step's */
    const struct pp_trace_part *parts; /* n_parts, or NULL */
    size_t n_parts;
};

struct pp_trace_writer;

/* Nanoseconds to a unit of time that suit times up to `longest`: `wish`, or
 * that times a power of 1000 where a picture would be too short or too long
 * for whole nanoseconds. */
double pp_trace_ns(double longest, double wish);

/* Writes the JSON text, one event a line. Stream errors are the caller's to
 * check. */
int pp_trace_print(FILE *f, const struct pp_trace *t,
                   struct pp_err *err) PP_MUST_USE;

/* The same for several passes: of one schedule, one after the other, in the
 * units of the first, all with parts or none. */
int pp_trace_open(struct pp_trace_writer **w, FILE *f,
                  const struct pp_trace *first, struct pp_err *err) PP_MUST_USE;
int pp_trace_add(struct pp_trace_writer *w, const struct pp_trace *t,
                 struct pp_err *err) PP_MUST_USE;

/* Ends the text and frees; accepts NULL. */
void pp_trace_close(struct pp_trace_writer *w);

#endif
