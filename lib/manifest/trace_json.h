/* SPDX-License-Identifier: MIT */
/* trace_json - what a trace says of a schedule: the times of its actions, out
 * of the file that schedule/draw/trace.h describes. */
#ifndef PP_MANIFEST_TRACE_JSON_H
#define PP_MANIFEST_TRACE_JSON_H

#include "schedule/simulate/sim.h"

/* Reads the last pass of the file as spans of the actions of s, in seconds from
 * the first compute action. Of a SEND the start alone is known, and what
 * synchronises may be absent. Finish sim with pp_sim_finish.
 *
 * PP_EXIT_INPUT with file and JSON pointer where the text is no trace, where
 * it has not exactly the compute actions and messages of s, each on its rank,
 * or where a rank computes in another order or two things at a time. */
int pp_trace_read(const char *path, const struct pp_schedule *s,
                  struct pp_sim *sim, struct pp_err *err) PP_MUST_USE;

/* The same from memory; name starts the messages. */
int pp_trace_parse(const char *text, size_t n, const char *name,
                   const struct pp_schedule *s, struct pp_sim *sim,
                   struct pp_err *err) PP_MUST_USE;

#endif
