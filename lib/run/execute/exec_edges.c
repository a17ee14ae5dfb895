/* SPDX-License-Identifier: MIT */
/* exec_edges - what a stage reads from the stages before and behind it. If
 * there are several, it works on their sum; but features of several encoders
 * are parts of what it reads, and so are statistics of several units of a head,
 * which it has one behind the other. */
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

static int copy_to(const struct pp_engine *on, void *to, const void *from,
                   size_t bytes, struct pp_err *err)
{
    struct pp_device *d = on->env->device;
    return d->ops->copy(d, to, from, bytes, err);
}

static const struct pp_edges *edges_of(const struct pp_exec *e, int stage)
{
    return &e->worker->engine.passed[stage];
}

/* Returns the rows that a stage passes on, the first ones if there are several.
 * Features are not added. */
static size_t passed_rows(const struct pp_exec *e, int stage)
{
    return edges_of(e, stage)->at[0].rows;
}

/* Points to the parts of what a stage passes on, which is at `from`. */
static void divide_passed(const struct pp_exec *e, struct pp_action a,
                          int stage, void *from, struct pp_passed *to)
{
    const struct pp_edges *x = edges_of(e, stage);
    char *at = from;
    for (size_t i = 0; i < x->n && at; i++) {
        to->at[x->at[i].rows] = at;
        at += pp_exec_elements(e, a, x->at[i]) * e->env->kernels->element_bytes;
    }
}

/* Puts the statistics of the inputs one behind the other. */
static int line_up(const struct pp_exec *e, const struct pp_engine *on,
                   struct pp_action a, struct pp_passed *x, struct pp_err *err)
{
    const struct pp_stage_node *n = &e->schedule->graph->stages[a.stage];
    char *to = pp_exec_buffer(e, PP_BUF_INPUT, a.stage, a, a.stage);
    x->at[passed_rows(e, n->inputs[0])] = to;
    for (int i = 0; i < n->n_inputs; i++) {
        size_t bytes =
            pp_exec_passed(e, a, n->inputs[i]) * e->env->kernels->element_bytes;
        if (copy_to(on, to, input_from(e, a, n->inputs[i]), bytes, err))
            return -1;
        to += bytes;
    }
    return 0;
}

int pp_exec_join_inputs(const struct pp_exec *e, const struct pp_engine *on,
                        struct pp_action a, struct pp_passed *x,
                        struct pp_err *err)
{
    const struct pp_stage_node *n = &e->schedule->graph->stages[a.stage];
    *x = (struct pp_passed){.at = {NULL}};
    if (n->n_inputs && edges_of(e, n->inputs[0])->at[0].statistics)
        return line_up(e, on, a, x, err);
    for (int i = 0; i < n->n_inputs; i++) {
        size_t rows = passed_rows(e, n->inputs[i]);
        void *from = input_from(e, a, n->inputs[i]), *before = x->at[rows];
        divide_passed(e, a, n->inputs[i], from, x);
        if (!before || rows >= PP_ROWS_FEATURES)
            continue;
        x->at[rows] = pp_exec_buffer(e, PP_BUF_INPUT, a.stage, a, a.stage);
        if (add_up(on, x->at[rows], before, from,
                   pp_exec_passed(e, a, n->inputs[i]), err))
            return -1;
    }
    return 0;
}

struct pp_passed pp_exec_output(const struct pp_exec *e, struct pp_action a)
{
    struct pp_passed y = {.at = {NULL}};
    void *at = pp_exec_buffer(e, PP_BUF_OUTPUT, a.stage, a, -1);
    divide_passed(e, a, a.stage, at, &y);
    return y;
}

int pp_exec_join_gradients(const struct pp_exec *e, const struct pp_engine *on,
                           struct pp_action a, struct pp_passed *dy,
                           struct pp_err *err)
{
    const struct pp_stage_node *n = &e->schedule->graph->stages[a.stage];
    size_t elements = pp_exec_passed(e, a, a.stage);
    void *sum = n->n_outputs ? gradient_from(e, a, n->outputs[0]) : NULL;
    for (int i = 1; i < n->n_outputs; i++)
        if (add_up(on, sum, sum, gradient_from(e, a, n->outputs[i]), elements,
                   err))
            return -1;
    *dy = (struct pp_passed){.at = {NULL}};
    divide_passed(e, a, a.stage, sum, dy);
    return 0;
}

int pp_exec_spread_gradient(const struct pp_exec *e, const struct pp_engine *on,
                            struct pp_action a, const struct pp_passed *dx,
                            struct pp_err *err)
{
    const struct pp_graph *g = e->schedule->graph;
    const struct pp_stage_node *n = &g->stages[a.stage];
    for (int i = 0; i < n->n_inputs; i++) {
        size_t rows = passed_rows(e, n->inputs[i]);
        if (!pp_sends_gradient(g, n->inputs[i]) || !dx->at[rows] ||
            rows >= PP_ROWS_FEATURES)
            continue;
        size_t bytes =
            pp_exec_passed(e, a, n->inputs[i]) * e->env->kernels->element_bytes;
        void *to = pp_exec_buffer(e, PP_BUF_DINPUT, a.stage, a, n->inputs[i]);
        if (to != dx->at[rows] && copy_to(on, to, dx->at[rows], bytes, err))
            return -1;
    }
    return 0;
}

struct pp_passed pp_exec_input_gradient(const struct pp_exec *e,
                                        struct pp_action a)
{
    const struct pp_graph *g = e->schedule->graph;
    const struct pp_stage_node *n = &g->stages[a.stage];
    struct pp_passed dx = {.at = {NULL}};
    for (int i = n->n_inputs; i-- > 0;)
        if (pp_sends_gradient(g, n->inputs[i]))
            divide_passed(
                e, a, n->inputs[i],
                pp_exec_buffer(e, PP_BUF_DINPUT, a.stage, a, n->inputs[i]),
                &dx);
    return dx;
}
