/* SPDX-License-Identifier: MIT */
/* Tests the choice of the channel depth against a scan of all depths, the
 * messages that are placed again by their times, and the depth of every kind.
 */
#include "schedule/simulate/depth.h"
#include "sched_dice.h"

/* Random times of a stage's actions and messages. */
struct random_costs {
    uint64_t key;
    int message;
};

static double random_time(const void *ctx, struct pp_action a)
{
    const struct random_costs *c = ctx;
    uint64_t bits = pp_rng_bits(c->key, (uint64_t)(a.stage * 32 + a.op));
    if (pp_is_send(a.op))
        return (double)(bits % (uint64_t)(c->message + 1));
    return pp_is_compute(a.op) ? 1 + (double)(bits % 8) : 0;
}

/* A limit that stands for memory: the most depth. */
static int fits_depth(void *ctx, const struct pp_schedule *s, bool *yes,
                      struct pp_err *err)
{
    (void)err;
    *yes = s->channel_depth <= *(const int *)ctx;
    return 0;
}

static double run_at(struct pp_schedule *s, const struct pp_costs *costs,
                     int depth)
{
    struct pp_sim sim;
    struct pp_err err = {0};
    s->channel_depth = depth;
    if (pp_simulate(s, costs, depth, &sim, &err))
        return INFINITY;
    double makespan = sim.makespan;
    pp_sim_finish(&sim);
    return makespan;
}

enum { MANY = 200 };

/* Returns the least depth that the checker accepts and that takes no longer
 * than MANY. */
static int scan(struct pp_schedule *s, const struct pp_costs *costs)
{
    double best = run_at(s, costs, MANY);
    for (int depth = 1;; depth++) {
        struct pp_err err = {0};
        double makespan = run_at(s, costs, depth);
        if (pp_check(s, &err) == 0 && makespan <= best)
            return depth;
    }
}

struct tally {
    int n, wrong, deep, limited, slow, moved, broken;
};

static void choose_both(struct fixture *f, const struct pp_costs *costs,
                        struct dice *d, struct tally *t)
{
    struct pp_schedule *s = &f->s;
    int want = scan(s, costs), most = 1 + roll(d, 3), least = 1;
    struct pp_depth_options o = {.costs = costs, .fixed = -1};
    struct pp_depth_found found;
    t->wrong += pp_depth_choose(s, &o, &found, &f->err) ||
                s->channel_depth != want || !found.fits ||
                found.makespan != run_at(s, costs, want) ||
                found.unbounded != run_at(s, costs, MANY);
    t->deep += want > 1;
    o.fits = fits_depth;
    o.ctx = &most;
    for (s->channel_depth = 1; pp_check(s, &f->err); s->channel_depth++)
        f->err = (struct pp_err){0};
    least = s->channel_depth;
    t->wrong += pp_depth_choose(s, &o, &found, &f->err) != 0 ||
                found.fits != (least <= most) ||
                s->channel_depth != (least > most  ? least
                                     : want < most ? want
                                                   : most);
    t->limited += want > most;
    t->n++;
}

static void test_scan(struct dice *d)
{
    struct tally t = {0};
    for (int i = 0; i < 400; i++) {
        struct fixture f;
        const struct random_costs random = {.key = pp_rng_bits(d->key, d->at++),
                                            .message = roll(d, 2) ? 12 : 1};
        const struct pp_costs costs = {random_time, &random, 0};
        random_schedule(&f, d);
        f.s.channel_depth = MANY;
        if (pp_check(&f.s, &f.err) == 0)
            choose_both(&f, &costs, d, &t);
        drop(&f);
    }
    printf("# %d schedules, %d deeper than 1, %d limited\n", t.n, t.deep,
           t.limited);
    ok(t.n > 200 && t.deep > 50 && t.limited > 20, "schedules of each sort");
    is_int(t.wrong, 0, "the depth is that of a scan, or the most that fits");
}

/* Returns true if both have the same actions but for messages. */
static bool same_computes(const struct pp_schedule *a,
                          const struct pp_schedule *b)
{
    for (int r = 0; r < a->graph->n_rows; r++) {
        const struct pp_row *x = &a->rows[r], *y = &b->rows[r];
        size_t k = 0;
        if (x->n != y->n)
            return false;
        for (size_t i = 0; i < x->n; i++) {
            if (is_message(x->actions[i]))
                continue;
            while (k < y->n && is_message(y->actions[k]))
                k++;
            if (k == y->n ||
                memcmp(&x->actions[i], &y->actions[k++], sizeof *x->actions))
                return false;
        }
    }
    return true;
}

/* Places the messages of a schedule at depth 1 again, by its times. */
static void place_again(struct fixture *f, const struct pp_costs *costs,
                        struct tally *t)
{
    int one = 1;
    const struct pp_depth_options o = {.costs = costs,
                                       .fits = fits_depth,
                                       .ctx = &one,
                                       .fixed = -1,
                                       .lowered = true};
    struct pp_schedule again = {0}, chosen = {0};
    struct pp_depth_found found;
    double before = run_at(&f->s, costs, 1),
           textbook = run_at(&f->s, costs, MANY);
    t->n++;
    pp_schedule_copy(&f->s, &again);
    pp_schedule_copy(&f->s, &chosen);
    if (pp_lower_again(&again, costs, &f->err) ||
        pp_depth_choose(&chosen, &o, &found, &f->err)) {
        t->wrong++;
    } else {
        double after = run_at(&again, costs, 1);
        for (again.channel_depth = 0; again.channel_depth < 3;
             again.channel_depth++)
            t->broken += pp_check(&again, &f->err) != 0;
        t->broken += !same_computes(&f->s, &again);
        t->broken += run_at(&again, costs, MANY) != textbook;
        t->moved += after < before;
        t->slow += before > textbook;
        t->wrong += found.makespan != fmin(before, after) ||
                    found.makespan != run_at(&chosen, costs, 1);
    }
    pp_schedule_finish(&again);
    pp_schedule_finish(&chosen);
}

static void test_again(struct dice *d)
{
    struct tally t = {0};
    for (int i = 0; i < 400; i++) {
        struct fixture f;
        const struct random_costs random = {.key = pp_rng_bits(d->key, d->at++),
                                            .message = roll(d, 2) ? 12 : 1};
        const struct pp_costs costs = {random_time, &random, 0};
        random_kind(&f, d);
        if (pp_lower(&f.s, &f.err) == 0)
            place_again(&f, &costs, &t);
        drop(&f);
    }
    printf("# %d schedules, %d slower at depth 1, %d of them faster again\n",
           t.n, t.slow, t.moved);
    ok(t.n > 350 && t.slow > 30 && t.moved > 4, "some messages are late");
    is_int(t.broken, 0, "placed again they run at any depth");
    is_int(t.wrong, 0, "and are taken if that is faster");
}

/* Every kind on 8 ranks with 32 microbatches, each rank's work the same. */
static void test_kinds(void)
{
    static const double messages[] = {0, 1, 3, 10};
    int n = 0, equal = 0, at_one = 0;
    for (const struct pp_kind *const *k = pp_kinds; *k; k++)
        for (int i = 0; i < 4; i++) {
            int c = (*k)->n_chunks ? (*k)->n_chunks : 1;
            const double cost[] = {10.0 / c, 10.0 / c, 8.0 / c, messages[i]};
            struct fixture f;
            struct pp_sim sim;
            struct pp_depth_found found;
            chain(&f, 8, c,
                  (*k)->copies ? PP_PLACEMENT_BOTH_WAYS
                  : (*k)->v    ? PP_PLACEMENT_V
                               : PP_PLACEMENT_LOOP);
            f.graph.slices.n = (*k)->slices ? (*k)->slices : 1;
            struct pp_literal_costs literal = {.graph = &f.graph,
                                               .f = cost[0],
                                               .i = cost[1],
                                               .w = cost[2],
                                               .comm = cost[3],
                                               .textbook = true};
            const struct pp_costs costs = {pp_literal_time, &literal, 0};
            const struct pp_depth_options o = {.costs = &costs, .fixed = -1};
            if (plan_kind(&f, (*k)->name, 32, cost, &sim)) {
                at_one += run_at(&f.s, &costs, 1) <= 1.005 * sim.makespan;
                equal += !pp_depth_choose(&f.s, &o, &found, &f.err) &&
                         fabs(found.makespan / sim.makespan - 1) < 1e-9 &&
                         f.s.channel_depth <= 2;
                pp_sim_finish(&sim);
            }
            n++;
            drop(&f);
        }
    printf("# %d of %d within 0.5 %% at depth 1\n", at_one, n);
    ok(n >= 56 && at_one < n, "every kind is tried with four message times");
    is_int(equal, n, "each is as fast as the textbook, at depth 1 or 2");
}

int main(void)
{
    struct dice d = {.key = pp_rng_key(5, "depth")};
    test_scan(&d);
    test_again(&d);
    test_kinds();
    return done();
}
