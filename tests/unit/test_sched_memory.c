/* SPDX-License-Identifier: MIT */
/* Tests buffer lifetimes and offsets, and the clocks of the simulator. */
#include "sched_fixture.h"

#include <limits.h>

#include "schedule/memory/memory.h"
#include "schedule/simulate/sim.h"

static void expect(const struct pp_memory *m, enum pp_buffer_kind kind,
                   int stage, int microbatch, int peer, long first, long last)
{
    const struct pp_buffer *b =
        pp_memory_find(m, kind, stage, microbatch, 0, peer);
    if (first < 0) {
        ok(!b, "no buffer %d of %d.%d (%d)", kind, stage, microbatch, peer);
        return;
    }
    ok(b && b->first == (size_t)first && b->last == (size_t)last,
       "buffer %d of %d.%d (%d) lives from %ld to %ld", kind, stage, microbatch,
       peer, first, last);
    if (b && (b->first != (size_t)first || b->last != (size_t)last))
        printf("# got %zu to %zu\n", b->first, b->last);
}

/* Stages 0 and 3 are on rank 0, stages 1 and 2 on rank 1. */
static void test_lifetimes(void)
{
    static const char *const text[] = {
        /* 0   1        2        3   4   5        6        7   8 */
        "0F0 0SEND_F0 3RECV_F0 3F0 3I0 3SEND_B0 0RECV_B0 0I0 3W0 0W0",
        "1RECV_F0 1F0 2F0 2SEND_F0 2RECV_B0 2B0 1B0 1SEND_B0"};
    struct pp_stage_bytes sizes[4];
    struct fixture f;
    struct pp_memory m;
    for (int s = 0; s < 4; s++)
        sizes[s] = (struct pp_stage_bytes){100, 200, 300, 64};
    chain(&f, 2, 2, PP_PLACEMENT_V);
    ok(!rows(&f, 1, text) && !pp_check(&f.s, &f.err), "a V schedule: %s",
       f.err.text);
    ok(!pp_memory_plan(&f.s, 0, sizes, &m, &f.err), "rank 0 is planned");
    expect(&m, PP_BUF_ACT_I, 0, 0, -1, 0, 9); /* a source keeps it until W */
    expect(&m, PP_BUF_ACT_W, 0, 0, -1, 0, 9);
    expect(&m, PP_BUF_GRAD_LAYER, 0, 0, -1, 9, 9);
    expect(&m, PP_BUF_DOUTPUT, 0, 0, 1, 4, 9);
    expect(&m, PP_BUF_OUTPUT, 0, 0, -1, 0, 1);
    expect(&m, PP_BUF_DINPUT, 0, 0, -1, -1, 0);
    expect(&m, PP_BUF_INPUT, 3, 0, 2, 0, 3);
    expect(&m, PP_BUF_ACT_I, 3, 0, -1, 3, 4);
    expect(&m, PP_BUF_ACT_W, 3, 0, -1, 3, 8);
    expect(&m, PP_BUF_GRAD_W, 3, 0, -1, 4, 8);
    expect(&m, PP_BUF_DINPUT, 3, 0, 2, 4, 5);
    expect(&m, PP_BUF_OUTPUT, 3, 0, -1, -1,
           0); /* the last stage sends nothing */
    expect(&m, PP_BUF_RING, 1, 0, 0, 0, 9);
    expect(&m, PP_BUF_RING, 1, 0, 1, 0, 9);
    expect(&m, PP_BUF_RING, 1, 1, 0, -1,
           0); /* one message needs one slot of the ring */
    is_int(m.peak_slots, 2, "two slots");
    pp_memory_finish(&m);
    ok(!pp_memory_plan(&f.s, 1, sizes, &m, &f.err), "rank 1 is planned");
    expect(&m, PP_BUF_OUTPUT, 1, 0, -1, 1, 2); /* consumed on the same rank */
    expect(&m, PP_BUF_INPUT, 2, 0, 1, -1, 0);
    expect(&m, PP_BUF_DINPUT, 2, 0, 1, 5, 6);
    expect(&m, PP_BUF_DOUTPUT, 1, 0, 2, -1, 0);
    expect(&m, PP_BUF_DOUTPUT, 2, 0, 3, 2, 5);
    expect(&m, PP_BUF_GRAD_LAYER, 2, 0, -1, 5, 5);
    expect(&m, PP_BUF_GRAD_W, 2, 0, -1, -1, 0);
    expect(&m, PP_BUF_DINPUT, 1, 0, 0, 6, 7);
    pp_memory_finish(&m);
    drop(&f);
}

/* Returns true if the plan agrees with a sum over every position, and no live
 * buffers overlap. */
static bool agrees(const struct pp_schedule *s, int rank,
                   const struct pp_memory *m)
{
    size_t peak = 0;
    for (size_t at = 0; at < s->rows[rank].n; at++) {
        size_t sum = 0;
        for (size_t i = 0; i < m->n; i++)
            if (m->buffers[i].first <= at && at <= m->buffers[i].last)
                sum += m->buffers[i].bytes;
        peak = sum > peak ? sum : peak;
    }
    for (size_t i = 0; i < m->n; i++) {
        const struct pp_buffer *a = &m->buffers[i];
        if (a->offset % 64 || a->offset + a->bytes > m->arena_bytes)
            return false;
        for (size_t k = 0; k < i; k++) {
            const struct pp_buffer *b = &m->buffers[k];
            bool together = a->first <= b->last && b->first <= a->last;
            bool overlap = a->offset < b->offset + b->bytes &&
                           b->offset < a->offset + a->bytes;
            if (together && overlap && a->bytes && b->bytes)
                return false;
        }
    }
    return peak == m->peak_bytes && m->arena_bytes >= peak;
}

static void test_offsets(void)
{
    int n = 0, bad = 0;
    double worst = 1;
    for (int p = 1; p <= 4; p++)
        for (int c = 1; c <= 3; c++)
            for (int m = 1; m <= 8; m++) {
                struct fixture f;
                struct pp_stage_bytes sizes[12];
                chain(&f, p, c, PP_PLACEMENT_LOOP);
                for (int s = 0; s < p * c; s++)
                    sizes[s] = (struct pp_stage_bytes){
                        (size_t)(5000 + 777 * s), (size_t)(9000 - 500 * s),
                        s == 1 ? 0 : 4096, (size_t)(s % 3) * 1000,
                        s == 1 ? 0 : 4096};
                if (emit(&f, c > 1 ? "interleaved" : "1f1b", m, 0) ||
                    pp_lower(&f.s, &f.err)) {
                    drop(&f);
                    continue;
                }
                f.s.channel_depth = m % 4;
                for (int r = 0; r < p; r++) {
                    struct pp_memory plan;
                    n++;
                    if (pp_memory_plan(&f.s, r, sizes, &plan, &f.err))
                        continue;
                    bad += !agrees(&f.s, r, &plan);
                    double over =
                        (double)plan.arena_bytes / (double)plan.peak_bytes;
                    worst = over > worst ? over : worst;
                    pp_memory_finish(&plan);
                }
                drop(&f);
            }
    ok(bad == 0, "no two of %d plans' live buffers overlap; peaks add up", n);
    ok(worst < 1.3, "the arena is at most 30 %% above the peak (%.3f)", worst);
}

/* A rank has one workspace, of the size of its largest stage. */
static void test_workspace(void)
{
    struct pp_stage_bytes sizes[4] = {
        {.workspace = 70}, {.workspace = 500}, {0}, {.workspace = 90}};
    struct fixture f;
    struct pp_memory m;
    chain(&f, 2, 2, PP_PLACEMENT_V);
    ok(!emit(&f, "zbv", 4, 0) && !pp_lower(&f.s, &f.err) &&
           !pp_memory_plan(&f.s, 0, sizes, &m, &f.err),
       "stages that recompute are planned");
    expect(&m, PP_BUF_WORKSPACE, 0, 0, -1, 0, (long)f.s.rows[0].n - 1);
    is_int((long long)m.peak_by_kind[PP_BUF_WORKSPACE], 90,
           "  the largest counts once");
    pp_memory_finish(&m);
    ok(!pp_memory_plan(&f.s, 1, sizes, &m, &f.err) &&
           m.peak_by_kind[PP_BUF_WORKSPACE] == 500,
       "  each rank has its own");
    pp_memory_finish(&m);
    sizes[1].workspace = 0;
    ok(!pp_memory_plan(&f.s, 1, sizes, &m, &f.err) &&
           !pp_memory_find(&m, PP_BUF_WORKSPACE, 0, 0, 0, -1),
       "  none if no stage needs one");
    pp_memory_finish(&m);
    drop(&f);
}

/* Returns true if every buffer live at one position of a pair is live at the
 * other too, and workspaces are there twice. */
static bool keeps_apart(const struct pp_row *row, const struct pp_memory *m)
{
    bool pairs = false;
    for (size_t at = 0; at < row->n; at++) {
        if (!row->actions[at].overlap)
            continue;
        pairs = true;
        for (size_t i = 0; i < m->n; i++) {
            const struct pp_buffer *b = &m->buffers[i];
            if (b->last == at || b->first == at + 1)
                return false;
        }
    }
    return pairs == !!pp_memory_find(m, PP_BUF_WORKSPACE, 1, 0, 0, -1);
}

/* The two actions of an overlap pair may run at once, so neither may use memory
 * that the other frees, and each has its own workspace. */
static void test_pairs(void)
{
    int n = 0, bad = 0;
    for (int p = 1; p <= 4; p++)
        for (int m = 2 * p; m <= 12; m++) {
            struct fixture f;
            struct pp_stage_bytes sizes[8];
            chain(&f, p, 2, PP_PLACEMENT_V);
            for (int s = 0; s < 2 * p; s++)
                sizes[s] = (struct pp_stage_bytes){500, 900, 400,
                                                   64,  120, .workspace = 40};
            ok(!emit(&f, "dualpipev", m, 0) && !pp_lower(&f.s, &f.err),
               "dualpipev, %d ranks, %d microbatches", p, m);
            for (int r = 0; r < p; r++) {
                struct pp_memory plan;
                if (pp_memory_plan(&f.s, r, sizes, &plan, &f.err))
                    break;
                const struct pp_row *row = &f.s.rows[r];
                for (size_t i = 0; i < row->n; i++)
                    n += row->actions[i].overlap;
                bad += !agrees(&f.s, r, &plan) || !keeps_apart(row, &plan);
                pp_memory_finish(&plan);
            }
            drop(&f);
        }
    ok(n > 100 && bad == 0, "buffers of %d pairs do not overlap", n);
}

static void test_forward_only(void)
{
    struct fixture f;
    struct pp_schedule forward;
    struct pp_memory m;
    struct pp_stage_bytes sizes[2] = {{100, 200, 300, 64}, {100, 200, 300, 64}};
    chain(&f, 2, 1, PP_PLACEMENT_LOOP);
    ok(!emit(&f, "gpipe", 4, 0) && !pp_lower(&f.s, &f.err) &&
           (pp_schedule_forward_only(&f.s, &forward), true) &&
           !pp_memory_plan(&forward, 1, sizes, &m, &f.err),
       "evaluation is planned");
    is_int(m.peak_slots, 1, "  with one slot");
    const struct pp_buffer *b = pp_memory_find(&m, PP_BUF_ACT_W, 1, 2, 0, -1);
    ok(b && b->first == b->last, "  activations live within F");
    ok(!pp_memory_find(&m, PP_BUF_GRAD_W, 1, 2, 0, -1) &&
           !pp_memory_find(&m, PP_BUF_GRAD_LAYER, 1, 2, 0, -1),
       "  no gradients");
    pp_memory_finish(&m);
    pp_schedule_finish(&forward);
    drop(&f);
}

static double makespan(struct fixture *f, const struct pp_literal_costs *l,
                       int depth)
{
    struct pp_costs costs = {pp_literal_time, l};
    struct pp_sim sim;
    if (pp_simulate(&f->s, &costs, depth, &sim, &f->err))
        return -1;
    double t = sim.makespan;
    pp_sim_finish(&sim);
    return t;
}

/* One microbatch on two ranks: F, message, F B, message, B. */
static void test_clocks(void)
{
    struct fixture f;
    chain(&f, 2, 1, PP_PLACEMENT_LOOP);
    struct pp_literal_costs l = {&f.graph, 1, 2, 4, 0.5, true};
    ok(!emit(&f, "1f1b", 1, 0) && !pp_lower(&f.s, &f.err), "one microbatch");
    for (int depth = 0; depth < 3; depth++)
        is_near(makespan(&f, &l, depth), 1 + .5 + 7 + .5 + 6, 0,
                "  messages take their time at any depth");
    is_near(makespan(&f, &l, INT_MAX), 15, 0, "  also unbounded");
    pp_schedule_finish(&f.s);
    ok(!emit(&f, "gpipe", 3, 0) && !pp_lower(&f.s, &f.err), "gpipe, m = 3");
    /* Rank 1 runs F F F B B B from 1.5 on; then comes the last message, then B
     * on rank 0. */
    is_near(makespan(&f, &l, INT_MAX), 1 + .5 + 3 + 3 * 6 + .5 + 6, 0,
            "  it takes its closed form with messages");
    drop(&f);
}

static void test_source_costs(void)
{
    struct fixture f;
    chain(&f, 2, 1, PP_PLACEMENT_LOOP);
    struct pp_literal_costs l = {&f.graph, 1, 2, 4, 0.5, false};
    struct pp_action i = {.op = PP_I, .stage = 0}, w = {.op = PP_W};
    is_near(pp_literal_time(&l, i), 0, 0, "a source does nothing at I");
    is_near(pp_literal_time(&l, w), 6, 0,
            "a source does its whole backward at W");
    i.stage = w.stage = 1;
    is_near(pp_literal_time(&l, i), 2, 0, "another stage does I at I");
    is_near(pp_literal_time(&l, w), 4, 0, "another stage does W at W");
    drop(&f);
}

int main(void)
{
    test_lifetimes();
    test_offsets();
    test_workspace();
    test_pairs();
    test_forward_only();
    test_clocks();
    test_source_costs();
    return done();
}
