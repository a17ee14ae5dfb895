/* SPDX-License-Identifier: MIT */
/* deps - the only statement of the dependency rules, and the record of which
 * requirements are met.
 *
 * The lowering, the checker, the simulator and the executor all use these
 * rules; no other file states one. */
#ifndef PP_SCHEDULE_IR_DEPS_H
#define PP_SCHEDULE_IR_DEPS_H

#include <stdint.h>

#include "schedule/ir/numbering.h"

/* One requirement of an action: one of ops, a bit mask of 1 << PP_x, must have
 * run on the stage for the same microbatch and the given slice. */
struct pp_dep {
    int stage, slice;
    unsigned ops;
    enum pp_op message; /* PP_RECV_F or PP_RECV_B if the stage is on another
                           rank, else PP_N_OPS */
};

/* Calls visit for every requirement of compute action a:
 *   F(s)   F of every input
 *   I, B   F of s, and I or B of every output, if s has a backward: the outputs
 *          then have an input gradient
 *   W      F and I of s. If s has no input gradient, its I does nothing, so
 *          W also needs what I waits for.
 * A token attends to earlier tokens, so the slices of a microbatch on s also
 * depend on each other:
 *   F      F of the previous slice, which provides keys and values
 *   I, B   I or B of the next slice, which adds to their gradients. If s has
 *          no input gradient, B and W wait for B or W of the next slice.
 * Stops and returns the result if visit returns nonzero. */
int pp_deps(const struct pp_graph *g, struct pp_action a,
            int (*visit)(void *ctx, struct pp_dep dep), void *ctx);

/* Calls visit with every SEND that must follow compute action a: one for each
 * stage on another rank that waits for its result. */
void pp_transfers(const struct pp_graph *g, struct pp_action a,
                  void (*visit)(void *ctx, struct pp_action send), void *ctx);

/* Returns the RECV that matches a SEND, or the SEND that matches a RECV. */
static inline struct pp_action pp_other_end(struct pp_action a)
{
    static const uint8_t other[] = {[PP_SEND_F] = PP_RECV_F,
                                    [PP_RECV_F] = PP_SEND_F,
                                    [PP_SEND_B] = PP_RECV_B,
                                    [PP_RECV_B] = PP_SEND_B};
    struct pp_action b = a;
    b.stage = a.peer;
    b.peer = a.stage;
    b.op = other[a.op];
    return b;
}

/* Returns true if a stage without a weight gradient does nothing after I, so
 * that its I ends its backward as B does. */
static inline bool pp_ends_backward(const struct pp_graph *g,
                                    struct pp_action a)
{
    return a.op == PP_B || a.op == PP_W ||
           (a.op == PP_I && g->stages[a.stage].frozen);
}

/* Returns true if a adds to the gradients of weights. */
static inline bool pp_adds_gradients(const struct pp_graph *g,
                                     struct pp_action a)
{
    return (a.op == PP_B || a.op == PP_W) && !g->stages[a.stage].frozen;
}

/* Returns true if a is the action in which its stage consumes a received
 * gradient. That is B or I, or W if the stage has no input gradient and splits
 * its backward. */
static inline bool pp_consumes_gradient(const struct pp_graph *g,
                                        struct pp_action a)
{
    if (a.op == PP_B)
        return true;
    return a.op == (g->stages[a.stage].input_grad ? PP_I : PP_W);
}

#define PP_NOT_DONE SIZE_MAX

/* The record of the compute actions that are done. The work of a cell has three
 * parts: the forward (F), the input gradient (I or B) and the weight gradient
 * (W or B). For each part the record holds the number that the caller gave to
 * the action that did it, such as an index into the caller's own records. */
struct pp_completion {
    struct pp_cells cells;
    size_t *number; /* per cell and part; PP_NOT_DONE at first */
};

/* Makes an empty record for the compute actions of s. */
void pp_completion_init(struct pp_completion *c, const struct pp_schedule *s);

/* Frees the record; accepts a zeroed struct. */
void pp_completion_finish(struct pp_completion *c);

/* Records that compute action a is done. B counts as I and W. */
void pp_completion_set(struct pp_completion *c, struct pp_action a,
                       size_t number);

/* Returns the number of the action that did the part given by ops, a mask as in
 * pp_dep, or PP_NOT_DONE. */
size_t pp_completion_get(const struct pp_completion *c, int stage,
                         int microbatch, int slice, unsigned ops);

#endif
