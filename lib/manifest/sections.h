/* SPDX-License-Identifier: MIT */
/* sections - one reader and one writer for each section of a manifest.
 *
 * Private to lib/manifest. Readers fill the parsed members (*manifest is a
 * struct pp_manifest) in the order of pp_manifest_fields, because each checks
 * its references to members before it. Writers build a section from the public
 * structs and check nothing, because the whole document is read again
 * afterwards. */
#ifndef PP_MANIFEST_SECTIONS_H
#define PP_MANIFEST_SECTIONS_H

#include "manifest/fields.h"
#include "manifest/manifest.h"

/* The keys of a manifest and of its sections; pp_stage_fields are the keys of a
 * stage, pp_component_fields the keys of a component. */
extern const struct pp_doc_field pp_manifest_fields[], pp_model_fields[],
    pp_machine_fields[], pp_microbatch_fields[], pp_mesh_fields[],
    pp_stage_fields[], pp_component_fields[], pp_data_fields[],
    pp_schedule_fields[], pp_profile_fields[];

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
                          void *manifest) PP_MUST_USE;
int pp_read_machine_section(const struct pp_value *at,
                            void *manifest) PP_MUST_USE;
int pp_read_mesh_section(const struct pp_value *at, void *manifest) PP_MUST_USE;
int pp_read_stages_section(const struct pp_value *at,
                           void *manifest) PP_MUST_USE;
int pp_read_profile_section(const struct pp_value *at,
                            void *manifest) PP_MUST_USE;
int pp_read_microbatch_section(const struct pp_value *at,
                               void *manifest) PP_MUST_USE;
int pp_read_components_section(const struct pp_value *at,
                               void *manifest) PP_MUST_USE;
int pp_read_data_section(const struct pp_value *at, void *manifest) PP_MUST_USE;
int pp_read_schedule_section(const struct pp_value *at,
                             void *manifest) PP_MUST_USE;

/* Returns whether meshes divide weights and state alike, in the same order of
 * axes. Components must. */
bool pp_same_settings(const struct pp_mesh *x, const struct pp_mesh *y);

/* Returns whether meshes are the same but for pp. */
bool pp_same_mesh(const struct pp_mesh *x, const struct pp_mesh *y);

/* Checks the edges between components, and sets the roles of the units of two
 * encoders. The rest of the components is read. */
int pp_components_join(const struct pp_value *at,
                       struct pp_manifest *m) PP_MUST_USE;

/* Reads "workspace_bytes" of a unit to a struct pp_workspace. */
int pp_read_workspace(const struct pp_value *at, void *workspace) PP_MUST_USE;

/* Checks that there are costs of units for "recompute" of a stage. */
int pp_check_stage_mode(const struct pp_value *at, const struct pp_manifest *m,
                        enum pp_recompute mode) PP_MUST_USE;

/* Prints a document of these keys in the layout of pp_manifest_write. */
void pp_value_print(const json_t *root, const struct pp_doc_field *fields,
                    FILE *f);

/* Writers return a new value. A text that is not UTF-8 fills *err. */
json_t *pp_write_model_section(const struct pp_plan_model *model,
                               struct pp_err *err) PP_MUST_USE;
json_t *pp_write_stages_section(const struct pp_plan_model *model,
                                const struct pp_graph *graph,
                                const struct pp_plan_stage *stages,
                                struct pp_err *err) PP_MUST_USE;
json_t *pp_write_components_section(const struct pp_manifest *m,
                                    const struct pp_component *components,
                                    size_t n, struct pp_err *err) PP_MUST_USE;
/* Returns a copy of stages that name their components. */
json_t *pp_write_stage_components(const json_t *stages,
                                  const struct pp_manifest *m,
                                  const struct pp_component *components,
                                  size_t n) PP_MUST_USE;
json_t *pp_write_profile_section(const struct pp_profile *p,
                                 struct pp_err *err) PP_MUST_USE;
json_t *pp_write_schedule_section(const struct pp_schedule *s,
                                  struct pp_err *err) PP_MUST_USE;

#endif
