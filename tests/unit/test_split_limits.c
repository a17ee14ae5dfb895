/* SPDX-License-Identifier: MIT */
/* test_split_limits - plans within limits of memory, against all splits of
 * random tables of units: equal and unequal messages, limits that are exactly
 * what a split needs, and limits one byte below. */
#include "split/plan.h"

#include "base/rng.h"
#include "tap.h"

enum { N_UNITS = 9, MAX_STAGES = 6, MAX_SPLITS = 256, N_TABLES = 12 };

static const struct kind {
    const char *name;
    int64_t p, c, m;
    enum pp_placement placement;
} kinds[] = {
    {"1f1b", 3, 1, 5, PP_PLACEMENT_LOOP},
    {"gpipe", 4, 1, 3, PP_PLACEMENT_LOOP},
    {"zb-h1", 3, 1, 4, PP_PLACEMENT_LOOP},
    {"interleaved", 2, 2, 4, PP_PLACEMENT_LOOP},
    {"interleaved", 2, 3, 4, PP_PLACEMENT_LOOP},
    {"zb-interleaved", 2, 2, 4, PP_PLACEMENT_LOOP},
    {"zbv", 2, 2, 4, PP_PLACEMENT_V},
    {"dualpipe", 2, 1, 4, PP_PLACEMENT_BOTH_WAYS},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

/* A split, the bytes of its fullest rank, and its step. */
struct candidate {
    size_t bounds[MAX_STAGES + 1];
    double need, step;
};

struct table {
    struct pp_unit_row rows[N_UNITS];
    struct pp_unit_table units;
    struct pp_model model;
    struct pp_split_request request;
    size_t n_stages, n;
    struct candidate splits[MAX_SPLITS];
};

static void fill_rows(struct table *x, uint64_t key)
{
    static const char *const names[N_UNITS] = {"a", "b", "c", "d", "e",
                                               "f", "g", "h", "i"};
    uint64_t k = 0;
    for (int i = 0; i < N_UNITS; i++) {
        struct pp_unit_row *r = &x->rows[i];
        *r = (struct pp_unit_row){
            .fqn = names[i],
            .class = "Block",
            .kind = i == 0             ? PP_UNIT_EMBED
                    : i == N_UNITS - 1 ? PP_UNIT_HEAD
                                       : PP_UNIT_LAYER,
            .costs = {.params =
                          10 + (uint64_t)(60 * pp_rng_uniform(key, k++))}};
        r->costs.fwd_flops[0] = 1 + floor(100 * pp_rng_uniform(key, k++));
        for (int b = 0; b < PP_N_SAVED_BLOCKS; b++)
            r->costs.act_bytes[b] = floor(40 * pp_rng_uniform(key, k++));
        r->costs.out_bytes =
            key % 2 ? 8 : 1 + (uint64_t)(60 * pp_rng_uniform(key, k++));
    }
}

static bool add_split(struct table *x, const size_t *bounds)
{
    struct pp_split_request one = x->request;
    struct pp_split_plan plan;
    struct pp_err err = {0};
    struct candidate *c = &x->splits[x->n++];
    memcpy(c->bounds, bounds, sizeof c->bounds);
    one.bounds = bounds;
    one.plan_buffers = true;
    int rc = pp_split_plan(&one, &plan, &err);
    if (rc) {
        printf("# %s\n", err.text);
    } else {
        c->need = pp_split_plan_need(&plan, pp_split_plan_fullest(&plan));
        c->step = plan.run.found.makespan;
    }
    pp_split_plan_finish(&plan);
    return rc == 0;
}

/* Lists all splits that begin with the stages before s. */
static bool add_splits(struct table *x, size_t *bounds, size_t s)
{
    bool good = true;
    if (s == x->n_stages - 1) {
        bounds[s + 1] = N_UNITS;
        return add_split(x, bounds);
    }
    for (size_t i = bounds[s] + 1; i <= N_UNITS - (x->n_stages - 1 - s); i++) {
        bounds[s + 1] = i;
        good &= add_splits(x, bounds, s + 1);
    }
    return good;
}

static int by_need(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    return (x->need > y->need) - (x->need < y->need);
}

static bool make_table(struct table *x, const struct kind *kind, uint64_t key)
{
    size_t bounds[MAX_STAGES + 1] = {0};
    *x = (struct table){.units = {"Random", x->rows, N_UNITS, 1},
                        .n_stages = (size_t)(kind->p * kind->c)};
    fill_rows(x, key);
    x->model = (struct pp_model){
        .architecture = PP_TABLE, .n_layers = N_UNITS - 2, .table = &x->units};
    x->request = (struct pp_split_request){
        .shard = pp_shard_whole(&x->model),
        .precision = &pp_precisions[0],
        .microbatch = {.tokens = 16, .seq_len = 16},
        .n_ranks = kind->p,
        .n_chunks = kind->c,
        .n_microbatches = kind->m,
        .placement = kind->placement,
        .kind = kind->name,
        .shortest = true,
    };
    bool good = add_splits(x, bounds, 0);
    qsort(x->splits, x->n, sizeof *x->splits, by_need);
    return good;
}

/* Compares the plan within the limit with all splits. Sets *step. */
static bool is_best(const struct table *x, size_t limit, double *step)
{
    struct pp_split_request q = x->request;
    struct pp_split_plan plan;
    struct pp_err err = {0};
    double want = INFINITY;
    for (size_t i = 0; i < x->n && x->splits[i].need <= (double)limit; i++)
        want = fmin(want, x->splits[i].step);
    q.memory_bytes = limit;
    int rc = pp_split_plan(&q, &plan, &err);
    const struct pp_split_found f = plan.run.found;
    bool fits = !rc && pp_split_plan_fits(&plan), good;
    *step = fits ? f.makespan : INFINITY;
    if (isinf(want))
        good = !rc && !fits && f.proved;
    else
        good = fits && f.proved && fabs(f.makespan - want) <= 1e-9 * want &&
               fabs(f.bound - want) <= 1e-9 * want;
    if (!good)
        printf("# limit %zu: step %g, bound %g, proved %d, fits %d; want %g\n",
               limit, f.makespan, f.bound, f.proved, fits, want);
    pp_split_plan_finish(&plan);
    return good;
}

/* Every limit is what a split needs, or a byte less. */
static void test_kind(const struct kind *kind, uint64_t first_key,
                      uint64_t n_tables)
{
    static struct table x;
    bool best = true, monotone = true;
    for (uint64_t key = first_key; key < first_key + n_tables; key++) {
        double last = INFINITY, step;
        size_t last_limit = 0;
        best &= make_table(&x, kind, key);
        for (size_t i = 0; i < x.n; i += 1 + x.n / 6)
            for (int below = 1; below >= 0; below--) {
                size_t limit = (size_t)ceil(x.splits[i].need) - (size_t)below;
                if (limit < last_limit) /* two splits need the same */
                    continue;
                best &= is_best(&x, limit, &step);
                monotone &= step <= last * (1 + 1e-9);
                last = step;
                last_limit = limit;
            }
    }
    ok(best, "%s on %d ranks of %d chunks: the plan is the best that fits",
       kind->name, (int)kind->p, (int)kind->c);
    ok(monotone, "more memory never makes its step longer");
}

/* The argument is the number of tables of each kind. */
int main(int argc, char **argv)
{
    uint64_t n = argc > 1 ? strtoull(argv[1], NULL, 10)
                          : (uint64_t)(N_TABLES / fewer() / fewer());
    for (size_t k = 0; k < N_KINDS; k++)
        test_kind(&kinds[k], 100 * k, n);
    return done();
}
