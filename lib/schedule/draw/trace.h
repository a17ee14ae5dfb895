/* SPDX-License-Identifier: MIT */
/* trace - spans of actions as JSON for Perfetto and chrome://tracing. The spans
 * may be simulated or measured; both give the same tracks.
 *
 * Each rank is a process, named after its components too. Thread 1 has its
 * compute actions and thread 2 its synchronisation. Each channel has a track of
 * the messages sent and a track of the receives that wait. Messages that
 * overlap on a track (channel depth above 1) take a further track. An arrow
 * leads from the action that makes a message to the action that uses it.
 * Counters have the slots and bytes that a rank holds. The forward of an
 * overlap pair has a track of its own if the two actions really overlapped. A
 * measured trace may have several passes of the schedule, and a track of the
 * other parts of a step. The format is the "Trace Event Format" of the Chromium
 * project. */
#ifndef PP_SCHEDULE_DRAW_TRACE_H
#define PP_SCHEDULE_DRAW_TRACE_H

#include <stdint.h>
#include <stdio.h>

#include "schedule/simulate/sim.h"

/* A part of a step outside the schedule: "update". */
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
    double ns;        /* nanoseconds of the trace per unit of spans' time */
    double error;     /* largest error between two ranks' clocks; 0: none */
    const char *unit; /* the spans' unit, for the metadata: "flop", "ns" */
    const char *plan; /* its name, for the metadata; "" or NULL: none */
    const char *const *names; /* of what each row has of the model, or NULL */
    /* For measured passes: */
    int64_t step;                      /* number, from 1; 0: simulated */
    int pass;                          /* number within the step */
    const struct pp_trace_part *parts; /* n_parts, or NULL */
    size_t n_parts;
};

struct pp_trace_writer;

/* Returns the nanoseconds per unit of time for times up to `longest`: `wish`,
 * or wish times a power of 1000 if the trace would be too short or too long for
 * whole nanoseconds. */
double pp_trace_ns(double longest, double wish);

/* Writes the JSON text, one event a line. Stream errors are the caller's to
 * check. */
void pp_trace_print(FILE *f, const struct pp_trace *t);

/* Write several passes of one schedule, in the units of the first. Either all
 * have parts or none. pp_trace_close must be called in any case. */
void pp_trace_open(struct pp_trace_writer **w, FILE *f,
                   const struct pp_trace *first);
void pp_trace_add(struct pp_trace_writer *w, const struct pp_trace *t);

/* Ends the text and frees; accepts NULL. */
void pp_trace_close(struct pp_trace_writer *w);

#endif
