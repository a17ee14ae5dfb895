/* SPDX-License-Identifier: MIT */
/* graph - the stages, their ranks, and the edges between them.
 *
 * Stages form a DAG, not a chain: a stage reads the outputs of its input
 * stages, and several stages may read its own output. Inputs have smaller
 * numbers than the stages that read them.
 *
 * The graph may hold several copies of the weights. The stages of each copy
 * follow all stages of the one before it, in the same order and with the same
 * edges, but each on a rank of its own choice. A microbatch passes through one
 * copy. If two copies have a stage on one rank, the rank holds its weights
 * once: a copy is a route through the ranks.
 *
 * Sequences may be cut into slices, which pass the stages one after the other.
 */
#ifndef PP_SCHEDULE_IR_GRAPH_H
#define PP_SCHEDULE_IR_GRAPH_H

#include <stdbool.h>

#include "base/arena.h"
#include "base/err.h"
#include "schedule/ir/slices.h"

struct pp_stage_node {
    int row; /* the schedule row, which is also the pipeline rank */
    int n_inputs;
    const int *inputs; /* ascending; all smaller than this stage's number */
    int n_outputs;
    const int *outputs; /* ascending */
    bool frozen;       /* the weights of the stage are not trained: it has no W.
                          Set by the caller */
    bool has_backward; /* it is trained, or a stage before it is */
    bool input_grad;   /* it sends gradients to the inputs that have a backward.
                          If false, it does nothing at I and its whole
                          backward at W: so does a source */
    int copy_of;       /* stage of the first copy with these weights, or -1 */
};

struct pp_graph {
    int n_rows, n_stages;
    struct pp_stage_node *stages;
    int tied[2];  /* the stages of the first copy that hold a tied embedding and
                     the other tensor with its values, or -1 */
    int n_copies; /* copies of the weights; divides n_stages */
    struct pp_slices slices; /* deps.h has their dependencies */
    bool replicas; /* several ranks play each row, on other data, so that every
                      stage needs REDUCE_GRAD */
    int resident;  /* 0, or the ranks of a row divide the weights, so that every
                      stage needs UNSHARD and RESHARD: the most stages of a row
                      that pp_lower_sharding has whole at once */
};

enum pp_placement {
    PP_PLACEMENT_LOOP,     /* stage s on row s mod p */
    PP_PLACEMENT_V,        /* rows 0..p-1, p-1..0, 0..p-1, ... */
    PP_PLACEMENT_BOTH_WAYS /* a chain on rows 0..p-1, its copy on p-1..0 */
};

/* Returns the number of the copy that stage belongs to, from 0. */
static inline int pp_copy_number(const struct pp_graph *g, int stage)
{
    return stage / (g->n_stages / g->n_copies);
}

/* Returns the stage of the first copy that has the same weights. */
static inline int pp_original(const struct pp_graph *g, int stage)
{
    return stage % (g->n_stages / g->n_copies);
}

/* Returns the first stage with the same weights on the same rank. */
static inline int pp_home(const struct pp_graph *g, int stage)
{
    int s = pp_original(g, stage);
    while (g->stages[s].row != g->stages[stage].row)
        s += g->n_stages / g->n_copies;
    return s;
}

/* The ranks that hold copies of a stage, if they are evenly spaced: n rows from
 * first on, by step. */
struct pp_copy_rows {
    int first, step, n;
};

/* Fills rows for a stage of the first copy. Returns false if they are not
 * evenly spaced. */
bool pp_copy_rows(const struct pp_graph *g, int stage,
                  struct pp_copy_rows *rows);

/* Returns true if a row is one of them. */
static inline bool pp_in_copy_rows(const struct pp_copy_rows *rows, int row)
{
    int after = row - rows->first;
    return after >= 0 && after % rows->step == 0 &&
           after / rows->step < rows->n;
}

/* Returns true if a backward of `to` sends a gradient to `from`, its input. */
static inline bool pp_sends_gradient(const struct pp_graph *g, int from)
{
    return g->stages[from].has_backward;
}

/* Returns the row of the stage. */
int pp_placement_row(enum pp_placement placement, int n_rows, int stage);

/* Builds an untied chain of n_rows * n_chunks stages in memory of a. With
 * PP_PLACEMENT_BOTH_WAYS n_chunks must be 1, and each row holds one stage of
 * each copy. */
int pp_graph_chain(struct pp_arena *a, int n_rows, int n_chunks,
                   enum pp_placement placement, struct pp_graph *g,
                   struct pp_err *err) PP_MUST_USE;

/* Puts n stages before the stages of a chain, each on a row of its own before
 * the rows of the chain. */
int pp_graph_precede(struct pp_arena *a, int n, struct pp_graph *g,
                     struct pp_err *err) PP_MUST_USE;

/* Puts a head behind a chain that has one stage on each row: n stages that read
 * its last stage, in equal runs on the rows from the first on, and the loss,
 * which reads all of them, on the row of the last stage. Fails with
 * PP_EXIT_INPUT if the chain is another or n is not a multiple of the rows. */
int pp_graph_add_head(struct pp_arena *a, int n, struct pp_graph *g,
                      struct pp_err *err) PP_MUST_USE;

/* Returns the first stage of the head if the graph is one that
 * pp_graph_add_head made, else -1: branches on other rows are no head. */
int pp_graph_head(const struct pp_graph *g);

/* Fills outputs, n_outputs, has_backward, input_grad and copy_of of every
 * stage. The caller has set row, inputs, frozen and n_copies. Sets n_copies and
 * slices.n to 1 if they are 0. Fails with PP_EXIT_INPUT if a number is out of
 * range, inputs are out of order or the copies differ. */
int pp_graph_connect(struct pp_arena *a, struct pp_graph *g,
                     struct pp_err *err) PP_MUST_USE;

/* Returns true if the graph is a chain with this placement. */
bool pp_graph_is(const struct pp_graph *g, enum pp_placement placement);

/* Returns the first stage that breaks a chain, or -1 if each copy is one. In a
 * chain the first stage has no input, and every other stage has one: the
 * previous stage. */
int pp_graph_break(const struct pp_graph *g);

/* Returns the most rows that add gradients of the same weights, this one among
 * them: rows of copies, or of a tied embedding and head; 1: none do. */
int pp_graph_adds(const struct pp_graph *g, int row);

/* Returns true if the outputs of both stages flow into a common stage before
 * the loss. The backward of each then waits for the forward of the other. */
bool pp_graph_meet(const struct pp_graph *g, int stage, int other);

#endif
