/* SPDX-License-Identifier: MIT */
/* test_split_plan - whole plans against all splits: the shortest step, limits
 * of memory, recomputation, layouts, kinds, orders, and the changes that are
 * suggested when nothing fits. */
#include "split/plan.h"

#include "base/rng.h"
#include "tap.h"

enum { N_UNITS = 8, N_FIRST = 2, N_LAYERS = 4, MAX_STAGES = 4, N_TRIES = 6 };

/* A model of units with random costs: two before the layers, four layers and
 * two after them. */
struct fixture {
    struct pp_unit_row rows[N_UNITS];
    struct pp_unit_table table;
    struct pp_model model;
    struct pp_split_request request;
    size_t bounds[MAX_STAGES + 1];
};

static const char *const names[N_UNITS] = {"a", "b", "c", "d",
                                           "e", "f", "g", "h"};

static struct pp_split_request request_for(const struct pp_model *m)
{
    return (struct pp_split_request){
        .shard = pp_shard_whole(m),
        .precision = &pp_precisions[0],
        .microbatch = {.tokens = 16, .seq_len = 16},
        .n_ranks = 3,
        .n_chunks = 1,
        .n_microbatches = 5,
        .placement = PP_PLACEMENT_LOOP,
        .kind = "1f1b",
        .shortest = true,
    };
}

static void make(struct fixture *x, uint64_t key)
{
    uint64_t k = 0;
    *x = (struct fixture){.table = {"Random", x->rows, N_UNITS, N_FIRST}};
    for (int i = 0; i < N_UNITS; i++) {
        struct pp_unit_row *r = &x->rows[i];
        double u = pp_rng_uniform(key, k++);
        *r = (struct pp_unit_row){
            .fqn = names[i],
            .class = "Block",
            .kind = i < N_FIRST              ? PP_UNIT_EMBED
                    : i < N_FIRST + N_LAYERS ? PP_UNIT_LAYER
                                             : PP_UNIT_HEAD,
            .costs = {.params = 100 + (uint64_t)(400 * u)}};
        r->costs.fwd_flops[0] = floor(100 * pp_rng_uniform(key, k++));
        r->costs.fwd_flops[1] = floor(10 * pp_rng_uniform(key, k++));
        for (int b = 0; b < PP_N_SAVED_BLOCKS; b++)
            r->costs.act_bytes[b] = floor(40 * pp_rng_uniform(key, k++));
        r->costs.out_bytes = 8;
    }
    x->model = (struct pp_model){
        .architecture = PP_TABLE, .n_layers = N_LAYERS, .table = &x->table};
    x->request = request_for(&x->model);
}

/* The answer for one split, or for the best one. */
struct answer {
    double step;
    bool fits;
};

static struct answer answer_of(const struct pp_split_request *q)
{
    struct pp_split_plan plan;
    struct pp_err err = {0};
    struct answer a = {INFINITY, false};
    if (pp_split_plan(q, &plan, &err)) {
        printf("# %s\n", err.text);
    } else {
        a.step = plan.run.found.makespan;
        a.fits = q->memory_bytes == 0 || pp_split_plan_fits(&plan);
    }
    pp_split_plan_finish(&plan);
    return a;
}

/* A boundary that a layout can have: only the first stage holds units before
 * the layers, and only the last one units after them. */
static bool is_layout(const size_t *bounds, size_t n)
{
    return bounds[1] >= N_FIRST && bounds[n - 1] <= N_FIRST + N_LAYERS;
}

/* Returns the best of all splits of n stages, stages from s on still open. */
static struct answer best_of_all(const struct pp_split_request *q, size_t n,
                                 size_t *bounds, size_t s)
{
    size_t n_units = pp_model_n_units(q->shard.model);
    struct answer best = {INFINITY, false};
    if (s == n - 1) {
        struct pp_split_request one = *q;
        bounds[n] = n_units;
        if (q->layout && n > 1 && !is_layout(bounds, n))
            return best;
        one.bounds = bounds;
        one.plan_buffers = true;
        return answer_of(&one);
    }
    for (size_t i = bounds[s] + 1; i <= n_units - (n - 1 - s); i++) {
        bounds[s + 1] = i;
        struct answer a = best_of_all(q, n, bounds, s + 1);
        if (a.fits && (!best.fits || a.step < best.step))
            best = a;
    }
    return best;
}

static bool same(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fabs(b);
}

/* Returns true if the plan is the best of all splits. */
static bool is_best(const struct pp_split_request *q)
{
    size_t bounds[MAX_STAGES + 1] = {0};
    struct answer want =
        best_of_all(q, (size_t)(q->n_ranks * q->n_chunks), bounds, 0);
    struct answer got = answer_of(q);
    bool good =
        got.fits == want.fits && (!want.fits || same(got.step, want.step));
    if (!good)
        printf("# got %g, fits %d; want %g, fits %d\n", got.step, got.fits,
               want.step, want.fits);
    return good;
}

static void test_shortest(void)
{
    static const struct {
        const char *kind;
        int64_t p, c, m;
        enum pp_placement placement;
    } cases[] = {{"1f1b", 3, 1, 5, PP_PLACEMENT_LOOP},
                 {"gpipe", 4, 1, 3, PP_PLACEMENT_LOOP},
                 {"interleaved", 2, 2, 4, PP_PLACEMENT_LOOP},
                 {"zbv", 2, 2, 4, PP_PLACEMENT_V},
                 {"dualpipe", 2, 1, 4, PP_PLACEMENT_BOTH_WAYS}};
    static const double speeds[] = {1, 0.5, 2, 1};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        bool all = true;
        for (uint64_t key = 0; key < N_TRIES; key += (uint64_t)fewer()) {
            struct fixture x;
            make(&x, 10 * c + key);
            x.request.kind = cases[c].kind;
            x.request.n_ranks = cases[c].p;
            x.request.n_chunks = cases[c].c;
            x.request.n_microbatches = cases[c].m;
            x.request.placement = cases[c].placement;
            x.request.speeds = key % 2 ? speeds : NULL;
            all &= is_best(&x.request);
        }
        ok(all, "no split under %s has a shorter step", cases[c].kind);
    }
}

static void test_memory(void)
{
    enum { N_LIMITS = 120 };
    bool all = true;
    int n_fit = 0;
    for (uint64_t key = 0; key < N_LIMITS; key += (uint64_t)fewer()) {
        struct fixture x;
        make(&x, 100 + key);
        x.request.memory_bytes = 15000 + 100 * (size_t)key;
        all &= is_best(&x.request);
        n_fit += answer_of(&x.request).fits;
    }
    ok(all, "no split that fits has a shorter step, and none is missed");
    ok(n_fit > 20 / fewer() && n_fit < (N_LIMITS - 20) / fewer(),
       "some of the limits are tight");
}

static void test_layout(void)
{
    struct fixture x;
    struct pp_split_plan plan;
    struct pp_err err = {0};
    bool all = true;
    for (uint64_t key = 0; key < N_TRIES; key += (uint64_t)fewer()) {
        make(&x, 200 + key);
        x.rows[0].costs.fwd_flops[0] = x.rows[N_UNITS - 1].costs.fwd_flops[0] =
            500;
        x.request.layout = true;
        all &= is_best(&x.request);
    }
    ok(all, "a layout keeps units before and after the layers together, and no "
            "other layout has a shorter step");
    x.request.memory_bytes = 40000;
    ok(is_best(&x.request), "the same within a limit of memory");
    x.request.memory_bytes = 0;
    x.request.n_ranks = N_LAYERS + 3;
    ok(pp_split_plan(&x.request, &plan, &err) && err.code == PP_EXIT_INPUT &&
           strstr(err.text, "a layout keeps "),
       "more stages than a layout has parts are refused");
    pp_split_plan_finish(&plan);
}

/* Without a schedule's step, the costliest rank counts. */
static double costliest(const struct pp_split_request *q)
{
    struct pp_split_plan plan;
    struct pp_err err = {0};
    double most = 0;
    if (!pp_split_plan(q, &plan, &err))
        for (int r = 0; r < plan.graph.n_rows; r++)
            most = fmax(most, plan.ranks[r].cost);
    pp_split_plan_finish(&plan);
    return most;
}

static void test_costliest(void)
{
    bool all = true;
    for (uint64_t key = 0; key < N_TRIES; key += (uint64_t)fewer()) {
        struct fixture x;
        make(&x, 300 + key);
        x.request.shortest = false;
        double got = costliest(&x.request), least = INFINITY;
        size_t bounds[] = {0, 0, 0, N_UNITS};
        x.request.bounds = bounds;
        for (bounds[1] = 1; bounds[1] < N_UNITS - 1; bounds[1]++)
            for (bounds[2] = bounds[1] + 1; bounds[2] < N_UNITS; bounds[2]++)
                least = fmin(least, costliest(&x.request));
        all &= fabs(got - least) <= 1e-6 * least;
    }
    ok(all, "without a step, no split has a cheaper costliest rank");
}

static void test_sums(void)
{
    struct fixture x;
    struct pp_split_plan plan;
    struct pp_err err = {0};
    double flops = 0, busy = 0;
    uint64_t params = 0, held = 0;
    make(&x, 1);
    x.request.plan_buffers = true;
    if (!ok(!pp_split_plan(&x.request, &plan, &err), "a plan with buffers"))
        return;
    for (int i = 0; i < N_UNITS; i++) {
        const double *f = x.rows[i].costs.fwd_flops;
        double products = 16 * f[0], pairs = 16 * 8.5 * f[1];
        flops += products + pairs;           /* F */
        flops += 2 * products + 2.5 * pairs; /* B */
        params += x.rows[i].costs.params;
    }
    for (int r = 0; r < 3; r++) {
        busy += plan.ranks[r].busy;
        held += plan.ranks[r].params;
        is_near(plan.stages[r].live, 3 - r, 0, "1f1b keeps p - s microbatches");
        ok(plan.stages[r].activations_bytes == plan.ranks[r].activations_bytes,
           "a rank with one stage needs what the stage needs");
    }
    is_near(busy, 5 * flops, 1e-12, "ranks are busy with all the work");
    is_int((long long)held, (long long)params, "ranks hold all parameters");
    ok(plan.graph.slices.n == 1, "the plan's graph is that of microbatches");
    pp_split_plan_finish(&plan);
}

static void test_profile(void)
{
    struct fixture x;
    struct pp_unit_seconds units[N_UNITS];
    struct pp_profile profile = {.units = units, .n_units = N_UNITS};
    make(&x, 2);
    for (int i = 0; i < N_UNITS; i++) {
        const double *f = x.rows[i].costs.fwd_flops;
        units[i] = (struct pp_unit_seconds){.fqn = names[i],
                                            .fwd = {f[0], f[1]},
                                            .input = {f[0], 2.5 * f[1]},
                                            .weight = {f[0], 0}};
    }
    double counted = answer_of(&x.request).step;
    x.request.profile = &profile;
    is_near(answer_of(&x.request).step, counted, 1e-9,
            "costs measured as they are counted give the same step");
    profile.latency = 10000;
    ok(answer_of(&x.request).step > counted, "messages take time as measured");
    ok(is_best(&x.request), "no split has a shorter step with messages");
}

static void test_kinds(void)
{
    struct fixture x;
    const char *want = NULL;
    double least = INFINITY;
    make(&x, 3);
    struct pp_split_request q = x.request;
    for (const struct pp_kind *const *k = pp_kinds; *k; k++) {
        struct pp_split_plan plan;
        struct pp_err err = {0};
        q.kind = (*k)->name;
        if ((*k)->slices || (*k)->copies)
            continue;
        if (!pp_split_plan(&q, &plan, &err) &&
            plan.run.found.makespan < least) {
            least = plan.run.found.makespan;
            want = q.kind;
        }
        pp_split_plan_finish(&plan);
    }
    is_str(pp_split_best_kind(&x.request), want,
           "the best kind has the shortest step on its own split");
    x.request.search_order = true;
    ok(answer_of(&x.request).step <= least,
       "a searched order is no longer than the best kind");
    x.request.memory_bytes = 1000;
    ok(!pp_split_best_kind(&x.request), "no kind is best if none fits");
    ok(!answer_of(&x.request).fits, "and no order fits then");
}

static void test_usual(void)
{
    struct fixture x;
    struct pp_split_plan plan;
    struct pp_err err = {0};
    make(&x, 4);
    x.request.kind = NULL;
    x.request.n_ranks = 2;
    x.request.n_chunks = 2;
    if (ok(!pp_split_plan(&x.request, &plan, &err), "chunks without a kind")) {
        is_str(plan.run.name, "interleaved", "interleaved is usual in a loop");
        is_int(plan.run.n_microbatches, 6,
               "it takes the next number of microbatches that it can run");
    }
    pp_split_plan_finish(&plan);
    x.request.kind = "interleaved";
    ok(pp_split_plan(&x.request, &plan, &err) && err.code == PP_EXIT_INPUT,
       "a kind that was asked for takes no other number");
    pp_split_plan_finish(&plan);
}

static void test_long(void)
{
    struct fixture x;
    struct pp_split_plan plan;
    struct pp_err err = {0};
    make(&x, 5);
    x.request.kind = NULL;
    x.request.n_microbatches = 1 << 20;
    if (ok(!pp_split_plan(&x.request, &plan, &err), "a very long schedule"))
        ok(!plan.run.simulated && !plan.run.shortest && plan.bounds[3] == 8,
           "it is not simulated, but its costs are balanced");
    pp_split_plan_finish(&plan);
    x.request.kind = "1f1b";
    ok(pp_split_plan(&x.request, &plan, &err) && err.code == PP_EXIT_INPUT,
       "it is refused if its kind was asked for");
    pp_split_plan_finish(&plan);
}

/* --- recomputation, which needs a model that is more than a table --- */

static const struct pp_model llama = {.architecture = PP_LLAMA,
                                      .hidden = 64,
                                      .intermediate = 128,
                                      .n_layers = 4,
                                      .n_heads = 4,
                                      .n_kv_heads = 2,
                                      .head_dim = 16,
                                      .vocab = 300};

/* Its head costs as much as several layers. */
static const struct pp_model heavy = {.architecture = PP_LLAMA,
                                      .hidden = 64,
                                      .intermediate = 96,
                                      .n_layers = 4,
                                      .n_heads = 4,
                                      .n_kv_heads = 4,
                                      .head_dim = 16,
                                      .vocab = 900};

/* Returns the best of all modes of two stages, on all splits or on one. */
static struct answer best_modes(struct pp_split_request q)
{
    struct answer best = {INFINITY, false};
    enum pp_recompute modes[2];
    size_t bounds[] = {0, 0, pp_model_n_units(q.shard.model)};
    size_t first = q.bounds ? q.bounds[1] : 1;
    size_t last = q.bounds ? q.bounds[1] : bounds[2] - 1;
    q.bounds = bounds;
    q.recompute_auto = false;
    q.stage_modes = modes;
    q.plan_buffers = true;
    for (bounds[1] = first; bounds[1] <= last; bounds[1]++)
        for (int k = 0; k < PP_N_RECOMPUTES * PP_N_RECOMPUTES; k++) {
            modes[0] = pp_recompute_levels[k % PP_N_RECOMPUTES];
            modes[1] = pp_recompute_levels[k / PP_N_RECOMPUTES];
            struct answer a = answer_of(&q);
            if (a.fits && (!best.fits || a.step < best.step))
                best = a;
        }
    return best;
}

/* Returns the need of the fullest rank without a limit. */
static double free_need(struct pp_split_request q)
{
    struct pp_split_plan plan;
    struct pp_err err = {0};
    double need = NAN;
    q.plan_buffers = true;
    if (!pp_split_plan(&q, &plan, &err))
        need = pp_split_plan_need(&plan, pp_split_plan_fullest(&plan));
    pp_split_plan_finish(&plan);
    return need;
}

static void test_recompute(const struct pp_model *m, int64_t seq_len)
{
    enum { N_LIMITS = 24 };
    static const size_t kept[] = {0, 3, 7};
    struct pp_split_request q = request_for(m);
    bool all = true, all_kept = true;
    int n_fit = 0;
    q.n_ranks = 2;
    q.microbatch.tokens = q.microbatch.seq_len = seq_len;
    double most = free_need(q);
    q.recompute_auto = true;
    for (int i = 0; i < N_LIMITS; i++) {
        q.memory_bytes = (size_t)(most * (1.02 - 0.03 * i));
        struct answer got = answer_of(&q), want = best_modes(q);
        all &=
            got.fits == want.fits && (!want.fits || same(got.step, want.step));
        n_fit += want.fits;
        q.bounds = kept;
        struct pp_split_plan plan;
        struct pp_err err = {0};
        want = best_modes(q);
        if (pp_split_plan(&q, &plan, &err) ||
            plan.run.chosen.fits != want.fits ||
            (want.fits && !same(plan.run.chosen.makespan, want.step)))
            all_kept = false;
        pp_split_plan_finish(&plan);
        q.bounds = NULL;
    }
    ok(all, "no split with any recomputation that fits has a shorter step");
    ok(all_kept, "nor has any recomputation on a split to keep");
    ok(n_fit > 1 && n_fit < N_LIMITS, "some of the limits are tight");
}

static void test_modes(void)
{
    static const enum pp_recompute modes[] = {PP_RECOMPUTE_FULL,
                                              PP_RECOMPUTE_NONE};
    static const size_t kept[] = {0, 3, 7};
    struct pp_split_request q = request_for(&llama);
    struct pp_split_plan plan;
    struct pp_err err = {0};
    q.n_ranks = 2;
    q.bounds = kept;
    q.stage_modes = modes;
    if (ok(!pp_split_plan(&q, &plan, &err), "a mode for each stage"))
        ok(pp_split_stage_mode(&plan, 0) == PP_RECOMPUTE_FULL &&
               pp_split_stage_mode(&plan, 1) == PP_RECOMPUTE_NONE &&
               plan.run.modes[2] == PP_RECOMPUTE_FULL &&
               plan.run.modes[3] == PP_RECOMPUTE_NONE,
           "its units have it");
    pp_split_plan_finish(&plan);
}

/* --- changes --- */

static bool fits_with(struct pp_split_request q, int64_t n_ranks, int64_t dp,
                      enum pp_recompute r)
{
    q.n_ranks = n_ranks;
    q.shard.mesh.dp = (int)dp;
    q.recompute = r;
    return answer_of(&q).fits;
}

static void test_changes(void)
{
    struct pp_split_request q = request_for(&llama);
    struct pp_split_plan plan;
    struct pp_err err = {0};
    q.n_ranks = 2;
    q.memory_bytes = 2120000;
    if (!ok(!pp_split_plan(&q, &plan, &err) && !pp_split_plan_fits(&plan),
            "a plan that does not fit"))
        return;
    const struct pp_split_changes c = pp_split_plan_changes(&plan);
    int rank = pp_split_plan_fullest(&plan);
    ok(pp_split_plan_need(&plan, rank) >= pp_split_plan_need(&plan, 1 - rank),
       "the fullest rank needs most");
    is_int(c.recompute, PP_RECOMPUTE_SELECTIVE,
           "the least recomputation that is sufficient");
    ok(fits_with(q, 2, 1, PP_RECOMPUTE_SELECTIVE), "it fits");
    ok(c.n_ranks > 2 && fits_with(q, c.n_ranks, 1, PP_RECOMPUTE_NONE) &&
           !fits_with(q, c.n_ranks - 1, 1, PP_RECOMPUTE_NONE),
       "the least number of ranks that is sufficient");
    pp_split_plan_finish(&plan);
    q.memory_bytes = 1000; /* less than the buffers alone */
    if (pp_split_plan(&q, &plan, &err))
        return;
    const struct pp_split_changes none = pp_split_plan_changes(&plan);
    ok(!none.recompute && none.n_replicas == 0 && none.n_ranks == 0,
       "no change is sufficient for a limit that is absurd");
    pp_split_plan_finish(&plan);
}

static void test_replicas(void)
{
    bool all = true;
    int n = 0;
    for (uint64_t key = 0; key < 40; key++) {
        struct fixture x;
        struct pp_split_plan plan;
        struct pp_err err = {0};
        make(&x, 400 + key);
        x.request.memory_bytes = 14000 + 100 * (size_t)key;
        if (pp_split_plan(&x.request, &plan, &err))
            return;
        int64_t dp = pp_split_plan_changes(&plan).n_replicas;
        if (!pp_split_plan_fits(&plan) && dp > 0) {
            all &= fits_with(x.request, 3, dp, PP_RECOMPUTE_NONE) &&
                   !fits_with(x.request, 3, dp - 1, PP_RECOMPUTE_NONE);
            n++;
        }
        pp_split_plan_finish(&plan);
    }
    ok(all, "the least number of data-parallel ranks is sufficient");
    ok(n > 10, "in many cases");
}

static void test_refusals(void)
{
    struct fixture x;
    struct pp_split_plan plan;
    struct pp_err err = {0};
    make(&x, 6);
    x.request.n_ranks = N_UNITS + 1;
    ok(pp_split_plan(&x.request, &plan, &err) && err.code == PP_EXIT_INPUT,
       "more stages than units are refused");
    pp_split_plan_finish(&plan);
    err = (struct pp_err){0};
    x.request.n_ranks = 3;
    x.request.encoder_ranks = 1;
    ok(pp_split_plan(&x.request, &plan, &err) && err.setting &&
           !strcmp(err.setting, "encoder-ranks"),
       "ranks for an encoder without units are refused");
    pp_split_plan_finish(&plan);
}

int main(void)
{
    test_shortest();
    test_memory();
    test_layout();
    test_costliest();
    test_sums();
    test_profile();
    test_kinds();
    test_usual();
    test_long();
    test_recompute(&llama, 16);
    test_recompute(&llama, 256);
    test_recompute(&heavy, 128);
    test_modes();
    test_changes();
    test_replicas();
    test_refusals();
    return done();
}
