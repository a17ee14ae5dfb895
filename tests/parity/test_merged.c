/* SPDX-License-Identifier: MIT */
/* test_merged - p ranks compute the same bits as one rank that plays the same
 * actions merged into one row. It tries dualpipe and random schedules, also
 * with copies of the weights, and with stages that recompute (the one rank does
 * not). The executor also keeps no more microbatches in flight than planned. */
#include "merged.h"
#include "scratch.h"
#include "small_run.h"
#include "tap.h"

#include <unistd.h>

#include "run/execute/job.h"
#include "schedule/check/check.h"
#include "schedule/ir/schedule.h"
#include "schedule/kinds/kind.h"
#include "schedule/memory/memory.h"

enum { N_SEQUENCES = 14, N_LAYERS = 3, N_UNITS = N_LAYERS + 3, M = 5 };

static const struct pp_model model = SMALL_MODEL(N_LAYERS);

/* Makes sequences of 1 to 20 tokens, a few in each bin. */
static int make_data(const char *dir, struct pp_packed *p, struct pp_err *err)
{
    static const size_t first[] = {0, 3, 4, 7, 9, 10, 13, N_SEQUENCES};
    return small_data(dir, 1, 21, first, 7, p, err);
}

struct result {
    double loss[4], norm[4], val_loss;
    int n, peak;
};

static int keep(void *ctx, const struct pp_step_report *r, struct pp_err *err)
{
    (void)err;
    struct result *to = ctx;
    to->loss[to->n] = r->loss;
    to->norm[to->n++] = r->grad_norm;
    to->val_loss = r->val_loss;
    to->peak = r->peak_slots[0];
    return 0;
}

/* Trains three steps of s, then evaluates, with a thread for each rank. bounds:
 * the stages of one copy of the weights. recompute: by stage, or NULL. counts:
 * by rank, or NULL. */
static int train_counted(const struct pp_schedule *s,
                         const struct pp_packed *data, const size_t *bounds,
                         const enum pp_recompute *recompute, int slot_limit,
                         struct result *out, struct small_counts *counts,
                         struct pp_err *err)
{
    struct pp_unit_range stages[8];
    struct pp_schedule forward;
    memset(out, 0, sizeof *out);
    for (int i = 0; i < s->graph->n_stages; i++) {
        const size_t *b = &bounds[pp_original(s->graph, i)];
        stages[i] = (struct pp_unit_range){i, b[0], b[1] - b[0],
                                           pp_copy_number(s->graph, i)};
    }
    pp_schedule_forward_only(s, &forward);
    const struct pp_job job = {
        .model = &model,
        .schedule = s,
        .forward = &forward,
        .eval = data,
        .stages = stages,
        .recompute = recompute,
        .kernels = &pp_kernels_f32,
        .slot_limit = slot_limit,
        .data = data,
        .seed = 3,
        .optim = {.lr = 1e-2,
                  .beta1 = .9,
                  .beta2 = .99,
                  .eps = 1e-8,
                  .clip = 1,
                  .steps = 3},
        .accumulate = 1,
        .report = keep,
        .ctx = out,
    };
    int rc = small_counted_ranks(&job, counts, err);
    pp_schedule_finish(&forward);
    return rc;
}

static int train(const struct pp_schedule *s, const struct pp_packed *data,
                 const size_t *bounds, const enum pp_recompute *recompute,
                 int slot_limit, struct result *out, struct pp_err *err)
{
    return train_counted(s, data, bounds, recompute, slot_limit, out, NULL,
                         err);
}

static bool same(const struct result *a, const struct result *b)
{
    return a->n == 3 && b->n == 3 &&
           !memcmp(a->loss, b->loss, sizeof a->loss) &&
           !memcmp(&a->val_loss, &b->val_loss, sizeof a->val_loss) &&
           !memcmp(a->norm, b->norm, sizeof a->norm);
}

/* Draws boundaries; stages may be empty. */
static void random_bounds(uint64_t key, int n_stages, size_t *bounds)
{
    bounds[0] = 0;
    bounds[n_stages] = N_UNITS;
    for (int i = 1; i < n_stages; i++) {
        bounds[i] =
            1 + (size_t)(pp_rng_uniform(key, (uint64_t)i) * (N_UNITS - 1));
        for (int k = i; k > 1 && bounds[k] < bounds[k - 1]; k--) {
            size_t swap = bounds[k];
            bounds[k] = bounds[k - 1];
            bounds[k - 1] = swap;
        }
    }
}

static struct pp_action act(int op, int stage, int microbatch)
{
    return (struct pp_action){.op = (uint8_t)op,
                              .stage = stage,
                              .microbatch = microbatch,
                              .peer = -1};
}

/* Makes a random schedule that can run: draws one ready action at a time, with
 * split backwards or not, microbatches in any order and through any copy. */
static void random_list(uint64_t key, struct pp_schedule *s)
{
    const struct pp_graph *g = s->graph;
    int S = g->n_stages, done[8][M] = {0}, copied = S / g->n_copies;
    uint64_t draw = 0;
    for (int left = copied * M * 2; left > 0;) {
        int stage = (int)(pp_rng_uniform(key, draw++) * S);
        int mb = (int)(pp_rng_uniform(key, draw++) * M);
        int *d = &done[stage][mb], rank = g->stages[stage].row;
        int at = pp_original(g, stage);
        bool split = pp_rng_uniform(key ^ 7, (uint64_t)(stage * M + mb)) < 0.5;
        bool f_ready = at == 0 || done[stage - 1][mb] > 0;
        bool b_ready = at == copied - 1 || done[stage + 1][mb] > 1;
        int copy = (int)(pp_rng_uniform(key ^ 9, (uint64_t)mb) * g->n_copies);
        if (copy != pp_copy_number(g, stage))
            continue;
        if (*d == 0 && f_ready) {
            pp_schedule_add(s, rank, act(PP_F, stage, mb));
            *d = 1;
            left--;
        } else if (*d == 1 && b_ready) {
            pp_schedule_add(s, rank, act(split ? PP_I : PP_B, stage, mb));
            *d = split ? 2 : 3;
            left -= split ? 0 : 1;
        } else if (*d == 2) {
            pp_schedule_add(s, rank, act(PP_W, stage, mb));
            *d = 3;
            left--;
        }
    }
}

/* Runs s on its ranks, with stages that recompute, and merged on one rank
 * without recomputation, and compares. */
static bool agrees(struct pp_schedule *s, const struct pp_graph *g,
                   const struct pp_packed *data, const size_t *bounds,
                   uint64_t key, struct pp_err *err)
{
    enum pp_recompute recompute[8];
    struct pp_graph one_graph = *g;
    struct pp_stage_node nodes[8];
    struct pp_schedule one = {0};
    struct result many, single;
    bool yes = false;
    one_graph.n_rows = 1;
    one_graph.stages = nodes;
    for (int i = 0; i < g->n_stages; i++) {
        nodes[i] = g->stages[i];
        nodes[i].row = 0;
        recompute[i] = (enum pp_recompute)(
            pp_rng_uniform(key ^ 13, (uint64_t)i) * (PP_RECOMPUTE_FULL + 1));
    }
    if (pp_lower(s, err) || pp_check(s, err))
        return false;
    if (merge_rows(s, &one_graph, &one, err) == 0 &&
        train(s, data, bounds, recompute, 0, &many, err) == 0 &&
        train(&one, data, bounds, NULL, 0, &single, err) == 0)
        yes = same(&many, &single);
    pp_schedule_finish(&one);
    return yes;
}

static void tie(struct pp_graph *g, const size_t *bounds)
{
    g->tied[0] = g->tied[1] = 0;
    for (int i = 0; i < g->n_stages / g->n_copies; i++) {
        if (bounds[i] == 0 && bounds[i + 1] > 0)
            g->tied[0] = i;
        if (bounds[i] < N_UNITS && bounds[i + 1] == N_UNITS)
            g->tied[1] = i;
    }
}

static void test_random(const struct pp_packed *data)
{
    static const struct {
        int ranks, chunks;
        enum pp_placement placement;
    } shapes[] = {
        {2, 1, PP_PLACEMENT_LOOP},      {2, 2, PP_PLACEMENT_LOOP},
        {2, 2, PP_PLACEMENT_V},         {3, 1, PP_PLACEMENT_LOOP},
        {4, 2, PP_PLACEMENT_V},         {2, 3, PP_PLACEMENT_LOOP},
        {1, 1, PP_PLACEMENT_BOTH_WAYS}, {2, 1, PP_PLACEMENT_BOTH_WAYS},
        {3, 1, PP_PLACEMENT_BOTH_WAYS}, {4, 1, PP_PLACEMENT_BOTH_WAYS}};
    int n = sizeof shapes / sizeof *shapes, bad = 0, canonical = 0, runs = 60;
    for (int i = 0; i < runs; i++) {
        struct pp_arena a = {0};
        struct pp_graph g = {0};
        struct pp_schedule s = {0};
        struct pp_err err = {0};
        size_t bounds[9];
        uint64_t key = pp_rng_bits(11, (uint64_t)i);
        if (pp_graph_chain(&a, shapes[i % n].ranks, shapes[i % n].chunks,
                           shapes[i % n].placement, &g, &err) == 0) {
            random_bounds(key, g.n_stages / g.n_copies, bounds);
            tie(&g, bounds);
        }
        if (err.code || (pp_schedule_init(&s, &g, "random", M), false) ||
            (random_list(key, &s), false) ||
            !agrees(&s, &g, data, bounds, key, &err)) {
            printf("# schedule %d: %s\n", i,
                   err.code ? err.text : "bits differ");
            bad++;
        }
        canonical += pp_schedule_is_canonical(&s);
        pp_schedule_finish(&s);
        pp_arena_finish(&a);
    }
    printf("# %d random schedules, %d of them canonical\n", runs, canonical);
    is_int(bad, 0, "random schedules give the bits of one merged row");
}

/* Runs four ranks, with rendezvous and with depth 1. */
static void test_dualpipe(const struct pp_packed *data)
{
    static const size_t bounds[] = {0, 2, 3, 4, N_UNITS};
    struct result r[2];
    for (int i = 0; i < 2; i++) {
        struct pp_arena a = {0};
        struct pp_graph g = {0};
        struct pp_schedule s = {0};
        struct pp_err err = {0};
        struct pp_kind_options o = {.n_microbatches = i ? 10 : 8};
        bool made =
            !pp_graph_chain(&a, 4, 1, PP_PLACEMENT_BOTH_WAYS, &g, &err) &&
            (pp_schedule_init(&s, &g, "dualpipe", o.n_microbatches), true);
        tie(&g, bounds);
        s.channel_depth = i;
        ok(made && !pp_kind_find("dualpipe")->emit(&s, &o, &err) &&
               agrees(&s, &g, data, bounds, 17, &err),
           "dualpipe of %d microbatches is its merged row %s", o.n_microbatches,
           err.text);
        ok(!train(&s, data, bounds, NULL, 0, &r[i], &err),
           "another microbatch order runs");
        pp_schedule_finish(&s);
        pp_arena_finish(&a);
    }
    ok(!same(&r[0], &r[1]), "the comparison sees other microbatches");
}

/* In 1f1b on two ranks, rank 0 keeps two microbatches. */
static void test_slots(const struct pp_packed *data)
{
    struct pp_arena a = {0};
    struct pp_graph g = {0};
    struct pp_schedule s = {0};
    struct pp_err err = {0};
    struct result r;
    const size_t bounds[] = {0, 3, N_UNITS};
    const struct pp_stage_bytes sizes[2] = {{0}};
    struct pp_memory memory = {0};
    ok(!pp_graph_chain(&a, 2, 1, PP_PLACEMENT_LOOP, &g, &err), "a chain");
    tie(&g, bounds);
    pp_schedule_init(&s, &g, "1f1b", M);
    ok(!pp_kind_find("1f1b")->emit(
           &s, &(struct pp_kind_options){.n_microbatches = M}, &err) &&
           !pp_lower(&s, &err) && !pp_memory_plan(&s, 0, sizes, &memory, &err),
       "1f1b, planned");
    ok(!train(&s, data, bounds, NULL, 0, &r, &err), "runs as planned");
    is_int(r.peak, memory.peak_slots, "the counted peak is the planned one");
    is_int(r.peak, 2, "the peak is two microbatches");
    ok(train(&s, data, bounds, NULL, r.peak - 1, &r, &err),
       "one slot fewer fails");
    is_str(err.text,
           "microbatch 1: rank 0: '0F1' needs 2 slots, but the limit is 1",
           "and why");
    pp_memory_finish(&memory);
    pp_schedule_finish(&s);
    pp_arena_finish(&a);
}

/* Counts what eight ranks tell each other. A collection of numbers takes two
 * messages from a child and one from the parent; there are three for steps and
 * two for the passes of the evaluation. Before the first message all agree that
 * none has failed, with one message each. Rank 0 has three children. */
static void test_counts(const struct pp_packed *data)
{
    enum { RANKS = 8, COLLECTIONS = 5 };
    const struct pp_kind_options o = {.n_microbatches = M};
    static const size_t bounds[RANKS + 1] = {0, 1, 2, 3, 4, 5, 6, 6, 6};
    struct small_counts counts[RANKS] = {{0}};
    struct pp_arena a = {0};
    struct pp_graph g = {0};
    struct pp_schedule s = {0};
    struct pp_err err = {0};
    struct result r;
    int rc = pp_graph_chain(&a, RANKS, 1, PP_PLACEMENT_LOOP, &g, &err);
    if (!rc)
        pp_schedule_init(&s, &g, "1f1b", M);
    if (!rc)
        rc = pp_kind_emit(pp_kind_find("1f1b"), &s, &o, &err) ||
             pp_lower(&s, &err) ||
             train_counted(&s, data, bounds, NULL, 0, &r, counts, &err);
    long gathers = 0, most = 0;
    for (int k = 0; k < RANKS; k++) {
        gathers += counts[k].gathers;
        most = counts[k].bytes > most ? counts[k].bytes : most;
    }
    ok(!rc, "eight ranks train %s", err.text);
    is_int(gathers, 0, "no rank gets the numbers of all");
    ok(counts[0].messages <= COLLECTIONS * 3 * 2 + 3,
       "rank 0 receives %ld messages", counts[0].messages);
    is_int(counts[7].messages, COLLECTIONS + 1, "a leaf receives the sums");
    ok(most < 8000, "no rank receives more than 8 kB: %ld bytes", most);
    pp_schedule_finish(&s);
    pp_arena_finish(&a);
}

int main(void)
{
    char dir[SCRATCH_TEXT], path[64];
    struct pp_packed data = {0};
    struct pp_err err = {0};
    scratch_make(dir);
    snprintf(path, sizeof path, "%s/packed", dir);
    if (ok(!make_data(path, &data, &err), "packed data %s", err.text)) {
        test_slots(&data);
        test_random(&data);
        test_dualpipe(&data);
        test_counts(&data);
    }
    pp_packed_finish(&data);
    scratch_remove(dir);
    return done();
}
