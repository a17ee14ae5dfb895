/* SPDX-License-Identifier: MIT */
/* test_split - partitions against brute force, and the simple rules against
 * tables of other systems. */
#include "base/rng.h"
#include "split/split.h"
#include "tap.h"

enum { MAX_UNITS = 64, MAX_STAGES = 64 };

static double stage_sum(const double *costs, const size_t *bounds, size_t s)
{
    double sum = 0;
    for (size_t i = bounds[s]; i < bounds[s + 1]; i++)
        sum += costs[i];
    return sum;
}

static double largest_rank(const double *costs, const size_t *bounds,
                           size_t n_stages, const int *rank)
{
    double load[MAX_STAGES] = {0}, largest = 0;
    for (size_t s = 0; s < n_stages; s++) {
        double *x = &load[rank ? (size_t)rank[s] : s];
        *x += stage_sum(costs, bounds, s);
        largest = *x > largest ? *x : largest;
    }
    return largest;
}

/* Returns the least cost of the most expensive rank over all partitions with
 * the given stages before s. */
static double brute(const double *costs, size_t n, size_t n_stages,
                    const int *rank, size_t *bounds, size_t s)
{
    size_t least = n >= n_stages;
    if (s == n_stages - 1) {
        bounds[n_stages] = n;
        if (bounds[s] + least > n)
            return INFINITY;
        return largest_rank(costs, bounds, n_stages, rank);
    }
    double best = INFINITY;
    for (size_t j = bounds[s] + least; j <= n; j++) {
        bounds[s + 1] = j;
        double x = brute(costs, n, n_stages, rank, bounds, s + 1);
        best = x < best ? x : best;
    }
    return best;
}

static bool is_partition(const size_t *bounds, size_t n, size_t n_stages)
{
    bool good = bounds[0] == 0 && bounds[n_stages] == n;
    for (size_t s = 0; s < n_stages; s++)
        good &= bounds[s] + (n >= n_stages) <= bounds[s + 1];
    return good;
}

/* Makes a random instance of a kind: 0 small integers, 1 reals, 2 integers with
 * zeros, 3 a transformer with equal layers, a cheap and an expensive end. */
static size_t instance(uint64_t key, int kind, double *costs)
{
    size_t n = 1 + pp_rng_bits(key, 0) % 10;
    for (size_t i = 0; i < n; i++) {
        uint64_t bits = pp_rng_bits(key, i + 1);
        double u = pp_rng_uniform(key, i + 100);
        costs[i] = kind == 0   ? (double)(1 + bits % 9)
                   : kind == 1 ? u * 1e12
                   : kind == 2 ? (double)(bits % 3)
                               : 1;
    }
    if (kind == 3) {
        costs[0] = 0.01;
        costs[n - 1] = 4 * pp_rng_uniform(key, 200);
    }
    return n;
}

static void test_brute_force(void)
{
    double costs[MAX_UNITS];
    size_t bounds[MAX_STAGES + 1], scratch[MAX_STAGES + 1] = {0};
    int wrong = 0;
    for (uint64_t i = 0; i < 2000; i++) {
        uint64_t key = pp_rng_key(i, "balanced");
        size_t n = instance(key, (int)(i % 4), costs);
        size_t n_stages = 1 + pp_rng_bits(key, 300) % 6;
        pp_split_balanced(costs, n, n_stages, bounds);
        double got = largest_rank(costs, bounds, n_stages, NULL);
        double want = brute(costs, n, n_stages, NULL, scratch, 0);
        wrong +=
            !is_partition(bounds, n, n_stages) || !(got <= want * (1 + 1e-7));
    }
    is_int(wrong, 0, "the bottleneck is the smallest on every instance");
}

/* With several stages on a rank, the search of small instances completes and is
 * within 1 %. */
static void test_brute_force_ranks(void)
{
    double costs[MAX_UNITS];
    size_t bounds[MAX_STAGES + 1], scratch[MAX_STAGES + 1] = {0};
    int cases = 0, wrong = 0;
    for (uint64_t i = 0; i < 600; i++) {
        uint64_t key = pp_rng_key(i, "ranks");
        int kind = (int)(i % 4), rank[6];
        size_t n = instance(key, kind, costs);
        size_t n_ranks = 1 + pp_rng_bits(key, 300) % 3;
        size_t n_stages = 2 * n_ranks;
        for (size_t s = 0; s < n_stages; s++)
            rank[s] = (int)(i / 4 % 2 && s >= n_ranks ? n_stages - 1 - s
                                                      : s % n_ranks);
        if (n < n_stages)
            continue;
        pp_split_balanced_ranks(costs, n, n_stages, rank, n_ranks, bounds);
        double got = largest_rank(costs, bounds, n_stages, rank);
        double want = brute(costs, n, n_stages, rank, scratch, 0);
        wrong += !is_partition(bounds, n, n_stages) ||
                 !(got <= want / 0.99 * (1 + 1e-7));
        cases++;
    }
    is_int(
        wrong, 0,
        "ranks: the largest is within 1 % of the smallest on every instance");
    ok(cases > 300, "there were %d instances", cases);
}

static void check_bounds(const char *what, const size_t *got, size_t n_stages,
                         const char *want)
{
    char text[1024];
    int n = 0;
    for (size_t s = 0; s <= n_stages; s++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%s%zu", s ? "," : "",
                      got[s]);
    is_str(text, want, what);
}

static void balanced(const char *what, const double *costs, size_t n,
                     size_t n_stages, const char *want)
{
    size_t bounds[MAX_STAGES + 1];
    pp_split_balanced(costs, n, n_stages, bounds);
    check_bounds(what, bounds, n_stages, want);
}

#define COSTS(...)   \
    (const double[]) \
    {                \
        __VA_ARGS__  \
    }

static void test_balanced(void)
{
    balanced("one stage", COSTS(1, 1, 1, 1, 1, 1, 1, 1, 1, 1), 10, 1, "0,10");
    balanced("even", COSTS(1, 1, 1, 1, 1, 1, 1, 1), 8, 4, "0,2,4,6,8");
    balanced("a first unit without cost", COSTS(0, 1.1, 1.9, 3, 3, 3), 6, 4,
             "0,3,4,5,6");
    balanced("one heavy unit", COSTS(0, 1.1, 30, 3), 4, 3, "0,2,3,4");
    balanced("4; DeepSpeed has 5", COSTS(1, 4, 2, 2), 4, 3, "0,1,2,4");
    balanced("11; DeepSpeed has 13", COSTS(4, 9, 3, 3, 6, 4, 5, 6), 8, 5,
             "0,1,2,4,6,8");
    balanced("equal costs are equal at any position",
             COSTS(.1, .1, .1, .1, .1, .1, .1, .1, .1), 9, 3, "0,3,6,9");
    balanced("the remainder goes to later stages", COSTS(1, 1, 1, 1, 1), 5, 4,
             "0,1,2,3,5");
    balanced("stages without the heavy head are even", COSTS(1, 1, 1, 1, 6), 5,
             3, "0,2,4,5");
    balanced("fewer units than stages", COSTS(1, 2, 1), 3, 4, "0,0,1,2,3");
    balanced("all costs are 0", COSTS(0, 0, 0, 0), 4, 2, "0,1,4");
    balanced("no unit", COSTS(0), 0, 2, "0,0,0");
}

/* Checks the bottleneck of equal layers with an embedding e and a head h. */
static void bottleneck(size_t layers, size_t n_stages, double e, double h,
                       double want)
{
    double costs[MAX_UNITS + 2];
    size_t bounds[MAX_STAGES + 1];
    char what[96];
    costs[0] = e;
    for (size_t i = 0; i < layers; i++)
        costs[1 + i] = 1;
    costs[1 + layers] = h;
    snprintf(what, sizeof what, "%zu layers, %zu stages, ends %g and %g",
             layers, n_stages, e, h);
    pp_split_balanced(costs, layers + 2, n_stages, bounds);
    is_near(largest_rank(costs, bounds, n_stages, NULL), want, 1e-9, what);
}

static void test_ranks(void)
{
    double costs[MAX_UNITS];
    int rank[8];
    size_t bounds[9];
    for (size_t i = 0; i < MAX_UNITS; i++)
        costs[i] = 1;
    for (int s = 0; s < 8; s++)
        rank[s] = s % 4;
    pp_split_balanced_ranks(costs, 32, 8, rank, 4, bounds);
    check_bounds("a loop of equal layers is split evenly", bounds, 8,
                 "0,4,8,12,16,20,24,28,32");
    costs[32] = 4; /* a head of the cost of four layers */
    pp_split_balanced_ranks(costs, 33, 8, rank, 4, bounds);
    ok(largest_rank(costs, bounds, 8, rank) == 9,
       "with an expensive head every rank has 9");
    for (int s = 0; s < 8; s++)
        rank[s] = s < 4 ? s : 7 - s;
    pp_split_balanced_ranks(costs, 33, 8, rank, 4, bounds);
    ok(largest_rank(costs, bounds, 8, rank) == 9,
       "every rank has 9 in a V, too");
}

static void uniform(size_t n, size_t n_stages, const char *want)
{
    size_t bounds[MAX_STAGES + 1];
    struct pp_err err = {0};
    char what[64];
    snprintf(what, sizeof what, "uniform %zu on %zu", n, n_stages);
    if (pp_split_uniform(n, n_stages, bounds, &err))
        ok(false, "%s: %s", what, err.text);
    else
        check_bounds(what, bounds, n_stages, want);
}

/* Expected layer counts of the stages, or the expected message. */
static const struct {
    size_t n_stages, n_layers, input_weight, output_weight;
    const char *want;
} weights[] = {
    {1, 3, 1, 1, "3"},
    {1, 3, 9, 9, "3"},
    {2, 4, 1, 1, "2,2"},
    {3, 6, 1, 1, "2,3,1"},
    {2, 6, 1, 1, "3,3"},
    {8, 6, 1, 1, "0,1,1,1,1,1,1,0"},
    {3, 4, 1, 1, "1,2,1"},
    {2, 0, 1, 1, "0,0"},
    {4, 13, 0, 0, "4,3,3,3"},
    {5, 13, 1, 2, "3,3,3,3,1"},
    {4, 32, 1, 1, "8,9,8,7"},
    {8, 61, 1, 1, "7,8,8,8,8,8,8,6"},
    {16, 126, 1, 1, "7,8,8,8,8,8,8,8,8,8,8,8,8,8,8,7"},
    {16, 32, 1, 1, "2,3,2,2,2,2,2,2,2,2,2,2,2,2,2,1"},
    {8, 126, 1, 1, "15,16,16,16,16,16,16,15"},
    {64, 126, 1, 1,
     "1,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,"
     "2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,1"},
    {2, 2, 2, 2, "1,1"},
    {0, 4, 1, 1, "number of stages must be at least 1"},
    {10, 4, 1, 1,
     "number of stages (10) cannot be greater than effective layers (6)"},
    {7, 4, 1, 1,
     "number of stages (7) cannot be greater than effective layers (6)"},
    {4, 4, 2, 1, "input_weight (2) exceeds minimum layers per stage (1)"},
    {4, 6, 3, 1, "input_weight (3) exceeds minimum layers per stage (2)"},
    {8, 6, 2, 1, "input_weight (2) exceeds minimum layers per stage (1)"},
    {3, 5, 0, 3, "output_weight (3) exceeds minimum layers per stage (2)"},
};

static void test_weights(void)
{
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++) {
        size_t counts[MAX_STAGES] = {0};
        struct pp_err err = {0};
        char what[64];
        snprintf(what, sizeof what, "weights %zu,%zu,%zu,%zu",
                 weights[i].n_stages, weights[i].n_layers,
                 weights[i].input_weight, weights[i].output_weight);
        if (pp_split_weights(weights[i].n_layers, weights[i].n_stages,
                             weights[i].input_weight, weights[i].output_weight,
                             counts, &err))
            is_str(err.text, weights[i].want, what);
        else
            check_bounds(what, counts, weights[i].n_stages - 1,
                         weights[i].want);
    }
}

int main(void)
{
    test_brute_force();
    test_brute_force_ranks();
    test_balanced();
    bottleneck(32, 8, 0.3, 1.7, 5.0);
    bottleneck(24, 4, 0.2, 4.0, 7.2);
    bottleneck(61, 16, 0.2, 2.0, 4.0);
    test_ranks();
    uniform(2, 4, "0,1,2,2,2");
    uniform(10, 3, "0,4,7,10");
    uniform(5, 5, "0,1,2,3,4,5");
    uniform(0, 2, "0,0,0");
    test_weights();
    return done();
}
