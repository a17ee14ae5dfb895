/* SPDX-License-Identifier: MIT */
/* The search of -s auto, offloading, and the lower bound of a schedule, within
 * the limit of --memory. */
#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "ppsched.h"
#include "schedule/offload/offload.h"
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

/* Returns the load of a stage in slots: of the smallest slice, for a bound. */
static struct pp_load slot_of(const struct pp_stage_node *n, double share)
{
    double slot = n->has_backward ? share : 0;
    return n->frozen ? (struct pp_load){.f_to_i = slot}
                     : (struct pp_load){.f_to_w = slot};
}

/* Fills the times of copies, if activations may leave. */
static void fill_copies(const struct ppsched *p, struct pp_memory_limit *memory,
                        double **copy)
{
    const struct pp_graph *g = &p->manifest.graph;
    const struct pp_costs *costs = &p->costs.costs;
    if (!memory->limit ||
        (!p->options.offload && !pp_schedule_copies(p->schedule)))
        return;
    memory->copy = *copy = pp_calloc((size_t)g->n_stages, sizeof **copy);
    for (int s = 0; s < g->n_stages; s++)
        (*copy)[s] = costs->time(
            costs->ctx,
            (struct pp_action){.stage = s, .peer = -1, .op = PP_OFFLOAD});
}

/* Fills the limits of --memory, or of --without-rank. Parameters are taken off
 * limits in bytes. */
static void fill_limits(const struct ppsched *p, struct pp_memory_limit *memory,
                        double **limit, struct pp_load **load)
{
    const struct ppsched_options *o = &p->options;
    const struct pp_graph *g = &p->manifest.graph;
    double slots = o->slots ? (double)o->slots : p->most_slots;
    if (!o->memory && !slots)
        return;
    *limit = pp_calloc((size_t)g->n_rows, sizeof **limit);
    *load = pp_calloc((size_t)g->n_stages, sizeof **load);
    for (int r = 0; r < g->n_rows; r++)
        (*limit)[r] = o->memory ? ppsched_activation_limit(p, r) : slots;
    int least = pp_slice_smallest(&g->slices);
    double share = pp_slice_share(&g->slices, least, 1);
    for (int s = 0; s < g->n_stages; s++)
        (*load)[s] =
            o->memory ? pp_load_of(pp_slice_bytes(g, p->costs.sizes, s, least),
                                   &g->stages[s])
                      : slot_of(&g->stages[s], share);
    *memory = (struct pp_memory_limit){.limit = *limit, .load = *load};
}

int ppsched_bound(struct ppsched *p, double reached, struct pp_bound *b)
{
    const struct pp_schedule *s = p->schedule;
    struct pp_err *err = &p->tool->err;
    struct pp_costs costs = p->costs.costs;
    struct pp_memory_limit memory = {0};
    double *limit = NULL, *copy = NULL;
    struct pp_load *load = NULL;
    bool split, pairs;
    find_features(s, &split, &pairs);
    if (pairs && costs.pair_saving > 0)
        costs = (struct pp_costs){.time = paired_time, .ctx = &p->costs.costs};
    fill_limits(p, &memory, &limit, &load);
    fill_copies(p, &memory, &copy);
    if (!p->costs.literal)
        pp_step_order(&p->costs.step, NULL);
    int rc = pp_bound_by_refuting(s->graph, s->n_microbatches, split, &costs,
                                  &memory, reached, p->options.seconds, b, err);
    ppsched_order_costs(p);
    /* It may exceed the makespan in the last bits, as sums run in another
     * order. */
    if (!rc && b->makespan > reached)
        b->makespan = reached;
    free(limit);
    free(load);
    free(copy);
    return rc ? -1 : 0;
}

/* --- --offload auto: which activations leave for the host --- */

/* In bytes a rank also holds messages and gradients, which follow from the
 * rows: then their limit is lowered by what is too much, several times. */
enum { MAX_TRIES = 12 };

/* Lowers the limit of each rank by the bytes by which its plan is too large. */
static int tighten(const struct ppsched *p, const struct pp_schedule *s,
                   double *limit, bool *fits, struct pp_err *err)
{
    *fits = true;
    for (int r = 0; r < s->graph->n_rows; r++) {
        struct pp_memory m;
        if (pp_memory_plan(s, r, p->costs.sizes, &m, err))
            return -1;
        double over = (double)m.arena_bytes +
                      (double)ppsched_fixed_bytes(p, s, r) -
                      (double)p->options.memory;
        pp_memory_finish(&m);
        if (over > 0) {
            limit[r] -= over;
            *fits = false;
        }
    }
    return 0;
}

/* Replaces *s by the order with copies that fits. */
static int offload_within(struct ppsched *p, struct pp_schedule *s,
                          const double *load, double *limit, struct pp_err *err)
{
    const struct pp_offload_options o = {&p->costs.costs, load, limit};
    bool fits = false;
    for (int i = 0; i < MAX_TRIES && !fits; i++) {
        struct pp_schedule woven;
        pp_schedule_copy(s, &woven);
        int rc = pp_offload(&woven, &o, err);
        fits = p->options.slots > 0;
        if (!rc && !fits)
            rc = tighten(p, &woven, limit, &fits, err);
        if (rc || !fits) {
            pp_schedule_finish(&woven);
            if (rc)
                return -1;
            continue;
        }
        pp_schedule_finish(s);
        *s = woven;
    }
    return fits ? 0
                : pp_fail(err, PP_EXIT_NO,
                          "no way to offload activations was found that fits");
}

int ppsched_offload(struct ppsched *p, struct pp_schedule *s,
                    struct pp_err *err)
{
    const struct ppsched_options *o = &p->options;
    const struct pp_graph *g = s->graph;
    if (g->slices.n > 1)
        return pp_fail(err, PP_EXIT_INPUT,
                       "--offload: there are %d slices, whose keys and values "
                       "others read",
                       g->slices.n);
    double *load = pp_calloc((size_t)g->n_stages, sizeof *load);
    double *limit = pp_calloc((size_t)g->n_rows, sizeof *limit);
    for (int i = 0; i < g->n_stages; i++)
        load[i] =
            o->slots
                ? 1
                : (double)(p->costs.sizes[i].act_i + p->costs.sizes[i].act_w);
    for (int r = 0; r < g->n_rows; r++)
        limit[r] = o->slots ? (double)o->slots : ppsched_activation_limit(p, r);
    int rc = offload_within(p, s, load, limit, err);
    free(load);
    free(limit);
    return rc;
}

/* --- auto --- */

static void show_progress(void *ctx, double best, double bound)
{
    struct ppsched *p = ctx;
    tool_progress(p->tool, "searching: %g %s, bound %g", best,
                  p->options.minimize == PPSCHED_SPAN ? "span" : "makespan",
                  bound);
}

/* A limit of the search, the same for all ranks. */
struct limit {
    bool in_bytes, whole; /* whole: with B alone */
    double most; /* of a rank: bytes of all that it allocates, or slots; 0: no
                    limit */
};

/* Sets s to the best order that a search of so many seconds finds within the
 * limit. */
static int search_within(struct ppsched *p, const struct limit *l,
                         double seconds, struct pp_schedule *s,
                         struct pp_err *err)
{
    const struct ppsched_options *o = &p->options;
    const struct pp_graph *g = &p->manifest.graph;
    double *limit = pp_calloc((size_t)g->n_rows, sizeof *limit);
    struct pp_load *load = pp_calloc((size_t)g->n_stages, sizeof *load);
    const struct pp_memory_limit memory = {limit, load};
    const struct pp_search_bytes bytes = {p->costs.sizes, limit};
    struct pp_search_options so = {.costs = &p->costs.costs,
                                   .room = l->most > 0 ? &memory : NULL,
                                   .split = !o->whole_backward && !l->whole,
                                   .span = o->minimize == PPSCHED_SPAN,
                                   .copy = p->copy,
                                   .seed = (uint64_t)o->seed,
                                   .seconds = seconds,
                                   .progress = show_progress,
                                   .ctx = p};
    for (int r = 0; r < g->n_rows; r++)
        limit[r] =
            l->most -
            (l->in_bytes ? (double)ppsched_fixed_bytes(p, p->schedule, r) : 0);
    for (int i = 0; i < g->n_stages; i++)
        load[i] = (struct pp_load){.f_to_w = 1};
    int rc =
        l->most > 0 && l->in_bytes
            ? pp_search_bytes(s, g, o->n_microbatches, o->depth, &so, &bytes,
                              err)
            : pp_search_lowered(s, g, o->n_microbatches, o->depth, &so, err);
    tool_erase(p->tool);
    free(limit);
    free(load);
    return rc;
}

/* --- the least memory --- */

/* Searches that lower the limit, each a part of --time. */
enum { MAX_SHRINKS = 12, SHRINK_PART = 4 };

/* Computes the makespan at the channel depth, at the costs of this order: a
 * search has those of none. */
static int run_time(struct ppsched *p, const struct pp_schedule *s,
                    double *makespan, struct pp_err *err)
{
    if (!p->costs.literal)
        pp_step_order(&p->costs.step, s);
    int rc =
        pp_run_time(s, &p->costs.costs, s->channel_depth, false, makespan, err);
    if (!p->costs.literal)
        pp_step_order(&p->costs.step, NULL);
    return rc;
}

/* Computes the makespan at the channel depth, and the memory of the fullest
 * rank, in bytes or slots. */
static int measure(struct ppsched *p, const struct pp_schedule *s,
                   bool in_bytes, double *time, double *most,
                   struct pp_err *err)
{
    if (run_time(p, s, time, err))
        return -1;
    *most = 0;
    for (int r = 0; r < s->graph->n_rows; r++) {
        struct pp_memory m = {0};
        double rank = pp_row_slots(s, r);
        if (in_bytes) {
            if (pp_memory_plan(s, r, p->costs.sizes, &m, err))
                return -1;
            rank = (double)m.arena_bytes + (double)ppsched_fixed_bytes(p, s, r);
            pp_memory_finish(&m);
        }
        *most = rank > *most ? rank : *most;
    }
    return 0;
}

/* Searches within *limit. Takes the order and sets *yes and *limit if its step
 * is as short as time. A search that finds nothing within it is no failure. */
static int try_limit(struct ppsched *p, double time, double *limit,
                     bool in_bytes, bool *yes, struct pp_err *err)
{
    const struct limit l = {.in_bytes = in_bytes, .most = *limit};
    struct pp_schedule s = {0};
    struct pp_err why = {0};
    double took, most;
    *yes = false;
    if (search_within(p, &l, p->options.seconds / SHRINK_PART, &s, &why)) {
        pp_schedule_finish(&s);
        return why.code == PP_EXIT_NO ? 0 : (*err = why, -1);
    }
    int rc = measure(p, &s, in_bytes, &took, &most, err);
    *yes = rc == 0 && most <= *limit && took <= time * (1 + 1e-9);
    if (*yes) {
        struct pp_schedule larger = p->built;
        p->built = s;
        s = larger;
        *limit = most;
    }
    pp_schedule_finish(&s);
    return rc;
}

/* Lowers the memory of p->built as far as its step gets no longer, by halving
 * between a limit that is too low and what it needs. */
static int shrink(struct ppsched *p, bool in_bytes, struct pp_err *err)
{
    double time, most, low = 0;
    if (measure(p, &p->built, in_bytes, &time, &most, err))
        return -1;
    for (int r = 0; in_bytes && r < p->manifest.graph.n_rows; r++)
        low = fmax(low, (double)ppsched_fixed_bytes(p, &p->built, r));
    for (int i = 0; i < MAX_SHRINKS; i++) {
        double limit = floor((low + most) / 2);
        bool yes;
        if (limit <= low || most - low < most / 1000)
            return 0;
        if (try_limit(p, time, &limit, in_bytes, &yes, err))
            return -1;
        *(yes ? &most : &low) = limit;
    }
    return 0;
}

/* --- a search with offloading --- */

/* An order to add copies to. */
struct start_order {
    double times; /* its limit over that of --memory; 0: none */
    bool whole;
};

/* Searches a candidate, adds copies so that it fits, and takes it if it is the
 * fastest so far. An order that does not fit is no failure; *why has the
 * reason. */
static int try_offload(struct ppsched *p, const struct limit *most,
                       const struct start_order *c, double seconds,
                       double *least, struct pp_err *why)
{
    const struct limit l = {most->in_bytes, c->whole, c->times * most->most};
    struct pp_err *err = &p->tool->err, none = {0};
    struct pp_schedule s = {0};
    double makespan;
    int rc = search_within(p, &l, seconds, &s, &none) ||
             (c->times != 1 && ppsched_offload(p, &s, &none)) ||
             run_time(p, &s, &makespan, &none);
    if (!rc && makespan < *least * (1 - 1e-9)) {
        struct pp_schedule slower = p->built;
        *least = makespan;
        p->built = s;
        s = slower;
    }
    pp_schedule_finish(&s);
    if (rc && none.code != PP_EXIT_NO)
        return pp_fail(err, none.code, "%s", none.text);
    if (rc)
        *why = none;
    return 0;
}

/* Searches with and without copies. Activations between I and W cannot leave,
 * so orders of whole backwards are among the candidates. */
static int search_offloaded(struct ppsched *p, const struct limit *most)
{
    static const struct start_order all[] = {
        {1, false}, {2, false}, {2, true}, {0, false}, {0, true}};
    enum { N = sizeof all / sizeof *all };
    double least = INFINITY;
    struct pp_err why = {0};
    pp_schedule_finish(&p->built);
    pp_schedule_init(&p->built, &p->manifest.graph, "auto",
                     p->options.n_microbatches);
    for (int i = 0; i < N; i++)
        if (try_offload(p, most, &all[i], p->options.seconds / N, &least, &why))
            return -1;
    return least < INFINITY ? 0
                            : pp_fail(&p->tool->err, why.code, "%s", why.text);
}

int ppsched_auto(struct ppsched *p)
{
    const struct ppsched_options *o = &p->options;
    struct pp_err *err = &p->tool->err;
    const struct limit l = {.in_bytes = o->memory > 0,
                            .most = o->memory  ? (double)o->memory
                                    : o->slots ? (double)o->slots
                                               : p->most_slots};
    struct pp_schedule found = {0};
    if (o->offload)
        return search_offloaded(p, &l);
    int rc = search_within(p, &l, o->seconds, &found, err);
    pp_schedule_finish(&p->built);
    p->built = found;
    if (rc)
        return -1;
    return o->minimize == PPSCHED_MEMORY
               ? shrink(p, p->costs.sized && !o->slots, err)
               : 0;
}
