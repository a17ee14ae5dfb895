/* SPDX-License-Identifier: MIT */
/* --import: a schedule that another program wrote, or that was run. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/file.h"
#include "manifest/trace_json.h"
#include "ppsched.h"
#include "schedule/check/check.h"
#include "schedule/files/csv.h"

/* The readers. A file belongs to the first that knows it. */
static const struct reader {
    bool (*knows)(const char *text, size_t n);
    pp_import_fn read;
} readers[] = {{pp_is_trace, pp_trace_import},
               {pp_is_orders, pp_orders_parse},
               {NULL, pp_csv_parse}};

/* Reads a whole file or stdin. The caller frees *text, also after a failure. */
static int read_text(struct tool *t, const char *path, char **text, size_t *n)
{
    FILE *f = tool_open_input(t, &path);
    if (!f)
        return -1;
    int rc = pp_file_read_text(f, path, PP_IMPORT_ROWS, text, n, &t->err);
    tool_close_input(f);
    return rc;
}

/* Makes a manifest with the stages of the file, without units. */
static int set_stages(struct ppsched *p, struct pp_err *err)
{
    struct pp_graph *g = &p->import.graph;
    struct pp_mesh mesh = {g->n_rows, 1, 1, 1, 1};
    struct pp_plan_stage *stages =
        pp_calloc((size_t)g->n_stages, sizeof *stages);
    pp_manifest_init(&p->manifest);
    int rc = pp_manifest_set_stages(&p->manifest, NULL, &mesh, g, stages, err);
    free(stages);
    return rc;
}

/* Checks the rows and adds messages if there are none. Tells all faults and
 * deadlocks in terms of the file's cells. */
static int complete(struct ppsched *p)
{
    struct pp_err *err = &p->tool->err;
    struct pp_schedule *s = p->schedule;
    bool messages = p->import.messages;
    if (messages)
        pp_lower_syncs(s);
    if (pp_check_rows_all(s, messages, &p->faults, err))
        return pp_fail_at(err, "%s: ", ppsched_import_name(p));
    if (p->faults.n > 0)
        return ppsched_refuse_faults(p, true);
    if (messages)
        return 0;
    return ppsched_tell_stuck(p, false) || pp_lower(s, err)
               ? pp_fail_at(err, "%s: ", ppsched_import_name(p))
               : 0;
}

/* Parses the file and takes its stages if there is no manifest. */
static int parse(struct ppsched *p, bool has_manifest, const char *text,
                 size_t n)
{
    struct pp_err *err = &p->tool->err;
    const struct ppsched_options *o = &p->options;
    const struct pp_import_options how = {
        .name = ppsched_import_name(p),
        .on = has_manifest ? &p->manifest.graph : NULL,
        .n_rows = has_manifest ? p->manifest.graph.n_rows : o->n_ranks,
        .n_microbatches = o->n_microbatches,
        .lenient = o->lenient,
        .faults = &p->faults};
    const struct reader *r = readers;
    while (r->knows && !r->knows(text, n))
        r++;
    if (r->read(text, n, &how, &p->import, err))
        return -1;
    if (p->faults.n > 0)
        return ppsched_refuse_faults(p, false);
    p->schedule = &p->import.schedule;
    p->manifest.graph.slices.n = p->import.graph.slices.n;
    return has_manifest ? 0 : set_stages(p, err);
}

int ppsched_import(struct ppsched *p, bool has_manifest)
{
    char *text = NULL;
    size_t n = 0;
    int rc = read_text(p->tool, p->options.import, &text, &n) ||
             parse(p, has_manifest, text, n) || complete(p);
    free(text);
    return rc ? -1 : 0;
}

int ppsched_import_check(struct ppsched *p)
{
    struct pp_err *err = &p->tool->err, why = {0};
    int stage = pp_unreduced_stage(p->schedule);
    if (ppsched_by_pytorch(p) ? ppsched_check_by_pytorch(p, err)
                              : ppsched_prove(p))
        return pp_fail_at(err, "%s: ", ppsched_import_name(p));
    if (p->import.messages && !p->options.check && !p->options.export &&
        ppsched_check_by_pytorch(p, &why))
        tool_say(p->tool, TOOL_NOTE,
                 "%s: pprun can run it, but not PyTorch: %s",
                 ppsched_import_name(p), why.text);
    if (p->import.pytorch && (p->import.messages || p->import.sharding) &&
        stage >= 0)
        tool_say(p->tool, TOOL_WARNING,
                 "%s: stage %d has no REDUCE_GRAD: PyTorch will neither "
                 "reduce nor scale its gradients",
                 ppsched_import_name(p), stage);
    return 0;
}
