/* SPDX-License-Identifier: MIT */
/* --for auto: the split for an order that is itself looked for.
 *
 * The split of the named kind whose step is shortest comes first. Then, in
 * turn, the order that ppsched -s auto finds on the split, and the split that
 * is best for that order, for as long as what ppsched finds becomes shorter:
 * a local search, which ends no worse than any named kind on its own split. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ppsplit.h"
#include "schedule/search/search_bytes.h"

enum { MAX_ROUNDS = 4, MAX_SMALL = 3 };

/* --- the named kinds --- */

/* The same command for a kind. False where its split does not fit, or cannot
 * be; it is to be finished in any case. */
static bool plan_for(const struct split_job *j, const char *kind,
                     int64_t n_microbatches, struct split_job *other)
{
    *other = *j;
    other->kind = kind;
    other->n_microbatches = n_microbatches;
    other->automatic = false;
    other->arena = (struct pp_arena){0};
    other->run = (struct split_run){0};
    other->t.err = (struct pp_err){0};
    return !split_plan(other) &&
           (j->memory_bytes == 0 || split_fits_memory(other));
}

static void drop(struct split_job *other)
{
    split_run_finish(&other->run);
    pp_arena_finish(&other->arena);
}

/* The step of the split for a kind; infinite where there is none that fits. */
static double step_of(const struct split_job *j, const struct pp_kind *kind)
{
    struct split_job other;
    double makespan = INFINITY;
    if (plan_for(j, kind->name, j->n_microbatches, &other) &&
        pp_split_step_time(&other.run.step, other.bounds, &makespan,
                           &other.t.err))
        makespan = INFINITY;
    drop(&other);
    return makespan;
}

/* Where no kind fits: a split with room for so many microbatches at a time,
 * with which some order may. */
static void start_small(struct split_job *j, int n_microbatches)
{
    struct split_job other;
    size_t n = (size_t)j->graph.n_stages + 1;
    if (plan_for(j, "gpipe", n_microbatches, &other))
        memcpy(j->bounds, other.bounds, n * sizeof *j->bounds);
    drop(&other);
}

const char *split_best_kind(const struct split_job *j)
{
    const char *best = NULL;
    double shortest = INFINITY;
    for (const struct pp_kind *const *k = pp_kinds; *k; k++) {
        if ((*k)->slices || (*k)->copies)
            continue;
        double step = step_of(j, *k);
        if (step < shortest) {
            shortest = step;
            best = (*k)->name;
        }
    }
    return best;
}

/* --- orders --- */

/* What the search asks of a split. */
struct automatic {
    struct split_job *j;
    double (*times)[PP_N_TIMES]; /* per stage */
    double *messages;            /* per stage: behind it */
    double *room;                /* per rank: bytes of buffers */
    struct pp_stage_bytes *sizes;
    bool found; /* an order that fits */
};

static double time_of(const void *ctx, struct pp_action a)
{
    const struct automatic *x = ctx;
    const double *t = x->times[a.stage];
    bool input = x->j->run.graph.stages[a.stage].input_grad;
    if (pp_is_send(a.op))
        return x->messages[a.op == PP_SEND_F ? a.stage : a.peer];
    if (!pp_is_compute(a.op))
        return 0;
    int time = pp_time_of((enum pp_op)a.op, input);
    return time < 0 ? 0 : t[time];
}

static void set_split(struct automatic *x)
{
    struct split_job *j = x->j;
    const struct split_run *run = &j->run;
    const struct pp_graph *g = &run->graph;
    for (int r = 0; r < g->n_rows; r++)
        x->room[r] = (double)j->memory_bytes;
    for (int s = 0; s < g->n_stages; s++) {
        int rank = g->stages[s].row;
        double speed = j->speeds ? j->speeds[rank] : 1;
        size_t end = j->bounds[s + 1];
        x->messages[s] =
            end > 0 && end < j->n_units ? run->step.messages[end - 1] : 0;
        for (int k = 0; k < PP_N_TIMES; k++)
            x->times[s][k] = 0;
        for (size_t i = j->bounds[s]; i < end; i++) {
            x->room[rank] -= run->bytes[i][PP_UNIT_TRAINED];
            for (int k = 0; k < PP_N_TIMES; k++)
                x->times[s][k] += run->times[i][k] / speed;
        }
    }
    split_stage_bytes(j, j->bounds, x->sizes);
}

static void show_progress(void *ctx, double best, double bound)
{
    struct automatic *x = ctx;
    tool_progress(&x->j->t, "searching: %g, bound %g", best, bound);
}

/* As ppsched -s auto does it unless it is told otherwise. */
static int search(struct automatic *x, struct pp_schedule *s)
{
    struct split_job *j = x->j;
    const struct pp_costs costs = {time_of, x, 0};
    const struct pp_search_bytes bytes = {x->sizes, x->room};
    const struct pp_search_options o = {.costs = &costs,
                                        .split = true,
                                        .seed = 1,
                                        .seconds = PP_SEARCH_SECONDS,
                                        .progress = show_progress,
                                        .ctx = x};
    int m = (int)j->n_microbatches;
    set_split(x);
    int rc =
        j->memory_bytes
            ? pp_search_bytes(s, &j->run.graph, m, -1, &o, &bytes, &j->t.err)
            : pp_search_lowered(s, &j->run.graph, m, -1, &o, &j->t.err);
    tool_erase(&j->t);
    return rc;
}

/* A bound for any split and any order: all the work, on all ranks at once. */
static double least_step(const struct split_job *j)
{
    double work = 0, speeds = 0;
    for (size_t i = 0; i < j->n_units; i++)
        work += j->run.times[i][PP_TIME_F] + j->run.times[i][PP_TIME_B];
    for (int r = 0; r < j->run.graph.n_rows; r++)
        speeds += j->speeds ? j->speeds[r] : 1;
    return work * (double)j->n_microbatches / speeds;
}

/* Whether an order fits on the split that was set. */
static int fits(const struct automatic *x, const struct pp_schedule *s,
                bool *yes)
{
    *yes = true;
    for (int r = 0; r < s->graph->n_rows && x->j->memory_bytes && *yes; r++) {
        struct pp_memory m;
        if (pp_memory_plan(s, r, x->sizes, &m, &x->j->t.err))
            return -1;
        *yes = (double)m.arena_bytes <= x->room[r];
        pp_memory_finish(&m);
    }
    return 0;
}

/* One round: an order for the split. *better: it is shorter than *step, and
 * what the run has from now on; else the run stays as it is. */
static int take_order(struct automatic *x, double *step, bool *better)
{
    struct split_job *j = x->j;
    struct pp_schedule s = {0};
    struct pp_makespan m = {0};
    struct pp_split_step p = j->run.step;
    double makespan = INFINITY;
    bool fit = false;
    int rc = search(x, &s);
    *better = false;
    if (rc && j->t.err.code == PP_EXIT_NO) { /* no order fits */
        j->t.err = (struct pp_err){0};
        rc = 0;
    } else if (!rc && !(rc = fits(x, &s, &fit)) && fit) {
        p.makespan = &m;
        rc = pp_makespan_init(&m, &s, &j->t.err) ||
                     pp_split_step_time(&p, j->bounds, &makespan, &j->t.err)
                 ? -1
                 : 0;
    }
    if (!rc && makespan < *step) {
        pp_makespan_finish(&j->run.makespan);
        j->run.makespan = m;
        *better = true;
        *step = makespan;
        return split_run_take(j, &s);
    }
    pp_makespan_finish(&m);
    pp_schedule_finish(&s);
    return rc;
}

static int rounds(struct automatic *x)
{
    struct split_job *j = x->j;
    size_t bytes = ((size_t)j->graph.n_stages + 1) * sizeof *j->bounds;
    size_t *best = pp_arena_alloc(&j->arena, bytes, 1);
    double step = INFINITY;
    bool better = true;
    if (!best)
        return pp_fail(&j->t.err, PP_EXIT_SYSTEM, "out of memory");
    memcpy(best, j->bounds, bytes);
    for (int i = 0; i < MAX_ROUNDS && better; i++) {
        if (take_order(x, &step, &better))
            return -1;
        if (!better) {
            memcpy(j->bounds, best, bytes);
            break;
        }
        memcpy(best, j->bounds, bytes);
        if (j->method != SPLIT_BALANCED || i == MAX_ROUNDS - 1)
            break;
        if (split_balanced_from(j))
            return -1;
        better = memcmp(best, j->bounds, bytes) != 0;
    }
    if (isinf(step))
        return 0; /* what there is will be refused, with numbers */
    x->found = true;
    j->run.name = "auto";
    j->run.found.makespan = step;
    j->run.found.bound = fmin(least_step(j), step);
    j->run.found.proved = false;
    return 0;
}

int split_auto(struct split_job *j)
{
    size_t n = (size_t)j->run.graph.n_stages;
    struct automatic x = {.j = j};
    x.times = pp_arena_alloc(&j->arena, n, sizeof *x.times);
    x.messages = pp_arena_alloc(&j->arena, n, sizeof *x.messages);
    x.sizes = pp_arena_alloc(&j->arena, n, sizeof *x.sizes);
    x.room = pp_arena_alloc(&j->arena, (size_t)j->n_ranks, sizeof *x.room);
    if (!x.times || !x.messages || !x.sizes || !x.room)
        return pp_fail(&j->t.err, PP_EXIT_SYSTEM, "out of memory");
    for (int i = 0; i <= MAX_SMALL; i++) {
        if (i > 0)
            start_small(j, i);
        if (rounds(&x))
            return -1;
        if (x.found || j->run.fits || j->method != SPLIT_BALANCED)
            break;
    }
    return 0;
}
