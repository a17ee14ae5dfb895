/* SPDX-License-Identifier: MIT */
/* test_split_bound - paths through a step, and the bounds that follow from
 * them, against the simulator over all splits. */
#include "split/cuts.h"
#include "split_instance.h"

/* The longest path has the length of the step. */
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
    ok(same, "the longest path is as long as the makespan");
}

/* Paths along rows bound the makespan from below, at the times that they were
 * found for and at others. */
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
        rank[g->stages[s].row] += own;
        *largest = fmax(*largest, rank[g->stages[s].row]);
    }
    return sum;
}

/* Returns true if the path has the required part of some rank's work. */
static bool keeps_to_a_row(const struct rows *r, double largest)
{
    const struct pp_graph *g = &r->x->f.graph;
    double m = r->x->f.s.n_microbatches, least = INFINITY;
    for (int rank = 0; rank < g->n_rows; rank++) {
        double work = 0;
        for (int s = 0; s < g->n_stages; s++) {
            const double *t = r->t->slice[s];
            double halves = t[PP_TIME_I] + t[PP_TIME_W];
            if (g->stages[s].row == rank)
                work += m * (t[PP_TIME_F] + fmin(t[PP_TIME_B], halves)) /
                        g->n_copies;
        }
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
                slice[s][k] =
                    pp_rng_uniform(key, 100 + PP_N_TIMES * (uint64_t)s + k);
        }
        r->t = &other;
        sum = weigh(r, &largest);
        r->good &= sum <= pp_makespan(&r->x->makespan, &other) * (1 + 1e-9);
        r->t = was;
    }
    /* The makespan that the paths belong to. */
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
            pp_makespan_row_paths(&x.makespan, &t, &c, r.part, take_row, &r);
            good &= r.good && r.n == x.f.graph.n_rows;
            n += r.n;
            discard(&x);
        }
    ok(good, "%d paths along rows: no makespan is below them", n);
}

/* The bound is never above the best split's step, for any origin of the cuts.
 * There is no search here, which would find the optimum. */
static bool is_sound(struct instance *x, uint64_t key, double *tightest)
{
    enum { MAX_CUTS = 60 };
    struct pp_cuts cuts;
    size_t bounds[MAX_STAGES + 1], scratch[MAX_STAGES + 1] = {0};
    size_t split[MAX_STAGES + 1];
    double best = brute(x, scratch, 0);
    even_split(x, bounds);
    pp_cuts_init(&cuts, &x->problem, MAX_CUTS);
    /* Without generated cuts, for another split. */
    for (size_t s = 1; s < x->n_stages && key % 3; s++)
        bounds[s] = s;
    double other = pp_cuts_simulate(&cuts, bounds);
    pp_cuts_generate(&cuts, bounds, 200, split);
    double bound = pp_cuts_bound(&cuts, 2 * other);
    pp_cuts_finish(&cuts);
    bool good = bound <= best * (1 + 1e-9);
    if (!good)
        printf("# bound %.17g, best %.17g\n", bound, best);
    *tightest = fmax(*tightest, bound / best);
    return good && bound > 0;
}

static void test_sound(const char *what, int with)
{
    for (size_t k = 0; k < N_KINDS; k++) {
        bool all = true;
        double tightest = 0;
        for (uint64_t i = 0; i < 20; i += (uint64_t)fewer()) {
            struct instance x;
            size_t stages = (size_t)(kinds[k].p * kinds[k].c);
            uint64_t key = 1000 * k + i + 3;
            all &= make(&x, &kinds[k], stages + i % 5, key, with);
            all &= is_sound(&x, key, &tightest);
            discard(&x);
        }
        ok(all, "%s: the bound of %s holds, and reaches %.3f of the best", what,
           kinds[k].name, tightest);
    }
}

/* Larger ones: nothing is proved, but the bound is near. */
static void test_large(void)
{
    static const struct large {
        struct kind kind;
        double at_least; /* of the makespan */
    } large[] = {{{"1f1b", 8, 1, 32, PP_PLACEMENT_LOOP}, 0.95},
                 {{"gpipe", 8, 1, 32, PP_PLACEMENT_LOOP}, 0.95},
                 {{"zb-h1", 8, 1, 16, PP_PLACEMENT_LOOP}, 0.95},
                 {{"interleaved", 4, 2, 16, PP_PLACEMENT_LOOP}, 0.9},
                 {{"zbv", 4, 2, 16, PP_PLACEMENT_V}, 0.9}};
    for (size_t k = 0; k < sizeof large / sizeof *large; k++) {
        struct instance x;
        size_t bounds[MAX_STAGES + 1];
        bool good = make(&x, &large[k].kind, MAX_UNITS, k, 0);
        even_split(&x, bounds);
        double before = simulated(&x, bounds);
        const struct pp_split_found found = pp_split_step(&x.problem, bounds);
        good &= found.bound <= found.makespan && found.makespan <= before &&
                found.bound > large[k].at_least * found.makespan;
        ok(good, "%s: from %.4g to %.4g, bound %.4g%s, %zu simulated",
           large[k].kind.name, before, found.makespan, found.bound,
           found.proved ? " (proved)" : "", found.n_simulated);
        discard(&x);
    }
}

int main(void)
{
    test_path();
    test_rows();
    test_sound("plain", 0);
    test_sound("messages and speeds", SPEED | MESSAGES);
    test_large();
    return done();
}
