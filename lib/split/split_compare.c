/* SPDX-License-Identifier: MIT */
#include "split/split_compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "split/split_describe.h"

/* --- one row --- */

static struct pp_split_request request_of(const struct pp_split_contest *c,
                                          const struct pp_split_row *row)
{
    struct pp_split_request q = *c->request;
    q.kind = row->kind->name;
    q.placement = row->placement;
    q.n_chunks = row->n_chunks;
    q.search_order = false;
    q.shortest = true;
    q.plan_buffers = true;
    return q;
}

/* Fills the figures of a row, or why the kind cannot run. */
static void plan_row(const struct pp_split_contest *c, struct pp_arena *a,
                     struct pp_split_row *row)
{
    const struct pp_split_request q = request_of(c, row);
    struct pp_split_plan plan;
    struct pp_err why = {0};
    double busy = 0;
    int rc = pp_split_plan(&q, &plan, &why);
    if (!rc && !plan.run.simulated)
        rc = pp_fail(&why, PP_EXIT_INPUT,
                     "%zu stages and %lld microbatches are too many to "
                     "simulate",
                     plan.run.n_stages, (long long)q.n_microbatches);
    if (!rc) {
        row->step = plan.run.found.makespan;
        if (isinf(row->step)) /* a split that does not fit has no step yet */
            row->step = pp_split_step_time(&plan.run.step, plan.bounds);
        row->rank = pp_split_plan_fullest(&plan);
        row->need = pp_split_plan_need(&plan, row->rank);
        row->fits = q.memory_bytes == 0 || pp_split_plan_fits(&plan);
        for (int r = 0; r < plan.graph.n_rows; r++)
            busy += plan.ranks[r].busy;
        row->idle =
            row->step > 0 ? 1 - busy / (plan.graph.n_rows * row->step) : 0;
        if (q.profile)
            rc = pp_split_step_seconds(&plan, &row->step, &why);
    }
    pp_split_plan_finish(&plan);
    row->why = rc ? pp_arena_strdup(a, why.text) : NULL;
}

/* --- all rows --- */

/* Sets the row to the placement that the kind is made for. Returns false if
 * the caller wants another one. */
static bool place_row(const struct pp_split_contest *c,
                      struct pp_split_row *row)
{
    const struct pp_kind *k = row->kind;
    row->placement = k->copies ? PP_PLACEMENT_BOTH_WAYS
                     : k->v    ? PP_PLACEMENT_V
                               : PP_PLACEMENT_LOOP;
    /* A single chunk is the same in a loop and in a V. */
    bool same = row->placement == c->request->placement;
    return !c->has_placement || same ||
           (k->n_chunks <= 1 && !k->copies &&
            c->request->placement != PP_PLACEMENT_BOTH_WAYS);
}

/* Adds the rows of a kind, for each number of chunks. */
static void add_kind(const struct pp_split_contest *c,
                     struct pp_split_comparison *out,
                     const struct pp_kind *kind)
{
    struct pp_split_row row = {.kind = kind}, refused = {.kind = NULL};
    int first = kind->n_chunks > 1 ? 2 : 1;
    int last = kind->n_chunks > 1 ? PP_COMPARE_CHUNKS : 1;
    size_t n = out->n;
    if (!place_row(c, &row))
        return;
    for (int chunks = first; chunks <= last; chunks++) {
        if (c->has_chunks && chunks != c->request->n_chunks)
            continue;
        row.n_chunks = chunks;
        if (c->tell)
            c->tell(c->ctx, kind, chunks);
        plan_row(c, &out->arena, &row);
        if (!row.why)
            out->rows[out->n++] = row;
        /* The kind's own number of chunks says best what is wrong. */
        else if (!refused.kind || chunks <= kind->n_chunks)
            refused = row;
    }
    if (out->n == n && refused.kind)
        out->rows[out->n++] = refused;
}

static int compare_rows(const void *pa, const void *pb)
{
    const struct pp_split_row *a = pa, *b = pb;
    if (a->fits != b->fits)
        return a->fits ? -1 : 1;
    if ((a->need > 0) != (b->need > 0))
        return a->need > 0 ? -1 : 1;
    if (a->fits && a->step != b->step)
        return a->step < b->step ? -1 : 1;
    return (a->need > b->need) - (a->need < b->need);
}

void pp_split_compare(const struct pp_split_contest *c,
                      struct pp_split_comparison *out)
{
    size_t n = 0;
    *out = (struct pp_split_comparison){.n = 0};
    while (c->kinds[n])
        n++;
    out->rows = pp_arena_alloc(&out->arena, n * PP_COMPARE_CHUNKS + 1,
                               sizeof *out->rows);
    for (size_t i = 0; i < n; i++)
        add_kind(c, out, c->kinds[i]);
    qsort(out->rows, out->n, sizeof *out->rows, compare_rows);
}

void pp_split_comparison_finish(struct pp_split_comparison *c)
{
    pp_arena_finish(&c->arena);
    *c = (struct pp_split_comparison){.n = 0};
}
