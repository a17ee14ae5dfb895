/* SPDX-License-Identifier: MIT */
/* -s auto: searches for the order, within --memory in slots or bytes. */
#include <stdlib.h>

#include "ppsched.h"
#include "schedule/search/search_bytes.h"

static void show_progress(void *ctx, double best, double bound)
{
    struct ppsched *p = ctx;
    tool_progress(p->tool, "searching: %g %s, bound %g", best,
                  p->options.minimize_span ? "span" : "makespan", bound);
}

static int search(struct ppsched *p, double *limit, struct pp_load *load)
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
        limit[r] = (double)o->memory -
                   (in_bytes ? (double)ppsched_trained_bytes(p, r) : 0);
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
                 ? search(p, limit, load)
                 : pp_fail(&p->tool->err, PP_EXIT_SYSTEM, "out of memory");
    free(limit);
    free(load);
    return rc;
}
