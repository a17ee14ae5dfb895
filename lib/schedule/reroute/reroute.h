/* SPDX-License-Identifier: MIT */
/* reroute - the routes of microbatches through a mesh that has lost ranks.
 *
 * In a mesh of several data-parallel ranks, a lane is one rank of every row,
 * and a microbatch passes through the ranks of its lane. If a rank is lost, the
 * other ranks of its row have the same weights: they take the microbatches of
 * its lane in turn, and send the results back into the lane (Gandhi et al.,
 * "ReCycle: Resilient Training of Large DNNs using Pipeline Adaptation", SOSP
 * 2024). The ranks that are left no longer do the same work, so each becomes a
 * row of its own, with a list of its own. A route through these rows is a copy
 * of the weights (graph.h): every lane that is whole is one, and so is every
 * way around the ranks that a lane has lost. Everything that reads a schedule
 * then reads this one: the lowering, the checker, the simulator, the search,
 * the bound and the executor. */
#ifndef PP_SCHEDULE_REROUTE_REROUTE_H
#define PP_SCHEDULE_REROUTE_REROUTE_H

#include "schedule/ir/graph.h"

struct pp_reroute {
    struct pp_graph graph; /* its rows are the ranks that are left: row by row
                              of the whole mesh, ascending by lane */
    int n_microbatches; /* of all lanes: microbatch k of lane i is k dp + i */
    int *copy; /* per microbatch: its route, a copy of the weights. Copies
                  ascend by lane */
    int *lane; /* per row of the graph: the lane that its rank is in */
    int *row;  /* per row of the graph: the row that its rank played */
};

/* Finds the routes. g is the graph of a lane, of one copy of the weights;
 * n_microbatches are the microbatches of a lane; lost has dp entries for each
 * row of g. The result is in memory of a. Fails with PP_EXIT_NO if no rank of a
 * row is left: its weights are lost. */
int pp_reroute(struct pp_arena *a, const struct pp_graph *g, int dp,
               int n_microbatches, const bool *lost, struct pp_reroute *out,
               struct pp_err *err) PP_MUST_USE;

#endif
