/* SPDX-License-Identifier: MIT */
/* test_split_step - the split with the shortest step, against the simulator
 * over all splits, for the kinds, placements, messages, speeds and memory. */
#include "plan/split_step.h"

#include <limits.h>

#include "base/rng.h"
#include "sched/sim.h"
#include "sched_fixture.h"

enum { MAX_UNITS = 24, MAX_STAGES = 12 };

struct instance {
    struct fixture f;
    struct pp_makespan makespan;
    size_t n_units, n_stages;
    double times[MAX_UNITS][PP_N_TIMES], messages[MAX_UNITS];
    double speed[MAX_STAGES], limit[MAX_STAGES];
    double bytes[MAX_UNITS][PP_N_UNIT_BYTES];
    double message_bytes;
    struct pp_split_memory memory;
    struct pp_split_step problem;
    const size_t *bounds; /* being simulated */
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
    {"dualpipe", 4, 1, 8, PP_PLACEMENT_BOTH_WAYS},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

/* What the instance has beside units and a schedule. */
enum { MESSAGES = 1, SPEED = 2, MEMORY = 4 };

static double random_time(uint64_t key, uint64_t *k, bool whole)
{
    double u = pp_rng_uniform(key, (*k)++);
    return whole ? floor(8 * u) : u;
}

static void set_units(struct instance *x, uint64_t key)
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
    x->message_bytes = 10;
}

static bool make(struct instance *x, const struct kind *kind, size_t n_units,
                 uint64_t key, int with)
{
    *x = (struct instance){.n_units = n_units};
    chain(&x->f, kind->p, kind->c, kind->placement);
    struct pp_graph *g = &x->f.graph;
    x->n_stages = (size_t)(g->n_stages / g->n_copies);
    set_units(x, key);
    if (emit(&x->f, kind->name, kind->m, 0) ||
        pp_makespan_init(&x->makespan, &x->f.s, &x->f.err) ||
        pp_lower(&x->f.s, &x->f.err) ||
        pp_split_memory_init(&x->memory, &x->f.s,
                             (const double(*)[PP_N_UNIT_BYTES])x->bytes,
                             n_units, x->message_bytes, &x->f.err)) {
        printf("# %s: %s\n", kind->name, x->f.err.text);
        return false;
    }
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

static void discard(struct instance *x)
{
    pp_split_memory_finish(&x->memory);
    pp_makespan_finish(&x->makespan);
    drop(&x->f);
}

/* The time of an action, said once more and plainly. */
static double time_of(const void *ctx, struct pp_action a)
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
    double speed = x->problem.speed ? x->speed[g->stages[a.stage].rank] : 1;
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
        return source ? t[PP_TIME_I] + t[PP_TIME_W] : t[PP_TIME_W];
    default:
        return t[PP_TIME_I] + t[PP_TIME_W];
    }
}

static double simulated(struct instance *x, const size_t *bounds)
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

/* What the ranks need by the planner of pprun. */
static double needed(struct instance *x, const size_t *bounds, int rank)
{
    struct pp_stage_bytes sizes[MAX_STAGES] = {0};
    const struct pp_graph *g = &x->f.graph;
    double trained = 0;
    struct pp_memory m;
    for (int s = 0; s < g->n_stages; s++) {
        int o = pp_original(g, s);
        sizes[s].output = (size_t)x->message_bytes;
        for (size_t i = bounds[o]; i < bounds[o + 1]; i++) {
            const double *b = x->bytes[i];
            sizes[s].act_i += (size_t)b[PP_UNIT_ACT_I];
            sizes[s].act_w += (size_t)b[PP_UNIT_ACT_W];
            sizes[s].grad_w += (size_t)b[PP_UNIT_GRAD_W];
            if (b[PP_UNIT_PASSING] > (double)sizes[s].passing)
                sizes[s].passing = (size_t)b[PP_UNIT_PASSING];
            if (g->stages[s].rank == rank)
                trained += b[PP_UNIT_TRAINED];
        }
    }
    if (pp_memory_plan(&x->f.s, rank, sizes, &m, &x->f.err))
        return NAN;
    double peak = (double)m.peak_bytes;
    pp_memory_finish(&m);
    return trained + peak;
}

static bool fits(struct instance *x, const size_t *bounds)
{
    for (int r = 0; r < x->f.graph.n_ranks; r++)
        if (needed(x, bounds, r) > x->limit[r])
            return false;
    return true;
}

/* The shortest step over all splits, stages s .. still open. */
static double brute(struct instance *x, size_t *bounds, size_t s)
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

static void even_split(const struct instance *x, size_t *bounds)
{
    for (size_t s = 0; s <= x->n_stages; s++)
        bounds[s] = x->n_units * s / x->n_stages;
}

/* One instance against brute force. */
static bool is_best(struct instance *x)
{
    size_t bounds[MAX_STAGES + 1], scratch[MAX_STAGES + 1] = {0};
    struct pp_split_found found;
    double want = brute(x, scratch, 0);
    even_split(x, bounds);
    if (pp_split_step(&x->problem, bounds, &found, &x->f.err)) {
        printf("# %s\n", x->f.err.text);
        return false;
    }
    if (isinf(want))
        return found.proved && isinf(found.makespan);
    double got = simulated(x, bounds);
    bool good = fabs(got - want) <= 1e-9 * want && found.proved &&
                fabs(found.makespan - got) <= 1e-9 * want &&
                fabs(found.bound - got) <= 1e-9 * want;
    if (!good)
        printf("# got %.17g (said %.17g, bound %.17g, proved %d), want %.17g\n",
               got, found.makespan, found.bound, found.proved, want);
    return good && (!x->problem.memory || fits(x, bounds));
}

/* Limits that some of the splits keep: what another split needs, or less. */
static void set_limits(struct instance *x, uint64_t key)
{
    size_t bounds[MAX_STAGES + 1];
    double factor = 0.8 + 0.05 * (double)(key % 8);
    even_split(x, bounds);
    for (int r = 0; r < x->f.graph.n_ranks; r++)
        x->limit[r] = floor(factor * needed(x, bounds, r));
}

static void test_brute(const char *what, int with, size_t n_tries)
{
    for (size_t k = 0; k < N_KINDS; k++) {
        bool all = true;
        for (uint64_t i = 0; i < n_tries; i++) {
            uint64_t key = 1000 * k + i + 17;
            struct instance x;
            size_t stages = (size_t)(kinds[k].p * kinds[k].c);
            all &= make(&x, &kinds[k], stages + i % 5, key, with);
            set_limits(&x, key);
            all &= is_best(&x);
            discard(&x);
        }
        ok(all, "%s: %s on %d ranks of %d chunks is optimal", what,
           kinds[k].name, kinds[k].p, kinds[k].c);
    }
}

/* What a split needs, and when its step ends, as the planner and the simulator
 * have it, for any split. */
static void test_predictions(void)
{
    bool times = true, bytes = true;
    for (size_t k = 0; k < N_KINDS; k++)
        for (uint64_t i = 0; i < 6; i++) {
            struct instance x;
            size_t bounds[MAX_STAGES + 1];
            double makespan;
            if (!make(&x, &kinds[k], 14 + i, 100 * k + i, MESSAGES | SPEED))
                continue;
            even_split(&x, bounds);
            times &=
                !pp_split_step_time(&x.problem, bounds, &makespan, &x.f.err) &&
                fabs(makespan - simulated(&x, bounds)) < 1e-9 * makespan;
            for (int r = 0; r < x.f.graph.n_ranks; r++)
                bytes &= pp_split_memory_need(&x.memory, bounds, r) ==
                         needed(&x, bounds, r);
            discard(&x);
        }
    ok(times, "steps take as long as the simulator says");
    ok(bytes, "ranks need as much as the planner of buffers says");
}

/* A longest path weighs as much as the step. */
static void test_path(void)
{
    bool same = true;
    for (size_t k = 0; k < N_KINDS; k++) {
        struct instance x;
        double slice[2 * MAX_STAGES][PP_N_TIMES], message[2 * MAX_STAGES];
        double count[2 * MAX_STAGES][PP_N_TIMES], carried[2 * MAX_STAGES];
        struct pp_times t = {slice, message}, c = {count, carried};
        double sum = 0;
        same &= make(&x, &kinds[k], 14, k, 0);
        for (int s = 0; s < x.f.graph.n_stages; s++) {
            message[s] = x.messages[s];
            for (int i = 0; i < PP_N_TIMES; i++)
                slice[s][i] = x.times[s][i];
        }
        double makespan = pp_makespan(&x.makespan, &t);
        pp_makespan_path(&x.makespan, &t, &c);
        for (int s = 0; s < x.f.graph.n_stages; s++) {
            sum += carried[s] * message[s];
            for (int i = 0; i < PP_N_TIMES; i++)
                sum += count[s][i] * slice[s][i];
        }
        same &= fabs(sum - makespan) < 1e-9 * makespan;
        discard(&x);
    }
    ok(same, "the longest path weighs as much as the makespan");
}

/* Rows' paths: what they weigh, at the times that they were found for and at
 * others, no makespan is below. */
struct rows {
    struct instance *x;
    const struct pp_times *t, *counts;
    double part;
    int n;
    bool good;
};

static double weigh(const struct rows *r, double *largest)
{
    const struct pp_graph *g = &r->x->f.graph;
    double sum = 0, rank[MAX_STAGES] = {0};
    *largest = 0;
    for (int s = 0; s < g->n_stages; s++) {
        double own = 0;
        for (int i = 0; i < PP_N_TIMES; i++)
            own += r->counts->slice[s][i] * r->t->slice[s][i];
        sum += own + r->counts->message[s] * r->t->message[s];
        rank[g->stages[s].rank] += own;
        *largest = fmax(*largest, rank[g->stages[s].rank]);
    }
    return sum;
}

/* Of some rank's work, this much is on the path. */
static bool keeps_to_a_row(const struct rows *r, double largest)
{
    const struct pp_graph *g = &r->x->f.graph;
    double m = r->x->f.s.n_microbatches, least = INFINITY;
    for (int rank = 0; rank < g->n_ranks; rank++) {
        double work = 0;
        for (int s = 0; s < g->n_stages; s++)
            for (int i = 0; i < PP_N_TIMES && g->stages[s].rank == rank; i++)
                work += m * r->t->slice[s][i] / g->n_copies;
        least = fmin(least, work);
    }
    return largest >= (1 - 2 * r->part) * least * (1 - 1e-9);
}

static void take_row(void *ctx)
{
    struct rows *r = ctx;
    double largest, sum = weigh(r, &largest);
    r->n++;
    r->good &= keeps_to_a_row(r, largest);
    r->good &= sum <= pp_makespan(&r->x->makespan, r->t) * (1 + 1e-9);
    for (uint64_t i = 0; i < 5; i++) {
        uint64_t key = pp_rng_key(i, "other times");
        double slice[2 * MAX_STAGES][PP_N_TIMES], message[2 * MAX_STAGES];
        const struct pp_times *was = r->t, other = {slice, message};
        for (int s = 0; s < r->x->f.graph.n_stages; s++) {
            message[s] = 2 * pp_rng_uniform(key, (uint64_t)s);
            for (int k = 0; k < PP_N_TIMES; k++)
                slice[s][k] = pp_rng_uniform(key, 100 + 3 * (uint64_t)s + k);
        }
        r->t = &other;
        sum = weigh(r, &largest);
        r->good &= sum <= pp_makespan(&r->x->makespan, &other) * (1 + 1e-9);
        r->t = was;
    }
    /* The pass that the paths are of. */
    pp_makespan(&r->x->makespan, r->t);
}

static void test_rows(void)
{
    bool good = true;
    int n = 0;
    for (size_t k = 0; k < N_KINDS; k++)
        for (int part = 0; part < 3; part++) {
            struct instance x;
            double slice[2 * MAX_STAGES][PP_N_TIMES], message[2 * MAX_STAGES];
            double count[2 * MAX_STAGES][PP_N_TIMES], carried[2 * MAX_STAGES];
            const struct pp_times t = {slice, message}, c = {count, carried};
            struct rows r = {&x, &t, &c, part / 4.0, 0, true};
            good &= make(&x, &kinds[k], 14, k, 0);
            for (int s = 0; s < x.f.graph.n_stages; s++) {
                message[s] = x.messages[s];
                for (int i = 0; i < PP_N_TIMES; i++)
                    slice[s][i] = x.times[s][i];
            }
            pp_makespan(&x.makespan, &t);
            good &= !pp_makespan_row_paths(&x.makespan, &t, &c, r.part,
                                           take_row, &r, &x.f.err);
            good &= r.good && r.n == x.f.graph.n_ranks;
            n += r.n;
            discard(&x);
        }
    ok(good, "%d paths along rows: no makespan is below them", n);
}

/* Larger ones: nothing is proved, the bound holds, no rule does better. */
static void test_bound(void)
{
    static const struct kind large[] = {
        {"1f1b", 8, 1, 32, PP_PLACEMENT_LOOP},
        {"zb-h1", 8, 1, 16, PP_PLACEMENT_LOOP},
        {"interleaved", 4, 2, 16, PP_PLACEMENT_LOOP}};
    for (size_t k = 0; k < sizeof large / sizeof *large; k++) {
        struct instance x;
        size_t bounds[MAX_STAGES + 1];
        struct pp_split_found found;
        bool good = make(&x, &large[k], MAX_UNITS, k, 0);
        even_split(&x, bounds);
        double before = simulated(&x, bounds);
        good &= !pp_split_step(&x.problem, bounds, &found, &x.f.err);
        good &= found.bound <= found.makespan && found.makespan <= before &&
                found.bound > 0.85 * found.makespan;
        ok(good, "%s: from %.4g to %.4g, bound %.4g%s, %zu simulated",
           large[k].name, before, found.makespan, found.bound,
           found.proved ? " (proved)" : "", found.n_simulated);
        discard(&x);
    }
}

int main(void)
{
    test_predictions();
    test_path();
    test_rows();
    test_brute("plain", 0, 20);
    test_brute("messages", MESSAGES, 10);
    test_brute("speeds", SPEED | MESSAGES, 10);
    test_brute("memory", MEMORY, 10);
    test_bound();
    return done();
}
