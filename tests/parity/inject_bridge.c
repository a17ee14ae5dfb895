/* SPDX-License-Identifier: MIT */
/* inject_bridge - faults of an encoder on ranks of its own. */
#include <string.h>

#include "inject.h"
#include "model/vision.h"
#include "run/execute/exec_impl.h"

static bool bridges(const struct pp_exec *e, struct pp_action a)
{
    const struct pp_graph *g = e->schedule->graph;
    return pp_layout_component(&e->env->layout, g->stages[a.peer].row) !=
           e->env->place.component;
}

/* Adds the last bias of the projector to n features once more for each rank
 * that divides its products. */
static void add_bias_again(const struct pp_env *env, double *x, size_t n)
{
    size_t width = env->model->hidden;
    const struct pp_parameter *b = pp_parameters_find(
        env->params, 0, pp_vision_n_units(env->model) - 1, PP_P_LINEAR2_BIAS);
    for (size_t i = 0; i < n * width; i++)
        x[i] += (pp_env_mesh(env)->tp - 1) * ((const double *)b->w)[i % width];
}

void inject_bridge_send(const struct pp_exec *e, struct pp_action a)
{
    bool forward = a.op == PP_SEND_F;
    if (!bridges(e, a))
        return;
    size_t width = e->env->model->hidden;
    const struct pp_edge edge = {PP_ROWS_FEATURES, 1};
    size_t n = pp_exec_elements(e, a, edge);
    double *x = pp_exec_buffer(e, forward ? PP_BUF_OUTPUT : PP_BUF_DINPUT,
                               a.stage, a, forward ? -1 : a.peer);
    double *last = n ? x + (n - 1) * width : x;
    if (forward && inject_is("encoder-bias"))
        add_bias_again(e->env, x, n);
    for (size_t i = 0; n && i < width; i++) {
        double first = x[i];
        if (forward && inject_is("bridge-swapped")) {
            x[i] = last[i];
            last[i] = first;
        }
        if (!forward && inject_is("bridge-twice"))
            x[i] = 2 * first;
    }
}

/* Multiplies the gradients of a stage. */
static void scale_stage(const struct pp_exec *e, int stage, double by)
{
    size_t n;
    double *g = pp_parameters_stage_grads(e->env->params, stage, &n);
    for (size_t i = 0; g && i < n; i++)
        g[i] *= by;
}

/* Multiplies the gradients of the norms of a stage. */
static void scale_norms(const struct pp_exec *e, int stage, double by)
{
    const struct pp_parameters *p = e->env->params;
    for (size_t i = 0; i < p->n; i++)
        for (size_t k = 0; p->at[i].stage == stage && p->at[i].g &&
                           strstr(p->at[i].info.name, "norm") && k < p->at[i].n;
             k++)
            ((double *)p->at[i].g)[k] *= by;
}

void inject_bridge_sync(const struct pp_exec *e, struct pp_action a, bool after)
{
    const struct pp_env *env = e->env;
    double own = pp_env_mesh(env)->dp;
    if (a.op != PP_REDUCE_GRAD || pp_env_has_tokens(env))
        return;
    if (after && inject_is("bridge-factor"))
        scale_stage(e, a.stage,
                    own / pp_layout_language(&env->layout)->mesh.dp);
    if (after && inject_is("encoder-norms"))
        scale_norms(e, a.stage, pp_env_mesh(env)->tp);
    if (!after && inject_is("bridge-absent") && env->place.dp == 0)
        scale_stage(e, a.stage, 0);
}
