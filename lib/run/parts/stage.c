/* SPDX-License-Identifier: MIT */
/* stage - runs the layers of a stage, forward and backward. */
#include "run/parts/stage.h"

#include <stdlib.h>
#include <string.h>

#include "kernel_sizes.h"
#include "model/precision.h"

/* Returns the types that the sizes of blocks depend on. */
static struct pp_precision precision_of(const struct pp_kernels *k)
{
    return (struct pp_precision){.element_bytes = k->element_bytes,
                                 .accumulator_bytes = k->accumulator_bytes};
}

size_t pp_boundary_width(const struct pp_model *m, size_t at)
{
    return at == 0 || at == pp_model_n_units(m) ? 0 : m->hidden;
}

void pp_stage_take_weights(struct pp_stage *s, void *whole)
{
    const struct pp_parameters *params = s->env->params;
    for (size_t i = 0; i < s->n_layers; i++)
        for (size_t slot = 0; slot < PP_N_LAYER_PARAMS; slot++) {
            const struct pp_parameter *p =
                pp_parameters_find(params, s->copy, s->first + i, slot);
            s->layers[i].w[slot] =
                p && whole ? (char *)whole + p->whole * params->element_bytes
                           : NULL;
        }
}

static void bind(struct pp_layer *l, const struct pp_env *env,
                 const struct pp_stage_units *u, size_t unit)
{
    *l = (struct pp_layer){
        .env = env,
        .unit = pp_model_unit(env->model, unit),
        .role = pp_unit_role(env->model, pp_model_unit(env->model, unit)),
        .recompute = u->recompute,
    };
    for (size_t slot = 0; slot < PP_N_LAYER_PARAMS; slot++) {
        const struct pp_parameter *p =
            pp_parameters_find(env->params, u->copy, unit, slot);
        l->w[slot] = p && !env->params->divided ? p->w : NULL;
        l->g[slot] = p ? p->g : NULL;
    }
    const struct pp_parameter *first =
        pp_parameters_find(env->params, u->copy, unit, PP_P_WEIGHT);
    if (l->unit.kind == PP_UNIT_HEAD && first) {
        l->words = &first->info;
        l->n_words = first->piece.rows;
    }
}

/* Binds layer i, and finds where its saved tensors begin. */
static void bind_layer(struct pp_stage *s, const struct pp_stage_units *u,
                       size_t i)
{
    const struct pp_env *env = s->env;
    const struct pp_precision types = precision_of(env->kernels);
    bind(&s->layers[i], env, u, u->first + i);
    for (int k = 0; k < PP_N_UNIT_BLOCKS; k++) {
        size_t bytes =
            pp_unit_saved_bytes(env->model, s->layers[i].unit, u->recompute,
                                (enum pp_saved_block)k, &types);
        if (k == PP_SAVED_WORKSPACE)
            s->offsets[k][i] = bytes;
        else
            s->offsets[k][i + 1] = s->offsets[k][i] + bytes;
    }
}

int pp_stage_init(struct pp_stage *s, const struct pp_env *env,
                  const struct pp_stage_units *u, struct pp_err *err)
{
    *s = (struct pp_stage){
        .env = env,
        .n_layers = u->n,
        .in_width = pp_boundary_width(env->model, u->first),
        .out_width = pp_boundary_width(env->model, u->first + u->n),
        .input_grad = u->input_grad,
        .first = u->first,
        .copy = u->copy,
    };
    const struct pp_backend b = pp_env_backend(env);
    if (pp_env_tp(env) > 1)
        s->gathered_row_bytes = pp_gathered_row_bytes(env->model, &b);
    s->layers = calloc(u->n + 1, sizeof *s->layers);
    bool failed = !s->layers;
    for (int k = 0; k < PP_N_UNIT_BLOCKS; k++) {
        s->offsets[k] = calloc(u->n + 1, sizeof *s->offsets[k]);
        failed |= !s->offsets[k];
    }
    if (failed)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    for (size_t i = 0; i < u->n; i++)
        bind_layer(s, u, i);
    return 0;
}

void pp_stage_finish(struct pp_stage *s)
{
    free(s->layers);
    for (int k = 0; k < PP_N_UNIT_BLOCKS; k++)
        free(s->offsets[k]);
    memset(s, 0, sizeof *s);
}

/* Returns activation k of the two in the workspace that layers hand on. */
static void *handed_on(const struct pp_stage *s, const struct pp_microbatch *mb,
                       void *const *blocks, size_t k)
{
    size_t row = s->env->model->hidden * s->env->kernels->element_bytes;
    size_t bytes = pp_line_bytes(row * (mb->tokens / pp_env_tp(s->env)));
    return (char *)blocks[PP_SAVED_WORKSPACE] + k * bytes;
}

/* Finds the blocks of a layer, and its scratch. */
static struct pp_layer_blocks layer_blocks(const struct pp_stage *s,
                                           const struct pp_microbatch *mb,
                                           void *const *blocks, size_t i,
                                           void **scratch)
{
    struct pp_layer_blocks b;
    bool is_host = pp_env_is_host(s->env);
    size_t rows = pp_saved_rows(is_host, mb->tokens / pp_env_tp(s->env));
    size_t room = pp_line_bytes(s->gathered_row_bytes * mb->tokens);
    for (int k = 0; k < PP_N_SAVED_BLOCKS; k++) {
        b.offset[k] = s->offsets[k][i];
        b.block[k] = blocks[k] ? (char *)blocks[k] + b.offset[k] * rows : NULL;
    }
    b.gathered = handed_on(s, mb, blocks, 2);
    b.summed = (char *)b.gathered + room;
    char *rest = (char *)b.summed + room;
    b.offset[PP_SAVED_WORKSPACE] = 0;
    b.block[PP_SAVED_WORKSPACE] = rest;
    *scratch = rest + pp_line_bytes(s->offsets[PP_SAVED_WORKSPACE][i] * rows);
    return b;
}

/* Copies the input of a stage without layers to its output. Both are NULL if
 * the stage comes before the embedding or after the head. */
static int pass_on(const struct pp_stage *s, const struct pp_microbatch *mb,
                   void *to, const void *from, struct pp_err *err)
{
    size_t width = s->in_width;
    if (!width)
        return 0;
    int rc = s->env->kernels->copy(to, from, mb->tokens / pp_env_tp(s->env),
                                   width, width, width, s->env->stream);
    return rc ? pp_fail(err, PP_EXIT_SYSTEM, "copy failed: %d", rc) : 0;
}

int pp_stage_fwd(const struct pp_stage *s, const struct pp_microbatch *mb,
                 void *y, const void *x, void *const *blocks,
                 struct pp_err *err)
{
    void *scratch;
    if (s->n_layers == 0 && pass_on(s, mb, y, x, err))
        return -1;
    for (size_t i = 0; i < s->n_layers; i++) {
        const struct pp_layer *l = &s->layers[i];
        struct pp_layer_blocks b = layer_blocks(s, mb, blocks, i, &scratch);
        void *out = i + 1 == s->n_layers ? y : handed_on(s, mb, blocks, i % 2);
        if (pp_layer_ops(l->unit.kind)->fwd(l, mb, out, x, &b, scratch, err))
            return -1;
        pp_layer_time(s->layer_times, i, PP_LAYER_TIME_FWD);
        x = out;
    }
    return 0;
}

/* Does I of every layer that has a backward; those without one come first. With
 * both, a layer that can do B at once does B. */
static int bwd_inputs(const struct pp_stage *s, const struct pp_microbatch *mb,
                      void *dx, const void *dy, void *const *blocks, bool both,
                      struct pp_err *err)
{
    void *scratch;
    if (s->n_layers == 0 && dx && pass_on(s, mb, dx, dy, err))
        return -1;
    for (size_t i = s->n_layers; i-- > 0;) {
        const struct pp_layer *l = &s->layers[i];
        const struct pp_layer_ops *ops = pp_layer_ops(l->unit.kind);
        struct pp_layer_blocks b = layer_blocks(s, mb, blocks, i, &scratch);
        void *out =
            i == 0 && s->in_width ? dx : handed_on(s, mb, blocks, i % 2);
        /* The embedding has no input gradient. If the stage sends none, its
         * first layer still computes one, because W needs I. */
        if (l->unit.kind == PP_UNIT_EMBED)
            out = NULL;
        else if (!out)
            out = handed_on(s, mb, blocks, i % 2);
        bool whole = both && ops->bwd && l->role == PP_ROLE_TRAINED;
        if (l->role != PP_ROLE_FORWARD && (whole ? ops->bwd : ops->bwd_input)(
                                              l, mb, out, dy, &b, scratch, err))
            return -1;
        pp_layer_time(s->layer_times, i, PP_LAYER_TIME_INPUT);
        dy = out;
    }
    return 0;
}

/* Does W of every trained layer, except those that did B. */
static int bwd_weights(const struct pp_stage *s, const struct pp_microbatch *mb,
                       void *const *blocks, bool both, struct pp_err *err)
{
    void *scratch;
    for (size_t i = s->n_layers; i-- > 0;) {
        const struct pp_layer *l = &s->layers[i];
        const struct pp_layer_ops *ops = pp_layer_ops(l->unit.kind);
        struct pp_layer_blocks b = layer_blocks(s, mb, blocks, i, &scratch);
        if (l->role == PP_ROLE_TRAINED && !(both && ops->bwd) &&
            ops->bwd_weight(l, mb, &b, scratch, err))
            return -1;
        pp_layer_time(s->layer_times, i, PP_LAYER_TIME_WEIGHT);
    }
    return 0;
}

int pp_stage_bwd_input(const struct pp_stage *s, const struct pp_microbatch *mb,
                       void *dx, const void *dy, void *const *blocks,
                       struct pp_err *err)
{
    return bwd_inputs(s, mb, dx, dy, blocks, false, err);
}

int pp_stage_bwd_weight(const struct pp_stage *s,
                        const struct pp_microbatch *mb, void *const *blocks,
                        struct pp_err *err)
{
    return bwd_weights(s, mb, blocks, false, err);
}

int pp_stage_bwd(const struct pp_stage *s, const struct pp_microbatch *mb,
                 void *dx, const void *dy, void *const *blocks,
                 struct pp_err *err)
{
    /* Do I and W apart if the time of each is recorded. */
    bool both = !pp_layer_times_wanted(s->layer_times);
    return bwd_inputs(s, mb, dx, dy, blocks, both, err) ||
                   bwd_weights(s, mb, blocks, both, err)
               ? -1
               : 0;
}
