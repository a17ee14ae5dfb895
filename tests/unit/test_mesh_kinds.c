/* SPDX-License-Identifier: MIT */
/* test_mesh_kinds - kinds and orders on random tables: each row against the
 * plan of its kind alone and against sums over the table, and the plan against
 * all rows and the bound. */
#include "mesh/kinds.h"

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

/* Returns the work of the busiest rank of a row. */
static double busiest(const struct table *x, const struct pp_split_row *r)
{
    const struct pp_split_request *q = &r->request;
    double work[N_RANKS] = {0}, most = 0;
    for (int s = 0; s < N_RANKS * q->n_chunks; s++) {
        bool back = q->placement == PP_PLACEMENT_V && s / N_RANKS % 2;
        int rank = back ? N_RANKS - 1 - s % N_RANKS : s % N_RANKS;
        for (size_t i = q->bounds[s]; i < q->bounds[s + 1]; i++)
            work[rank] += 3.0 * M * TOKENS * x->rows[i].costs.fwd_flops[0];
    }
    for (int k = 0; k < N_RANKS; k++)
        most = fmax(most, work[k]);
    return most;
}

/* Returns the step that the kind of a row has by itself. */
static double alone(const struct table *x, const struct pp_split_row *r)
{
    struct pp_split_request q = x->request;
    struct pp_split_plan plan;
    struct pp_err err = {0};
    q.kind = r->request.kind;
    q.placement = r->request.placement;
    q.n_chunks = r->request.n_chunks;
    q.whole_head = r->request.whole_head;
    q.shortest = true;
    q.plan_buffers = true;
    double step = pp_split_plan(&q, &plan, &err) ? -1 : plan.run.found.makespan;
    pp_split_plan_finish(&plan);
    return step;
}

static void test_table(struct table *x, uint64_t key)
{
    struct pp_mesh_kinds found;
    struct pp_err err = {0};
    const struct pp_kind *whole[PP_MAX_KINDS] = {NULL};
    size_t other = 0, early = 0, orders = 0, kinds = 0, n = 0;
    for (const struct pp_kind *const *k = pp_kinds; *k; k++)
        if (!(*k)->slices && !(*k)->copies)
            whole[n++] = *k;
    make_table(x, key);
    const struct pp_mesh_contest c = {
        .request = &x->request, .kinds = whole, .orders = true};
    int rc = pp_mesh_compare(&c, &found, &err);
    double least = INFINITY;
    for (size_t i = 0; !rc && i < found.n; i++) {
        const struct pp_split_row *r = &found.rows[i];
        bool order = r->request.search_order;
        if (r->why)
            continue;
        double self = order ? r->step : alone(x, r);
        other += self < r->step || self > r->step;
        early += r->step < busiest(x, r) * (1 - 1e-9);
        orders += order;
        kinds += !order;
        least = fmin(least, r->step);
    }
    ok(!rc && other == 0 && kinds > 8, "each kind has the step of its plan");
    ok(!rc && early == 0 && orders > 0,
       "no order takes less than the work of its busiest rank");
    ok(!rc && least == found.plan.run.found.makespan &&
           least == found.rows[0].step &&
           least >= found.bound.step * (1 - 1e-9),
       "the plan is the first row, and not below the bound");
    pp_mesh_kinds_finish(&found);
}

int main(void)
{
    static struct table x;
    for (uint64_t key = 1; key <= N_TABLES; key += (uint64_t)fewer())
        test_table(&x, key);
    return done();
}
