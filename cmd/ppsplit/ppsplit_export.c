/* SPDX-License-Identifier: MIT */
/* ppsplit_export - --export: the plan in the form of another system. */
#include <inttypes.h>

#include "base/json_writer.h"
#include "model/cost.h"
#include "model/vision.h"
#include "split/split_megatron.h"
#include "ppsplit.h"

const char *const split_export_names[] = {
    "megatron", "torchtitan", "torchtitan-output", "deepspeed", "fqns", NULL};

/* Prints a layout with multi-token prediction: m is a symbol of its own, and
 * the norm goes with the last decoder layer. Symbols are not counted, because
 * such layouts have few stages. */
static int print_mtp_layout(const struct split_job *j, FILE *f,
                            struct pp_err *err)
{
    size_t n = j->n_stages, norm = j->model.n_layers + 1;
    for (size_t s = 1; s < n; s++)
        if (j->plan.bounds[s] == norm)
            return pp_fail(err, PP_EXIT_INPUT,
                           "--export: a layout cannot separate the last layer "
                           "from the norm, as this plan does");
    for (size_t s = 0; s < n; s++) {
        for (size_t i = j->plan.bounds[s]; i < j->plan.bounds[s + 1]; i++)
            if (i != norm)
                fputc(i == 0                ? 'E'
                      : i < norm            ? 't'
                      : i == j->n_units - 1 ? 'L'
                                            : 'm',
                      f);
        if (s + 1 < n)
            fputc('|', f);
    }
    return 0;
}

/* A layout counts decoder layers, and does not name the norm. */
int split_print_layout(const struct split_job *j, FILE *f, struct pp_err *err)
{
    struct pp_arena a = {0};
    size_t n = j->n_stages, layers = j->model.n_layers;
    size_t first = pp_model_n_first(&j->model);
    if (j->n_chunks > 1 && j->placement != PP_PLACEMENT_LOOP)
        return pp_fail(err, PP_EXIT_INPUT,
                       "--export: Megatron places stages in a loop, not in a "
                       "V");
    if (j->model.n_mtp > 0)
        return print_mtp_layout(j, f, err);
    if (j->plan.bounds[n - 1] > first + layers || j->plan.bounds[1] < first)
        return pp_fail(
            err, PP_EXIT_INPUT,
            "--export: a layout cannot separate %s, as this plan does",
            j->plan.bounds[1] < first ? "the units before the layers"
            : j->model.table          ? "the units after the layers"
                                      : "norm and head");
    size_t *counts = pp_arena_alloc(&a, n, sizeof *counts);
    for (size_t s = 0; s < n; s++)
        counts[s] = j->plan.bounds[s + 1] - j->plan.bounds[s];
    counts[0] -= first;                           /* embedding */
    counts[n - 1] -= j->n_units - first - layers; /* norm, head */
    fputs(pp_layout_format(&a, counts, n), f);
    pp_arena_finish(&a);
    return 0;
}

void split_print_names(const struct split_job *j, FILE *f)
{
    char name[PP_FQN_TEXT];
    struct pp_json_writer w = {.f = f, .indent = 2};
    pp_json_array(&w, NULL, PP_JSON_BROKEN);
    for (int s = 0; s < j->plan.graph.n_stages; s++) {
        pp_json_array(&w, NULL, PP_JSON_INLINE);
        for (size_t i = j->plan.bounds[s]; i < j->plan.bounds[s + 1]; i++) {
            struct pp_unit_id u = pp_model_unit(&j->model, i);
            if (j->export == SPLIT_EXPORT_FQNS || j->model.table)
                pp_model_fqn(&j->model, u, name);
            else
                pp_torchtitan_fqn(u,
                                  j->export == SPLIT_EXPORT_TORCHTITAN_OUTPUT
                                      ? PP_TORCHTITAN_OUTPUT
                                      : PP_TORCHTITAN_LM_HEAD,
                                  name);
            pp_json_string(&w, NULL, name);
        }
        pp_json_end(&w);
    }
    pp_json_end(&w);
}

void split_print_bounds(const struct split_job *j, FILE *f)
{
    for (int s = 0; s <= j->plan.graph.n_stages; s++)
        fprintf(f, "%s%zu", s ? ", " : "[", j->plan.bounds[s]);
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
    int n = j->plan.graph.n_stages, s = 0, same = 0;
    enum pp_recompute first = pp_split_stage_mode(&j->plan, 0);
    while (s < n && pp_split_stage_mode(&j->plan, s) == PP_RECOMPUTE_NONE)
        s++;
    while (same < n && pp_split_stage_mode(&j->plan, same) == first)
        same++;
    snprintf(text, TOOL_CHOICE, "recomputation (%s)",
             same == n ? pp_recompute_names[first] : "by stage");
    return s < n;
}

static bool has_chunks(const void *plan, char text[TOOL_CHOICE])
{
    const struct split_job *j = plan;
    snprintf(text, TOOL_CHOICE, "%" PRId64 " stages on a rank", j->n_chunks);
    return j->n_chunks > 1;
}

static bool has_placement(const void *plan, char text[TOOL_CHOICE])
{
    const struct split_job *j = plan;
    snprintf(text, TOOL_CHOICE, "placement %s",
             j->placement == PP_PLACEMENT_V ? "v" : "both-ways");
    return j->placement != PP_PLACEMENT_LOOP &&
           (j->n_chunks > 1 || j->plan.graph.n_copies > 1);
}

static bool has_mesh(const void *plan, char text[TOOL_CHOICE])
{
    const struct pp_mesh *x = &((const struct split_job *)plan)->mesh;
    snprintf(text, TOOL_CHOICE, "the mesh (dp %d, tp %d, cp %d, ep %d)", x->dp,
             x->tp, x->cp, x->ep);
    return x->dp > 1 || x->tp > 1 || x->cp > 1 || x->ep > 1;
}

static bool has_zero(const void *plan, char text[TOOL_CHOICE])
{
    const struct pp_mesh *x = &((const struct split_job *)plan)->mesh;
    snprintf(text, TOOL_CHOICE, "zero %d",
             x->divided_weights ? 3
             : x->whole_state   ? 0
                                : 1);
    return pp_mesh_replicas(x) > 1;
}

static bool has_order(const void *plan, char text[TOOL_CHOICE])
{
    const struct pp_mesh *x = &((const struct split_job *)plan)->mesh;
    char order[PP_MESH_ORDER_TEXT];
    pp_mesh_write_order(x, order);
    snprintf(text, TOOL_CHOICE, "the order of the mesh (%s)", order);
    return x->order != 0;
}

static bool has_expert_rules(const void *plan, char text[TOOL_CHOICE])
{
    const struct pp_mesh *x = &((const struct split_job *)plan)->mesh;
    snprintf(text, TOOL_CHOICE, "limits and groups of experts");
    return x->expert_limit || x->expert_capacity > 0 || x->expert_padding ||
           x->experts_over_tp;
}

static bool has_encoder_ranks(const void *plan, char text[TOOL_CHOICE])
{
    const struct split_job *j = plan;
    snprintf(text, TOOL_CHOICE, "ranks or meshes of encoders");
    return j->encoder_ranks || j->n_meshes || j->mesh.encoder_tp;
}

static bool has_encoders(const void *plan, char text[TOOL_CHOICE])
{
    const struct split_job *j = plan;
    snprintf(text, TOOL_CHOICE, "the encoder's units");
    return !j->model.table && pp_vision_n_units(&j->model) > 0;
}

static bool freezes(const void *plan, char text[TOOL_CHOICE])
{
    snprintf(text, TOOL_CHOICE, "units that are not trained");
    return ((const struct split_job *)plan)->freeze != NULL;
}

static bool has_schedule(const void *plan, char text[TOOL_CHOICE])
{
    const struct split_job *j = plan;
    snprintf(text, TOOL_CHOICE, "the schedule (%s)", j->kind ? j->kind : "");
    return j->kind != NULL;
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
    if (j->export == SPLIT_EXPORT_MEGATRON) {
        if (split_print_layout(j, f, err))
            return -1;
        putc('\n', f);
    } else if (j->export == SPLIT_EXPORT_DEEPSPEED) {
        split_print_bounds(j, f);
    } else {
        split_print_names(j, f);
        putc('\n', f);
    }
    if (ferror(f))
        return pp_fail_errno(err, "cannot write the plan");
    tool_note_lost(&j->t, split_export_names[j->export - 1], 1u << j->export,
                   choices, j);
    return 0;
}
