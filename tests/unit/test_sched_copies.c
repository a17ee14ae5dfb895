/* SPDX-License-Identifier: MIT */
/* Tests two copies of the weights: the graph, dualpipe against its closed form
 * and rows worked out by hand, and the checker on random schedules, valid and
 * corrupted. */
#include <limits.h>

#include "base/rng.h"
#include "schedule/memory/memory.h"
#include "schedule/simulate/sim.h"
#include "sched_fixture.h"

static void test_graph(void)
{
    struct fixture f;
    static const int ranks[] = {0, 1, 2, 3, 3, 2, 1, 0};
    bool as_said = true;
    chain(&f, 4, 1, PP_PLACEMENT_BOTH_WAYS);
    is_int(f.graph.n_stages, 8, "a stage of each copy on every rank");
    for (int s = 0; s < 8; s++) {
        const struct pp_stage_node *n = &f.graph.stages[s];
        as_said &= n->row == ranks[s] && n->copy_of == (s < 4 ? -1 : s - 4) &&
                   n->n_inputs == (s % 4 > 0) && n->n_outputs == (s % 4 < 3) &&
                   n->input_grad == (s % 4 > 0) &&
                   pp_copy_number(&f.graph, s) == s / 4;
    }
    ok(as_said, "each copy is a chain, placed in opposite directions");
    ok(pp_graph_is(&f.graph, PP_PLACEMENT_BOTH_WAYS) &&
           !pp_graph_is(&f.graph, PP_PLACEMENT_V) &&
           !pp_graph_is(&f.graph, PP_PLACEMENT_LOOP),
       "it has placement both-ways and no other");
    drop(&f);
    chain(&f, 4, 2, PP_PLACEMENT_V);
    ok(!pp_graph_is(&f.graph, PP_PLACEMENT_BOTH_WAYS) &&
           f.graph.n_copies == 1 && f.graph.stages[5].copy_of == -1,
       "a V is one copy on the same ranks");
    f.graph.n_copies = 2;
    ok(pp_graph_connect(&f.arena, &f.graph, &f.err) &&
           strstr(f.err.text, "stage 4: inputs are not the copies"),
       "copies with different edges are refused");
    drop(&f);
    chain(&f, 3, 1, PP_PLACEMENT_LOOP);
    f.graph.n_copies = 2;
    ok(pp_graph_connect(&f.arena, &f.graph, &f.err) == -1,
       "3 stages are not two copies");
    drop(&f);
}

/* Returns true if rank p - 1 - r does with the copies what rank r does with the
 * originals. */
static bool is_mirrored(const struct pp_schedule *s)
{
    int p = s->graph->n_rows, m = s->n_microbatches;
    for (int r = 0; r < p; r++) {
        const struct pp_row *a = &s->rows[r], *b = &s->rows[p - 1 - r];
        if (a->n != b->n)
            return false;
        for (size_t i = 0; i < a->n; i++) {
            struct pp_action x = a->actions[i], y = b->actions[i];
            if (x.op != y.op || x.overlap != y.overlap ||
                (x.stage + p) % (2 * p) != y.stage ||
                (x.microbatch + m / 2) % m != y.microbatch)
                return false;
        }
    }
    return true;
}

/* The sizes include the published figure (8 and 20). */
static void test_closed_form(void)
{
    static const int sizes[][2] = {{2, 4},  {2, 10}, {4, 8},   {4, 14}, {8, 16},
                                   {8, 20}, {8, 40}, {16, 32}, {16, 50}};
    static const double costs[][3] = {{1, 1, 1}, {4, 4, 4}, {2, 2, 1}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int p = sizes[i][0], m = sizes[i][1], peak = 0;
        struct fixture f;
        chain(&f, p, 1, PP_PLACEMENT_BOTH_WAYS);
        ok(!emit(&f, "dualpipe", m, 0) && is_mirrored(&f.s),
           "p=%d m=%d: the ranks mirror each other", p, m);
        ok(!pp_lower(&f.s, &f.err) && !pp_check(&f.s, &f.err), "  it runs");
        f.s.channel_depth = 0;
        ok(!pp_check(&f.s, &f.err), "  with rendezvous too");
        for (int r = 0; r < p; r++)
            peak += pp_row_slots(&f.s, r) == p + 1;
        is_int(peak, p, "  p + 1 slots on every rank");
        for (size_t k = 0; k < sizeof costs / sizeof *costs; k++) {
            double fw = costs[k][0], in = costs[k][1], w = costs[k][2];
            struct pp_literal_costs literal = {&f.graph, fw, in, w, 0, true};
            struct pp_costs c = {pp_literal_time, &literal};
            struct pp_sim sim = {0};
            if (pp_simulate(&f.s, &c, INT_MAX, &sim, &f.err))
                printf("# %s\n", f.err.text);
            double pair = fw + in + w, whole = in + w;
            is_near(sim.makespan,
                    m * pair + (p / 2 - 1) * (pair + whole - 3 * w), 1e-9,
                    "  m T + (p/2 - 1) (FB + B - 3W)");
            pp_sim_finish(&sim);
        }
        ok(!pp_schedule_is_canonical(&f.s), "  not canonical");
        drop(&f);
    }
}

/* The DualPipe code's eight steps, worked out by hand. */
static void test_rows(void)
{
    static const char *const want[] = {
        "0F0 0F1 0F2 7F4 7I4 7W4 7F5 (0F3;7B5)OVERLAP_F_B "
        "(7F6;0B0)OVERLAP_F_B 7B6 (7F7;0B1)OVERLAP_F_B 7B7 0I2 0W2 0I3 0W3",
        "1F0 6F4 1F1 6F5 1F2 6B4 (6F6;1B0)OVERLAP_F_B (1F3;6B5)OVERLAP_F_B "
        "(6F7;1B1)OVERLAP_F_B 6B6 1B2 6I7 1I3 6W7 1W3"};
    struct fixture f;
    chain(&f, 4, 1, PP_PLACEMENT_BOTH_WAYS);
    ok(emit(&f, "dualpipe", 8, 0) == 0, "p=4 m=8");
    for (int r = 0; r < 2; r++) {
        char *text = pp_schedule_format_row(&f.s, r);
        is_str(text, want[r], r ? "  rank 1" : "  rank 0");
        free(text);
    }
    drop(&f);
}

static void test_refusals(void)
{
    struct fixture f;
    static const struct {
        int p, m;
        enum pp_placement placement;
        const char *text;
    } cases[] = {
        {3, 8, PP_PLACEMENT_BOTH_WAYS, "4 ranks and placement both-ways"},
        {4, 6, PP_PLACEMENT_BOTH_WAYS, "two per rank, not 6"},
        {4, 9, PP_PLACEMENT_BOTH_WAYS, "two per rank, not 9"},
        {4, 8, PP_PLACEMENT_LOOP, "placement both-ways"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        chain(&f, cases[i].p, 1, cases[i].placement);
        ok(emit(&f, "dualpipe", cases[i].m, 0) && f.err.code == PP_EXIT_INPUT &&
               strstr(f.err.text, cases[i].text),
           "p=%d m=%d is refused", cases[i].p, cases[i].m);
        drop(&f);
    }
    for (const struct pp_kind *const *k = pp_kinds; *k; k++) {
        chain(&f, 4, 1, PP_PLACEMENT_BOTH_WAYS);
        if (!(*k)->copies)
            ok(emit(&f, (*k)->name, 8, 0) && f.err.code == PP_EXIT_INPUT &&
                   strstr(f.err.text, "one copy of the weights"),
               "%s refuses copies", (*k)->name);
        drop(&f);
    }
}

static int count(const struct pp_row *row, enum pp_op op)
{
    int n = 0;
    for (size_t i = 0; i < row->n; i++)
        n += row->actions[i].op == op;
    return n;
}

/* Each copy has tied weights at both of its ends. */
static void test_syncs(void)
{
    struct fixture f;
    bool copies = true, tied = true, last = true;
    chain(&f, 4, 1, PP_PLACEMENT_BOTH_WAYS);
    f.graph.tied[1] = 3;
    f.graph.tied[0] = 0;
    ok(emit(&f, "dualpipe", 8, 0) == 0 && pp_lower(&f.s, &f.err) == 0 &&
           pp_check(&f.s, &f.err) == 0,
       "copies of tied weights run");
    for (int r = 0; r < 4; r++) {
        const struct pp_row *row = &f.s.rows[r];
        bool end = r == 0 || r == 3;
        copies &= count(row, PP_SYNC_COPIES) == 1;
        tied &= count(row, PP_SYNC_TIED) == end;
        last &= row->actions[row->n - 1 - end].op == PP_SYNC_COPIES;
    }
    ok(copies, "SYNC_COPIES once on every rank");
    ok(tied, "SYNC_TIED on the ranks of embedding and head");
    ok(last, "SYNC_COPIES comes before SYNC_TIED");
    struct pp_row *row = &f.s.rows[0];
    struct pp_action a = row->actions[row->n - 1];
    row->actions[row->n - 1] = row->actions[row->n - 2];
    row->actions[row->n - 2] = a;
    ok(pp_check(&f.s, &f.err) && strstr(f.err.text, "before SYNC_COPIES"),
       "SYNC_TIED before SYNC_COPIES is refused");
    drop(&f);
}

/* --- random schedules --- */

struct dice {
    uint64_t key, at;
};

static int roll(struct dice *d, int n)
{
    return (int)(pp_rng_bits(d->key, d->at++) % (uint64_t)n);
}

enum { MOST = 5, MOST_MICROBATCHES = 6 };

/* Makes a random DAG of up to MOST stages and its copy, on up to four ranks. */
static void random_graph(struct fixture *f, struct dice *d)
{
    int n = 1 + roll(d, MOST), p = 1 + roll(d, n < 4 ? n : 4);
    *f = (struct fixture){0};
    struct pp_stage_node *nodes =
        pp_arena_alloc(&f->arena, 2 * (size_t)n, sizeof *nodes);
    for (int s = 0; s < 2 * n; s++) {
        int *inputs = pp_arena_alloc(&f->arena, MOST, sizeof *inputs), k = 0;
        for (int i = 0; s < n && i < s; i++)
            if (i == s - 1 || roll(d, 4) == 0)
                inputs[k++] = i;
        for (int i = 0; s >= n && i < nodes[s - n].n_inputs; i++)
            inputs[k++] = nodes[s - n].inputs[i] + n;
        nodes[s] = (struct pp_stage_node){
            .row = s < p ? s : roll(d, p), .n_inputs = k, .inputs = inputs};
    }
    f->graph = (struct pp_graph){.n_rows = p,
                                 .n_stages = 2 * n,
                                 .stages = nodes,
                                 .tied = {-1, -1},
                                 .n_copies = 2};
    if (pp_graph_connect(&f->arena, &f->graph, &f->err))
        printf("# %s\n", f->err.text);
}

/* Adds forwards in ascending and backwards in descending order of stages, each
 * microbatch through a random copy. */
static void random_rows(struct fixture *f, struct dice *d, int m)
{
    int n = f->graph.n_stages / 2;
    pp_schedule_init(&f->s, &f->graph, "test", m);
    for (int k = 0; k < m; k++) {
        int first = roll(d, 2) * n;
        bool split = roll(d, 2);
        for (int pass = 0; pass < 3; pass++)
            for (int i = 0; i < n; i++) {
                int s = first + (pass ? n - 1 - i : i);
                struct pp_action a = {.stage = s, .microbatch = k, .peer = -1};
                a.op = pass == 0   ? PP_F
                       : pass == 2 ? PP_W
                       : split     ? PP_I
                                   : PP_B;
                if ((pass < 2 || split))
                    pp_schedule_add(&f->s, f->graph.stages[s].row, a);
            }
    }
}

enum spoil { BOTH, DROP, NO_SYNC, SYNC_EARLY, N_SPOILS };

/* The error of each corruption. If a backward is dropped, an action that
 * depends on it may be reported first. */
static const char *const complaints[N_SPOILS][2] = {
    [BOTH] = {"passes through another copy", "passes through another copy"},
    [DROP] = {"is missing", "before"},
    [NO_SYNC] = {"'SYNC_COPIES' is missing", "'SYNC_COPIES' is missing"},
    [SYNC_EARLY] = {"'SYNC_COPIES' comes before",
                    "'SYNC_COPIES' comes before"}};

static void erase(struct pp_row *row, size_t at)
{
    row->n--;
    memmove(row->actions + at, row->actions + at + 1,
            (row->n - at) * sizeof *row->actions);
}

/* Makes a microbatch enter the other copy too, before all other actions. */
static void enter_both(struct fixture *f, int m)
{
    int n = f->graph.n_stages / 2, other = n;
    for (int r = 0; r < f->graph.n_rows; r++)
        for (size_t i = 0; i < f->s.rows[r].n; i++) {
            struct pp_action a = f->s.rows[r].actions[i];
            if (a.op == PP_F && a.microbatch == m)
                other = a.stage < n ? n : 0;
        }
    struct pp_action a = {
        .stage = other, .microbatch = m, .peer = -1, .op = PP_F};
    struct pp_row *row = &f->s.rows[f->graph.stages[other].row];
    pp_schedule_add(&f->s, f->graph.stages[other].row, a);
    memmove(row->actions + 1, row->actions,
            (row->n - 1) * sizeof *row->actions);
    row->actions[0] = a;
}

static void drop_backward(struct pp_row *row, struct dice *d)
{
    size_t at = (size_t)roll(d, (int)row->n);
    enum pp_op op;
    do {
        at = (at + 1) % row->n;
        op = row->actions[at].op;
    } while (op != PP_W && op != PP_B);
    erase(row, at);
}

static void spoil(struct fixture *f, struct dice *d, enum spoil how)
{
    int r = roll(d, f->graph.n_rows);
    while (f->s.rows[r].n == 1) /* a row of a copy that no microbatch uses */
        r = (r + 1) % f->graph.n_rows;
    struct pp_row *row = &f->s.rows[r];
    struct pp_action sync = row->actions[row->n - 1];
    if (how == BOTH) {
        enter_both(f, roll(d, f->s.n_microbatches));
    } else if (how == DROP) {
        drop_backward(row, d);
    } else if (how == NO_SYNC) {
        row->n--;
    } else {
        row->actions[row->n - 1] = row->actions[row->n - 2];
        row->actions[row->n - 2] = sync;
    }
}

static void test_random(void)
{
    struct dice d = {.key = pp_rng_key(11, "copies")};
    int accepted = 0, refused[N_SPOILS] = {0}, ran = 0;
    enum { ROUNDS = 500 };
    for (int i = 0; i < ROUNDS; i++) {
        struct fixture f;
        struct pp_sim sim = {0};
        struct pp_costs costs;
        enum spoil how = (enum spoil)(i % N_SPOILS);
        random_graph(&f, &d);
        struct pp_literal_costs literal = {&f.graph, 1, 1, 1, 0.5, false};
        costs = (struct pp_costs){pp_literal_time, &literal};
        random_rows(&f, &d, 1 + roll(&d, MOST_MICROBATCHES));
        if (pp_lower(&f.s, &f.err))
            printf("# %s\n", f.err.text);
        for (f.s.channel_depth = 0; f.s.channel_depth < 3; f.s.channel_depth++)
            accepted += pp_check(&f.s, &f.err) == 0;
        ran += pp_simulate(&f.s, &costs, 0, &sim, &f.err) == 0;
        pp_sim_finish(&sim);
        if (f.err.code)
            printf("# %s\n", f.err.text);
        spoil(&f, &d, how);
        if (pp_check(&f.s, &f.err) && f.err.code == PP_EXIT_NO &&
            (strstr(f.err.text, complaints[how][0]) ||
             strstr(f.err.text, complaints[how][1])))
            refused[how]++;
        else
            printf("# %d: '%s'\n", how, f.err.text);
        drop(&f);
    }
    is_int(accepted, 3 * ROUNDS, "lowered schedules are valid at any depth");
    is_int(ran, ROUNDS, "lowered schedules run with rendezvous");
    for (int k = 0; k < N_SPOILS; k++)
        ok(refused[k] == ROUNDS / N_SPOILS, "corrupted: %s", complaints[k][0]);
}

int main(void)
{
    test_graph();
    test_closed_form();
    test_rows();
    test_refusals();
    test_syncs();
    test_random();
    return done();
}
