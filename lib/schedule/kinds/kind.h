/* SPDX-License-Identifier: MIT */
/* kind - the schedule kinds, one table entry each.
 *
 * A kind emits compute actions only; pp_lower adds the messages. */
#ifndef PP_SCHEDULE_KINDS_KIND_H
#define PP_SCHEDULE_KINDS_KIND_H

#include "schedule/ir/schedule.h"

struct pp_kind_options {
    int n_microbatches;
    int group; /* microbatches per group of interleaved; 0 for the default */
    bool idle; /* also emit PP_IDLE for the empty cells of PyTorch's class */
};

struct pp_kind {
    const char *name;
    const char *summary;    /* one line */
    const char *constraint; /* the placements and sizes it accepts */
    const char *paper;
    /* The placement to use if the caller can choose: stages per rank (0: one)
     * and v or loop. A kind that takes several stages in a loop also takes
     * more. */
    int n_chunks;
    bool v;
    bool chain;  /* runs a chain. If the chain has several stages on each of its
                    rows, rows of one stage may feed it or read from it, and
                    follow its order (chain.c) */
    bool copies; /* needs two copies of the weights, placed both ways */
    int slices;  /* the default number of slices; 0: 1, and searches for the
                    best order try the kind */
    /* Fills the rows of s, which is initialised and empty, with whole
     * microbatches, also if the graph has slices. Fails with
     * PP_EXIT_INPUT if the graph or the options do not fit, and says what
     * would. */
    int (*emit)(struct pp_schedule *s, const struct pp_kind_options *o,
                struct pp_err *err);
};

/* Fails with PP_EXIT_INPUT if the graph has copies of the weights that the kind
 * does not take. */
int pp_kind_admits(const char *kind, const struct pp_graph *g, bool copies,
                   struct pp_err *err) PP_MUST_USE;

/* Emits the rows of kind k after pp_kind_admits, and trims them. With slices in
 * the graph it fails with PP_EXIT_INPUT if the kind does not take the
 * microbatches of each stage in ascending order. */
int pp_kind_emit(const struct pp_kind *k, struct pp_schedule *s,
                 const struct pp_kind_options *o,
                 struct pp_err *err) PP_MUST_USE;

/* All kinds, terminated by NULL. */
extern const struct pp_kind *const pp_kinds[];

/* Lists the names of all kinds, then "auto", which stands for the best of them,
 * then NULL. */
enum { PP_MAX_KINDS = 32 };
void pp_kind_names(const char *names[PP_MAX_KINDS]);

/* Returns the kind of that name (case sensitive), or NULL. */
const struct pp_kind *pp_kind_find(const char *name);

#endif
