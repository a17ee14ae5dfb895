/* SPDX-License-Identifier: MIT */
/* kind - a way to order the work: one table entry per schedule.
 *
 * A kind emits compute actions only; lower.h adds the messages. */
#ifndef PP_SCHEDULE_KINDS_KIND_H
#define PP_SCHEDULE_KINDS_KIND_H

#include "schedule/ir/schedule.h"

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
    /* What it is made for, where it can choose: so many stages on each rank,
     * in a V or a loop. 0 chunks: one. Several in a loop may as well be more.
     */
    int n_chunks;
    bool v;
    bool copies; /* runs on two copies of the weights, both ways, and only so */
    int slices;  /* takes slices: how many where none are asked for; 0: none */
    /* Fills the rows of s, which is initialised and empty. Refuses with
     * PP_EXIT_INPUT what does not fit, naming what would. */
    int (*emit)(struct pp_schedule *s, const struct pp_kind_options *o,
                struct pp_err *err);
};

/* What every kind asks of a graph first: refuses with PP_EXIT_INPUT copies of
 * the weights and slices, where it does not know what to do with them. */
int pp_kind_admits(const char *kind, const struct pp_graph *g, bool copies,
                   bool slices, struct pp_err *err) PP_MUST_USE;

/* Emits what it admits. */
int pp_kind_emit(const struct pp_kind *k, struct pp_schedule *s,
                 const struct pp_kind_options *o,
                 struct pp_err *err) PP_MUST_USE;

/* All kinds, ending with NULL. */
extern const struct pp_kind *const pp_kinds[];

/* The names that -s takes: those of all kinds, then "auto", which stands for
 * the best of them, then NULL. */
enum { PP_MAX_KINDS = 32 };
void pp_kind_names(const char *names[PP_MAX_KINDS]);

/* The kind of that name (case sensitive), or NULL. */
const struct pp_kind *pp_kind_find(const char *name);

#endif
