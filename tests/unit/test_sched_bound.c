/* SPDX-License-Identifier: MIT */
/* The lower bound: never above the optimum of tiny instances. */
#include "sched_fixture.h"

#include "base/rng.h"
#include "optimum.h"
#include "sched/bound.h"

struct dice {
    uint64_t key, at;
};

static int roll(struct dice *d, int n)
{
    return (int)(pp_rng_bits(d->key, d->at++) % (uint64_t)n);
}

/* A tiny problem: time by op, stage and microbatch. */
struct instance {
    struct fixture f;
    int m;
    bool split, alike;
    double time[PP_N_OPS][OPT_STAGES][OPT_MICROBATCHES];
    double limit[OPT_RANKS];
    struct pp_load load[OPT_STAGES];
    struct pp_room room;
};

static double instance_time(const void *ctx, struct pp_action a)
{
    const struct instance *x = ctx;
    return x->time[a.op][a.stage][a.microbatch];
}

/* A chain, or with one more input somewhere. */
static void roll_graph(struct instance *x, struct dice *d)
{
    static const int shapes[][3] = {/* ranks, chunks, most microbatches */
                                    {2, 1, 4}, {2, 1, 4}, {3, 1, 3},
                                    {1, 2, 3}, {2, 2, 3}, {2, 3, 2}};
    const int *shape = shapes[roll(d, 6)];
    chain(&x->f, shape[0], shape[1],
          roll(d, 2) ? PP_PLACEMENT_V : PP_PLACEMENT_LOOP);
    x->m = 1 + roll(d, shape[2]);
    int n = x->f.graph.n_stages, extra = roll(d, 3);
    if (extra || n < 3)
        return;
    /* Stage 1 becomes a second source, or 0 feeds 2 as well. */
    static const int both[] = {0, 1};
    x->f.graph.stages[2].inputs = both;
    x->f.graph.stages[2].n_inputs = 2;
    if (roll(d, 2))
        x->f.graph.stages[1].n_inputs = 0;
    if (pp_graph_connect(&x->f.arena, &x->f.graph, &x->f.err))
        printf("# %s\n", x->f.err.text);
}

/* What one microbatch of all the stages of a rank holds is the least that can
 * be enough. */
static void roll_room(struct instance *x, struct dice *d)
{
    static const struct pp_load loads[] = {
        {0, 1, 0}, {0, 1, 0}, {4, 3, 0}, {2, 3, 1}, {1, 2, 2}};
    int n = x->f.graph.n_stages, kind = roll(d, 5);
    for (int s = 0; s < n; s++) {
        struct pp_load l = loads[kind];
        int scale = 1 + (kind > 1 ? roll(d, 2) : 0);
        x->load[s] = (struct pp_load){scale * l.f_to_i, scale * l.f_to_w,
                                      scale * l.i_to_w};
        if (!x->f.graph.stages[s].input_grad)
            x->load[s] = (struct pp_load){0, scale * (l.f_to_i + l.f_to_w), 0};
        x->limit[x->f.graph.stages[s].rank] +=
            x->load[s].f_to_i + x->load[s].f_to_w + x->load[s].i_to_w;
    }
    for (int r = 0; r < x->f.graph.n_ranks; r++)
        x->limit[r] *= 1 + roll(d, 5) / 2.0;
    x->room = (struct pp_room){x->limit, x->load};
}

static void roll_instance(struct instance *x, struct dice *d)
{
    *x = (struct instance){0};
    roll_graph(x, d);
    x->split = roll(d, 3) > 0;
    x->alike = roll(d, 3) > 0;
    int range = 1 + roll(d, 10), comm = roll(d, 3), unit = roll(d, 2);
    for (int s = 0; s < x->f.graph.n_stages; s++)
        for (int k = 0; k < x->m; k++)
            for (int op = 0; op < PP_N_OPS; op++) {
                double *t = &x->time[op][s][k];
                *t = x->alike && k           ? t[-1]
                     : unit && s && x->alike ? x->time[op][s - 1][k]
                     : op < PP_SEND_F        ? 1 + roll(d, range)
                                             : roll(d, 1 + comm);
            }
    for (int s = 0; s < x->f.graph.n_stages; s++)
        for (int k = 0; k < x->m; k++) {
            bool source = !x->f.graph.stages[s].input_grad && comm;
            double *i = &x->time[PP_I][s][k], *w = &x->time[PP_W][s][k];
            *w += source ? *i : 0;
            *i = source ? 0 : *i;
            x->time[PP_B][s][k] = *i + *w;
        }
    roll_room(x, d);
}

struct counts {
    int decided, above, equal, memory, unlike;
    double gap;
};

static void compare(struct instance *x, bool limited, struct counts *n)
{
    struct pp_costs costs = {.time = instance_time, .ctx = x};
    const struct pp_room *room = limited ? &x->room : NULL;
    struct pp_bound b;
    if (pp_bound(&x->f.graph, x->m, x->split, &costs, room, &b, &x->f.err)) {
        printf("# %s\n", x->f.err.text);
        n->above++;
        return;
    }
    struct optimum o = {.g = &x->f.graph,
                        .costs = &costs,
                        .room = room,
                        .m = x->m,
                        .split = x->split,
                        .in_order = x->alike,
                        .best = b.makespan,
                        .nodes = 200000};
    bool decided = optimum_find(&o);
    if (o.best < b.makespan - 1e-9) {
        n->above++;
        printf("# bound %g (%s) above the optimum %g: %d ranks, %d stages, "
               "%d microbatches, split %d, limited %d, alike %d\n",
               b.makespan, b.rule, o.best, x->f.graph.n_ranks,
               x->f.graph.n_stages, x->m, x->split, limited, x->alike);
        return;
    }
    if (!decided)
        return;
    o.best = 2 * b.makespan;
    o.nodes = 400000;
    if (!optimum_find(&o) && o.best > b.makespan + 1e-9)
        return;
    n->decided++;
    n->memory += limited;
    n->unlike += !x->alike;
    n->equal += o.best < b.makespan * (1 + 1e-9);
    n->gap = fmax(n->gap, o.best / b.makespan - 1);
}

static void test_optimum(int n_instances)
{
    struct dice d = {.key = pp_rng_key(1, "bound")};
    struct counts n = {0};
    for (int i = 0; i < n_instances; i++) {
        struct instance x;
        roll_instance(&x, &d);
        compare(&x, i % 2 == 1, &n);
        drop(&x.f);
    }
    is_int(n.above, 0, "no bound is above the optimum");
    printf("# %d decided, %d with a limit, %d with unequal microbatches: %d "
           "bounds equal the optimum, the worst is %.1f %% below\n",
           n.decided, n.memory, n.unlike, n.equal, 100 * n.gap);
    ok(n.decided > n_instances * 8 / 10, "most optima were found");
    ok(n.equal > n.decided * 7 / 10, "most bounds are the optimum");
}

int main(int argc, char **argv)
{
    test_optimum(argc > 1 ? atoi(argv[1]) : 400);
    return done();
}
