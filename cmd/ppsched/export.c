/* SPDX-License-Identifier: MIT */
/* --export: writes PyTorch's files. */
#include <string.h>

#include "ppsched.h"
#include "schedule/files/csv.h"
#include "schedule/ir/schedule.h"
#include "schedule/kinds/kind.h"

static int print_file(struct ppsched *p, FILE *f)
{
    struct pp_err *err = &p->tool->err;
    const struct ppsched_options *o = &p->options;
    struct pp_kind_options k = {o->n_microbatches, o->group, true};
    struct pp_schedule s;
    bool messages = strcmp(o->export, "csv") != 0;
    if (ppsched_memory(p, NULL) ||
        (messages && ppsched_check_by_pytorch(p, err)))
        return -1;
    if (messages)
        return pp_csv_print(f, p->schedule,
                            o->dialect && !strcmp(o->dialect, "no-wait")
                                ? PP_CSV_COMMS_UNWAITED
                                : PP_CSV_COMMS,
                            err);
    if (!o->kind || ppsched_is_auto(o))
        return pp_csv_print(f, p->schedule, PP_CSV_COMPUTE, err);
    pp_schedule_init(&s, &p->manifest.graph, o->kind, o->n_microbatches);
    int rc = pp_kind_emit(pp_kind_find(o->kind), &s, &k, err) ||
             pp_csv_print(f, &s, PP_CSV_COMPUTE, err);
    pp_schedule_finish(&s);
    return rc ? -1 : 0;
}

/* --- choices that the forms do not hold --- */

static bool has_units(const void *plan, char text[TOOL_CHOICE])
{
    snprintf(text, TOOL_CHOICE, "the units of stages (ppsplit --export)");
    return ((const struct ppsched *)plan)->manifest.has_model;
}

static bool recomputes(const void *plan, char text[TOOL_CHOICE])
{
    const struct pp_manifest *m = &((const struct ppsched *)plan)->manifest;
    bool any = false;
    for (int s = 0; m->has_model && s < m->graph.n_stages; s++)
        any |= m->stages[s].recompute != PP_RECOMPUTE_NONE;
    snprintf(text, TOOL_CHOICE, "recomputation");
    return any;
}

static bool freezes(const void *plan, char text[TOOL_CHOICE])
{
    const struct pp_manifest *m = &((const struct ppsched *)plan)->manifest;
    bool any = false;
    for (size_t i = 0; m->has_model && i < m->model.n_units; i++)
        any |= m->model.units[i].role != PP_ROLE_TRAINED;
    snprintf(text, TOOL_CHOICE, "units that are not trained");
    return any;
}

static bool has_mesh(const void *plan, char text[TOOL_CHOICE])
{
    const struct pp_mesh *x = &((const struct ppsched *)plan)->manifest.mesh;
    snprintf(text, TOOL_CHOICE, "the mesh (dp %d, tp %d, cp %d, ep %d)", x->dp,
             x->tp, x->cp, x->ep);
    return x->dp > 1 || x->tp > 1 || x->cp > 1 || x->ep > 1;
}

static bool ties(const void *plan, char text[TOOL_CHOICE])
{
    const struct pp_graph *g = ((const struct ppsched *)plan)->schedule->graph;
    snprintf(text, TOOL_CHOICE, "the sum of tied gradients (SYNC_TIED)");
    return g->tied[0] >= 0 && g->tied[1] >= 0 &&
           g->stages[g->tied[0]].row != g->stages[g->tied[1]].row;
}

static bool has_components(const void *plan, char text[TOOL_CHOICE])
{
    const struct pp_manifest *m = &((const struct ppsched *)plan)->manifest;
    snprintf(text, TOOL_CHOICE, "meshes of encoders");
    return m->n_components > 0;
}

static bool has_depth(const void *plan, char text[TOOL_CHOICE])
{
    int depth = ((const struct ppsched *)plan)->schedule->channel_depth;
    snprintf(text, TOOL_CHOICE, "channel depth %d", depth);
    return depth != 1;
}

static const struct tool_choice choices[] = {
    {0, has_units}, {0, recomputes},     {0, freezes},   {0, has_mesh},
    {0, ties},      {0, has_components}, {0, has_depth}, {0, NULL}};

int ppsched_export(struct ppsched *p, FILE *f)
{
    if (print_file(p, f))
        return -1;
    tool_note_lost(p->tool, p->options.export, 1, choices, p);
    return 0;
}
