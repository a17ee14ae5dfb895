/* SPDX-License-Identifier: MIT */
/* Tests the simulator at a channel depth: posted and waiting receives against a
 * simulation by ticks, on random schedules, costs and depths; and the times of
 * the kinds with and without posted receives. */
#include "sched_ticks.h"
#include "sched_dice.h"
#include "sched_copies.h"

/* Random whole times. */
struct random_costs {
    uint64_t key;
    int most, message;
};

static double random_time(const void *ctx, struct pp_action a)
{
    const struct random_costs *c = ctx;
    if (!pp_is_compute(a.op) && !pp_is_send(a.op) && !pp_is_copy(a.op))
        return 0;
    int most = pp_is_send(a.op) ? c->message : c->most;
    uint64_t key = (uint64_t)a.op + 16 * (uint64_t)a.stage +
                   4096 * (uint64_t)a.microbatch + (uint64_t)a.slice * 7919;
    if (pp_is_send(a.op))
        key += (uint64_t)a.peer << 32;
    /* Even, so that half of it is whole too. */
    return 2.0 * (double)(pp_rng_bits(c->key, key) % (uint64_t)(most + 1));
}

struct tally {
    int n, checked, wrong, above, below, apart, monotone, copies;
};

static bool same_spans(const struct pp_schedule *s, const struct pp_sim *sim,
                       struct pp_span *const *want)
{
    for (int r = 0; r < s->graph->n_rows; r++)
        for (size_t i = 0; i < s->rows[r].n; i++) {
            const struct pp_span *a = &sim->rows[r].spans[i];
            if (a->start != want[r][i].start || a->end != want[r][i].end) {
                char text[PP_ACTION_TEXT];
                pp_action_format(a->action, true, text);
                printf("# depth %d, rank %d, '%s': %g to %g, expected %g to "
                       "%g\n",
                       s->channel_depth, r, text, a->start, a->end,
                       want[r][i].start, want[r][i].end);
                return false;
            }
        }
    return true;
}

static double last_end(const struct pp_schedule *s,
                       struct pp_span *const *spans)
{
    double last = 0;
    for (int r = 0; r < s->graph->n_rows; r++)
        for (size_t i = 0; i < s->rows[r].n; i++)
            if (pp_is_compute(s->rows[r].actions[i].op) ||
                pp_is_collective(s->rows[r].actions[i].op))
                last = fmax(last, spans[r][i].end);
    return last;
}

/* Compares one schedule with the ticks. Returns its makespan, or -1. */
static double agree(const struct pp_schedule *s, const struct pp_costs *costs,
                    bool strict, struct tally *t)
{
    struct pp_span *want[TICK_RANKS] = {0};
    struct pp_sim sim = {0};
    struct pp_err err = {0};
    double makespan = -1, found = 0;
    bool ended = tick_run(s, costs, strict, want);
    int depth = s->channel_depth;
    int rc = strict ? pp_run_time(s, costs, depth, true, &found, &err)
                    : pp_simulate(s, costs, depth, &sim, &err);
    if (rc || !ended) {
        printf("# %s\n", rc ? err.text : "the ticks do not end");
        t->wrong++;
    } else {
        makespan = last_end(s, want);
        t->wrong +=
            strict ? found != makespan
                   : !same_spans(s, &sim, want) || sim.makespan != makespan;
    }
    t->checked++;
    pp_sim_finish(&sim);
    for (int r = 0; r < s->graph->n_rows; r++)
        free(want[r]);
    return makespan;
}

static double textbook_of(const struct pp_schedule *s,
                          const struct pp_costs *costs)
{
    struct pp_sim sim;
    struct pp_err err = {0};
    if (pp_simulate(s, costs, INT_MAX, &sim, &err))
        return -1;
    double makespan = sim.makespan;
    pp_sim_finish(&sim);
    return makespan;
}

/* Makes a schedule with slices, or one of sched_dice.h, at some depth at which
 * it runs. Returns false if it runs at none. */
static bool random_valid(struct fixture *f, struct dice *d)
{
    if (roll(d, 8)) {
        random_schedule(f, d);
    } else {
        chain(f, 2 + roll(d, 3), 1, PP_PLACEMENT_LOOP);
        f->graph.slices.n = 2 + roll(d, 2);
        if (emit(f, "seq1f1b", 4 + roll(d, 4), 0))
            return false;
        place(f, false);
        f->s.channel_depth = roll(d, 3);
    }
    for (; f->s.channel_depth < 5; f->s.channel_depth++) {
        struct pp_err err = {0};
        if (pp_check(&f->s, &err) == 0)
            return true;
    }
    return false;
}

static void compare(struct fixture *f, struct dice *d, struct tally *t)
{
    const struct random_costs random = {.key = pp_rng_bits(d->key, d->at++),
                                        .most = roll(d, 2) ? 8 : 3,
                                        .message = roll(d, 3) ? 6 : 0};
    const struct pp_costs costs = {random_time, &random, roll(d, 3) ? 0 : 0.5};
    struct pp_schedule *s = &f->s;
    double textbook = textbook_of(s, &costs), before = INFINITY;
    int first = s->channel_depth;
    for (; s->channel_depth <= first + 2; s->channel_depth++) {
        double posted = agree(s, &costs, false, t);
        double strict = agree(s, &costs, true, t);
        t->above += posted > strict;
        t->apart += posted < strict;
        t->below += posted < textbook;
        t->monotone += posted > before && s->channel_depth > 1;
        before = posted;
    }
    t->n++;
}

static void test_random(void)
{
    struct dice d = {.key = pp_rng_key(11, "times")};
    struct tally t = {0};
    for (int i = 0; i < 250; i++) {
        struct fixture f;
        if (random_valid(&f, &d)) {
            if (roll(&d, 2))
                t.copies += add_copies(&f, &d) > 0;
            compare(&f, &d, &t);
        }
        drop(&f);
    }
    ok(t.copies > 50, "%d schedules have copies", t.copies);
    printf("# %d schedules, %d runs, %d faster with posted receives\n", t.n,
           t.checked, t.apart);
    ok(t.n > 125 && t.apart > 75, "many schedules, many with a difference");
    ok(t.wrong == 0, "every start and end agrees with the ticks");
    ok(t.above == 0, "a posted receive delays nothing");
    ok(t.below == 0, "no depth takes less than unbounded channels");
    ok(t.monotone == 0, "no more depth takes longer");
}

/* 8 ranks, 32 microbatches; per rank and microbatch F 10, I 10, W 8. */
struct published {
    const char *kind;
    int chunks;
    enum pp_placement placement;
    double message, textbook, strict;
};

static const struct published table[] = {
    {"zb-h1", 1, PP_PLACEMENT_LOOP, 0, 980, 1028},
    {"zbv", 2, PP_PLACEMENT_V, 0, 931, 977},
    {"zb-h2", 1, PP_PLACEMENT_LOOP, 3, 987, 1201},
    {"zbv", 2, PP_PLACEMENT_V, 3, 1032, 1370},
    {"interleaved", 2, PP_PLACEMENT_LOOP, 3, 1084, 1498},
    {"eager-1f1b", 1, PP_PLACEMENT_LOOP, 3, 1134, 1308},
    {"1f1b", 1, PP_PLACEMENT_LOOP, 3, 1296, 1314},
    {"looped-bfs", 2, PP_PLACEMENT_LOOP, 3, 1036, 1756},
};

static void test_kinds(void)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const struct published *k = &table[i];
        double n = k->chunks;
        const double cost[] = {10 / n, 10 / n, 8 / n, k->message};
        struct fixture f;
        struct pp_sim sim;
        struct tally t = {0};
        chain(&f, 8, k->chunks, k->placement);
        struct pp_literal_costs literal = {.graph = &f.graph,
                                           .f = cost[0],
                                           .i = cost[1],
                                           .w = cost[2],
                                           .comm = cost[3],
                                           .textbook = true};
        const struct pp_costs costs = {pp_literal_time, &literal};
        if (!ok(plan_kind(&f, k->kind, 32, cost, &sim), "%s: planned", k->kind))
            continue;
        is_near(sim.makespan, k->textbook, 0, "  textbook");
        is_near(agree(&f.s, &costs, false, &t), k->textbook, 0,
                "  posted receives reach it at depth 1");
        is_near(agree(&f.s, &costs, true, &t), k->strict, 0,
                "  receives that wait in their places do not");
        is_int(t.wrong, 0, "  the ticks agree");
        pp_sim_finish(&sim);
        drop(&f);
    }
}

int main(void)
{
    test_random();
    test_kinds();
    return done();
}
