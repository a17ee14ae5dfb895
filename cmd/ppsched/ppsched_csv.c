/* SPDX-License-Identifier: MIT */
/* --csv and --export: reads and writes PyTorch's files. */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "ppsched.h"
#include "schedule/check/check.h"
#include "schedule/ir/schedule.h"
#include "schedule/kinds/kind.h"

/* Reads a whole file or stdin. The caller frees *text, also after a failure. */
static int read_text(const char *path, const char *name, char **text, size_t *n,
                     struct pp_err *err)
{
    bool is_stdin = !strcmp(path, "-");
    FILE *f = is_stdin ? stdin : fopen(path, "r");
    if (!f)
        return pp_fail_errno(err, "%s", name), err->code = PP_EXIT_INPUT, -1;
    int rc = pp_file_read_text(f, name, PP_CSV_ROWS, text, n, err);
    if (!is_stdin)
        fclose(f);
    return rc;
}

/* Makes a manifest with the stages of the file, without units. */
static int set_stages(struct ppsched *p, struct pp_err *err)
{
    struct pp_graph *g = &p->csv.graph;
    struct pp_mesh mesh = {g->n_rows, 1, 1, 1, 1};
    struct pp_plan_stage *stages = calloc((size_t)g->n_stages, sizeof *stages);
    if (!stages)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    int rc = pp_manifest_init(&p->manifest, err) ||
             pp_manifest_set_stages(&p->manifest, &mesh, g, stages, err);
    free(stages);
    return rc ? -1 : 0;
}

const char *ppsched_csv_name(const struct ppsched *p)
{
    return strcmp(p->options.csv, "-") ? p->options.csv : "standard input";
}

/* Checks the rows and adds messages if there are none. Tells all faults and
 * deadlocks in terms of the file's cells. */
static int complete(struct ppsched *p)
{
    struct pp_err *err = &p->tool->err;
    struct pp_schedule *s = p->schedule;
    struct pp_faults faults = {.n = 0};
    bool messages = p->csv.messages;
    if ((messages && pp_lower_syncs(s, err)) ||
        pp_check_rows_all(s, messages, &faults, err))
        return pp_fail_at(err, "%s: ", ppsched_csv_name(p));
    if (faults.n > 0)
        return ppsched_refuse_faults(p, &faults, true);
    if (messages)
        return 0;
    return ppsched_tell_stuck(p, false) || pp_lower(s, err)
               ? pp_fail_at(err, "%s: ", ppsched_csv_name(p))
               : 0;
}

/* Parses the file and takes its stages if there is no manifest. */
static int parse(struct ppsched *p, bool has_manifest, const char *text,
                 size_t n)
{
    struct pp_err *err = &p->tool->err;
    const struct ppsched_options *o = &p->options;
    struct pp_faults faults = {.n = 0};
    const struct pp_csv_options how = {.on = has_manifest ? &p->manifest.graph
                                                          : NULL,
                                       .n_microbatches = o->n_microbatches,
                                       .lenient = o->lenient,
                                       .faults = &faults};
    p->manifest.graph.n_slices =
        1; /* the slices of the replaced schedule do not apply */
    if (pp_csv_parse(text, n, &how, &p->csv, err))
        return pp_fail_at(err, "%s: ", ppsched_csv_name(p));
    if (faults.n > 0)
        return ppsched_refuse_faults(p, &faults, false);
    p->schedule = &p->csv.schedule;
    return has_manifest ? 0 : set_stages(p, err);
}

int ppsched_csv_read(struct ppsched *p, bool has_manifest)
{
    char *text = NULL;
    size_t n = 0;
    int rc = read_text(p->options.csv, ppsched_csv_name(p), &text, &n,
                       &p->tool->err) ||
             parse(p, has_manifest, text, n) || complete(p);
    free(text);
    return rc ? -1 : 0;
}

bool ppsched_by_pytorch(const struct ppsched *p)
{
    const struct ppsched_options *o = &p->options;
    return o->csv && p->csv.messages && o->check && !o->semantics;
}

/* Checks p->schedule by the transport of PyTorch's pipelining, which has a FIFO
 * for each directed pair of ranks, without tags. The error says how to get
 * messages that pass. */
static int check_by_pytorch(const struct ppsched *p, struct pp_err *err)
{
    const struct pp_semantics *m = pp_semantics_find("rendezvous");
    struct pp_err why = {0};
    if (pp_check_order(p->schedule, err))
        return -1;
    if (!pp_check_deadlock(p->schedule, m,
                           pp_semantics_depth(m, p->schedule, p->options.depth),
                           &why))
        return 0;
    if (why.code != PP_EXIT_NO)
        return pp_fail(err, why.code, "%s", why.text);
    return pp_fail(err, PP_EXIT_NO,
                   "%s, by PyTorch's transport (--semantics rendezvous): lower "
                   "without defer_pp_recv, or place the messages anew with "
                   "'--export csv' and then 'ppsched --csv - --export "
                   "csv-comms'",
                   why.text);
}

int ppsched_csv_check(struct ppsched *p)
{
    struct pp_err *err = &p->tool->err, why = {0};
    int stage = pp_unreduced_stage(p->schedule);
    if (ppsched_by_pytorch(p) ? check_by_pytorch(p, err) : ppsched_prove(p))
        return pp_fail_at(err, "%s: ", ppsched_csv_name(p));
    if (p->csv.messages && !p->options.check && !p->options.export &&
        check_by_pytorch(p, &why))
        tool_say(p->tool, TOOL_NOTE,
                 "%s: pprun can run it, but not PyTorch: %s",
                 ppsched_csv_name(p), why.text);
    if ((p->csv.messages || p->csv.sharding) && stage >= 0)
        tool_say(p->tool, TOOL_WARNING,
                 "%s: stage %d has no REDUCE_GRAD: PyTorch will neither "
                 "reduce nor scale its gradients",
                 ppsched_csv_name(p), stage);
    return 0;
}

static int print_file(struct ppsched *p, FILE *f)
{
    struct pp_err *err = &p->tool->err;
    const struct ppsched_options *o = &p->options;
    struct pp_kind_options k = {o->n_microbatches, o->group, true};
    struct pp_schedule s;
    bool messages = strcmp(o->export, "csv") != 0;
    if (ppsched_memory(p, NULL) || (messages && check_by_pytorch(p, err)))
        return -1;
    if (messages)
        return pp_csv_print(f, p->schedule,
                            o->dialect && !strcmp(o->dialect, "no-wait")
                                ? PP_CSV_COMMS_UNWAITED
                                : PP_CSV_COMMS,
                            err);
    if (!o->kind || ppsched_is_auto(o))
        return pp_csv_print(f, p->schedule, PP_CSV_COMPUTE, err);
    if (pp_schedule_init(&s, &p->manifest.graph, o->kind, o->n_microbatches,
                         err))
        return -1;
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

int ppsched_csv_export(struct ppsched *p, FILE *f)
{
    if (print_file(p, f))
        return -1;
    tool_note_lost(p->tool, p->options.export, 1, choices, p);
    return 0;
}
