/* SPDX-License-Identifier: MIT */
/* trace_json - reads the times of a schedule's actions, or the schedule itself,
 * from a trace, the file that schedule/draw/trace.h describes. */
#ifndef PP_MANIFEST_TRACE_JSON_H
#define PP_MANIFEST_TRACE_JSON_H

#include <stdint.h>

#include "schedule/files/import.h"
#include "schedule/simulate/sim.h"

/* Reads the last pass of the file as spans of the actions of s, in seconds from
 * the first compute action. A SEND ends when it starts, because a trace does
 * not tell its end. Actions that synchronise may be absent. *step is the step
 * that was read, or 0 if the trace is simulated. Finish sim with pp_sim_finish.
 *
 * Fails with PP_EXIT_INPUT, file and JSON pointer if the text is no trace, if
 * it names another plan than `plan`, a pp_plan_name or "" for any, if the
 * compute actions and messages are not exactly the actions and messages of s,
 * each on its rank, or if a rank computes in another order or two actions at a
 * time. */
int pp_trace_read(const char *path, const struct pp_schedule *s,
                  const char *plan, struct pp_sim *sim, int64_t *step,
                  struct pp_err *err) PP_MUST_USE;

/* Does the same from memory, for any plan. name starts the messages. */
int pp_trace_parse(const char *text, size_t n, const char *name,
                   const struct pp_schedule *s, struct pp_sim *sim,
                   struct pp_err *err) PP_MUST_USE;

/* Reports if the text is likely a trace. */
bool pp_is_trace(const char *text, size_t n);

/* Reads the last pass of a trace as a schedule: a pp_import_fn. The actions of
 * a rank are in the file's order. Messages are left out, and so are
 * syncs without a stage: both follow from the stages. */
int pp_trace_import(const char *text, size_t n,
                    const struct pp_import_options *o, struct pp_import *c,
                    struct pp_err *err) PP_MUST_USE;

#endif
