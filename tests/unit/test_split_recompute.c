/* SPDX-License-Identifier: MIT */
/* test_split_recompute - the least recomputation that fits, against the
 * simulator over all choices: for all placements, for copies, and for modes
 * that need more memory instead of less. */
#include "split/recompute.h"

#include <math.h>

#include "base/rng.h"
#include "sched_fixture.h"

enum { MAX_STAGES = 8, N_RUNS = 40, N_MODES = 3 };

struct instance {
    struct fixture f;
    int n; /* stages of one copy */
    double times[MAX_STAGES][3], again[MAX_STAGES][N_MODES];
    double bytes[MAX_STAGES][N_MODES], limit[MAX_STAGES];
    const int *modes; /* of the choice in the simulator */
};

static const struct kind {
    const char *name;
    int p, c, m;
    enum pp_placement placement;
    size_t n_modes;
} kinds[] = {
    {"1f1b", 4, 1, 6, PP_PLACEMENT_LOOP, 3},
    {"gpipe", 3, 1, 3, PP_PLACEMENT_LOOP, 2},
    {"zb-h1", 4, 1, 5, PP_PLACEMENT_LOOP, 3},
    {"interleaved", 2, 2, 4, PP_PLACEMENT_LOOP, 3},
    {"interleaved", 2, 3, 4, PP_PLACEMENT_LOOP, 3},
    {"zbv", 3, 2, 4, PP_PLACEMENT_V, 3},
    {"dualpipe", 4, 1, 8, PP_PLACEMENT_BOTH_WAYS, 3},
    {"looped-bfs", 1, 8, 3, PP_PLACEMENT_LOOP, 3},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

static double random_number(uint64_t key, uint64_t *k)
{
    return pp_rng_uniform(key, (*k)++);
}

/* More recomputation takes longer and usually needs less memory. */
static void set_stages(struct instance *x, uint64_t key)
{
    uint64_t k = 0;
    bool odd = key % 3 == 0;
    for (int s = 0; s < x->n; s++) {
        for (int i = 0; i < 3; i++)
            x->times[s][i] = 1 + random_number(key, &k);
        x->again[s][0] = 0;
        x->bytes[s][0] = 50 + 50 * random_number(key, &k);
        for (int m = 1; m < N_MODES; m++) {
            double less = 30 * random_number(key, &k) - (odd ? 10 : 0);
            x->again[s][m] = x->again[s][m - 1] + random_number(key, &k);
            x->bytes[s][m] = x->bytes[s][m - 1] - less;
        }
    }
}

static double time_of(const void *ctx, struct pp_action a)
{
    const struct instance *x = ctx;
    const struct pp_graph *g = &x->f.graph;
    if (!pp_is_compute(a.op))
        return 0;
    int s = pp_original(g, a.stage);
    double input = x->times[s][1] + x->again[s][x->modes[s]];
    double weight = x->times[s][2];
    bool source = !g->stages[a.stage].input_grad;
    if (a.op == PP_F)
        return x->times[s][0];
    if (a.op == PP_I)
        return source ? 0 : input;
    return a.op == PP_W && !source ? weight : input + weight;
}

/* A run that fails has a time that equals none. */
static double simulate(void *ctx, const int *modes)
{
    struct instance *x = ctx;
    struct pp_costs costs = {time_of, x, 0};
    struct pp_sim sim;
    x->modes = modes;
    if (pp_simulate(&x->f.s, &costs, INT_MAX, &sim, &x->f.err))
        return NAN;
    double time = sim.makespan;
    pp_sim_finish(&sim);
    return time;
}

static bool fits(void *ctx, const int *modes, int rank)
{
    const struct instance *x = ctx;
    const struct pp_graph *g = &x->f.graph;
    double sum = 0;
    for (int s = 0; s < g->n_stages; s++)
        if (g->stages[s].row == rank)
            sum += x->bytes[pp_original(g, s)][modes[pp_original(g, s)]];
    return sum <= x->limit[rank];
}

static bool all_fit(struct instance *x, const int *modes)
{
    for (int r = 0; r < x->f.graph.n_rows; r++)
        if (!fits(x, modes, r))
            return false;
    return true;
}

/* Sets limits between the needs of full and of no recomputation. */
static void set_limits(struct instance *x, uint64_t key)
{
    const struct pp_graph *g = &x->f.graph;
    for (int r = 0; r < g->n_rows; r++) {
        double low = 0, high = 0, u = pp_rng_uniform(key + 1, (uint64_t)r);
        for (int s = 0; s < g->n_stages; s++)
            if (g->stages[s].row == r) {
                low += x->bytes[pp_original(g, s)][N_MODES - 1];
                high += x->bytes[pp_original(g, s)][0];
            }
        x->limit[r] = low - 1 + 1.2 * u * (high - low + 1);
    }
}

/* Returns the shortest step of all choices that fit; infinite if none does. */
static double shortest(struct instance *x, size_t n_modes)
{
    int modes[MAX_STAGES] = {0};
    double best = INFINITY;
    for (;;) {
        if (all_fit(x, modes))
            best = fmin(best, simulate(x, modes));
        int s = 0;
        while (s < x->n && (size_t)modes[s] + 1 == n_modes)
            modes[s++] = 0;
        if (s == x->n)
            return best;
        modes[s]++;
    }
}

/* Counts runs that fit, runs without a proof, and wrong results. */
struct tally {
    int fit, unsure, wrong;
};

static void compare(struct instance *x, const struct kind *kind,
                    struct tally *t)
{
    const struct pp_split_recompute p = {&x->f.graph, kind->n_modes, x, fits,
                                         simulate};
    int modes[MAX_STAGES];
    double want = shortest(x, kind->n_modes);
    const struct pp_recompute_found found = pp_split_recompute(&p, modes);
    bool yes = all_fit(x, modes);
    t->fit += found.fits;
    t->unsure += found.fits && !found.proved;
    double time = simulate(x, modes);
    bool right = found.fits == yes && (yes || isinf(want) || x->n > 6);
    if (yes)
        right &= time == found.makespan && found.bound <= want &&
                 time >= want && (!found.proved || time == want);
    t->wrong += !right;
}

static void test_kind(const struct kind *kind)
{
    struct tally t = {0};
    for (uint64_t key = 1; key <= N_RUNS; key++) {
        struct instance x = {0};
        chain(&x.f, kind->p, kind->c, kind->placement);
        x.n = x.f.graph.n_stages / x.f.graph.n_copies;
        set_stages(&x, key);
        set_limits(&x, key);
        if (emit(&x.f, kind->name, kind->m, 0) || pp_lower(&x.f.s, &x.f.err))
            t.wrong++;
        else
            compare(&x, kind, &t);
        drop(&x.f);
    }
    /* Choices for ranks with many stages are not enumerated. */
    ok(t.wrong == 0 && t.fit > 2 &&
           (kind->c > 6 || (t.unsure == 0 && t.fit < N_RUNS)),
       "%s on %d x %d: no choice is shorter (%d fit, %d unsure, %d wrong)",
       kind->name, kind->p, kind->c, t.fit, t.unsure, t.wrong);
}

int main(void)
{
    for (int k = 0; k < N_KINDS; k++)
        test_kind(&kinds[k]);
    return done();
}
