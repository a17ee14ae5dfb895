/* SPDX-License-Identifier: MIT */
/* test_split_step - the split with the shortest step, against the simulator
 * over all splits: for kinds, placements, messages, speeds and memory. */
#include "split/cuts.h"
#include "split_instance.h"

/* Compares one instance with brute force. */
static bool is_best(struct instance *x)
{
    size_t bounds[MAX_STAGES + 1], scratch[MAX_STAGES + 1] = {0};
    double want = brute(x, scratch, 0);
    even_split(x, bounds);
    const struct pp_split_found found = pp_split_step(&x->problem, bounds);
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

/* Sets limits near the needs of the even split, so that some splits fit. */
static void set_limits(struct instance *x, uint64_t key)
{
    size_t bounds[MAX_STAGES + 1];
    double factor = 0.8 + 0.05 * (double)(key % 8);
    even_split(x, bounds);
    for (int r = 0; r < x->f.graph.n_rows; r++)
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

/* Returns true if some split with the given stages before s fits. */
static bool can_fit(struct instance *x, size_t *bounds, size_t s)
{
    const struct pp_split_step *p = &x->problem;
    if (s == x->n_stages - 1) {
        bounds[s + 1] = x->n_units;
        return fits(x, bounds);
    }
    for (size_t j = bounds[s] + 1; j <= x->n_units - (x->n_stages - 1 - s);
         j++) {
        bounds[s + 1] = j;
        if (!pp_split_may_begin(p, s + 1, j))
            continue;
        if (can_fit(x, bounds, s + 1))
            return true;
    }
    return false;
}

/* Compares the answer with brute force, and counts it. The answer is unknown if
 * stages do not nest. */
static bool is_filled(struct instance *x, bool nests, int *answers)
{
    size_t bounds[MAX_STAGES + 1], scratch[MAX_STAGES + 1] = {0};
    const struct pp_split_step *p = &x->problem;
    bool can = can_fit(x, scratch, 0);
    enum pp_feasibility answer = pp_split_feasible(p, bounds);
    answers[answer]++;
    if (!nests)
        return answer == PP_FEASIBLE_UNKNOWN;
    if (!can)
        return answer == PP_FEASIBLE_NONE;
    for (size_t s = 0; answer == PP_FEASIBLE_FOUND && s < x->n_stages; s++)
        if (bounds[s] >= bounds[s + 1])
            return false;
    return answer == PP_FEASIBLE_FOUND && bounds[0] == 0 &&
           bounds[x->n_stages] == x->n_units && fits(x, bounds) &&
           pp_split_keeps_fixed(p, bounds);
}

/* Makes most units small, so that the large ones matter. */
static void make_uneven(struct instance *x, uint64_t key)
{
    for (size_t i = 0; i < x->n_units; i++)
        for (int b = 0; b < PP_N_UNIT_BYTES; b++)
            if (pp_rng_uniform(key, 1000 + i) < 0.6)
                x->bytes[i][b] = floor(x->bytes[i][b] / 16);
    pp_split_memory_set(&x->memory, (const double(*)[PP_N_UNIT_BYTES])x->bytes);
}

/* Limits are from far too low to ample. In two of three runs a stage is fixed.
 */
static void test_fill(void)
{
    int answers[3] = {0};
    const unsigned by = fewer() > 1 ? 4 : 1; /* no multiple of 3 */
    for (size_t k = 0; k < N_KINDS; k++) {
        bool all = true,
             nests = kinds[k].c == 1 || kinds[k].placement == PP_PLACEMENT_V;
        for (uint64_t i = 0; i < 60; i += by) {
            uint64_t key = 5000 * k + i;
            struct instance x;
            size_t stages = (size_t)(kinds[k].p * kinds[k].c), fixed = i % 3;
            all &= make(&x, &kinds[k], stages + i % 7, key, MEMORY);
            make_uneven(&x, key);
            set_limits(&x, key);
            if (fixed && fixed < stages) {
                x.problem.n_fixed = 1;
                x.problem.fixed[0].stage = fixed;
                x.problem.fixed[0].unit = fixed + i % (x.n_units - stages + 1);
            }
            all &= is_filled(&x, nests, answers);
            discard(&x);
        }
        ok(all, "%s on %d ranks of %d chunks fits if it can", kinds[k].name,
           kinds[k].p, kinds[k].c);
    }
    printf("# %d unknown, %d found, %d none\n", answers[0], answers[1],
           answers[2]);
    const int often = 50 / (int)by;
    ok(answers[PP_FEASIBLE_FOUND] > often && answers[PP_FEASIBLE_NONE] > often,
       "both answers are frequent");
}

/* Memory agrees with the planner and steps agree with the simulator. */
static void test_predictions(const char *what, int with)
{
    bool times = true, bytes = true, least = true;
    for (size_t k = 0; k < N_KINDS; k++)
        for (uint64_t i = 0; i < 6; i++) {
            struct instance x;
            size_t bounds[MAX_STAGES + 1];
            if (!make(&x, &kinds[k], 14 + i, 100 * k + i, with))
                continue;
            even_split(&x, bounds);
            double makespan = pp_split_step_time(&x.problem, bounds);
            times &= fabs(makespan - simulated(&x, bounds)) < 1e-9 * makespan;
            for (int r = 0; r < x.f.graph.n_rows; r++) {
                double need = pp_split_memory_need(&x.memory, bounds, r);
                double last = 0;
                bytes &= need == needed(&x, bounds, r);
                for (int s = 0; s <= x.f.graph.n_stages; s++) {
                    double n = pp_split_memory_least(&x.memory, bounds, s, r);
                    least &= n >= last;
                    last = n;
                }
                least &= last == need &&
                         pp_split_memory_small(&x.memory, bounds, r) <= need;
            }
            discard(&x);
        }
    ok(times, "%s: steps take as long as the simulator says", what);
    ok(bytes, "%s: ranks need as much as the planner of buffers says", what);
    ok(least, "%s: the first stages need no more than all stages", what);
}

int main(void)
{
    test_predictions("equal messages", MESSAGES | SPEED);
    test_predictions("unequal messages", MESSAGES | SPEED | UNEQUAL);
    test_predictions("gathered weights", MESSAGES | SPEED | GATHERED);
    test_brute("plain", 0, 20);
    test_brute("messages", MESSAGES, 10);
    test_brute("speeds", SPEED | MESSAGES, 10);
    test_brute("memory", MEMORY, 10);
    test_brute("memory with unequal messages", MEMORY | UNEQUAL, 10);
    test_fill();
    return done();
}
