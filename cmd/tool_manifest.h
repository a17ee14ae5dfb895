/* SPDX-License-Identifier: MIT */
/* tool_manifest - reads and writes manifests, and knows the plans that pprun
 * cannot run, whatever its options are.
 *
 * One table has the features that exclude each other and the messages. pprun
 * refuses by it, and ppsplit and ppsched say by it with a plan what pprun will
 * refuse, so the three cannot disagree. */
#ifndef PP_CMD_TOOL_MANIFEST_H
#define PP_CMD_TOOL_MANIFEST_H

#include "manifest/manifest.h"
#include "tool.h"

/* Reads a manifest from a file or, for "-", from stdin, and sets *name to its
 * name in messages. */
int tool_read_manifest(struct tool *t, const char **name,
                       struct pp_manifest *m) PP_MUST_USE;

/* Adds the command line to the history of a manifest, and prints it. */
int tool_write_manifest(struct tool *t, struct pp_manifest *m,
                        FILE *f) PP_MUST_USE;

/* Notes why pprun cannot run a plan. */
void tool_say_refused(struct tool *t, const struct pp_err *why);

/* The program that decides about a feature. */
enum tool_planner { TOOL_PLANNER_SPLIT, TOOL_PLANNER_SCHEDULE };

/* Fails with PP_EXIT_INPUT, the place and the reason if pprun cannot run a plan
 * because of what this planner decided. m has stages. */
int tool_runs_of(const struct pp_manifest *m, enum tool_planner planner,
                 struct pp_err *err) PP_MUST_USE;

/* Does so for both planners. */
int tool_runs(const struct pp_manifest *m, struct pp_err *err) PP_MUST_USE;

/* Fails if pprun does not train a plan by an objective, which is an
 * enum pp_objective_number. */
int tool_objective_runs(const struct pp_manifest *m, int objective,
                        struct pp_err *err) PP_MUST_USE;

/* Fails if the model at the source of a plan has other units than the plan, for
 * example after another --moe-layer-freq. */
int tool_plan_matches(const struct pp_manifest *m, const struct pp_model *model,
                      struct pp_err *err) PP_MUST_USE;

/* Fails if pprun does not train a model as a generator. component: its number
 * in the plan; source: the path of its model. */
int tool_generator_runs(const struct pp_model *g, size_t component,
                        const char *source, struct pp_err *err) PP_MUST_USE;

#endif
