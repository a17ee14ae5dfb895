/* SPDX-License-Identifier: MIT */
/* The search with messages, and within limits in bytes. */
#include "schedule/search/search.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "schedule/search/fastest.h"

enum { MAX_TRIES = 10 };

/* Sets *yes if the plans of all ranks keep to their room. */
static int fits_bytes(void *ctx, const struct pp_schedule *s, bool *yes,
                      struct pp_err *err)
{
    const struct pp_search_bytes *b = ctx;
    *yes = true;
    for (int r = 0; r < s->graph->n_rows && *yes; r++) {
        struct pp_memory m;
        if (pp_memory_plan(s, r, b->sizes, &m, err))
            return -1;
        *yes = (double)m.arena_bytes <= b->room[r];
        pp_memory_finish(&m);
    }
    return 0;
}

static int search_run(struct pp_schedule *s, const struct pp_graph *g,
                      int n_microbatches, int depth,
                      const struct pp_search_options *o,
                      struct pp_search_bytes *b, struct pp_err *err)
{
    const struct pp_depth_options run = {.costs = o->costs,
                                         .fits = b ? fits_bytes : NULL,
                                         .ctx = b,
                                         .fixed = depth < 0 ? -1 : depth,
                                         .lowered = true};
    pp_schedule_init(s, g, "auto", n_microbatches);
    return pp_search(s, o, err) || pp_lower(s, err) ||
                   pp_search_fastest(s, o, &run, err)
               ? -1
               : 0;
}

int pp_search_lowered(struct pp_schedule *s, const struct pp_graph *g,
                      int n_microbatches, int depth,
                      const struct pp_search_options *o, struct pp_err *err)
{
    return search_run(s, g, n_microbatches, depth, o, NULL, err);
}

/* Lowers each rank's limit by the bytes by which its plan exceeds its room.
 * Returns the number of ranks above their room, or -1. */
static int tighten(const struct pp_schedule *s, const struct pp_search_bytes *b,
                   double *limit, struct pp_err *err)
{
    int above = 0;
    for (int r = 0; r < s->graph->n_rows; r++) {
        struct pp_memory m = {0};
        if (pp_memory_plan(s, r, b->sizes, &m, err))
            return -1;
        double over = (double)m.arena_bytes - b->room[r];
        pp_memory_finish(&m);
        if (over > 0) {
            limit[r] -= over;
            above++;
        }
    }
    return above;
}

/* Sets limits and loads of activations. A rank's actions share one workspace,
 * which is taken off its limit. */
static void set_limits(const struct pp_graph *g,
                       const struct pp_search_bytes *b, double *limit,
                       struct pp_load *load)
{
    for (int r = 0; r < g->n_rows; r++) {
        size_t workspace = 0;
        for (int s = 0; s < g->n_stages; s++)
            if (g->stages[s].row == r && b->sizes[s].workspace > workspace)
                workspace = b->sizes[s].workspace;
        limit[r] = b->room[r] - (double)workspace;
    }
    for (int s = 0; s < g->n_stages; s++)
        load[s] = pp_load_of(&b->sizes[s], &g->stages[s]);
}

/* Runs short searches until one fits, then a long one within the same limits.
 * If the long one needs more for messages, it runs again with less. */
int pp_search_bytes(struct pp_schedule *s, const struct pp_graph *g,
                    int n_microbatches, int depth,
                    const struct pp_search_options *o,
                    const struct pp_search_bytes *b, struct pp_err *err)
{
    double *limit = pp_calloc((size_t)g->n_rows, sizeof *limit);
    struct pp_load *load = pp_calloc((size_t)g->n_stages, sizeof *load);
    const struct pp_memory_limit room = {limit, load};
    struct pp_search_options inside = *o;
    struct pp_search_bytes bytes = *b;
    bool fits = false;
    int above = 0;
    *s = (struct pp_schedule){0};
    set_limits(g, b, limit, load);
    inside.room = &room;
    for (int i = 0; i < MAX_TRIES && above >= 0; i++) {
        bool brief = !fits;
        struct pp_schedule next;
        inside.seconds = brief ? o->seconds / MAX_TRIES : o->seconds;
        above =
            search_run(&next, g, n_microbatches, depth, &inside, &bytes, err)
                ? -1
                : tighten(&next, b, limit, err);
        bool better = above == 0 || (above > 0 && !fits);
        pp_schedule_finish(better ? s : &next);
        if (better)
            *s = next;
        if (above == 0 && !brief)
            break;
        fits |= above == 0;
    }
    free(limit);
    free(load);
    return above < 0 ? -1 : 0;
}
