/* SPDX-License-Identifier: MIT */
/* The lower bound of the schedule at hand: its work, its placement, and the
 * room that --memory leaves. */
#include <math.h>
#include <stdlib.h>

#include "ppsched.h"

/* Costs as the bound may count them: with what a pair saves taken off every
 * action, when there are pairs, since any could be in one. */
static double paired_time(const void *ctx, struct pp_action a)
{
    const struct pp_costs *c = ctx;
    double time = c->time(c->ctx, a);
    return pp_is_compute(a.op) ? time * (1 - c->pair_saving) : time;
}

/* Whether there are input gradients of their own, and pairs. */
static void look(const struct pp_schedule *s, bool *split, bool *pairs)
{
    *split = *pairs = false;
    for (int r = 0; r < s->graph->n_rows; r++)
        for (size_t i = 0; i < s->rows[r].n; i++) {
            *split |= s->rows[r].actions[i].op == PP_I;
            *pairs |= s->rows[r].actions[i].overlap;
        }
}

/* What --memory leaves for activations: bytes are less what is trained. */
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
    look(s, &split, &pairs);
    if (pairs && costs.pair_saving > 0)
        costs = (struct pp_costs){.time = paired_time, .ctx = &p->costs.costs};
    int rc = fill_room(p, &room, &limit, &load, err);
    if (!rc)
        rc =
            pp_bound(s->graph, s->n_microbatches, split, &costs, &room, b, err);
    free(limit);
    free(load);
    return rc;
}
