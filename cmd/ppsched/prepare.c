/* SPDX-License-Identifier: MIT */
/* prepare - the schedule of a run: makes it with -s, or takes it from the
 * manifest or a file; then checks it. */
#include <limits.h>
#include <string.h>

#include "base/arena.h"
#include "ppsched.h"
#include "schedule/check/check.h"
#include "schedule/ir/schedule.h"
#include "schedule/kinds/kind.h"

/* Most stages times microbatches times slices. A plan at the limit takes up to
 * 2 GB of memory; a larger product is likely a typing error. */
enum { MAX_CELLS = 1 << 22 };

/* Returns the placement of --placement, or the one that the kind needs. */
static enum pp_placement placement_of(const struct ppsched_options *o)
{
    const struct pp_kind *kind = pp_kind_find(o->kind); /* NULL for auto */
    if (!o->placement)
        return kind && kind->copies ? PP_PLACEMENT_BOTH_WAYS
               : kind && kind->v    ? PP_PLACEMENT_V
                                    : PP_PLACEMENT_LOOP;
    return !strcmp(o->placement, "v")           ? PP_PLACEMENT_V
           : !strcmp(o->placement, "both-ways") ? PP_PLACEMENT_BOTH_WAYS
                                                : PP_PLACEMENT_LOOP;
}

static int chunks_of(const struct ppsched_options *o)
{
    const struct pp_kind *kind = pp_kind_find(o->kind);
    int made_for = kind && kind->n_chunks ? kind->n_chunks : 1;
    return o->n_chunks ? o->n_chunks : made_for;
}

int ppsched_abstract(struct ppsched *p)
{
    const struct ppsched_options *o = &p->options;
    struct pp_err *err = &p->tool->err;
    struct pp_mesh mesh = {o->n_ranks, 1, 1, 1, 1};
    struct pp_arena arena = {0};
    struct pp_graph graph;
    pp_manifest_init(&p->manifest);
    int rc = pp_graph_chain(&arena, o->n_ranks, chunks_of(o), placement_of(o),
                            &graph, err);
    if (rc == 0) {
        struct pp_plan_stage *stages =
            pp_arena_alloc(&arena, (size_t)graph.n_stages, sizeof *stages);
        rc = pp_manifest_set_stages(&p->manifest, NULL, &mesh, &graph, stages,
                                    err);
    }
    pp_arena_finish(&arena);
    return rc;
}

/* Refuses slices of stages that recompute keys, in terms of options. */
static int check_recompute(struct ppsched *p)
{
    const struct pp_manifest *m = &p->manifest;
    for (int s = 0; m->stages && s < m->graph.n_stages; s++)
        if (m->graph.slices.n > 1 && (m->stages[s].recompute & PP_AGAIN_QKV))
            return pp_fail(&p->tool->err, PP_EXIT_INPUT,
                           "%d slices: stage %d recomputes keys and values, so "
                           "it keeps none for later slices; use "
                           "ppsplit --recompute selective",
                           m->graph.slices.n, s);
    return 0;
}

static int build(struct ppsched *p)
{
    const struct ppsched_options *o = &p->options;
    const struct pp_kind *kind = pp_kind_find(o->kind);
    struct pp_kind_options k = {o->n_microbatches, o->group, false};
    struct pp_err *err = &p->tool->err;
    struct pp_graph *g = &p->manifest.graph;
    if (ppsched_set_slices(p, kind && kind->slices ? kind->slices : 1))
        return -1;
    /* A time of reductions implies replicas, also without a mesh, and one of
     * gatherings implies divided weights. */
    g->replicas |= o->time[PPSCHED_REDUCE] != NULL;
    if (o->time[PPSCHED_UNSHARD] && !g->resident)
        g->resident = INT_MAX;
    if (check_recompute(p))
        return -1;
    if ((int64_t)g->n_stages * g->slices.n > MAX_CELLS / o->n_microbatches)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%d stages, %d microbatches and %d slices make more "
                       "than %d forwards, the limit of a plan",
                       g->n_stages, o->n_microbatches, g->slices.n, MAX_CELLS);
    const struct pp_trainer_order order = {
        .kind = o->kind, .slices = g->slices.n, .copies = g->n_copies > 1};
    if (pp_trainer_check_order(ppsched_trainer(p), &order, err))
        return -1;
    p->schedule = &p->built;
    pp_schedule_init(&p->built, g, o->kind, o->n_microbatches);
    if (ppsched_is_auto(o))
        return ppsched_open_costs(p) ? -1 : ppsched_auto(p);
    if (pp_kind_emit(kind, &p->built, &k, err))
        return -1;
    return pp_lower(&p->built, err);
}

/* Completes the error of a schedule that is not valid. If it deadlocks, shows
 * the waits first. */
static int refuse(struct ppsched *p)
{
    struct pp_err why = p->tool->err, unused = {0};
    if (!p->options.semantics && !ppsched_by_pytorch(p) &&
        !pp_check_order(p->schedule, &unused)) {
        p->tool->err = (struct pp_err){0};
        if (ppsched_tell_stuck(p, true))
            return -1;
        p->tool->err = why;
    }
    return p->options.import || p->options.kind
               ? -1
               : pp_fail_at(&p->tool->err, "%s: ", p->name);
}

int ppsched_prepare(struct ppsched *p)
{
    if (!p->schedule)
        p->schedule = &p->manifest.schedule;
    if ((p->options.kind && build(p)) ||
        (p->options.without && ppsched_reroute(p)))
        return -1;
    if (p->options.depth >= 0)
        p->schedule->channel_depth = p->options.depth;
    if (p->options.offload && !ppsched_is_auto(&p->options) &&
        !pp_schedule_copies(p->schedule) &&
        (pp_check_order(p->schedule, &p->tool->err) || ppsched_open_costs(p) ||
         ppsched_offload(p, p->schedule, &p->tool->err)))
        return refuse(p);
    if (p->options.depth == PPSCHED_DEPTH_AUTO &&
        !ppsched_is_auto(&p->options) &&
        (ppsched_open_costs(p) || ppsched_choose_depth(p)))
        return -1;
    if (p->options.import ? ppsched_import_check(p) : ppsched_prove(p))
        return refuse(p);
    return ppsched_open_costs(p);
}
