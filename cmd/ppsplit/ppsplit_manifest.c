/* SPDX-License-Identifier: MIT */
/* ppsplit_manifest - the plan as a manifest. */
#include "manifest/config_json.h"
#include "manifest/manifest.h"
#include "ppsplit.h"
#include "schedule/kinds/kind.h"
#include "split/split_describe.h"
#include "tool_runnable.h"
#include "version.h"

int split_fill_manifest(const struct split_job *j,
                        const struct pp_split_plan *plan, struct pp_arena *a,
                        struct pp_manifest *m, struct pp_err *err)
{
    struct pp_split_description d;
    pp_split_describe(plan, a, &d);
    d.model.source = j->source;
    if (pp_manifest_set_model(m, &d.model, err) ||
        (split_has_seconds(j) &&
         pp_manifest_set_profile(m, &j->profile, err)) ||
        (j->has_machine && pp_manifest_set_machine(m, &j->machine, err)) ||
        pp_manifest_set_microbatch(m, &d.microbatch, err) ||
        pp_manifest_set_stages(m, &d.mesh, &plan->graph, d.stages, err) ||
        (d.n_components &&
         pp_manifest_set_components(m, d.components, d.n_components, err)))
        return -1;
    return j->method == SPLIT_JOINT ? split_set_order(j, a, m, err) : 0;
}

const char *split_estimates(const struct split_job *j)
{
    static const char *const what[] = {
        [PP_ESTIMATED_NOTHING] = NULL,
        [PP_ESTIMATED_MEMORY] = "activations, from the sizes of products",
        [PP_ESTIMATED_COSTS] = "operations and activations, from names and "
                               "shapes of tensors"};
    return j->model.table ? what[j->model.table->estimated] : NULL;
}

void split_say_runs(struct split_job *j, struct pp_manifest *m)
{
    const struct pp_kind *kind = j->kind ? pp_kind_find(j->kind) : NULL;
    struct pp_err why = {0};
    m->graph.n_slices = kind && kind->slices ? kind->slices : 1;
    if (j->trainer != pp_trainers)
        return;
    if (tool_runs(m, &why) || tool_objective_runs(m, j->objective, &why))
        tool_say_refused(&j->t, &why);
}

/* Notes that --moe-layer-freq made another model of it. */
static int say_matches(struct split_job *j, const struct pp_manifest *m,
                       struct pp_err *err)
{
    struct pp_model model;
    struct pp_err why = {0};
    if (!j->moe_layer_freq)
        return 0;
    if (pp_model_read(j->source, &model, err))
        return -1;
    model.n_mtp = j->model.n_mtp;
    if (tool_plan_matches(m, &model, &why))
        tool_say_refused(&j->t, &why);
    return 0;
}

int split_print_manifest(struct split_job *j, const char *command, FILE *f,
                         struct pp_err *err)
{
    struct pp_arena a = {0};
    struct pp_manifest m;
    pp_manifest_init(&m);
    int rc = split_fill_manifest(j, &j->plan, &a, &m, err);
    if (rc == 0)
        rc = pp_manifest_add_history(&m, j->t.name, PP_VERSION, command, err);
    if (rc == 0) {
        pp_manifest_write(&m, f);
        split_say_runs(j, &m);
        rc = say_matches(j, &m, err);
    }
    pp_manifest_finish(&m);
    pp_arena_finish(&a);
    return rc;
}
