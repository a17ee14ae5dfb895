/* SPDX-License-Identifier: MIT */
/* split_instance - random units to split for a schedule, with the step of any
 * split by the simulator and its memory by the buffer planner. */
#ifndef PP_TESTS_SPLIT_INSTANCE_H
#define PP_TESTS_SPLIT_INSTANCE_H

#include <limits.h>

#include "base/rng.h"
#include "split/step.h"
#include "schedule/simulate/sim.h"
#include "sched_fixture.h"

enum { MAX_UNITS = 24, MAX_STAGES = 12 };

struct instance {
    struct fixture f;
    struct pp_makespan makespan;
    size_t n_units, n_stages;
    double times[MAX_UNITS][PP_N_TIMES], messages[MAX_UNITS];
    double speed[MAX_STAGES], limit[MAX_STAGES];
    double bytes[MAX_UNITS][PP_N_UNIT_BYTES];
    double message_bytes[MAX_UNITS]; /* behind each unit */
    struct pp_split_memory memory;
    struct pp_split_step problem;
    const size_t *bounds; /* of the split in the simulator */
};

static const struct kind {
    const char *name;
    int p, c, m;
    enum pp_placement placement;
} kinds[] = {
    {"1f1b", 3, 1, 5, PP_PLACEMENT_LOOP},
    {"1f1b", 4, 1, 4, PP_PLACEMENT_LOOP},
    {"gpipe", 3, 1, 3, PP_PLACEMENT_LOOP},
    {"zb-h1", 4, 1, 6, PP_PLACEMENT_LOOP},
    {"zb-h2", 3, 1, 8, PP_PLACEMENT_LOOP},
    {"interleaved", 2, 2, 4, PP_PLACEMENT_LOOP},
    {"interleaved", 2, 3, 4, PP_PLACEMENT_LOOP},
    {"looped-bfs", 2, 2, 3, PP_PLACEMENT_LOOP},
    {"zbv", 2, 2, 4, PP_PLACEMENT_V},
    {"dualpipev", 2, 2, 4, PP_PLACEMENT_V},
    {"zbv", 3, 2, 6, PP_PLACEMENT_V},
    {"dualpipe", 4, 1, 8, PP_PLACEMENT_BOTH_WAYS},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

/* Optional parts of an instance. */
enum {
    MESSAGES = 1,
    SPEED = 2,
    MEMORY = 4,
    UNEQUAL = 8,
    GATHERED = 16, /* ranks gather the weights of a stage for its use */
};

static inline double random_time(uint64_t key, uint64_t *k, bool whole)
{
    double u = pp_rng_uniform(key, (*k)++);
    return whole ? floor(8 * u) : u;
}

static inline void set_units(struct instance *x, uint64_t key)
{
    uint64_t k = 0;
    bool whole = key % 2;
    for (size_t i = 0; i < x->n_units; i++) {
        for (int t = 0; t < PP_N_TIMES; t++)
            x->times[i][t] = random_time(key, &k, whole);
        x->messages[i] = random_time(key, &k, whole) / 4;
        for (int b = 0; b < PP_N_UNIT_BYTES; b++)
            x->bytes[i][b] = floor(100 * random_time(key, &k, false));
    }
    for (int r = 0; r < MAX_STAGES; r++)
        x->speed[r] = 0.5 + random_time(key, &k, false);
}

static inline bool make(struct instance *x, const struct kind *kind,
                        size_t n_units, uint64_t key, int with)
{
    *x = (struct instance){.n_units = n_units};
    chain(&x->f, kind->p, kind->c, kind->placement);
    struct pp_graph *g = &x->f.graph;
    x->n_stages = (size_t)(g->n_stages / g->n_copies);
    g->resident = with & GATHERED ? 1 : 0;
    set_units(x, key);
    for (size_t i = 0; i < n_units; i++)
        x->message_bytes[i] =
            with & UNEQUAL ? 1 + floor(100 * pp_rng_uniform(key, 2000 + i))
                           : 10;
    if (emit(&x->f, kind->name, kind->m, 0) ||
        pp_makespan_init(&x->makespan, &x->f.s, &x->f.err) ||
        pp_lower(&x->f.s, &x->f.err)) {
        printf("# %s: %s\n", kind->name, x->f.err.text);
        return false;
    }
    pp_split_memory_init(&x->memory, &x->f.s,
                         (const double(*)[PP_N_UNIT_BYTES])x->bytes, n_units,
                         x->message_bytes);
    x->problem =
        (struct pp_split_step){.makespan = &x->makespan,
                               .n_units = n_units,
                               .times = (const double(*)[PP_N_TIMES])x->times,
                               .messages = with & MESSAGES ? x->messages : NULL,
                               .speed = with & SPEED ? x->speed : NULL,
                               .memory = with & MEMORY ? &x->memory : NULL,
                               .limit = x->limit};
    return true;
}

static inline void discard(struct instance *x)
{
    pp_split_memory_finish(&x->memory);
    pp_makespan_finish(&x->makespan);
    drop(&x->f);
}

/* Returns the time of an action; independent of the library's code. */
static inline double time_of(const void *ctx, struct pp_action a)
{
    const struct instance *x = ctx;
    const struct pp_graph *g = &x->f.graph;
    double t[PP_N_TIMES] = {0};
    if (pp_is_send(a.op)) {
        int from = pp_original(g, a.op == PP_SEND_F ? a.stage : a.peer);
        return x->problem.messages ? x->messages[x->bounds[from + 1] - 1] : 0;
    }
    if (!pp_is_compute(a.op))
        return 0;
    size_t s = (size_t)pp_original(g, a.stage);
    double speed = x->problem.speed ? x->speed[g->stages[a.stage].row] : 1;
    for (size_t i = x->bounds[s]; i < x->bounds[s + 1]; i++)
        for (int k = 0; k < PP_N_TIMES; k++)
            t[k] += x->times[i][k] / speed;
    bool source = !g->stages[a.stage].input_grad;
    switch ((enum pp_op)a.op) {
    case PP_F:
        return t[PP_TIME_F];
    case PP_I:
        return source ? 0 : t[PP_TIME_I];
    case PP_W:
        return source ? t[PP_TIME_B] : t[PP_TIME_W];
    default:
        return t[PP_TIME_B];
    }
}

static inline double simulated(struct instance *x, const size_t *bounds)
{
    struct pp_costs costs = {time_of, x, 0};
    struct pp_sim sim;
    x->bounds = bounds;
    if (pp_simulate(&x->f.s, &costs, INT_MAX, &sim, &x->f.err))
        return NAN;
    double makespan = sim.makespan;
    pp_sim_finish(&sim);
    return makespan;
}

/* Returns the bytes of a rank by the planner of pprun. */
static inline double needed(struct instance *x, const size_t *bounds, int rank)
{
    struct pp_stage_bytes sizes[MAX_STAGES] = {0};
    const struct pp_graph *g = &x->f.graph;
    double trained = 0;
    struct pp_memory m;
    for (int s = 0; s < g->n_stages; s++) {
        int o = pp_original(g, s);
        if (bounds[o + 1] < x->n_units)
            sizes[s].output = (size_t)x->message_bytes[bounds[o + 1] - 1];
        for (size_t i = bounds[o]; i < bounds[o + 1]; i++) {
            const double *b = x->bytes[i];
            sizes[s].act_i += (size_t)b[PP_UNIT_ACT_I];
            sizes[s].act_w += (size_t)b[PP_UNIT_ACT_W];
            sizes[s].grad_w += (size_t)b[PP_UNIT_GRAD_W];
            sizes[s].grad_keys += (size_t)b[PP_UNIT_GRAD_KEYS];
            sizes[s].states += (size_t)b[PP_UNIT_STATES];
            sizes[s].weights += (size_t)b[PP_UNIT_WHOLE];
            if (b[PP_UNIT_GRAD_LAYER] > (double)sizes[s].grad_layer)
                sizes[s].grad_layer = (size_t)b[PP_UNIT_GRAD_LAYER];
            if (b[PP_UNIT_WORKSPACE] > (double)sizes[s].workspace)
                sizes[s].workspace = (size_t)b[PP_UNIT_WORKSPACE];
            if (g->stages[s].row == rank)
                trained += b[PP_UNIT_TRAINED];
        }
    }
    if (pp_memory_plan(&x->f.s, rank, sizes, &m, &x->f.err))
        return NAN;
    double peak = (double)m.peak_bytes;
    pp_memory_finish(&m);
    return trained + peak;
}

static inline bool fits(struct instance *x, const size_t *bounds)
{
    for (int r = 0; r < x->f.graph.n_rows; r++)
        if (needed(x, bounds, r) > x->limit[r])
            return false;
    return true;
}

/* Returns the shortest step over all splits with the given stages before s. */
static inline double brute(struct instance *x, size_t *bounds, size_t s)
{
    double best = INFINITY;
    if (s == x->n_stages - 1) {
        bounds[s + 1] = x->n_units;
        if (x->problem.memory && !fits(x, bounds))
            return INFINITY;
        return simulated(x, bounds);
    }
    for (size_t j = bounds[s] + 1; j <= x->n_units - (x->n_stages - 1 - s);
         j++) {
        bounds[s + 1] = j;
        double t = brute(x, bounds, s + 1);
        best = t < best ? t : best;
    }
    return best;
}

static inline void even_split(const struct instance *x, size_t *bounds)
{
    for (size_t s = 0; s <= x->n_stages; s++)
        bounds[s] = x->n_units * s / x->n_stages;
}

#endif
