/* SPDX-License-Identifier: MIT */
/* exec_edges - what a stage reads from the stages before and behind it. If
 * there are several, it works on their sum. */
#include "run/execute/exec_impl.h"

/* Returns the output of an input stage: on this rank, or a received message. */
static void *input_from(const struct pp_exec *e, struct pp_action a, int from)
{
    const struct pp_graph *g = e->schedule->graph;
    if (g->stages[from].row == g->stages[a.stage].row)
        return pp_exec_buffer(e, PP_BUF_OUTPUT, from, a, -1);
    return pp_exec_buffer(e, PP_BUF_INPUT, a.stage, a, from);
}

/* Returns the gradient that an output stage has for this one. */
static void *gradient_from(const struct pp_exec *e, struct pp_action a, int to)
{
    const struct pp_graph *g = e->schedule->graph;
    if (g->stages[to].row == g->stages[a.stage].row)
        return pp_exec_buffer(e, PP_BUF_DINPUT, to, a, a.stage);
    return pp_exec_buffer(e, PP_BUF_DOUTPUT, a.stage, a, to);
}

static int add_up(const struct pp_engine *on, void *sum, const void *x,
                  const void *y, size_t n, struct pp_err *err)
{
    int failed = on->env->kernels->add(sum, x, y, n, on->env->stream);
    return failed ? pp_fail(err, PP_EXIT_SYSTEM, "add failed: %d", failed) : 0;
}

int pp_exec_join_inputs(const struct pp_exec *e, const struct pp_engine *on,
                        struct pp_action a, void **x, struct pp_err *err)
{
    const struct pp_stage_node *n = &e->schedule->graph->stages[a.stage];
    const struct pp_stage *s = &on->stages[a.stage];
    size_t elements = pp_exec_elements(e, a, s->in);
    *x = n->n_inputs ? input_from(e, a, n->inputs[0]) : NULL;
    if (n->n_inputs < 2)
        return 0;
    void *sum = pp_exec_buffer(e, PP_BUF_INPUT, a.stage, a, a.stage);
    for (int i = 1; i < n->n_inputs; i++) {
        const void *more = input_from(e, a, n->inputs[i]);
        if (add_up(on, sum, *x, more, elements, err))
            return -1;
        *x = sum;
    }
    return 0;
}

int pp_exec_join_gradients(const struct pp_exec *e, const struct pp_engine *on,
                           struct pp_action a, void **dy, struct pp_err *err)
{
    const struct pp_stage_node *n = &e->schedule->graph->stages[a.stage];
    const struct pp_stage *s = &on->stages[a.stage];
    size_t elements = pp_exec_elements(e, a, s->out);
    *dy = n->n_outputs ? gradient_from(e, a, n->outputs[0]) : NULL;
    for (int i = 1; i < n->n_outputs; i++)
        if (add_up(on, *dy, *dy, gradient_from(e, a, n->outputs[i]), elements,
                   err))
            return -1;
    return 0;
}

int pp_exec_spread_gradient(const struct pp_exec *e, const struct pp_engine *on,
                            struct pp_action a, const void *dx,
                            struct pp_err *err)
{
    const struct pp_graph *g = e->schedule->graph;
    const struct pp_stage_node *n = &g->stages[a.stage];
    const struct pp_stage *s = &on->stages[a.stage];
    size_t bytes =
        pp_exec_elements(e, a, s->in) * e->env->kernels->element_bytes;
    for (int i = 0; dx && i < n->n_inputs; i++) {
        if (!pp_sends_gradient(g, n->inputs[i]))
            continue;
        void *to = pp_exec_buffer(e, PP_BUF_DINPUT, a.stage, a, n->inputs[i]);
        if (to != dx &&
            on->env->device->ops->copy(on->env->device, to, dx, bytes, err))
            return -1;
    }
    return 0;
}

void *pp_exec_input_gradient(const struct pp_exec *e, struct pp_action a)
{
    const struct pp_graph *g = e->schedule->graph;
    const struct pp_stage_node *n = &g->stages[a.stage];
    for (int i = 0; i < n->n_inputs; i++)
        if (pp_sends_gradient(g, n->inputs[i]))
            return pp_exec_buffer(e, PP_BUF_DINPUT, a.stage, a, n->inputs[i]);
    return NULL;
}
