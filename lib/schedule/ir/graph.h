/* SPDX-License-Identifier: MIT */
/* graph - the stages, where they are placed, and who feeds whom.
 *
 * Stages form a DAG, not a chain: a stage takes activations from its inputs
 * and gives its output to every stage that names it as one. Stages are
 * numbered so that inputs come first.
 *
 * The weights may be there more than once. The stages of the second copy then
 * follow all those of the first, in the same order and connected in the same
 * way among themselves, on ranks of their own choice; a microbatch passes
 * through one copy, from its sources to its loss. Sequences may be cut into
 * slices, which pass the stages one after the other. */
#ifndef PP_SCHEDULE_IR_GRAPH_H
#define PP_SCHEDULE_IR_GRAPH_H

#include <stdbool.h>

#include "base/arena.h"
#include "base/err.h"

struct pp_stage_node {
    int row; /* pipeline rank */
    int n_inputs;
    const int *inputs; /* ascending; all smaller than the stage's own number */
    int n_outputs;
    const int *outputs; /* ascending */
    bool input_grad;    /* sends gradients to its inputs. False for a source:
                           it does nothing at I and all its backward at W */
    int copy_of;        /* the stage whose weights these are too, or -1 */
};

/* Copies of the weights that a graph can have: one for each way through the
 * ranks. */
enum { PP_MAX_COPIES = 2 };

struct pp_graph {
    int n_rows, n_stages;
    struct pp_stage_node *stages;
    int tied[2];  /* the stages that hold the tied embedding and head, or -1;
                     of the first copy */
    int n_copies; /* of the weights; n_stages is a multiple */
    int n_slices; /* of each microbatch; what they wait for is in deps.h */
};

enum pp_placement {
    PP_PLACEMENT_LOOP,     /* stage s on rank s mod p */
    PP_PLACEMENT_V,        /* ranks 0..p-1, p-1..0, 0..p-1, ... */
    PP_PLACEMENT_BOTH_WAYS /* a chain on ranks 0..p-1, its copy on p-1..0 */
};

/* Of a stage: which copy it belongs to, from 0, and which stage of the first
 * copy has the same weights. */
static inline int pp_copy_number(const struct pp_graph *g, int stage)
{
    return stage / (g->n_stages / g->n_copies);
}

static inline int pp_original(const struct pp_graph *g, int stage)
{
    return stage % (g->n_stages / g->n_copies);
}

/* The rank of stage s. */
int pp_placement_row(enum pp_placement placement, int n_rows, int stage);

/* A chain of n_ranks * n_chunks stages, memory from a. Untied. Both ways there
 * is one chunk of each copy on a rank, and n_chunks is 1. */
int pp_graph_chain(struct pp_arena *a, int n_rows, int n_chunks,
                   enum pp_placement placement, struct pp_graph *g,
                   struct pp_err *err) PP_MUST_USE;

/* Fills outputs, n_outputs, input_grad and copy_of of every stage from rank,
 * inputs and n_copies, which the caller has set; checks ranges, order and that
 * copies are alike (PP_EXIT_INPUT). Makes n_copies and n_slices 1 where they
 * are 0. */
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
