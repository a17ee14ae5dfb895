/* SPDX-License-Identifier: MIT */
/* Tests sequences cut into slices: dependencies, seq1f1b against its closed
 * form, 1f1b and rows worked out by hand, buffer lifetimes, and random orders,
 * valid and corrupted. */
#include <limits.h>

#include "base/rng.h"
#include "schedule/ir/deps.h"
#include "schedule/memory/memory.h"
#include "schedule/simulate/sim.h"
#include "sched_fixture.h"

static void slice(struct fixture *f, int p, int k)
{
    chain(f, p, 1, PP_PLACEMENT_LOOP);
    f->graph.slices.n = k;
}

struct deps {
    char text[200];
    size_t n;
};

/* Appends a dependency as stage, ops and slice, such as "0F.1" or "1BI.0". */
static int note(void *ctx, struct pp_dep dep)
{
    static const char letters[] = "FBIW";
    struct deps *d = ctx;
    char ops[5] = "";
    size_t n = 0;
    for (int op = PP_F; op <= PP_W; op++)
        if (dep.ops & 1u << op)
            ops[n++] = letters[op];
    d->n += (size_t)snprintf(d->text + d->n, sizeof d->text - d->n, "%s%d%s.%d",
                             d->n ? " " : "", dep.stage, ops, dep.slice);
    return 0;
}

static void test_deps(void)
{
    static const struct {
        const char *action, *want;
    } cases[] = {
        {"0F0", ""},
        {"0F0.1", "0F.0"},
        {"1F0.2", "0F.2 1F.1"},
        {"1B0", "1F.0 2BI.0 1BI.1"},
        {"1I0.1", "1F.1 2BI.1 1BI.2"},
        {"1B0.2", "1F.2 2BI.2"},
        {"1W0.1", "1F.1 1I.1"},
        {"0B0.1", "0F.1 1BI.1 0BW.2"},
        {"0W0.1", "0F.1 0I.1 1BI.1 0BW.2"},
        {"0W0.2", "0F.2 0I.2 1BI.2"},
    };
    struct fixture f;
    slice(&f, 3, 3);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct deps d = {"", 0};
        struct pp_action a;
        const char *text = cases[i].action;
        if (pp_action_parse(text, strlen(text), &a, &f.err) ||
            pp_deps(&f.graph, a, note, &d))
            printf("# %s\n", f.err.text);
        is_str(d.text, cases[i].want, text);
    }
    drop(&f);
}

static void test_rows(void)
{
    static const char *const want[] = {
        "0F0 0F0.1 0F1 0B0.1 0F1.1 0B0 0B1.1 0B1",
        "1F0 1F0.1 1B0.1 1F1 1B0 1F1.1 1B1.1 1B1"};
    struct fixture f;
    slice(&f, 2, 2);
    ok(emit(&f, "seq1f1b", 2, 0) == 0, "p=2 m=2 k=2");
    for (int r = 0; r < 2; r++) {
        char *text = pp_schedule_format_row(&f.s, r);
        is_str(text, want[r], r ? "  rank 1" : "  rank 0");
        free(text);
    }
    drop(&f);
}

/* A whole backward of the first slice may wait for W of the second. */
static void test_named_op(void)
{
    static const struct {
        const char *row, *want;
    } cases[] = {
        {"0F0 0F0.1 0I0.1 0B0 0W0.1",
         "rank 0, action 3: '0B0' comes before 0W0.1"},
        {"0F0 0F0.1 0I0.1 0B0", "rank 0, action 3: '0B0' comes before 0W0.1"},
        {"0F0 0F0.1 0B0 0B0.1", "rank 0, action 2: '0B0' comes before 0B0.1"},
        {"0F0 0F0.1 0I0 0W0 0B0.1",
         "rank 0, action 2: '0I0' comes before 0B0.1"},
        {"0F0 0F0.1 0B0", "rank 0, action 2: '0B0' comes before 0B0.1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture f;
        slice(&f, 1, 2);
        ok(rows(&f, 1, &cases[i].row) || pp_check(&f.s, &f.err), "%s",
           cases[i].row);
        is_str(f.err.text, cases[i].want, "  is refused with the op it lists");
        drop(&f);
    }
}

static void test_one_slice(void)
{
    struct fixture f, g;
    bool same = true;
    slice(&f, 4, 1);
    slice(&g, 4, 1);
    ok(!emit(&f, "seq1f1b", 6, 0) && !emit(&g, "1f1b", 6, 0), "p=4 m=6 k=1");
    for (int r = 0; r < 4; r++)
        same &= f.s.rows[r].n == g.s.rows[r].n &&
                !memcmp(f.s.rows[r].actions, g.s.rows[r].actions,
                        f.s.rows[r].n * sizeof *f.s.rows[r].actions);
    ok(same, "  is 1f1b");
    drop(&f);
    drop(&g);
}

static void test_closed_form(void)
{
    static const int sizes[][3] = {{1, 3, 2}, {2, 2, 2},  {4, 4, 1}, {4, 4, 4},
                                   {4, 9, 3}, {8, 16, 4}, {8, 8, 2}, {5, 2, 8}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int p = sizes[i][0], m = sizes[i][1], k = sizes[i][2], peak = 0;
        struct fixture f;
        struct pp_sim sim = {0};
        slice(&f, p, k);
        struct pp_literal_costs literal = {&f.graph, 3, 4, 2, 0, true};
        struct pp_costs costs = {pp_literal_time, &literal};
        ok(!emit(&f, "seq1f1b", m, 0) && !pp_lower(&f.s, &f.err) &&
               !pp_check(&f.s, &f.err) &&
               !pp_simulate(&f.s, &costs, INT_MAX, &sim, &f.err),
           "p=%d m=%d k=%d runs", p, m, k);
        is_near(sim.makespan, 9.0 * m + 9.0 * (p - 1) / k, 1e-9,
                "  m T + (p - 1) T / k");
        for (int r = 0; r < p; r++) {
            int want = p - 1 - r + k < m * k ? p - 1 - r + k : m * k;
            peak += pp_row_slots(&f.s, r) == want;
        }
        is_int(peak, p, "  (p - 1 + k - d) / k slots");
        ok(pp_schedule_is_canonical(&f.s), "  canonical");
        f.s.channel_depth = 0;
        ok(!pp_check(&f.s, &f.err), "  with rendezvous too");
        pp_sim_finish(&sim);
        drop(&f);
    }
}

static void test_all_kinds(void)
{
    for (const struct pp_kind *const *k = pp_kinds; *k; k++) {
        struct fixture f;
        struct pp_sim sim = {0};
        int c = (*k)->n_chunks ? (*k)->n_chunks : 1;
        chain(&f, 4, c,
              (*k)->copies ? PP_PLACEMENT_BOTH_WAYS
              : (*k)->v    ? PP_PLACEMENT_V
                           : PP_PLACEMENT_LOOP);
        f.graph.slices.n = 3;
        int rc = emit(&f, (*k)->name, 6, 0);
        if (!strcmp((*k)->name, "looped-bfs")) {
            ok(rc && f.err.code == PP_EXIT_INPUT &&
                   strstr(f.err.text, "whole sequences"),
               "%s refuses them", (*k)->name);
            drop(&f);
            continue;
        }
        struct pp_literal_costs literal = {&f.graph, 3, 4, 2, 0, true};
        struct pp_costs costs = {pp_literal_time, &literal};
        ok(!rc && !pp_lower(&f.s, &f.err) && !pp_check(&f.s, &f.err) &&
               pp_schedule_is_canonical(&f.s) == !(*k)->copies,
           "%s takes slices, in canonical order", (*k)->name);
        f.s.channel_depth = 0;
        ok(!rc && !pp_check(&f.s, &f.err), "  with rendezvous too");
        /* v-min has the longest bubble. */
        ok(!rc && !pp_simulate(&f.s, &costs, INT_MAX, &sim, &f.err) &&
               sim.makespan <= (6 * 9.0 + 4 * 9.0) * c + 1e-9,
           "  with a bubble of less than a microbatch a rank");
        pp_sim_finish(&sim);
        drop(&f);
    }
}

static void test_defects(void)
{
    static const struct {
        const char *row, *text;
    } cases[] = {
        {"0F0 0F0.1 0B0.1 0B0", ""},
        {"0F0 0F0.1 0I0.1 0I0 0W0.1 0W0", ""},
        {"0F0.1 0F0 0B0.1 0B0", "'0F0.1' comes before 0F0"},
        {"0F0 0F0.1 0B0 0B0.1", "'0B0' comes before 0B0.1"},
        {"0F0 0B0 0F0.1 0B0.1", "'0B0' comes before 0B0.1"},
        {"0F0 0F0.1 0I0.1 0I0 0W0 0W0.1", "'0W0' comes before 0W0.1"},
        {"0F0 0F0.1 0B0.1", "'0B0' is missing"},
        {"0F0 0B0", "'0B0' comes before 0B0.1"},
        {"0F0", "'0F0.1' is missing"},
        {"0F0 0F0.1 0F0.2 0B0.2 0B0.1 0B0", "'0F0.2' names a slice"},
        {"0F0 0F0.1 0B0.1 0B0 0REDUCE_GRAD", ""},
        {"0F0 0F0.1 0B0.1 0REDUCE_GRAD 0B0", "before the last backward"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture f;
        slice(&f, 1, 2);
        int rc = rows(&f, 1, &cases[i].row) || pp_check(&f.s, &f.err);
        ok(cases[i].text[0] ? rc && strstr(f.err.text, cases[i].text) : !rc,
           "%s", cases[i].row);
        if (rc && !strstr(f.err.text, cases[i].text))
            printf("# %s\n", f.err.text);
        drop(&f);
    }
}

/* One stage runs two microbatches of two slices. */
static void test_memory(void)
{
    static const char *const row[] = {
        "0F0 0F0.1 0F1 0B0.1 0F1.1 0B0 0B1.1 0B1"};
    struct pp_stage_bytes sizes[] = {
        {1024, 2048, 512, .grad_layer = 192, .grad_keys = 64, .states = 128},
        {512, 1024, 256, .grad_layer = 128, .grad_keys = 32}};
    struct pp_memory m;
    struct fixture f;
    slice(&f, 1, 2);
    ok(!rows(&f, 2, row) && !pp_memory_plan(&f.s, 0, sizes, &m, &f.err),
       "slices have buffers");
    const struct pp_buffer *a = pp_memory_find(&m, PP_BUF_ACT_I, 0, 0, 0, -1);
    const struct pp_buffer *g =
        pp_memory_find(&m, PP_BUF_GRAD_KEYS, 0, 0, 0, -1);
    const struct pp_buffer *l =
        pp_memory_find(&m, PP_BUF_GRAD_LAYER, 0, 0, 1, -1);
    ok(a && a->first == 0 && a->last == 5,
       "keys and values stay until their own backward");
    ok(g && g->first == 3 && g->last == 5,
       "their gradients live from the last slice's backward on");
    ok(l && l->first == 3 && l->last == 3 &&
           !pp_memory_find(&m, PP_BUF_GRAD_KEYS, 0, 0, 1, -1),
       "no slice adds to those of the last one");
    const struct pp_buffer *s = pp_memory_find(&m, PP_BUF_STATES, 0, 0, 0, -1);
    ok(s && s->first == 0 && s->last == 5 &&
           !pp_memory_find(&m, PP_BUF_STATES, 0, 0, 1, -1),
       "what a slice passes stays until its own backward; the last passes "
       "none");
    is_int(m.peak_slots, 3, "three slices are alive at once");
    is_int((long long)m.peak_bytes, 3072 + 1536 + 3072 + 64 + 192 + 256,
           "  the bytes of each slice add up");
    pp_memory_finish(&m);
    drop(&f);
}

/* --- random orders --- */

struct dice {
    uint64_t key, at;
};

static int roll(struct dice *d, int n)
{
    return (int)(pp_rng_bits(d->key, d->at++) % (uint64_t)n);
}

enum { MOST_STAGES = 4, MOST_MICROBATCHES = 4, MOST_SLICES = 4 };
enum { MOST_WORK = MOST_STAGES * MOST_MICROBATCHES * MOST_SLICES * 3 };

static bool has_run(const struct pp_action *done, int n, struct pp_action a,
                    unsigned ops)
{
    for (int i = 0; i < n; i++)
        if (done[i].stage == a.stage && done[i].microbatch == a.microbatch &&
            done[i].slice == a.slice && ops & 1u << done[i].op)
            return true;
    return false;
}

/* States the dependency rule again, for a chain whose stage 0 has no input
 * gradient. */
static bool may_run(const struct pp_action *done, int n, struct pp_action a,
                    const struct pp_graph *g)
{
    unsigned backward = 1u << PP_I | 1u << PP_B;
    struct pp_action own = a, neighbour = a, next = a;
    next.stage += a.op == PP_F ? -1 : 1;
    neighbour.slice = (int16_t)(neighbour.slice + (a.op == PP_F ? -1 : 1));
    if (a.op == PP_F)
        return (next.stage < 0 || has_run(done, n, next, 1u << PP_F)) &&
               (neighbour.slice < 0 || has_run(done, n, neighbour, 1u << PP_F));
    if (!has_run(done, n, own, 1u << PP_F))
        return false;
    if (a.op == PP_W && !has_run(done, n, own, 1u << PP_I))
        return false;
    if (a.op == PP_W && a.stage == 0)
        backward = 1u << PP_W;
    else if (a.op == PP_W)
        return true;
    return (next.stage == g->n_stages ||
            has_run(done, n, next, 1u << PP_I | 1u << PP_B)) &&
           (neighbour.slice == g->slices.n ||
            has_run(done, n, neighbour, backward));
}

static void random_order(struct fixture *f, struct dice *d, int m)
{
    struct pp_action todo[MOST_WORK], done[MOST_WORK];
    int n = 0, n_done = 0, split = roll(d, 2);
    for (int s = 0; s < f->graph.n_stages; s++)
        for (int k = 0; k < m; k++)
            for (int q = 0; q < f->graph.slices.n; q++)
                for (int op = PP_F; op <= PP_W; op++)
                    if (op == PP_F || (op == PP_B) != split)
                        todo[n++] = (struct pp_action){.stage = s,
                                                       .microbatch = k,
                                                       .peer = -1,
                                                       .slice = (int16_t)q,
                                                       .op = (uint8_t)op};
    pp_schedule_init(&f->s, &f->graph, "test", m);
    while (n > 0) {
        int i = roll(d, n);
        if (!may_run(done, n_done, todo[i], &f->graph))
            continue;
        done[n_done++] = todo[i];
        pp_schedule_add(&f->s, f->graph.stages[todo[i].stage].row, todo[i]);
        todo[i] = todo[--n];
    }
}

/* Swaps the forwards, or backwards, of two slices on one stage. */
static bool spoil(struct fixture *f, enum pp_op op)
{
    struct pp_row *row = &f->s.rows[0];
    struct pp_action *first = NULL;
    for (size_t i = 0; i < row->n; i++) {
        struct pp_action *a = &row->actions[i];
        if (a->op != op || a->stage != row->actions[0].stage ||
            a->microbatch != 0)
            continue;
        if (first) {
            int16_t q = a->slice;
            a->slice = first->slice;
            first->slice = q;
            return true;
        }
        first = a;
    }
    return false;
}

static void test_random(void)
{
    struct dice d = {.key = pp_rng_key(12, "slices")};
    int accepted = 0, ran = 0, spoilt = 0, refused = 0;
    enum { ROUNDS = 500 };
    for (int i = 0; i < ROUNDS; i++) {
        struct fixture f;
        struct pp_sim sim = {0};
        int p = 1 + roll(&d, 3), v = p < 3 ? 1 + roll(&d, 2) : 1;
        chain(&f, p, v, roll(&d, 2) ? PP_PLACEMENT_V : PP_PLACEMENT_LOOP);
        f.graph.slices.n = 2 + roll(&d, MOST_SLICES - 1);
        struct pp_literal_costs literal = {&f.graph, 1, 1, 1, 0.5, false};
        struct pp_costs costs = {pp_literal_time, &literal};
        random_order(&f, &d, 1 + roll(&d, MOST_MICROBATCHES));
        if (pp_lower(&f.s, &f.err))
            printf("# %s\n", f.err.text);
        for (f.s.channel_depth = 0; f.s.channel_depth < 3; f.s.channel_depth++)
            accepted += pp_check(&f.s, &f.err) == 0;
        ran += pp_simulate(&f.s, &costs, INT_MAX, &sim, &f.err) == 0;
        pp_sim_finish(&sim);
        if (f.err.code)
            printf("# %s\n", f.err.text);
        if (spoil(&f, i % 2 ? PP_F : PP_I) || spoil(&f, PP_B)) {
            spoilt++;
            refused += pp_check(&f.s, &f.err) && f.err.code == PP_EXIT_NO;
        }
        drop(&f);
    }
    is_int(accepted, 3 * ROUNDS, "lowered orders are valid at any depth");
    is_int(ran, ROUNDS, "lowered orders run with unbounded channels");
    ok(spoilt > ROUNDS / 2 && refused == spoilt,
       "slices in a wrong order are refused, %d of %d", refused, spoilt);
}

/* Slices of any parts tile any microbatch by whole groups of rows, and each has
 * room for its rows of every microbatch that is not larger. */
static void test_bounds(void)
{
    enum { ROUNDS = 2000, MOST_ROWS = 500 };
    struct dice d = {.key = 11};
    int tiled = 0, fits = 0, tight = 0, cells = 0;
    for (int i = 0; i < ROUNDS; i++) {
        int32_t ends[MOST_SLICES];
        struct pp_slices s = {1 + roll(&d, MOST_SLICES),
                              roll(&d, 3) ? ends : NULL};
        size_t grain = 1 + (size_t)roll(&d, 4), reached = 0;
        size_t most = grain * (size_t)(1 + roll(&d, MOST_ROWS)), sum = 0;
        size_t rows = most / grain
                          ? grain * (size_t)roll(&d, (int)(most / grain) + 1)
                          : 0;
        double share = 0;
        bool whole = true, room = true;
        for (int q = 0; q < s.n; q++)
            ends[q] = 1 + roll(&d, 9) + (q ? ends[q - 1] : 0);
        for (int q = 0; q < s.n; q++) {
            size_t from = pp_slice_begin(&s, rows, grain, q);
            size_t to = pp_slice_begin(&s, rows, grain, q + 1);
            size_t of = pp_slice_room(&s, most, grain, q);
            whole &= from == reached && to >= from && from % grain == 0;
            room &= to - from <= of;
            share += pp_slice_share(&s, q, 1);
            sum += of;
            reached = to;
        }
        tiled +=
            whole && reached == rows && share > 1 - 1e-12 && share < 1 + 1e-12;
        fits += room;
        tight += sum < most + grain * (size_t)s.n;
        cells++;
    }
    is_int(tiled, cells, "slices follow each other, in whole groups of rows");
    is_int(fits, cells, "no slice exceeds its room");
    is_int(tight, cells, "a room is less than a group too large");
}

int main(void)
{
    test_bounds();
    test_deps();
    test_rows();
    test_named_op();
    test_one_slice();
    test_closed_form();
    test_all_kinds();
    test_defects();
    test_memory();
    test_random();
    return done();
}
