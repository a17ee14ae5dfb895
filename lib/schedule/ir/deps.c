/* SPDX-License-Identifier: MIT */
#include "schedule/ir/deps.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/num.h"
#include "schedule/ir/play.h"

enum { BACK = 1u << PP_B | 1u << PP_I };

static enum pp_op message_from(const struct pp_graph *g, int to, int from,
                               enum pp_op recv)
{
    return g->stages[from].row == g->stages[to].row ? PP_N_OPS : recv;
}

/* Visits what F waits for: F of every input, and F of the previous slice. */
static int visit_inputs(const struct pp_graph *g, struct pp_action a,
                        int (*visit)(void *ctx, struct pp_dep dep), void *ctx)
{
    const struct pp_stage_node *n = &g->stages[a.stage];
    int rc = 0;
    for (int i = 0; i < n->n_inputs && !rc; i++)
        rc = visit(ctx, (struct pp_dep){
                            n->inputs[i], a.slice, 1u << PP_F,
                            message_from(g, a.stage, n->inputs[i], PP_RECV_F)});
    if (a.slice > 0 && !rc)
        rc = visit(ctx,
                   (struct pp_dep){a.stage, a.slice - 1, 1u << PP_F, PP_N_OPS});
    return rc;
}

/* Visits what the consumer of gradients waits for: I or B of every output, and
 * the backward of the next slice. */
static int visit_outputs(const struct pp_graph *g, struct pp_action a,
                         int (*visit)(void *ctx, struct pp_dep dep), void *ctx)
{
    const struct pp_stage_node *n = &g->stages[a.stage];
    int rc = 0;
    for (int i = 0; i < n->n_outputs && n->has_backward && !rc; i++)
        rc = visit(ctx, (struct pp_dep){n->outputs[i], a.slice, BACK,
                                        message_from(g, a.stage, n->outputs[i],
                                                     PP_RECV_B)});
    if (a.slice + 1 < g->slices.n && !rc)
        rc = visit(ctx, (struct pp_dep){a.stage, a.slice + 1,
                                        a.op == PP_I || n->input_grad
                                            ? BACK
                                            : 1u << PP_B | 1u << PP_W,
                                        PP_N_OPS});
    return rc;
}

int pp_deps(const struct pp_graph *g, struct pp_action a,
            int (*visit)(void *ctx, struct pp_dep dep), void *ctx)
{
    struct pp_dep own_f = {a.stage, a.slice, 1u << PP_F, PP_N_OPS};
    struct pp_dep own_i = {a.stage, a.slice, 1u << PP_I, PP_N_OPS};
    int rc;
    if (a.op == PP_F)
        return visit_inputs(g, a, visit, ctx);
    if ((rc = visit(ctx, own_f)))
        return rc;
    if (a.op == PP_W &&
        ((rc = visit(ctx, own_i)) || g->stages[a.stage].input_grad))
        return rc;
    return visit_outputs(g, a, visit, ctx);
}

void pp_transfers(const struct pp_graph *g, struct pp_action a,
                  void (*visit)(void *ctx, struct pp_action send), void *ctx)
{
    const struct pp_stage_node *n = &g->stages[a.stage];
    bool forward = a.op == PP_F;
    if (a.op == PP_W)
        return;
    int count = forward ? n->n_outputs : n->n_inputs;
    for (int i = 0; i < count; i++) {
        struct pp_action send = a;
        send.peer = forward ? n->outputs[i] : n->inputs[i];
        send.op = forward ? PP_SEND_F : PP_SEND_B;
        send.overlap = 0;
        if (g->stages[send.peer].row != n->row &&
            (forward || pp_sends_gradient(g, send.peer)))
            visit(ctx, send);
    }
}

enum { PART_F, PART_I, PART_W, N_PARTS };

static size_t *part_of(const struct pp_completion *c, int stage, int microbatch,
                       int slice, unsigned ops)
{
    size_t part = ops & 1u << PP_F   ? PART_F
                  : ops & 1u << PP_W ? PART_W
                                     : PART_I;
    return &c->number[N_PARTS * pp_cell(&c->cells, stage, microbatch, slice) +
                      part];
}

void pp_completion_init(struct pp_completion *c, const struct pp_schedule *s)
{
    *c = (struct pp_completion){0};
    pp_cells_init(&c->cells, s);
    const size_t bytes = N_PARTS * sizeof *c->number;
    c->number = pp_realloc(NULL, c->cells.n_cells, bytes);
    /* Every entry is PP_NOT_DONE. */
    memset(c->number, 0xff, c->cells.n_cells * bytes);
}

void pp_completion_finish(struct pp_completion *c)
{
    free(c->number);
    pp_cells_finish(&c->cells);
    c->number = NULL;
}

void pp_completion_set(struct pp_completion *c, struct pp_action a,
                       size_t number)
{
    *part_of(c, a.stage, a.microbatch, a.slice, 1u << a.op) = number;
    if (a.op == PP_B)
        *part_of(c, a.stage, a.microbatch, a.slice, 1u << PP_W) = number;
}

size_t pp_completion_get(const struct pp_completion *c, int stage,
                         int microbatch, int slice, unsigned ops)
{
    return *part_of(c, stage, microbatch, slice, ops);
}
