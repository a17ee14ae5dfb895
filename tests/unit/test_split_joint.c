/* SPDX-License-Identifier: MIT */
/* test_split_joint - the plans that a joint search tries on random tables: the
 * work of the busiest rank against sums over the table, and orders against it.
 */
#include "split/split_joint.h"

#include "base/rng.h"
#include "tap.h"

enum { N_UNITS = 10, N_RANKS = 3, M = 6, TOKENS = 16, N_TABLES = 4 };

struct table {
    struct pp_unit_row rows[N_UNITS];
    struct pp_unit_table units;
    struct pp_model model;
    struct pp_split_request request;
};

/* Units take the same time for F, I and W, the first none for I. */
static void make_table(struct table *x, uint64_t key)
{
    static const char *const names[N_UNITS] = {"a", "b", "c", "d", "e",
                                               "f", "g", "h", "i", "j"};
    *x = (struct table){.units = {"Random", x->rows, N_UNITS, 1}};
    for (int i = 0; i < N_UNITS; i++) {
        x->rows[i] =
            (struct pp_unit_row){.fqn = names[i],
                                 .class = "Block",
                                 .kind = i == 0             ? PP_UNIT_EMBED
                                         : i == N_UNITS - 1 ? PP_UNIT_HEAD
                                                            : PP_UNIT_LAYER,
                                 .costs = {.params = 10, .out_bytes = 8}};
        x->rows[i].costs.fwd_flops[0] =
            1 + floor(20 * pp_rng_uniform(key, (uint64_t)i));
    }
    x->model = (struct pp_model){
        .architecture = PP_TABLE, .n_layers = N_UNITS - 2, .table = &x->units};
    x->request = (struct pp_split_request){
        .shard = pp_shard_whole(&x->model),
        .precision = &pp_precisions[0],
        .microbatch = {.tokens = TOKENS, .seq_len = TOKENS},
        .n_ranks = N_RANKS,
        .n_microbatches = M,
    };
}

/* Returns the work of the busiest rank of a choice. */
static double busiest(const struct table *x, const struct pp_split_choice *c)
{
    double work[N_RANKS] = {0}, most = 0;
    for (int s = 0; s < N_RANKS * c->n_chunks; s++) {
        bool back = c->placement == PP_PLACEMENT_V && s / N_RANKS % 2;
        int rank = back ? N_RANKS - 1 - s % N_RANKS : s % N_RANKS;
        for (size_t i = c->bounds[s]; i < c->bounds[s + 1]; i++)
            work[rank] += 3.0 * M * TOKENS * x->rows[i].costs.fwd_flops[0];
    }
    for (int r = 0; r < N_RANKS; r++)
        most = fmax(most, work[r]);
    return most;
}

static void test_table(struct table *x, uint64_t key)
{
    struct pp_split_joint joint;
    struct pp_split_plan plan;
    struct pp_err err = {0};
    double least = INFINITY;
    size_t wrong = 0, early = 0, orders = 0;
    make_table(x, key);
    int rc = pp_split_joint(&x->request, true, &joint, &plan, &err);
    for (size_t i = 0; !rc && i < joint.n_choices; i++) {
        const struct pp_split_choice *c = &joint.choices[i];
        if (isinf(c->step))
            continue;
        wrong += fabs(busiest(x, c) / c->busiest - 1) > 1e-9;
        early += c->step < c->busiest * (1 - 1e-9);
        orders += !strcmp(c->kind, "auto");
        least = fmin(least, c->step);
    }
    ok(!rc && wrong == 0, "each choice has the work of its busiest rank");
    ok(!rc && early == 0 && orders > 0, "no order takes less than that work");
    ok(!rc && least == plan.run.found.makespan &&
           least >= joint.bound.step * (1 - 1e-9),
       "the plan is the shortest choice, and not below the bound");
    pp_split_plan_finish(&plan);
    pp_split_joint_finish(&joint);
}

int main(void)
{
    static struct table x;
    for (uint64_t key = 1; key <= N_TABLES; key += (uint64_t)fewer())
        test_table(&x, key);
    return done();
}
