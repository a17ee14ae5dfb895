/* SPDX-License-Identifier: MIT */
/* --csv and --export: reads and writes PyTorch's files. */
#include <stdlib.h>
#include <string.h>

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
    size_t capacity = 0;
    if (!f)
        return pp_fail_errno(err, "%s", name), err->code = PP_EXIT_INPUT, -1;
    ssize_t got = getdelim(text, &capacity, '\0', f);
    int rc = 0;
    *n = got < 0 ? 0 : (size_t)got;
    if (ferror(f))
        rc = pp_fail_read(err, name);
    else if (!feof(f))
        rc = pp_fail(err, PP_EXIT_INPUT, "%s: has a zero byte", name);
    if (!is_stdin)
        fclose(f);
    return rc;
}

/* Makes a manifest with the stages of the file, without units. */
static int set_stages(struct ppsched *p, struct pp_err *err)
{
    struct pp_graph *g = &p->csv.graph;
    struct pp_mesh mesh = {g->n_rows, 1, 1, 1, 1};
    struct pp_manifest_stage *stages =
        calloc((size_t)g->n_stages, sizeof *stages);
    if (!stages)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    int rc = pp_manifest_init(&p->manifest, err) ||
             pp_manifest_set_stages(&p->manifest, &mesh, g, stages, err);
    free(stages);
    return rc ? -1 : 0;
}

/* Adds messages if there are none. Checks the rows first, as errors count the
 * actions of the file. */
static int complete(struct pp_schedule *s, bool messages, struct pp_err *err)
{
    if (messages)
        return pp_lower_syncs(s, err);
    return pp_check_rows(s, false, err) || pp_lower(s, err) ? -1 : 0;
}

static const char *file_name(const struct ppsched *p)
{
    return strcmp(p->options.csv, "-") ? p->options.csv : "standard input";
}

int ppsched_csv_read(struct ppsched *p, bool has_manifest)
{
    struct pp_err *err = &p->tool->err;
    char *text = NULL;
    size_t n = 0;
    if (read_text(p->options.csv, file_name(p), &text, &n, err)) {
        free(text);
        return -1;
    }
    const struct ppsched_options *o = &p->options;
    const struct pp_csv_options how = {
        .on = has_manifest ? &p->manifest.graph : NULL,
        .n_microbatches = o->n_microbatches,
        .old_dialect = o->dialect && !strcmp(o->dialect, "pre-2024-11"),
        .lenient = o->lenient};
    p->manifest.graph.n_slices =
        1; /* the slices of the replaced schedule do not apply */
    int rc = pp_csv_parse(text, n, &how, &p->csv, err) ||
             complete(&p->csv.schedule, p->csv.messages, err);
    free(text);
    if (rc)
        return pp_fail_at(err, "%s: ", file_name(p));
    p->schedule = &p->csv.schedule;
    return has_manifest ? 0 : set_stages(p, err);
}

int ppsched_csv_check(struct ppsched *p)
{
    struct pp_err *err = &p->tool->err;
    int stage = pp_unreduced_stage(p->schedule);
    if (ppsched_prove(p))
        return pp_fail_at(err, "%s: ", file_name(p));
    if ((p->csv.messages || p->csv.sharding) && stage >= 0)
        tool_say(p->tool, TOOL_WARNING,
                 "%s: stage %d has no REDUCE_GRAD: PyTorch will neither "
                 "reduce nor scale its gradients",
                 file_name(p), stage);
    return 0;
}

int ppsched_csv_export(struct ppsched *p, FILE *f)
{
    struct pp_err *err = &p->tool->err;
    const struct ppsched_options *o = &p->options;
    struct pp_kind_options k = {o->n_microbatches, o->group, true};
    struct pp_schedule s;
    if (ppsched_memory(p, NULL))
        return -1;
    if (strcmp(o->export, "csv"))
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
