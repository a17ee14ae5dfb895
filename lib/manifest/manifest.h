/* SPDX-License-Identifier: MIT */
/* manifest - reads, checks and writes the JSON document that the tools pass on.
 *
 * pp-manifest(5) describes the format. After a successful read every struct is
 * valid and every reference between sections is checked, so that nobody checks
 * again. Sections that a tool does not own, and x- keys, pass through
 * untouched. */
#ifndef PP_MANIFEST_MANIFEST_H
#define PP_MANIFEST_MANIFEST_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/arena.h"
#include "base/checksum.h"
#include "base/err.h"
#include "cost/plan.h"
#include "schedule/ir/schedule.h"

#define PP_MANIFEST_VERSION 1

/* A plan that was tried. */
struct pp_manifest_try {
    const char *placement, *schedule;
    int n_chunks;
    bool whole_head; /* B on the last stage, although the schedule has I */
    double step;     /* infinite if no split fits in memory */
};

/* The plans that one was chosen from, and a bound for it. */
struct pp_manifest_search {
    double step, bound; /* bound: no plan has a shorter step */
    const char *bound_rule;
    const struct pp_manifest_try *tries;
    size_t n_tries;
};

struct pp_manifest {
    struct pp_arena arena; /* owns what the structs below point to */
    bool has_model, has_profile, has_machine, has_microbatch, has_stages,
        has_data, has_schedule;
    struct pp_plan_model model;
    struct pp_profile profile; /* one entry a unit, in the model's order */
    struct pp_machine machine;
    struct pp_default_microbatch microbatch; /* the split assumes it */
    struct pp_mesh mesh;                     /* all 1 if absent */
    struct pp_plan_stage *stages;            /* graph.n_stages */
    struct pp_graph graph;                   /* valid with has_stages */
    struct pp_component *components;         /* n_components */
    size_t n_components;                     /* 0 if the model is not divided */
    const char *const *row_names; /* (rows) the components of each, or NULL */
    struct pp_plan_data data;
    struct pp_schedule schedule; /* on graph; valid with has_schedule */
    void *document;              /* the JSON value; private to lib/manifest */
};

/* Reads a manifest from a stream that nobody has read from, to its end, to the
 * first byte that is no JSON, or to PP_TEXT_BYTES. name ("plan.json", "standard
 * input") starts every message. Syntax errors carry line and column, others a
 * JSON pointer. On failure *m is finished. */
int pp_manifest_read(FILE *f, const char *name, struct pp_manifest *m,
                     struct pp_err *err) PP_MUST_USE;

/* Reads the text of a manifest in the same way, but checks only that it is
 * JSON. The caller frees *text, also after a failure. */
int pp_manifest_read_text(FILE *f, const char *name, char **text, size_t *n,
                          struct pp_err *err) PP_MUST_USE;

/* Reads a manifest from memory. */
int pp_manifest_parse(const char *text, size_t n, const char *name,
                      struct pp_manifest *m, struct pp_err *err) PP_MUST_USE;

/* Makes an empty manifest, which has format and version only. */
void pp_manifest_init(struct pp_manifest *m);

/* Setters replace a section of the document and refresh the parsed members.
 * They keep no reference to their arguments. A new model removes profile,
 * microbatch, stages, components and schedule; new stages remove components and
 * a schedule that no longer fits. On failure *m is as it was. */
int pp_manifest_set_model(struct pp_manifest *m,
                          const struct pp_plan_model *model,
                          struct pp_err *err) PP_MUST_USE;
int pp_manifest_set_profile(struct pp_manifest *m, const struct pp_profile *p,
                            struct pp_err *err) PP_MUST_USE;
int pp_manifest_set_machine(struct pp_manifest *m,
                            const struct pp_machine *machine,
                            struct pp_err *err) PP_MUST_USE;
int pp_manifest_set_microbatch(struct pp_manifest *m,
                               const struct pp_default_microbatch *mb,
                               struct pp_err *err) PP_MUST_USE;
/* model: NULL, or that of m with other bytes of its units, for the mesh. */
int pp_manifest_set_stages(struct pp_manifest *m,
                           const struct pp_plan_model *model,
                           const struct pp_mesh *mesh,
                           const struct pp_graph *graph,
                           const struct pp_plan_stage *stages,
                           struct pp_err *err) PP_MUST_USE;
/* Returns the plan in m, which borrows its members, and the places of all
 * ranks. m has stages. */
struct pp_plan pp_manifest_plan(const struct pp_manifest *m);
struct pp_layout pp_manifest_layout(const struct pp_manifest *m);

/* m has a model and stages. first_unit of the components is ignored. */
int pp_manifest_set_components(struct pp_manifest *m,
                               const struct pp_component *components, size_t n,
                               struct pp_err *err) PP_MUST_USE;
int pp_manifest_set_data(struct pp_manifest *m, const struct pp_plan_data *data,
                         struct pp_err *err) PP_MUST_USE;
int pp_manifest_set_schedule(struct pp_manifest *m, const struct pp_schedule *s,
                             struct pp_err *err) PP_MUST_USE;

/* Returns the last unit whose rows the head of a language model reads, or one
 * after it that passes them on. */
size_t pp_manifest_last_rows(const struct pp_plan_model *model);

/* Puts a generator behind the language model of m: the units, stages and ranks
 * of its plan, with their costs, the connector's in its first unit. Both
 * plans assume a microbatch; the generator's stands for one of the language
 * model. m loses its schedule. On failure *m is as it was. */
int pp_manifest_add_generator(struct pp_manifest *m,
                              const struct pp_manifest *generator,
                              struct pp_err *err) PP_MUST_USE;

/* Sets x-search, which no tool reads. */
void pp_manifest_set_search(struct pp_manifest *m,
                            const struct pp_manifest_search *x);

/* Appends {"tool", "version", "args"} to history. */
int pp_manifest_add_history(struct pp_manifest *m, const char *tool,
                            const char *version, const char *args,
                            struct pp_err *err) PP_MUST_USE;

/* The name of a plan in a trace: a hash of model, mesh and stages in 16 digits,
 * or an empty text if there is no model. */
struct pp_plan_name {
    char text[17];
};
struct pp_plan_name pp_manifest_plan_name(const struct pp_manifest *m);

/* Writes the document with a fixed order of keys, an indent of two spaces and
 * one row of actions a line. The caller checks the stream for errors. */
void pp_manifest_write(const struct pp_manifest *m, FILE *f);

/* Frees everything. m may be zeroed. */
void pp_manifest_finish(struct pp_manifest *m);

#endif
