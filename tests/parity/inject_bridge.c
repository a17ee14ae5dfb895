/* SPDX-License-Identifier: MIT */
/* inject_bridge - faults of encoders with meshes of their own. */
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
    size_t width = env->shard.model->hidden;
    size_t end =
        pp_component_first(env->shard.model, (size_t)env->place.component + 1);
    const struct pp_parameter *b =
        pp_parameters_find(env->params, 0, end - 1, PP_P_LINEAR2_BIAS);
    for (size_t i = 0; i < n * width; i++)
        x[i] += (pp_env_mesh(env)->tp - 1) * ((const double *)b->w)[i % width];
}

void inject_bridge_send(const struct pp_exec *e, struct pp_action a)
{
    bool forward = a.op == PP_SEND_F;
    if (!bridges(e, a))
        return;
    size_t width = e->env->shard.model->hidden;
    size_t n = pp_exec_passed(e, a, forward ? a.stage : a.peer) / width;
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

/* Exchanges the first rows of what a stage has from two encoders, or gives the
 * second those of the first. */
static void confuse(const struct pp_exec *e, struct pp_action a,
                    enum pp_buffer_kind kind, bool both)
{
    const struct pp_stage_node *n = &e->schedule->graph->stages[a.stage];
    double *x[2];
    size_t least = SIZE_MAX;
    for (int i = 0; i < 2; i++) {
        size_t own = pp_exec_passed(e, a, n->inputs[i]);
        x[i] = pp_exec_buffer(e, kind, a.stage, a, n->inputs[i]);
        least = own < least ? own : least;
    }
    for (size_t i = 0; i < least; i++) {
        double first = x[0][i];
        x[0][i] = both ? x[1][i] : first;
        x[1][i] = first;
    }
}

int inject_join(struct pp_exec *e, struct pp_action a, bool after,
                struct pp_err *err)
{
    bool forward = a.op == PP_F;
    bool chosen = forward ? !after && (inject_is("encoders-swapped") ||
                                       inject_is("encoders-alike"))
                          : after && inject_is("encoders-gradients");
    if (!chosen || e->schedule->graph->stages[a.stage].n_inputs < 2 ||
        a.op == PP_W)
        return 0;
    if (forward && pp_exec_await_inputs(e, a, err))
        return -1;
    confuse(e, a, forward ? PP_BUF_INPUT : PP_BUF_DINPUT,
            !inject_is("encoders-alike"));
    return 0;
}

/* Multiplies the gradients of the encoder in a stage whose names contain
 * `part`. */
static void scale_encoder(const struct pp_exec *e, int stage, const char *part,
                          double by)
{
    const struct pp_parameters *p = e->env->params;
    size_t vision = pp_component_first(e->env->shard.model, PP_LANGUAGE);
    for (size_t i = 0; i < p->n; i++) {
        const struct pp_parameter *t = &p->at[i];
        bool chosen = t->stage == stage && t->unit < vision && t->g &&
                      strstr(t->info.name, part);
        for (size_t k = 0; chosen && k < t->n; k++)
            ((double *)t->g)[k] *= by;
    }
}

void inject_bridge_sync(const struct pp_exec *e, struct pp_action a, bool after)
{
    const struct pp_env *env = e->env;
    const struct pp_layout *l = &env->layout;
    const struct pp_mesh own = pp_layout_mesh(l, env->place.row, true);
    const struct pp_group same =
        pp_layout_group(l, &env->place, PP_GROUP_ENCODER_DATA);
    if (a.op != PP_REDUCE_GRAD)
        return;
    if (after && inject_is("bridge-factor"))
        scale_encoder(e, a.stage, "",
                      (double)own.dp / pp_layout_language(l)->mesh.dp);
    if (after && inject_is("encoder-norms"))
        scale_encoder(e, a.stage, "norm", own.tp);
    if (!after && inject_is("bridge-absent") && same.index == 0)
        scale_encoder(e, a.stage, "", 0);
}
