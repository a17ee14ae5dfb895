/* SPDX-License-Identifier: MIT */
/* The search of -s auto, and the lower bound of a schedule, both within the
 * limit of --memory. */
#include <math.h>
#include <stdlib.h>

#include "ppsched.h"
#include "schedule/search/search.h"

/* --- the lower bound --- */

/* Returns the time of an action less the saving of a pair, as any action could
 * be in one. */
static double paired_time(const void *ctx, struct pp_action a)
{
    const struct pp_costs *c = ctx;
    double time = c->time(c->ctx, a);
    return pp_is_compute(a.op) ? time * (1 - c->pair_saving) : time;
}

/* Sets *split if the schedule has I, and *pairs if it has overlap pairs. */
static void find_features(const struct pp_schedule *s, bool *split, bool *pairs)
{
    *split = *pairs = false;
    for (int r = 0; r < s->graph->n_rows; r++)
        for (size_t i = 0; i < s->rows[r].n; i++) {
            *split |= s->rows[r].actions[i].op == PP_I;
            *pairs |= s->rows[r].actions[i].overlap;
        }
}

/* Fills the limits of --memory. Parameters are taken off limits in bytes. */
static int fill_room(const struct ppsched *p, struct pp_memory_limit *room,
                     double **limit, struct pp_load **load, struct pp_err *err)
{
    const struct ppsched_options *o = &p->options;
    const struct pp_graph *g = &p->manifest.graph;
    if (!o->has_memory)
        return 0;
    *limit = calloc((size_t)g->n_rows, sizeof **limit);
    *load = calloc((size_t)g->n_stages, sizeof **load);
    if (!*limit || !*load)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    for (int r = 0; r < g->n_rows; r++)
        (*limit)[r] =
            o->memory_is_slots ? (double)o->memory : ppsched_room(p, r);
    for (int s = 0; s < g->n_stages; s++)
        (*load)[s] =
            o->memory_is_slots
                ? (struct pp_load){.f_to_w = 1.0 / g->n_slices}
                : pp_load_of(&p->costs.sizes[s], g->stages[s].input_grad);
    *room = (struct pp_memory_limit){*limit, *load};
    return 0;
}

int ppsched_bound(struct ppsched *p, struct pp_bound *b)
{
    const struct pp_schedule *s = p->schedule;
    struct pp_err *err = &p->tool->err;
    struct pp_costs costs = p->costs.costs;
    struct pp_memory_limit room = {0};
    double *limit = NULL;
    struct pp_load *load = NULL;
    bool split, pairs;
    find_features(s, &split, &pairs);
    if (pairs && costs.pair_saving > 0)
        costs = (struct pp_costs){.time = paired_time, .ctx = &p->costs.costs};
    int rc = fill_room(p, &room, &limit, &load, err);
    if (!rc)
        rc = pp_bound_by_refuting(s->graph, s->n_microbatches, split, &costs,
                                  &room, b, err);
    free(limit);
    free(load);
    return rc;
}

/* --- auto --- */

static void show_progress(void *ctx, double best, double bound)
{
    struct ppsched *p = ctx;
    tool_progress(p->tool, "searching: %g %s, bound %g", best,
                  p->options.minimize_span ? "span" : "makespan", bound);
}

static int search_order(struct ppsched *p, double *limit, struct pp_load *load)
{
    const struct ppsched_options *o = &p->options;
    const struct pp_graph *g = &p->manifest.graph;
    const struct pp_memory_limit room = {limit, load};
    const struct pp_search_bytes bytes = {p->costs.sizes, limit};
    bool in_bytes = o->has_memory && !o->memory_is_slots;
    struct pp_search_options so = {.costs = &p->costs.costs,
                                   .room = o->has_memory ? &room : NULL,
                                   .split = !o->whole_backward,
                                   .span = o->minimize_span,
                                   .seed = (uint64_t)o->seed,
                                   .seconds = o->seconds,
                                   .progress = show_progress,
                                   .ctx = p};
    for (int r = 0; r < g->n_rows; r++)
        limit[r] =
            (double)o->memory -
            (in_bytes ? (double)ppsched_fixed_bytes(p, p->schedule, r) : 0);
    for (int s = 0; s < g->n_stages; s++)
        load[s] = (struct pp_load){.f_to_w = 1};
    pp_schedule_finish(&p->built);
    int rc = in_bytes ? pp_search_bytes(&p->built, g, o->n_microbatches,
                                        o->depth, &so, &bytes, &p->tool->err)
                      : pp_search_lowered(&p->built, g, o->n_microbatches,
                                          o->depth, &so, &p->tool->err);
    tool_erase(p->tool);
    return rc;
}

int ppsched_auto(struct ppsched *p)
{
    const struct ppsched_options *o = &p->options;
    const struct pp_graph *g = &p->manifest.graph;
    if (o->has_memory && !o->memory_is_slots && !p->costs.sized)
        return tool_usage(p->tool, "--memory: the stages have no sizes; give "
                                   "the limit in slots, without a suffix");
    double *limit = calloc((size_t)g->n_rows, sizeof *limit);
    struct pp_load *load = calloc((size_t)g->n_stages, sizeof *load);
    int rc = limit && load
                 ? search_order(p, limit, load)
                 : pp_fail(&p->tool->err, PP_EXIT_SYSTEM, "out of memory");
    free(limit);
    free(load);
    return rc;
}
