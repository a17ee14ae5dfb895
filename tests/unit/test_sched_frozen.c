/* SPDX-License-Identifier: MIT */
/* Tests frozen stages: kinds, lowering, checks, times and memory when some
 * stages of a chain train nothing. */
#include "sched_fixture.h"

#include <stdlib.h>

#include "schedule/bound/bound.h"
#include "schedule/memory/memory.h"
#include "schedule/search/search.h"

enum { M = 8 };

/* Makes a chain whose stage s is frozen if bit s of mask is set. */
static bool freeze(struct fixture *f, int p, int c, enum pp_placement placement,
                   unsigned mask)
{
    chain(f, p, c, placement);
    for (int s = 0; s < f->graph.n_stages; s++)
        f->graph.stages[s].frozen = mask >> s % (p * c) & 1;
    return !pp_graph_connect(&f->arena, &f->graph, &f->err);
}

static size_t count(const struct pp_schedule *s, int stage, unsigned ops)
{
    const struct pp_row *row = &s->rows[s->graph->stages[stage].row];
    size_t n = 0;
    for (size_t i = 0; i < row->n; i++)
        n += row->actions[i].stage == stage && ops & 1u << row->actions[i].op;
    return n;
}

/* Returns true if every stage of a chain has the actions that its weights and
 * those before it ask for. */
static bool has_its_actions(const struct fixture *f, unsigned mask)
{
    const struct pp_graph *g = &f->graph;
    bool good = true, before = false;
    for (int s = 0; s < f->graph.n_stages; s++) {
        bool frozen = mask >> s & 1, back = before || !frozen;
        bool last = s + 1 == f->graph.n_stages;
        size_t w = count(&f->s, s, 1u << PP_W);
        good &= count(&f->s, s, 1u << PP_F) == M;
        good &= count(&f->s, s, 1u << PP_B | 1u << PP_I) == (back ? M : 0);
        good &= w == (frozen ? 0 : count(&f->s, s, 1u << PP_I));
        bool up = s && g->stages[s - 1].row != g->stages[s].row;
        bool down = !last && g->stages[s + 1].row != g->stages[s].row;
        good &= count(&f->s, s, 1u << PP_SEND_B) == (before && up ? M : 0);
        good &= count(&f->s, s, 1u << PP_SEND_F) == (down ? M : 0);
        before = back;
    }
    return good;
}

/* Returns true if the schedule is right at depths 0 and 1, and takes no less
 * than its bound. */
static bool runs(struct fixture *f)
{
    struct pp_literal_costs literal = {
        .graph = &f->graph, .f = 1, .i = 1, .w = 1, .comm = 0.25};
    struct pp_costs costs = {pp_literal_time, &literal};
    bool good = true, split = false;
    for (int s = 0; s < f->graph.n_stages; s++)
        split |= count(&f->s, s, 1u << PP_I) > 0;
    for (int depth = 0; depth <= 1 && good; depth++) {
        struct pp_sim sim = {0};
        struct pp_bound bound = {0};
        f->s.channel_depth = depth;
        good = !pp_check(&f->s, &f->err) &&
               !pp_simulate(&f->s, &costs, depth, &sim, &f->err) &&
               !pp_bound(&f->graph, M, split, &costs, NULL, &bound, &f->err);
        good &= bound.makespan <= sim.makespan + 1e-9;
        if (!good)
            printf("# depth %d: %g, bound %g (%s)\n", depth, sim.makespan,
                   bound.makespan, bound.rule);
        if (good)
            pp_sim_finish(&sim);
    }
    return good;
}

/* All masks of frozen stages of a chain. */
static void all_masks(const char *kind, int c, enum pp_placement placement)
{
    unsigned n = 1u << 4 * c, step = c == 1 ? 1 : 7, bad = n;
    struct fixture f;
    for (unsigned mask = 0; mask < n && bad == n; mask += step) {
        if (!freeze(&f, 4, c, placement, mask) || emit(&f, kind, M, 0) ||
            pp_lower(&f.s, &f.err) || !has_its_actions(&f, mask) || !runs(&f)) {
            bad = mask;
            printf("# mask %x: %s\n", mask, f.err.text);
        }
        drop(&f);
    }
    ok(bad == n, "%s with %d chunks: all frozen stages", kind, c);
}

/* The makespan of a chain of which only the last stage trains: its forward
 * takes no time for a backward of the others. */
static void prefix(void)
{
    struct fixture f;
    struct pp_sim sim = {0};
    freeze(&f, 3, 1, PP_PLACEMENT_LOOP, 3);
    struct pp_literal_costs literal = {
        .graph = &f.graph, .f = 1, .i = 1, .w = 1};
    struct pp_costs costs = {pp_literal_time, &literal};
    ok(!emit(&f, "1f1b", M, 0) && !pp_lower(&f.s, &f.err) &&
           !pp_simulate(&f.s, &costs, INT_MAX, &sim, &f.err),
       "a chain with a frozen prefix is planned");
    ok(sim.makespan == 2 + 3 * M, "  the last stage alone takes the time");
    pp_sim_finish(&sim);
    const struct pp_stage_bytes sizes[3] = {
        {64, 128, 256, 64, 32}, {64, 128, 256, 64, 32}, {64, 128, 256, 0, 32}};
    struct pp_memory m;
    ok(!pp_memory_plan(&f.s, 1, sizes, &m, &f.err) &&
           m.peak_by_kind[PP_BUF_ACT_W] == 128 &&
           m.peak_by_kind[PP_BUF_GRAD_W] == 0 &&
           m.peak_by_kind[PP_BUF_DOUTPUT] == 0 && m.peak_slots == 1,
       "  a frozen stage holds the activations of one forward");
    pp_memory_finish(&m);
    drop(&f);
    freeze(&f, 3, 1, PP_PLACEMENT_LOOP, 6);
    ok(!emit(&f, "zb-h1", M, 0) && !pp_lower(&f.s, &f.err) &&
           !pp_memory_plan(&f.s, 1, sizes, &m, &f.err) &&
           m.peak_by_kind[PP_BUF_ACT_W] ==
               128 * (size_t)pp_row_slots(&f.s, 1) &&
           m.peak_by_kind[PP_BUF_GRAD_W] == 0 &&
           m.peak_by_kind[PP_BUF_GRAD_LAYER] == 32,
       "a frozen stage after a trained one frees all at I");
    pp_memory_finish(&m);
    drop(&f);
}

/* Rows with one action too many or too few, and what the checker says. */
static void faults(void)
{
    static const struct {
        unsigned mask;
        const char *rows[2], *text;
    } cases[] = {
        {1, {"0F0 0F1", "1F0 1B0 1F1 1B1"}, NULL},
        {1,
         {"0F0 0F1 0B0", "1F0 1B0 1F1 1B1"},
         "rank 0, action 2: '0B0' is needless: no weights of its stage, or of "
         "a stage before it, are trained"},
        {2, {"0F0 0F1 0B0 0B1", "1F0 1I0 1F1 1B1"}, NULL},
        {2,
         {"0F0 0F1 0B0 0B1", "1F0 1I0 1W0 1F1 1B1"},
         "rank 1, action 2: '1W0' is of a stage whose weights are frozen"},
        {2,
         {"0F0 0F1 0I0 0W0 0I1", "1F0 1I0 1F1 1I1"},
         "rank 0: '0W1' is missing"},
        {2, {"0F0 0F1 0B0 0B1", "1F0 1I0 1F1"}, "rank 1: '1B1' is missing"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture f;
        freeze(&f, 2, 1, PP_PLACEMENT_LOOP, cases[i].mask);
        int rc =
            rows(&f, 2, cases[i].rows) || pp_check_rows(&f.s, false, &f.err);
        if (cases[i].text)
            is_str(f.err.text, cases[i].text, "  a fault");
        else
            ok(!rc, "rows with mask %u are right: %s", cases[i].mask,
               f.err.text);
        drop(&f);
    }
    struct fixture f;
    freeze(&f, 2, 1, PP_PLACEMENT_LOOP, 1);
    const char *const sent[] = {"0F0 0SEND_F0 0RECV_B0",
                                "1RECV_F0 1F0 1B0 1SEND_B0"};
    ok(!rows(&f, 1, sent) && pp_check(&f.s, &f.err), "a needless gradient");
    is_str(f.err.text,
           "rank 0, action 2: '0RECV_B0' is a gradient that no stage needs",
           "  is refused");
    drop(&f);
}

/* The search finds an order for frozen stages that keeps to its bound. */
static void search(void)
{
    for (unsigned mask = 1; mask < 16; mask += 3) {
        struct fixture f;
        freeze(&f, 4, 1, PP_PLACEMENT_LOOP, mask);
        struct pp_literal_costs literal = {
            .graph = &f.graph, .f = 1, .i = 1, .w = 1, .comm = 0.25};
        struct pp_costs costs = {pp_literal_time, &literal};
        struct pp_search_options o = {
            .costs = &costs, .split = true, .seconds = 0.001, .seed = 1};
        struct pp_sim sim = {0};
        struct pp_bound bound = {0};
        pp_schedule_init(&f.s, &f.graph, "auto", M);
        bool good = !pp_search(&f.s, &o, &f.err) && !pp_lower(&f.s, &f.err) &&
                    !pp_check(&f.s, &f.err) && has_its_actions(&f, mask) &&
                    !pp_simulate(&f.s, &costs, INT_MAX, &sim, &f.err) &&
                    !pp_bound(&f.graph, M, true, &costs, NULL, &bound, &f.err);
        ok(good && sim.makespan >= bound.makespan - 1e-9,
           "auto orders mask %x: %g, bound %g %s %s", mask, sim.makespan,
           bound.makespan, bound.rule, f.err.text);
        pp_sim_finish(&sim);
        drop(&f);
    }
}

int main(void)
{
    all_masks("1f1b", 1, PP_PLACEMENT_LOOP);
    all_masks("gpipe", 1, PP_PLACEMENT_LOOP);
    all_masks("zb-h1", 1, PP_PLACEMENT_LOOP);
    all_masks("zb-h2", 1, PP_PLACEMENT_LOOP);
    all_masks("interleaved", 2, PP_PLACEMENT_LOOP);
    all_masks("zbv", 2, PP_PLACEMENT_V);
    all_masks("dualpipev", 2, PP_PLACEMENT_V);
    prefix();
    faults();
    search();
    return done();
}
