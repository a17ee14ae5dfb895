/* SPDX-License-Identifier: MIT */
/* manifest - the JSON document that the tools hand on: read, check, write.
 *
 * pp-manifest(5) is the format. After a successful read every struct is valid
 * and every reference between sections has been checked; nobody re-checks.
 * Sections that a tool does not own, and x- keys, pass through untouched. */
#ifndef PP_MANIFEST_MANIFEST_H
#define PP_MANIFEST_MANIFEST_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/arena.h"
#include "base/err.h"
#include "model/profile.h"
#include "model/mesh.h"
#include "model/cost.h"
#include "model/model.h"
#include "schedule/ir/graph.h"
#include "schedule/ir/schedule.h"

#define PP_MANIFEST_VERSION 1

/* What a unit costs and keeps instead where its stage recomputes. */
struct pp_manifest_mode {
    bool known;
    double recompute_flops[2]; /* of I, beside its own: as fwd_flops */
    double act_bytes[PP_N_SAVED_BLOCKS];
    double workspace_bytes; /* per token, within one F, I or B */
};

/* Costs and sizes of one unit, as coefficients. */
struct pp_manifest_unit {
    const char *fqn;
    uint64_t params;
    double fwd_flops[2];                 /* per token, per attended pair */
    double act_bytes[PP_N_SAVED_BLOCKS]; /* per token: freed at I; freed at W;
                                            made at I, freed at W */
    double out_bytes;                    /* per token */
    double state_bytes; /* weights, gradients and optimizer of one rank; read
                            where the model has them */
    struct pp_manifest_mode modes[PP_N_RECOMPUTES]; /* the first is unused;
                                                       those not known change
                                                       nothing */
};

struct pp_manifest_model {
    const char *source; /* path of the model directory or config.json */
    const char *architecture;
    const char *dtype; /* of the byte counts: "fp32" */
    bool tied;
    bool has_state;  /* units say their state_bytes */
    uint64_t params; /* distinct ones */
    struct pp_manifest_unit *units;
    size_t n_units;
};

/* One stage: units first_unit .. first_unit + n_units - 1 of the model. The
 * sums are over its units, under its recomputation. rank and inputs are in the
 * graph. */
struct pp_manifest_stage {
    size_t first_unit, n_units;
    enum pp_recompute recompute;
    uint64_t params;
    double fwd_flops[2], recompute_flops[2];
    double act_bytes[PP_N_SAVED_BLOCKS];
    double workspace_bytes; /* of the unit that has most */
    double out_bytes; /* of the last unit, or of the input for an empty stage */
    double state_bytes; /* where the model has them */
};

/* Adds a unit to a stage that holds it and names its recomputation already. */
void pp_manifest_stage_add(struct pp_manifest_stage *s,
                           const struct pp_manifest_unit *u);

/* A part of a model that is several: n_units of its units from first_unit on,
 * and the ranks that they are on, which others may share. */
struct pp_component {
    const char *name;
    size_t first_unit, n_units;
    int rank_offset, n_ranks;
};

struct pp_manifest_data {
    const char *path;
    uint64_t checksum;
    uint64_t n_bins, n_sequences;
    uint32_t capacity, align, max_tokens;
};

struct pp_manifest {
    struct pp_arena arena; /* owns what the structs below point to */
    bool has_model, has_profile, has_microbatch, has_stages, has_data,
        has_schedule;
    struct pp_manifest_model model;
    struct pp_profile profile; /* of the model's units, in its order */
    struct pp_default_microbatch microbatch; /* that the split was made for */
    struct pp_mesh mesh;                     /* all 1 when absent */
    struct pp_manifest_stage *stages;        /* graph.n_stages */
    struct pp_graph graph;                   /* valid with has_stages */
    struct pp_component *components; /* n_components; 0 where the model is one
                                      */
    size_t n_components;
    struct pp_manifest_data data;
    struct pp_schedule schedule; /* on graph; valid with has_schedule */
    void *document;              /* the JSON value; private to lib/manifest */
};

/* Reads a manifest from an open stream to its end. name ("plan.json",
 * "standard input") starts every message. Syntax errors carry line and column,
 * others a JSON pointer. On failure *m is finished. */
int pp_manifest_read(FILE *f, const char *name, struct pp_manifest *m,
                     struct pp_err *err) PP_MUST_USE;

/* The same from memory: what ranks and the fuzzer use. */
int pp_manifest_parse(const char *text, size_t n, const char *name,
                      struct pp_manifest *m, struct pp_err *err) PP_MUST_USE;

/* An empty manifest: format and version only. */
int pp_manifest_init(struct pp_manifest *m, struct pp_err *err) PP_MUST_USE;

/* Setters replace a section of the document. They read the structs given and
 * keep no reference. Setting the model removes profile, microbatch, stages,
 * components and schedule, setting stages components and a schedule that no
 * longer fits; the parsed members are refreshed from the document. On failure
 * *m is as it was. */
int pp_manifest_set_model(struct pp_manifest *m,
                          const struct pp_manifest_model *model,
                          struct pp_err *err) PP_MUST_USE;
int pp_manifest_set_profile(struct pp_manifest *m, const struct pp_profile *p,
                            struct pp_err *err) PP_MUST_USE;
int pp_manifest_set_microbatch(struct pp_manifest *m,
                               const struct pp_default_microbatch *mb,
                               struct pp_err *err) PP_MUST_USE;
int pp_manifest_set_stages(struct pp_manifest *m, const struct pp_mesh *mesh,
                           const struct pp_graph *graph,
                           const struct pp_manifest_stage *stages,
                           struct pp_err *err) PP_MUST_USE;
/* The model and the stages are there; first_unit need not be set. */
int pp_manifest_set_components(struct pp_manifest *m,
                               const struct pp_component *components, size_t n,
                               struct pp_err *err) PP_MUST_USE;
int pp_manifest_set_data(struct pp_manifest *m,
                         const struct pp_manifest_data *data,
                         struct pp_err *err) PP_MUST_USE;
int pp_manifest_set_schedule(struct pp_manifest *m, const struct pp_schedule *s,
                             struct pp_err *err) PP_MUST_USE;

/* Appends {"tool", "version", "args"} to history. */
int pp_manifest_add_history(struct pp_manifest *m, const char *tool,
                            const char *version, const char *args,
                            struct pp_err *err) PP_MUST_USE;

/* Writes the document: fixed key order, two-space indent, one action row a
 * line, final newline. Stream errors are the caller's to check. */
int pp_manifest_write(const struct pp_manifest *m, FILE *f,
                      struct pp_err *err) PP_MUST_USE;

/* Frees; accepts a zeroed struct. */
void pp_manifest_finish(struct pp_manifest *m);

#endif
