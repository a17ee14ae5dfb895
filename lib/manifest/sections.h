/* SPDX-License-Identifier: MIT */
/* sections - one reader and one writer for each section of a manifest.
 *
 * Private to lib/manifest. Readers fill the parsed members from the document,
 * in the order below, because each checks its references to those before it.
 * Writers build a section from the public structs and check nothing, because
 * the whole document is read again afterwards. */
#ifndef PP_MANIFEST_SECTIONS_H
#define PP_MANIFEST_SECTIONS_H

#include "manifest/json.h"
#include "manifest/manifest.h"

/* Limits of parsed values, so that their sums cannot overflow. */
#define PP_MAX_COUNT INT64_C(0x7fffffffffffffff)
#define PP_MAX_COST 1e30
#define PP_MAX_RANKS (INT64_C(1) << 20)
#define PP_MAX_MICROBATCHES (INT64_C(1) << 24)
#define PP_MAX_TOKENS INT64_C(0x7fffffff)

/* Messages call a manifest so if it does not come from a file. */
#define PP_OWN_NAME "manifest"

/* Fills *m from a document and takes it. On failure *m is finished. */
int pp_manifest_load(json_t *document, const char *name, struct pp_manifest *m,
                     struct pp_err *err) PP_MUST_USE;

int pp_read_model_section(const struct pp_value *at,
                          struct pp_manifest *m) PP_MUST_USE;
int pp_read_mesh_section(const struct pp_value *at,
                         struct pp_manifest *m) PP_MUST_USE;
int pp_read_stages_section(const struct pp_value *at,
                           struct pp_manifest *m) PP_MUST_USE;
int pp_read_profile_section(const struct pp_value *at,
                            struct pp_manifest *m) PP_MUST_USE;
int pp_read_microbatch_section(const struct pp_value *at,
                               struct pp_manifest *m) PP_MUST_USE;
int pp_read_components_section(const struct pp_value *at,
                               struct pp_manifest *m) PP_MUST_USE;
int pp_read_data_section(const struct pp_value *at,
                         struct pp_manifest *m) PP_MUST_USE;
int pp_read_schedule_section(const struct pp_value *at,
                             struct pp_manifest *m) PP_MUST_USE;

/* Returns whether meshes divide weights and state alike, in the same order of
 * axes. Components must. */
bool pp_same_settings(const struct pp_mesh *x, const struct pp_mesh *y);

/* Returns whether meshes are the same but for pp. */
bool pp_same_mesh(const struct pp_mesh *x, const struct pp_mesh *y);

/* Checks the edges between components, and sets the roles of the units of two
 * encoders. The rest of the components is read. */
int pp_components_join(const struct pp_value *at,
                       struct pp_manifest *m) PP_MUST_USE;

/* Reads the cost keys that units and stages share. If a key is absent, it fails
 * if required is true, and leaves the value alone otherwise. */
struct pp_unit_costs {
    uint64_t *params;
    double *fwd_flops, *act_bytes, *out_bytes;
};
int pp_read_unit_costs(const struct pp_value *at, bool required,
                       const struct pp_unit_costs *c) PP_MUST_USE;

/* Reads "workspace_bytes" of a unit, which may be absent. */
int pp_read_workspace(const struct pp_value *at,
                      struct pp_workspace *w) PP_MUST_USE;

/* Read and write "recompute" of a stage. */
int pp_read_stage_mode(const struct pp_value *at, const struct pp_manifest *m,
                       struct pp_manifest_stage *s) PP_MUST_USE;
int pp_put_stage_mode(json_t *object, const struct pp_manifest_stage *s);
int pp_put_costs(json_t *object, uint64_t params, const double fwd_flops[2],
                 const double act_bytes[PP_N_SAVED_BLOCKS], double out_bytes);

/* Prints a document in the layout of pp_manifest_write. */
void pp_value_print(const json_t *root, FILE *f);

/* Writers return a new value, or NULL with *err filled. */
json_t *pp_write_model_section(const struct pp_manifest_model *model,
                               struct pp_err *err) PP_MUST_USE;
json_t *pp_write_mesh_section(const struct pp_mesh *mesh,
                              struct pp_err *err) PP_MUST_USE;
json_t *pp_write_stages_section(const struct pp_manifest_model *model,
                                const struct pp_graph *graph,
                                const struct pp_manifest_stage *stages,
                                struct pp_err *err) PP_MUST_USE;
json_t *pp_write_components_section(const struct pp_manifest *m,
                                    const struct pp_component *components,
                                    size_t n, struct pp_err *err) PP_MUST_USE;
/* Returns a copy of stages that name their components. */
json_t *pp_write_stage_components(const json_t *stages,
                                  const struct pp_manifest *m,
                                  const struct pp_component *components,
                                  size_t n, struct pp_err *err) PP_MUST_USE;
json_t *pp_write_profile_section(const struct pp_profile *p,
                                 struct pp_err *err) PP_MUST_USE;
json_t *pp_write_microbatch_section(const struct pp_default_microbatch *mb,
                                    struct pp_err *err) PP_MUST_USE;
json_t *pp_write_data_section(const struct pp_manifest_data *data,
                              struct pp_err *err) PP_MUST_USE;
json_t *pp_write_schedule_section(const struct pp_schedule *s,
                                  struct pp_err *err) PP_MUST_USE;

#endif
