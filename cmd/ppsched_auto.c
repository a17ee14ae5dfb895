/* SPDX-License-Identifier: MIT */
/* -s auto: searches for the order, within --memory.
 *
 * Slots are what the search counts. Bytes are what memory.h plans for the
 * finished rows, messages included, which nobody knows before there are rows:
 * the search gets what is left for activations, and less where that was still
 * too much. */
#include <stdlib.h>

#include "ppsched.h"
#include "sched/lower.h"
#include "sched/search.h"

enum { MAX_TRIES = 10 };

struct automatic {
    struct ppsched *p;
    struct pp_room room;
    double *limit; /* per rank */
    struct pp_load *load;
};

static void show_progress(void *ctx, double best, double bound)
{
    struct automatic *a = ctx;
    tool_progress(a->p->tool, "searching: %g %s, bound %g", best,
                  a->p->options.minimize_span ? "span" : "makespan", bound);
}

static int search(struct automatic *a, double seconds, struct pp_schedule *s)
{
    struct ppsched *p = a->p;
    const struct ppsched_options *o = &p->options;
    struct pp_search_options so = {.costs = &p->costs.costs,
                                   .room = o->has_memory ? &a->room : NULL,
                                   .split = !o->whole_backward,
                                   .span = o->minimize_span,
                                   .seed = (uint64_t)o->seed,
                                   .seconds = seconds,
                                   .progress = show_progress,
                                   .ctx = a};
    if (pp_schedule_init(s, &p->manifest.graph, "auto", o->n_microbatches,
                         &p->tool->err))
        return -1;
    if (o->depth >= 0)
        s->channel_depth = o->depth;
    int rc = pp_search(s, &so, &p->tool->err);
    tool_erase(p->tool);
    return rc ? -1 : pp_lower(s, &p->tool->err);
}

/* Takes from each rank's limit the bytes by which its plan is above what it
 * may be. Returns how many ranks are above, or -1. */
static int tighten(struct automatic *a, const struct pp_schedule *s)
{
    struct ppsched *p = a->p;
    int above = 0;
    for (int r = 0; r < s->graph->n_ranks; r++) {
        struct pp_memory m = {0};
        if (pp_memory_plan(s, r, p->costs.sizes, &m, &p->tool->err))
            return -1;
        double over = (double)m.arena_bytes +
                      (double)ppsched_trained_bytes(p, r) -
                      (double)p->options.memory;
        pp_memory_finish(&m);
        if (over > 0) {
            a->limit[r] -= over;
            above++;
        }
    }
    return above;
}

/* Short searches until one fits, then a long one in the same room. What a
 * long one finds may need more for messages; then again, with less. */
static int search_bytes(struct automatic *a, struct pp_schedule *s)
{
    const struct ppsched_options *o = &a->p->options;
    bool fits = false;
    for (int i = 0; i < MAX_TRIES; i++) {
        bool brief = !fits;
        struct pp_schedule next;
        if (search(a, brief ? o->seconds / MAX_TRIES : o->seconds, &next)) {
            pp_schedule_finish(&next);
            return -1;
        }
        int above = tighten(a, &next);
        if (above == 0 || !fits) {
            pp_schedule_finish(s);
            *s = next;
        } else {
            pp_schedule_finish(&next);
        }
        if (above < 0 || (above == 0 && !brief))
            return above;
        fits |= above == 0;
    }
    return 0; /* what is there fits, or is refused with numbers */
}

static int fill_room(struct automatic *a, const struct pp_graph *g)
{
    struct ppsched *p = a->p;
    const struct ppsched_options *o = &p->options;
    a->limit = calloc((size_t)g->n_ranks, sizeof *a->limit);
    a->load = calloc((size_t)g->n_stages, sizeof *a->load);
    if (!a->limit || !a->load)
        return pp_fail(&p->tool->err, PP_EXIT_SYSTEM, "out of memory");
    for (int r = 0; r < g->n_ranks; r++)
        a->limit[r] =
            o->memory_is_slots ? (double)o->memory : ppsched_room(p, r);
    for (int s = 0; s < g->n_stages; s++)
        a->load[s] = o->memory_is_slots ? (struct pp_load){.f_to_w = 1}
                                        : pp_load_of(&p->costs.sizes[s],
                                                     g->stages[s].input_grad);
    a->room = (struct pp_room){a->limit, a->load};
    return 0;
}

int ppsched_auto(struct ppsched *p)
{
    const struct ppsched_options *o = &p->options;
    struct automatic a = {.p = p};
    bool bytes = o->has_memory && !o->memory_is_slots;
    int rc = -1;
    if (bytes && !p->costs.sized)
        return tool_usage(p->tool, "--memory: the stages have no sizes; give "
                                   "the limit in slots, without a suffix");
    if (!fill_room(&a, &p->manifest.graph)) {
        pp_schedule_finish(&p->built);
        rc = bytes ? search_bytes(&a, &p->built)
                   : search(&a, o->seconds, &p->built);
    }
    free(a.limit);
    free(a.load);
    return rc;
}
