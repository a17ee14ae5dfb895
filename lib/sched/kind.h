/* SPDX-License-Identifier: MIT */
/* kind - a way to order the work: one table entry per schedule.
 *
 * A kind emits compute actions only; lower.h adds the messages. */
#ifndef PP_SCHED_KIND_H
#define PP_SCHED_KIND_H

#include "sched/schedule.h"

struct pp_kind_options {
    int n_microbatches;
    int group; /* interleaved: microbatches per group; 0: the kind's default */
    bool idle; /* emit PP_IDLE too, where PyTorch's class has empty cells */
};

struct pp_kind {
    const char *name;
    const char *summary; /* one line for --list */
    const char *constraint;
    const char *paper;
    bool copies; /* runs on two copies of the weights, both ways, and only so */
    int slices;  /* takes slices: how many where none are asked for; 0: none */
    /* Fills the rows of s, which is initialised and empty. Refuses with
     * PP_EXIT_INPUT what does not fit, naming what would. */
    int (*emit)(struct pp_schedule *s, const struct pp_kind_options *o,
                struct pp_err *err);
};

/* Emits, after refusing with PP_EXIT_INPUT a graph with copies or slices that
 * the kind does not run on. */
int pp_kind_emit(const struct pp_kind *k, struct pp_schedule *s,
                 const struct pp_kind_options *o,
                 struct pp_err *err) PP_MUST_USE;

/* All kinds, ending with NULL. */
extern const struct pp_kind *const pp_kinds[];

/* The kind of that name (case sensitive), or NULL. */
const struct pp_kind *pp_kind_find(const char *name);

#endif
