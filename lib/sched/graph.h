/* SPDX-License-Identifier: MIT */
/* graph - the stages, where they are placed, and who feeds whom.
 *
 * Stages form a DAG, not a chain: a stage takes activations from its inputs
 * and gives its output to every stage that names it as one. Stages are
 * numbered so that inputs come first. */
#ifndef PP_SCHED_GRAPH_H
#define PP_SCHED_GRAPH_H

#include <stdbool.h>

#include "base/arena.h"
#include "base/err.h"

struct pp_stage_node {
    int rank; /* pipeline rank */
    int n_inputs;
    const int *inputs; /* ascending; all smaller than the stage's own number */
    int n_outputs;
    const int *outputs; /* ascending */
    bool input_grad;    /* sends gradients to its inputs. False for a source:
                           it does nothing at I and all its backward at W */
};

struct pp_graph {
    int n_ranks, n_stages;
    struct pp_stage_node *stages;
    int tied[2]; /* the stages that hold the tied embedding and head, or -1 */
};

enum pp_placement {
    PP_PLACEMENT_LOOP, /* stage s on rank s mod p */
    PP_PLACEMENT_V     /* ranks 0..p-1, p-1..0, 0..p-1, ... */
};

/* The rank of stage s. */
int pp_placement_rank(enum pp_placement placement, int n_ranks, int stage);

/* A chain of n_ranks * n_chunks stages, memory from a. Untied. */
int pp_graph_chain(struct pp_arena *a, int n_ranks, int n_chunks,
                   enum pp_placement placement, struct pp_graph *g,
                   struct pp_err *err) PP_MUST_USE;

/* Fills outputs, n_outputs and input_grad of every stage from rank and inputs,
 * which the caller has set; checks ranges and order (PP_EXIT_INPUT). */
int pp_graph_connect(struct pp_arena *a, struct pp_graph *g,
                     struct pp_err *err) PP_MUST_USE;

/* True when the graph is a chain placed so. */
bool pp_graph_is(const struct pp_graph *g, enum pp_placement placement);

/* Longest path from stage to a stage without outputs, in stages; 0 for the
 * last stage. Warm-up depth is counted by it. -1 when out of memory. */
int pp_graph_depth(const struct pp_graph *g, int stage);

/* Whether what both stages make comes together before the loss. Then the
 * backward of either waits for the forward of the other. */
bool pp_graph_meet(const struct pp_graph *g, int stage, int other);

#endif
