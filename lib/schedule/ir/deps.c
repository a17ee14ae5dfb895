/* SPDX-License-Identifier: MIT */
#include "schedule/ir/deps.h"

enum { BACK = 1u << PP_B | 1u << PP_I };

static enum pp_op message_from(const struct pp_graph *g, int to, int from,
                               enum pp_op recv)
{
    return g->stages[from].row == g->stages[to].row ? PP_N_OPS : recv;
}

/* What F waits for: F of every input, and of the slice before. */
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

/* What the consumer of gradients waits for: I or B of every output, and the
 * backward of the slice behind. */
static int visit_outputs(const struct pp_graph *g, struct pp_action a,
                         int (*visit)(void *ctx, struct pp_dep dep), void *ctx)
{
    const struct pp_stage_node *n = &g->stages[a.stage];
    int rc = 0;
    for (int i = 0; i < n->n_outputs && !rc; i++)
        rc = visit(ctx, (struct pp_dep){n->outputs[i], a.slice, BACK,
                                        message_from(g, a.stage, n->outputs[i],
                                                     PP_RECV_B)});
    if (a.slice + 1 < g->n_slices && !rc)
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

int pp_transfers(const struct pp_graph *g, struct pp_action a,
                 int (*visit)(void *ctx, struct pp_action send), void *ctx)
{
    const struct pp_stage_node *n = &g->stages[a.stage];
    bool forward = a.op == PP_F;
    if (a.op == PP_W)
        return 0;
    int count = forward ? n->n_outputs : n->n_inputs, rc = 0;
    for (int i = 0; i < count && !rc; i++) {
        struct pp_action send = a;
        send.peer = forward ? n->outputs[i] : n->inputs[i];
        send.op = forward ? PP_SEND_F : PP_SEND_B;
        send.overlap = 0;
        if (g->stages[send.peer].row != n->row)
            rc = visit(ctx, send);
    }
    return rc;
}
