/* SPDX-License-Identifier: MIT */
/* deps - the one statement of what waits for what.
 *
 * lower, check, simulate and the executor all ask here; no other file knows a
 * dependency rule. */
#ifndef PP_SCHEDULE_IR_DEPS_H
#define PP_SCHEDULE_IR_DEPS_H

#include <stdint.h>

#include "schedule/ir/numbering.h"

/* A requirement of an action: one of ops (a bit mask of 1 << PP_x) must have
 * run on that stage for the same microbatch and that slice. */
struct pp_dep {
    int stage, slice;
    unsigned ops;
    enum pp_op message; /* PP_RECV_F or PP_RECV_B when the stage is another
                           and on another rank, else PP_N_OPS */
};

/* Calls visit for every requirement of compute action a:
 *   F(s)   F of every input
 *   I, B   F of s, and I or B of every output (W of an output that has no
 *          input gradient never occurs: such an output is a source)
 *   W      F and I of s; where s has no input gradient, also what I waits
 *          for (its I does nothing, so W needs the outputs' gradients)
 * and between the slices of a microbatch on s, since a token attends to those
 * before it:
 *   F      F of the slice before, which leaves its keys and values
 *   I, B   I or B of the slice behind, which adds to their gradients; where s
 *          has no input gradient B and W wait for its B or W
 * Stops when visit returns nonzero and returns that. */
int pp_deps(const struct pp_graph *g, struct pp_action a,
            int (*visit)(void *ctx, struct pp_dep dep), void *ctx);

/* The other side of the same rule: calls visit with every SEND that compute
 * action a gives rise to, one for each stage on another rank that waits for
 * its result. Stops like pp_deps. */
int pp_transfers(const struct pp_graph *g, struct pp_action a,
                 int (*visit)(void *ctx, struct pp_action send), void *ctx);

/* The RECV that matches a SEND, and the reverse. */
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

/* The action in which stage consumes a received gradient: PP_W when it has no
 * input gradient and splits its backward, else PP_I or PP_B. */
static inline bool pp_consumes_gradient(const struct pp_graph *g,
                                        struct pp_action a)
{
    if (a.op == PP_B)
        return true;
    return a.op == (g->stages[a.stage].input_grad ? PP_I : PP_W);
}

#define PP_NOT_DONE SIZE_MAX

struct pp_completion {
    struct pp_cells cells;
    size_t *number; /* per cell and part; PP_NOT_DONE at first */
};

int pp_completion_init(struct pp_completion *c, const struct pp_schedule *s,
                       struct pp_err *err) PP_MUST_USE;

/* Accepts a zeroed struct. */
void pp_completion_finish(struct pp_completion *c);

/* Notes that the compute action a has been done. B does the parts of I and W.
 */
void pp_completion_set(struct pp_completion *c, struct pp_action a,
                       size_t number);

/* The number of the action that did the part of ops, a mask as in pp_dep, or
 * PP_NOT_DONE. */
size_t pp_completion_get(const struct pp_completion *c, int stage,
                         int microbatch, int slice, unsigned ops);

/* Calls visit for each requirement of the compute action a[0], and of a[1] too
 * if they are an overlap pair, with the number of the action that met it.
 * Returns PP_AGAIN at the first requirement that is not met, else 0; if visit
 * returns nonzero, stops and returns that. */
int pp_completion_visit(const struct pp_completion *c,
                        const struct pp_action *a,
                        int (*visit)(void *ctx, struct pp_action a,
                                     struct pp_dep dep, size_t number),
                        void *ctx);

#endif
