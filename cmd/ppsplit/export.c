/* SPDX-License-Identifier: MIT */
/* export - --export: the plan in the form of another system. */
#include <inttypes.h>

#include "base/json_writer.h"
#include "model/cost.h"
#include "model/vision.h"
#include "split/megatron.h"
#include "ppsplit.h"

const char *const split_export_names[] = {
    "megatron", "torchtitan", "torchtitan-output", "deepspeed", "fqns", NULL};

static void print_bounds(const struct pp_split_plan *plan, FILE *f)
{
    for (int s = 0; s <= plan->graph.n_stages; s++)
        fprintf(f, "%s%zu", s ? ", " : "[", plan->bounds[s]);
    fputs("]\n", f);
}

/* --- choices that a form does not hold --- */

enum {
    MEGATRON = 1 << SPLIT_EXPORT_MEGATRON,
    DEEPSPEED = 1 << SPLIT_EXPORT_DEEPSPEED,
    NAMES = 1 << SPLIT_EXPORT_TORCHTITAN | 1 << SPLIT_EXPORT_TORCHTITAN_OUTPUT |
            1 << SPLIT_EXPORT_FQNS
};

static bool recomputes(const void *plan, char text[TOOL_CHOICE])
{
    const struct split_job *j = plan;
    int n = j->p.plan.graph.n_stages, s = 0, same = 0;
    enum pp_recompute first = pp_split_stage_mode(&j->p.plan, 0);
    while (s < n && pp_split_stage_mode(&j->p.plan, s) == PP_RECOMPUTE_NONE)
        s++;
    char set[PP_RECOMPUTE_TEXT], modules[PLANNER_MODULES] = "";
    while (same < n && pp_split_stage_mode(&j->p.plan, same) == first)
        same++;
    pp_recompute_text(first, set);
    if (j->o.export == SPLIT_EXPORT_MEGATRON && first != PP_RECOMPUTE_FULL)
        planner_modules(&j->p.model, first, modules);
    snprintf(text, TOOL_CHOICE, "recomputation (%.48s%s%.32s)",
             same == n ? set : "by stage",
             same == n && *modules ? ": --recompute-modules" : "",
             same == n ? modules : "");
    return s < n;
}

static bool has_chunks(const void *plan, char text[TOOL_CHOICE])
{
    const struct split_job *j = plan;
    int64_t n = j->p.plan.run.request->n_chunks;
    snprintf(text, TOOL_CHOICE, "%" PRId64 " stages on a rank", n);
    return n > 1;
}

static bool has_placement(const void *plan, char text[TOOL_CHOICE])
{
    const struct split_job *j = plan;
    const struct pp_split_request *q = j->p.plan.run.request;
    snprintf(text, TOOL_CHOICE, "placement %s",
             q->placement == PP_PLACEMENT_V ? "v" : "both-ways");
    return q->placement != PP_PLACEMENT_LOOP &&
           (q->n_chunks > 1 || j->p.plan.graph.n_copies > 1);
}

static bool has_mesh(const void *plan, char text[TOOL_CHOICE])
{
    const struct pp_mesh *x = &((const struct split_job *)plan)->p.mesh;
    snprintf(text, TOOL_CHOICE, "the mesh (dp %d, tp %d, cp %d, ep %d)", x->dp,
             x->tp, x->cp, x->ep);
    return x->dp > 1 || x->tp > 1 || x->cp > 1 || x->ep > 1;
}

static bool has_zero(const void *plan, char text[TOOL_CHOICE])
{
    const struct pp_mesh *x = &((const struct split_job *)plan)->p.mesh;
    snprintf(text, TOOL_CHOICE, "zero %d", pp_mesh_zero(x));
    return pp_mesh_replicas(x) > 1;
}

static bool has_order(const void *plan, char text[TOOL_CHOICE])
{
    const struct pp_mesh *x = &((const struct split_job *)plan)->p.mesh;
    char order[PP_MESH_ORDER_TEXT];
    pp_mesh_write_order(x, order);
    snprintf(text, TOOL_CHOICE, "the order of the mesh (%s)", order);
    return x->order != 0;
}

static bool has_expert_rules(const void *plan, char text[TOOL_CHOICE])
{
    const struct pp_mesh *x = &((const struct split_job *)plan)->p.mesh;
    snprintf(text, TOOL_CHOICE, "limits and groups of experts");
    return x->expert_limit > 0 || x->expert_capacity > 0 || x->expert_padding ||
           x->experts_over_tp;
}

static bool has_encoder_ranks(const void *plan, char text[TOOL_CHOICE])
{
    const struct split_job *j = plan;
    snprintf(text, TOOL_CHOICE, "ranks or meshes of encoders");
    return j->o.encoder_ranks || j->o.n_meshes || j->p.mesh.encoder_tp;
}

static bool has_encoders(const void *plan, char text[TOOL_CHOICE])
{
    const struct split_job *j = plan;
    snprintf(text, TOOL_CHOICE, "the encoder's units");
    return !j->p.model.table &&
           pp_component_first(&j->p.model, PP_LANGUAGE) > 0;
}

static bool freezes(const void *plan, char text[TOOL_CHOICE])
{
    snprintf(text, TOOL_CHOICE, "units that are not trained");
    return ((const struct split_job *)plan)->o.freeze != NULL;
}

static bool has_schedule(const void *plan, char text[TOOL_CHOICE])
{
    const struct split_job *j = plan;
    snprintf(text, TOOL_CHOICE, "the schedule (%s)",
             j->o.kind ? j->o.kind : "");
    return j->o.kind != NULL;
}

static const struct tool_choice choices[] = {
    {0, recomputes},
    {MEGATRON | NAMES, has_chunks},
    {0, has_placement},
    {0, has_mesh},
    {0, has_zero},
    {0, has_order},
    {0, has_expert_rules},
    {0, has_encoder_ranks},
    {DEEPSPEED | NAMES, has_encoders},
    {0, freezes},
    {0, has_schedule},
    {0, NULL},
};

int split_print_export(struct split_job *j, FILE *f, struct pp_err *err)
{
    const enum pp_torchtitan_names names =
        j->o.export == SPLIT_EXPORT_TORCHTITAN_OUTPUT ? PP_TORCHTITAN_OUTPUT
                                                      : PP_TORCHTITAN_LM_HEAD;
    if (j->o.head_stages)
        return pp_fail(err, PP_EXIT_INPUT,
                       "--export: '%s' has no head of several stages; plan "
                       "without --head-stages",
                       split_export_names[j->o.export - 1]);
    if (j->o.export == SPLIT_EXPORT_MEGATRON) {
        if (planner_print_layout(&j->p.plan, f, err))
            return -1;
        putc('\n', f);
    } else if (j->o.export == SPLIT_EXPORT_DEEPSPEED) {
        print_bounds(&j->p.plan, f);
    } else {
        planner_print_names(
            &j->p.plan, j->o.export == SPLIT_EXPORT_FQNS ? NULL : &names, f);
        putc('\n', f);
    }
    if (ferror(f))
        return pp_fail_errno(err, "cannot write the plan");
    tool_note_lost(&j->p.t, split_export_names[j->o.export - 1],
                   1u << j->o.export, choices, j);
    return 0;
}
