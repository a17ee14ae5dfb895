/* SPDX-License-Identifier: MIT */
/* test_mesh_search - the bounds of the search for a mesh, and its answer,
 * against all splits and modes of small models on random clusters. A bound that
 * is too high is above the least step of some case: the cases whose least step
 * is within a tenth say which share of such bounds would be seen. */
#include "mesh/search.h"

#include "base/rng.h"
#include "tap.h"

enum { MAX_UNITS = 10, MAX_STAGES = 6, MOST_PLANS = 6000, MAX_MODES = 27 };
enum { N_LIMITS = 9 };

struct roll {
    uint64_t key, at;
};

static int roll(struct roll *r, int n)
{
    return (int)(pp_rng_bits(r->key, r->at++) % (uint64_t)n);
}

/* Returns a number from low to high, even in its logarithm. */
static double between(struct roll *r, double low, double high)
{
    return low * pow(high / low, pp_rng_uniform(r->key, r->at++));
}

struct cluster {
    struct pp_model model;
    struct pp_machine machine;
    struct pp_split_request request;
};

static void roll_cluster(struct cluster *x, struct roll *r, int n_layers,
                         const struct pp_trainer *trainer, bool experts)
{
    bool own = trainer == pp_trainers;
    *x = (struct cluster){
        .model = {.architecture = PP_LLAMA,
                  .hidden = 64,
                  .intermediate = 64 << roll(r, 3),
                  .n_layers = (size_t)n_layers,
                  .n_heads = 4,
                  .n_kv_heads = 2,
                  .head_dim = 16,
                  .vocab = 64 << roll(r, 4),
                  .max_position = 512,
                  .tied = roll(r, 4) == 0},
        .machine = {
            .fp32 = between(r, 1e9, 1e11),
            .bf16 = between(r, 1e9, 1e11),
            .efficiency = 0.7,
            .memory_bandwidth = between(r, 1e9, 1e11),
            .levels = {{2, between(r, 1e8, 1e11), between(r, 1e-6, 1e-4)},
                       {0, between(r, 1e7, 1e10), between(r, 1e-6, 1e-4)}},
            .n_levels = 2}};
    if (experts) {
        x->model.architecture = PP_QWEN3_MOE;
        x->model.qk_norm = true;
        x->model.moe = (struct pp_moe){.layers = {{roll(r, 2) ? 0x3f : 0x3e}},
                                       .n_experts = 4,
                                       .top_k = 2,
                                       .intermediate = 32};
    }
    const struct pp_mesh one = {1, 1, 1, 1, 1};
    x->request = (struct pp_split_request){
        .shard = pp_shard_of(&x->model, &one),
        .precision = pp_precision_find(own ? "fp32" : "bf16"),
        .gpu = true,
        .trainer = trainer,
        .layout = trainer->layout,
        .machine = &x->machine,
        .shortest = true,
        .plan_buffers = true};
    x->request.microbatch = pp_default_microbatch_of(64 << (1 + roll(r, 3)));
}

/* Plans of one schedule on one mesh: steps, and bytes of the fullest rank, with
 * pprun's tables and without. */
struct plans {
    int n;
    struct {
        double step, need, held;
    } of[MOST_PLANS];
};

static double held_by(const struct pp_split_plan *plan)
{
    double most = 0;
    if (pp_split_trainer(plan->run.request) != pp_trainers)
        return pp_split_plan_need(plan, pp_split_plan_fullest(plan));
    for (int r = 0; r < plan->graph.n_rows; r++)
        most = fmax(most, plan->ranks[r].state_bytes +
                              plan->ranks[r].activations_bytes);
    return most;
}

/* Plans the bounds of a request with a mode, or if it is PP_N_RECOMPUTES with
 * every combination of modes, or some. */
static bool plan_modes(const struct pp_split_request *q, int mode,
                       struct roll *r, struct plans *all)
{
    size_t n = (size_t)(q->n_ranks * q->n_chunks);
    int combinations = 1;
    for (size_t s = 0; mode == PP_N_RECOMPUTES && s < n; s++)
        combinations *= PP_N_RECOMPUTES;
    bool some = combinations > MAX_MODES;
    for (int i = 0; i < (some ? MAX_MODES : combinations); i++) {
        struct pp_split_request one = *q;
        struct pp_split_plan plan;
        struct pp_err err = {0};
        enum pp_recompute modes[MAX_STAGES];
        int digits = some ? roll(r, combinations) : i;
        for (size_t s = 0; s < n; s++, digits /= PP_N_RECOMPUTES)
            modes[s] = mode == PP_N_RECOMPUTES
                           ? pp_recompute_levels[digits % PP_N_RECOMPUTES]
                           : pp_recompute_levels[mode];
        one.stage_modes = modes;
        double step = INFINITY;
        bool runs = !pp_split_plan(&one, &plan, &err) &&
                    !pp_split_step_seconds(&plan, &step, &err);
        if (runs && all->n < MOST_PLANS) {
            all->of[all->n].step = step;
            all->of[all->n].held = held_by(&plan);
            all->of[all->n++].need =
                pp_split_plan_need(&plan, pp_split_plan_fullest(&plan));
        }
        pp_split_plan_finish(&plan);
        if (!runs)
            return false;
    }
    return true;
}

/* Reports whether stages of a trainer may have a mode, or any modes. */
static bool has_mode(const struct pp_trainer *t, int mode)
{
    return mode == PP_N_RECOMPUTES
               ? t->modes
               : pp_trainer_recomputes(t, pp_recompute_levels[mode]);
}

/* Plans every split without empty stages, or if `layouts` those that a layout
 * can say: norm and head are together. */
static bool plan_splits(struct pp_split_request q, int mode, bool layouts,
                        struct roll *r, struct plans *all)
{
    size_t n_units = pp_model_n_units(q.shard.model),
           n = (size_t)(q.n_ranks * q.n_chunks);
    size_t bounds[MAX_STAGES + 1] = {0};
    for (size_t s = 1; s < n; s++)
        bounds[s] = s;
    bounds[n] = n_units;
    q.bounds = bounds;
    for (;;) {
        size_t s = n - 1;
        if (!(layouts && n > 1 && bounds[s] == n_units - 1) &&
            !plan_modes(&q, mode, r, all))
            return false;
        while (s > 0 && bounds[s] == n_units - (n - s))
            s--;
        if (s == 0)
            return true;
        for (size_t at = bounds[s] + 1; s < n; s++)
            bounds[s] = at++;
    }
}

static double least_of(const struct plans *all, double limit, bool tables)
{
    double least = INFINITY;
    for (int i = 0; i < all->n; i++)
        if ((tables ? all->of[i].need : all->of[i].held) <= limit)
            least = fmin(least, all->of[i].step);
    return least;
}

static void set_profile(const struct pp_mesh_classes *c,
                        struct pp_split_request *q,
                        struct pp_unit_seconds units[MAX_UNITS],
                        struct pp_profile *profile)
{
    *profile = (struct pp_profile){.units = units,
                                   .n_units = pp_model_n_units(q->shard.model)};
    pp_mesh_profile(c, q, profile);
    q->profile = profile;
}

/* --- one schedule --- */

struct counts {
    int n, above, near, memory, own;
    double need; /* of pprun: the sum of limits that bounds have over those of
                    plans */
};

/* Reports whether the trainer takes the kind on the mesh. */
static bool is_taken(const struct pp_split_request *q, const struct pp_kind *k)
{
    const struct pp_backend b = pp_backend_of(q->precision, !q->gpu);
    const struct pp_trainer_order o = {.kind = k->name, .v = k->v};
    struct pp_err refusal = {0};
    return !k->slices && !k->copies &&
           !pp_mesh_check(&q->shard.mesh, q->shard.model,
                          (size_t)q->microbatch.seq_len, &refusal) &&
           !pp_trainer_check(q->trainer, &q->shard.mesh, &b, &o, &refusal);
}

static void roll_mesh(struct pp_split_request *q, struct roll *r)
{
    q->shard.mesh.tp = 1 + roll(r, 2);
    q->shard.mesh.cp = 1 + roll(r, 2);
    q->shard.mesh.dp = 1 + roll(r, 2);
    q->shard.mesh.divided_weights =
        q->shard.mesh.cp * q->shard.mesh.dp > 1 && roll(r, 3) == 0;
    q->shard.mesh.pp = 1 + roll(r, 3);
    q->shard.mesh.order = roll(r, 6);
    q->shard.mesh.ep = q->shard.model->moe.n_experts ? 1 << roll(r, 3) : 1;
    q->shard.mesh.experts_over_tp = q->shard.mesh.ep > 1 && roll(r, 2);
    q->shard.mesh.expert_limit =
        q->shard.mesh.ep > 1 && q->trainer == pp_trainers ? 1.5 : 0;
}

static void roll_shape(struct cluster *x, struct roll *r,
                       struct pp_mesh_shape *s)
{
    struct pp_split_request *q = &x->request;
    int n = 0;
    while (pp_kinds[n])
        n++;
    do {
        s->kind = pp_kinds[roll(r, n)];
        roll_mesh(q, r);
    } while (!is_taken(q, s->kind));
    q->n_ranks = s->n_ranks = q->shard.mesh.pp;
    q->n_chunks = s->n_chunks = s->kind->n_chunks > 1 ? 2 : 1;
    q->n_microbatches = s->n_microbatches = 1 + roll(r, 6);
    q->placement = s->placement =
        s->kind->v ? PP_PLACEMENT_V : PP_PLACEMENT_LOOP;
    q->kind = s->kind->name;
}

/* Returns the least limit of memory with which the bound is finite, up to high.
 */
static double least_limit(struct pp_mesh_shape *s, struct pp_mesh_bound b,
                          int mode, double high)
{
    double low = 0;
    while (high > low * 1.0001) {
        b.limit = (low + high) / 2;
        if (isfinite(pp_mesh_shape_least(s, &b, mode).bound))
            high = b.limit;
        else
            low = b.limit;
    }
    return high;
}

static void bound_shape(uint64_t key, struct counts *c)
{
    struct roll r = {pp_rng_key(key, "mesh shape"), 0};
    static struct plans all;
    struct cluster x;
    struct pp_mesh_shape s = {.runs = false};
    struct pp_arena a = {0};
    struct pp_mesh_classes classes;
    struct pp_mesh_unit units[MAX_UNITS];
    struct pp_unit_seconds seconds[MAX_UNITS];
    struct pp_profile profile;
    const struct pp_trainer *t = &pp_trainers[roll(&r, 2) ? roll(&r, 4) : 0];
    roll_cluster(&x, &r, 1 + roll(&r, 6), t, roll(&r, 3) == 0);
    roll_shape(&x, &r, &s);
    int mode = roll(&r, 2) ? PP_N_RECOMPUTES : roll(&r, PP_N_RECOMPUTES);
    while (!has_mode(t, mode))
        mode = roll(&r, PP_N_RECOMPUTES);
    all.n = 0;
    if ((size_t)(s.n_ranks * s.n_chunks) > pp_model_n_units(&x.model))
        goto out;
    pp_mesh_classes_init(&classes, &a, &x.request);
    pp_mesh_shape_init(&s, &a);
    pp_mesh_units(&classes, &x.request, units);
    set_profile(&classes, &x.request, seconds, &profile);
    if (!s.runs || !plan_splits(x.request, mode, false, &r, &all) || all.n == 0)
        goto out;
    double low = INFINITY, high = 0;
    for (int i = 0; i < all.n; i++) {
        low = fmin(low, all.of[i].held);
        high = fmax(high, all.of[i].held);
    }
    struct pp_mesh_bound b = {
        .classes = &classes, .units = units, .limit = low};
    if (t == pp_trainers) {
        c->own++;
        c->need += least_limit(&s, b, mode, low) / low;
    }
    for (int i = 0; i <= N_LIMITS; i++) {
        b.limit = i < N_LIMITS ? low + (high - low) * i * i / 100 : INFINITY;
        double least = least_of(&all, b.limit, false);
        struct pp_mesh_least l = pp_mesh_shape_least(&s, &b, mode);
        struct pp_mesh_least any =
            pp_mesh_least(s.n_ranks, s.n_microbatches, &b);
        c->n++;
        c->near += least < l.bound * 1.1;
        c->memory += least_of(&all, INFINITY, false) < l.bound * (1 - 1e-9);
        if (l.bound <= least * (1 + 1e-9) && any.bound <= least * (1 + 1e-9))
            continue;
        printf("# %llu: %s, %s, %d x %d, m %d, mode %d: %g and %g are above "
               "%g\n",
               (unsigned long long)key, t->name, s.kind->name, s.n_ranks,
               s.n_chunks, s.n_microbatches, mode, l.bound, any.bound, least);
        c->above++;
    }
out:
    pp_arena_finish(&a);
}

static void test_shapes(void)
{
    struct counts c = {0};
    for (uint64_t i = 0; i < 150 / (uint64_t)fewer(); i++)
        bound_shape(i, &c);
    is_int(c.above, 0, "no split is below the bound of its schedule");
    ok(c.near > c.n / 2, "a tenth more would be above a step in %d of %d",
       c.near, c.n);
    /* Few cases say little about shares. */
    ok(fewer() > 1 || c.memory > c.n / 55, "memory makes %d of %d longer",
       c.memory, c.n);
    ok(fewer() > 1 || c.need > 0.72 * c.own,
       "bounds need %.1f %% of the memory of plans", 100 * c.need / c.own);
}

/* --- the search --- */

/* Finds the least step of all kinds on a mesh with a microbatch. */
static double least_on(const struct cluster *x, struct pp_mesh mesh,
                       int64_t micro_batch, int64_t global, struct roll *r)
{
    static struct plans all;
    struct pp_arena a = {0};
    struct pp_mesh_classes classes;
    struct pp_unit_seconds seconds[MAX_UNITS];
    struct pp_profile profile;
    struct pp_split_request q = x->request;
    double least = INFINITY;
    q.shard.mesh = mesh;
    q.n_ranks = mesh.pp;
    q.microbatch.tokens = micro_batch * q.microbatch.seq_len;
    q.n_microbatches = global / (mesh.dp * micro_batch);
    pp_mesh_classes_init(&classes, &a, &q);
    set_profile(&classes, &q, seconds, &profile);
    for (const struct pp_kind *const *k = pp_kinds; *k; k++) {
        q.kind = (*k)->name;
        q.n_chunks = (*k)->n_chunks > 1 ? 2 : 1;
        q.placement = (*k)->v ? PP_PLACEMENT_V : PP_PLACEMENT_LOOP;
        all.n = 0;
        if (!is_taken(&q, *k) || (mesh.pp == 1 && q.n_chunks > 1) ||
            (size_t)(q.n_chunks * q.n_ranks) > pp_model_n_units(&x->model))
            continue;
        for (int mode = 0; mode <= PP_N_RECOMPUTES; mode++)
            if ((mode == PP_N_RECOMPUTES || !q.trainer->modes) &&
                has_mode(q.trainer, mode) &&
                !plan_splits(q, mode, q.layout, r, &all))
                break;
        least = fmin(least, least_of(&all, (double)q.memory_bytes, true));
    }
    pp_arena_finish(&a);
    return least;
}

static double least_of_all(const struct cluster *x, int n, int64_t global,
                           struct roll *r)
{
    struct pp_mesh m = {.ep = 1};
    double least = INFINITY;
    for (m.tp = 1; m.tp <= n; m.tp++)
        for (m.cp = 1; m.cp <= n; m.cp++)
            for (m.pp = 1; m.pp <= n; m.pp++)
                for (int zero = 0; zero < 2; zero++)
                    for (int64_t b = 1; b <= global; b++) {
                        struct pp_err err = {0};
                        m.dp = n / m.tp / m.cp / m.pp;
                        m.divided_weights = zero;
                        if (m.tp * m.cp * m.pp * m.dp != n ||
                            global % (m.dp * b) || (zero && m.dp * m.cp == 1) ||
                            pp_mesh_check(&m, &x->model, 64, &err))
                            continue;
                        m.order = roll(r, 6);
                        least = fmin(least, least_on(x, m, b, global, r));
                    }
    return least;
}

/* Returns a few percent more than the least memory of some plan that would be
 * found. */
static size_t least_bytes(struct cluster *x, const struct pp_mesh_problem *p)
{
    size_t bytes = 1 << 16;
    for (bool fits = false; !fits; bytes += bytes / 8) {
        struct pp_mesh_found f;
        x->request.memory_bytes = bytes;
        pp_mesh_search(p, &f);
        fits = f.n_rows > 0;
        pp_mesh_found_finish(&f);
    }
    return bytes;
}

static int early; /* searches that ended before they found the best plan */

/* Counts searches that end early and whose bound is above the least step. */
static int count_above(struct pp_mesh_problem p, double least)
{
    int above = 0;
    for (int i = 0; i < 10; i++) {
        struct pp_mesh_found f;
        p.n_plans = i < 5 ? (size_t)i + 1 : 400;
        p.n_rows = i < 5 ? 1 : (size_t)i - 4;
        p.promising = i >= 5;
        pp_mesh_search(&p, &f);
        above += f.bound > least * (1 + 1e-9);
        early += f.n_rows && f.rows[0].step > least * (1 + 1e-9);
        pp_mesh_found_finish(&f);
    }
    return above;
}

static void test_search(void)
{
    enum { N = 5 };
    int above = 0, found = 0, n = fewer() > 1 ? 2 : N;
    double gap = 0;
    for (int i = 0; i < n; i++) {
        struct roll r = {pp_rng_key((uint64_t)i, "mesh search"), 0};
        struct cluster x;
        struct pp_mesh_found f;
        roll_cluster(&x, &r, 2, &pp_trainers[i > 1 ? i - 1 : 0], false);
        struct pp_mesh_problem p = {.request = &x.request,
                                    .n_ranks = i > 0 ? 4 : 2,
                                    .global_batch = i > 1 ? 2 : 4,
                                    .node = 2,
                                    .fixed = {.zero = -1,
                                              .order = -1,
                                              .experts_over_tp = -1,
                                              .recompute = -1},
                                    .n_rows = 1,
                                    .n_plans = 400};
        /* A little more than the least with which something fits. */
        x.request.memory_bytes = 1;
        pp_mesh_search(&p, &f);
        is_int((long long)f.n_rows, 0, "nothing fits in a byte");
        pp_mesh_found_finish(&f);
        x.request.memory_bytes = least_bytes(&x, &p);
        double least = least_of_all(&x, p.n_ranks, p.global_batch, &r);
        pp_mesh_search(&p, &f);
        double best = f.n_rows ? f.rows[0].step : INFINITY;
        if (f.bound > least * (1 + 1e-9))
            printf("# %d: the bound %g is above %g\n", i, f.bound, least);
        above += f.bound > least * (1 + 1e-9);
        found += best <= least * (1 + 1e-9) || (isinf(best) && isinf(least));
        gap = fmax(gap, isfinite(best) ? 1 - f.bound / best : 0);
        pp_mesh_found_finish(&f);
        above += count_above(p, least);
    }
    is_int(above, 0, "no plan is below the bound of the search");
    is_int(found, n, "no plan is shorter than the one that is found");
    ok(early > 0, "%d searches that end early miss the best", early);
    ok(gap < 0.2, "the largest gap is %.1f %%", 100 * gap);
}

int main(void)
{
    test_shapes();
    test_search();
    return done();
}
