/* SPDX-License-Identifier: MIT */
/* metadata - --print-metadata-hash: a line for each rank with the hash of
 * the packed sequences that its attention is given. */
#include <inttypes.h>

#include "base/json_writer.h"
#include "pprun.h"
#include "run/execute/batch.h"

static void write_rank(const struct runner *p, const struct pp_place *at,
                       int rank, const struct pp_step_report *r, FILE *f)
{
    const struct pp_graph *g = p->job.schedule->graph;
    char hash[20];
    snprintf(hash, sizeof hash, "%016" PRIx64, r->metadata[rank]);
    struct pp_json_writer w = pp_json_line(f);
    pp_json_int(&w, "rank", rank);
    if (p->manifest.row_names)
        pp_json_string(&w, "component", p->manifest.row_names[at->row]);
    pp_json_int(&w, "row", at->row);
    pp_json_int(&w, "dp", at->dp);
    pp_json_int(&w, "cp", at->cp);
    pp_json_int(&w, "tp", at->tp);
    pp_json_array(&w, "stages", PP_JSON_INLINE);
    for (int s = 0; s < g->n_stages; s++)
        if (g->stages[s].row == at->row)
            pp_json_int(&w, NULL, s);
    pp_json_end(&w);
    pp_json_int(&w, "step", r->step);
    pp_json_string(&w, "hash", hash);
    pp_json_finish(&w);
}

void pprun_write_metadata(const struct runner *p,
                          const struct pp_step_report *r, FILE *f)
{
    const struct pp_layout layout = pp_job_layout(&p->job);
    struct pp_place at;
    for (int k = 0; k < pp_layout_ranks(&layout); k++)
        if (pp_layout_find(&layout, k, &at))
            write_rank(p, &at, k, r, f);
}

int pprun_check_metadata(const struct runner *p, const struct pp_step_report *r,
                         struct pp_err *err)
{
    const struct pp_layout layout = pp_job_layout(&p->job);
    struct pp_place at;
    for (int k = 0; k < pp_layout_ranks(&layout); k++) {
        if (!pp_layout_find(&layout, k, &at))
            continue;
        /* Context-parallel ranks of an encoder have other images. */
        bool encodes = pp_layout_encodes(&layout, at.component);
        const struct pp_place first = {
            .component = at.component,
            .row = layout.components[at.component].first_row,
            .dp = at.dp,
            .cp = encodes ? at.cp : 0};
        int of = pp_layout_rank(&layout, &first);
        if (r->metadata[k] != r->metadata[of])
            return pp_fail(err, PP_EXIT_NO,
                           "step %" PRId64 ": rank %d is given other packed "
                           "sequences than rank %d",
                           r->step, k, of);
    }
    return 0;
}
