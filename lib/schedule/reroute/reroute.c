/* SPDX-License-Identifier: MIT */
#include "schedule/reroute/reroute.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

struct router {
    const struct pp_graph *g;
    int dp;
    const bool *lost;
    int *number; /* per row and lane: the row in the new graph, or -1 */
    int *turn;   /* per row: the lane that took the last microbatch of a rank
                    that is lost */
    int *routes; /* (n_routes, n_rows): rows in the new graph */
    size_t n_routes, room;
};

static int number_rows(struct router *r, struct pp_reroute *out,
                       struct pp_err *err)
{
    int n = 0;
    for (int row = 0; row < r->g->n_rows; row++) {
        int before = n;
        for (int lane = 0; lane < r->dp; lane++) {
            int at = row * r->dp + lane;
            r->number[at] = r->lost[at] ? -1 : n;
            if (r->lost[at])
                continue;
            out->row[n] = row;
            out->lane[n++] = lane;
        }
        if (n == before)
            return pp_fail(err, PP_EXIT_NO,
                           "row %d has lost all %d of its data-parallel ranks, "
                           "and their weights with them",
                           row, r->dp);
    }
    out->graph.n_rows = n;
    return 0;
}

/* Returns the next rank of a row, in turn. */
static int next_rank(struct router *r, int row)
{
    do
        r->turn[row] = (r->turn[row] + 1) % r->dp;
    while (r->number[row * r->dp + r->turn[row]] < 0);
    return r->number[row * r->dp + r->turn[row]];
}

/* Returns the number of the route of the next microbatch of a lane. `from` is
 * the first route of the lane. */
static int find_route(struct router *r, int lane, size_t from)
{
    size_t n = (size_t)r->g->n_rows, k = from;
    pp_array_reserve(&r->routes, &r->room, (r->n_routes + 1) * n,
                     sizeof *r->routes);
    int *route = r->routes + r->n_routes * n;
    for (int row = 0; row < r->g->n_rows; row++) {
        int own = r->number[row * r->dp + lane];
        route[row] = own >= 0 ? own : next_rank(r, row);
    }
    while (memcmp(r->routes + k * n, route, n * sizeof *route) != 0)
        k++;
    r->n_routes += k == r->n_routes;
    return (int)k;
}

static void find_routes(struct router *r, struct pp_reroute *out)
{
    for (int lane = 0; lane < r->dp; lane++) {
        size_t from = r->n_routes;
        for (int m = lane; m < out->n_microbatches; m += r->dp)
            out->copy[m] = find_route(r, lane, from);
    }
}

/* Makes a copy of the stages of g for each route. */
static void copy_stages(const struct router *r, struct pp_arena *a,
                        struct pp_graph *out)
{
    const struct pp_graph *g = r->g;
    for (int s = 0; s < out->n_stages; s++) {
        int route = s / g->n_stages, first = route * g->n_stages;
        const struct pp_stage_node *from = &g->stages[s - first];
        int *inputs = pp_arena_alloc(a, (size_t)from->n_inputs, sizeof *inputs);
        for (int i = 0; i < from->n_inputs; i++)
            inputs[i] = from->inputs[i] + first;
        out->stages[s] = (struct pp_stage_node){
            .row = r->routes[route * g->n_rows + from->row],
            .n_inputs = from->n_inputs,
            .inputs = inputs,
            .frozen = from->frozen};
    }
}

int pp_reroute(struct pp_arena *a, const struct pp_graph *g, int dp,
               int n_microbatches, const bool *lost, struct pp_reroute *out,
               struct pp_err *err)
{
    size_t places = (size_t)g->n_rows * (size_t)dp, n;
    struct router r = {.g = g,
                       .dp = dp,
                       .lost = lost,
                       .number = pp_calloc(places, sizeof *r.number),
                       .turn = pp_calloc((size_t)g->n_rows, sizeof *r.turn)};
    *out = (struct pp_reroute){
        .graph = *g,
        .row = pp_arena_alloc(a, places, sizeof *out->row),
        .lane = pp_arena_alloc(a, places, sizeof *out->lane)};
    int rc = n_microbatches > INT_MAX / dp
                 ? pp_fail(err, PP_EXIT_INPUT,
                           "%d microbatches of %d lanes are too many",
                           n_microbatches, dp)
                 : number_rows(&r, out, err);
    if (rc)
        goto out;
    out->n_microbatches = n_microbatches * dp;
    out->copy =
        pp_arena_alloc(a, (size_t)out->n_microbatches, sizeof *out->copy);
    for (int row = 0; row < g->n_rows; row++)
        r.turn[row] = dp - 1;
    find_routes(&r, out);
    n = r.n_routes * (size_t)g->n_stages;
    if (n > 1 << 24) {
        rc = pp_fail(err, PP_EXIT_INPUT, "%zu routes of %d stages are too many",
                     r.n_routes, g->n_stages);
        goto out;
    }
    out->graph.n_copies = (int)r.n_routes;
    out->graph.n_stages = (int)n;
    out->graph.stages = pp_arena_alloc(a, n, sizeof *out->graph.stages);
    copy_stages(&r, a, &out->graph);
    rc = pp_graph_connect(a, &out->graph, err);
out:
    free(r.number);
    free(r.turn);
    free(r.routes);
    return rc;
}
