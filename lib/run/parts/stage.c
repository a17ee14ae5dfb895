/* SPDX-License-Identifier: MIT */
/* stage - runs the layers of a stage, forward and backward. */
#include "run/parts/stage.h"

#include <stdlib.h>
#include <string.h>

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

static void bind(struct pp_layer *l, const struct pp_stage_env *env,
                 size_t unit)
{
    *l = (struct pp_layer){
        .unit = pp_model_unit(env->model, unit),
        .recompute = env->recompute,
        .model = env->model,
        .kernels = env->kernels,
        .rope_cos = env->rope_cos,
        .rope_sin = env->rope_sin,
        .device = env->device,
        .stream = env->stream,
    };
    for (size_t slot = 0; slot < PP_N_LAYER_PARAMS; slot++) {
        const struct pp_parameter *p =
            pp_parameters_find(env->params, env->copy, unit, slot);
        l->w[slot] = p ? p->w : NULL;
        l->g[slot] = p ? p->g : NULL;
    }
}

int pp_stage_init(struct pp_stage *s, const struct pp_stage_env *env,
                  size_t first, size_t n, bool input_grad, struct pp_err *err)
{
    const struct pp_precision types = precision_of(env->kernels);
    memset(s, 0, sizeof *s);
    s->kernels = env->kernels;
    s->stream = env->stream;
    s->n_layers = n;
    s->hidden = env->model->hidden;
    s->element_bytes = env->kernels->element_bytes;
    s->in_width = pp_boundary_width(env->model, first);
    s->out_width = pp_boundary_width(env->model, first + n);
    s->input_grad = input_grad;
    s->layers = calloc(n + 1, sizeof *s->layers);
    int failed = !s->layers;
    for (int k = 0; k < PP_N_UNIT_BLOCKS; k++) {
        s->offsets[k] = calloc(n + 1, sizeof *s->offsets[k]);
        failed |= !s->offsets[k];
    }
    if (failed)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    for (size_t i = 0; i < n; i++) {
        bind(&s->layers[i], env, first + i);
        /* The layers share the workspace block: its offsets stay 0. */
        for (int k = 0; k < PP_N_SAVED_BLOCKS; k++)
            s->offsets[k][i + 1] =
                s->offsets[k][i] +
                pp_unit_saved_bytes(env->model, s->layers[i].unit,
                                    env->recompute, (enum pp_saved_block)k,
                                    &types);
    }
    return 0;
}

void pp_stage_finish(struct pp_stage *s)
{
    free(s->layers);
    for (int k = 0; k < PP_N_UNIT_BLOCKS; k++)
        free(s->offsets[k]);
    memset(s, 0, sizeof *s);
}

void pp_stage_sizes(const struct pp_model *m, size_t first, size_t n,
                    enum pp_recompute r, const struct pp_kernels *k,
                    size_t tokens, struct pp_stage_bytes *out)
{
    const struct pp_precision types = precision_of(k);
    size_t bytes[PP_N_SAVED_BLOCKS] = {0}, workspace = 0;
    for (size_t i = first; i < first + n; i++) {
        struct pp_unit_id u = pp_model_unit(m, i);
        for (int b = 0; b < PP_N_SAVED_BLOCKS; b++)
            bytes[b] +=
                pp_unit_saved_bytes(m, u, r, (enum pp_saved_block)b, &types);
        size_t own = pp_unit_saved_bytes(m, u, r, PP_SAVED_WORKSPACE, &types);
        workspace = own > workspace ? own : workspace;
    }
    *out = (struct pp_stage_bytes){
        .act_i = bytes[PP_SAVED_ACT_I] * tokens,
        .act_w = bytes[PP_SAVED_ACT_W] * tokens,
        .grad_w = bytes[PP_SAVED_GRAD_W] * tokens,
        .output = pp_boundary_width(m, first + n) * k->element_bytes * tokens,
        .workspace = workspace * tokens,
    };
}

size_t pp_stage_scratch(const struct pp_model *m, const struct pp_kernels *k,
                        size_t first, size_t n, size_t tokens, size_t context)
{
    size_t most = 0;
    for (size_t i = first; i < first + n; i++) {
        enum pp_unit_kind kind = pp_model_unit(m, i).kind;
        size_t layer = pp_layer_ops(kind)->scratch(m, k, tokens, context);
        most = layer > most ? layer : most;
    }
    return 2 * m->hidden * tokens + most;
}

static void *at(const struct pp_stage *s, void *base, size_t elements)
{
    return base ? (char *)base + elements * s->element_bytes : NULL;
}

static struct pp_layer_blocks layer_blocks(const struct pp_stage *s,
                                           const struct pp_microbatch *mb,
                                           void *const *blocks, size_t i)
{
    struct pp_layer_blocks b;
    size_t rows =
        pp_device_rows(pp_device_ops(s->layers[i].device), mb->tokens);
    for (int k = 0; k < PP_N_UNIT_BLOCKS; k++) {
        b.offset[k] = s->offsets[k][i];
        b.block[k] = blocks[k] ? (char *)blocks[k] + b.offset[k] * rows : NULL;
    }
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
    int rc =
        s->kernels->copy(to, from, mb->tokens, width, width, width, s->stream);
    return rc ? pp_fail(err, PP_EXIT_SYSTEM, "copy failed: %d", rc) : 0;
}

/* The output of a layer goes to one of two buffers at the start of scratch, in
 * turn. The layers use the rest of scratch. */
int pp_stage_fwd(const struct pp_stage *s, const struct pp_microbatch *mb,
                 void *y, const void *x, void *const *blocks, void *scratch,
                 struct pp_err *err)
{
    size_t half = s->hidden * mb->tokens;
    void *rest = at(s, scratch, 2 * half);
    if (s->n_layers == 0 && pass_on(s, mb, y, x, err))
        return -1;
    for (size_t i = 0; i < s->n_layers; i++) {
        const struct pp_layer *l = &s->layers[i];
        struct pp_layer_blocks b = layer_blocks(s, mb, blocks, i);
        void *out = i + 1 == s->n_layers ? y : at(s, scratch, i % 2 * half);
        if (pp_layer_ops(l->unit.kind)->fwd(l, mb, out, x, &b, rest, err))
            return -1;
        pp_layer_time(s->layer_times, i, PP_LAYER_TIME_FWD);
        x = out;
    }
    return 0;
}

/* Does I of every layer. With both, a layer that can do B at once does B. */
static int bwd_inputs(const struct pp_stage *s, const struct pp_microbatch *mb,
                      void *dx, const void *dy, void *const *blocks,
                      void *scratch, bool both, struct pp_err *err)
{
    size_t half = s->hidden * mb->tokens;
    void *rest = at(s, scratch, 2 * half);
    if (s->n_layers == 0 && dx && pass_on(s, mb, dx, dy, err))
        return -1;
    for (size_t i = s->n_layers; i-- > 0;) {
        const struct pp_layer *l = &s->layers[i];
        const struct pp_layer_ops *ops = pp_layer_ops(l->unit.kind);
        struct pp_layer_blocks b = layer_blocks(s, mb, blocks, i);
        void *out = i == 0 && s->in_width ? dx : at(s, scratch, i % 2 * half);
        /* The embedding has no input gradient. If the stage sends none, its
         * first layer still computes one, because W needs I. */
        if (l->unit.kind == PP_UNIT_EMBED)
            out = NULL;
        else if (!out)
            out = at(s, scratch, i % 2 * half);
        if ((both && ops->bwd ? ops->bwd : ops->bwd_input)(l, mb, out, dy, &b,
                                                           rest, err))
            return -1;
        pp_layer_time(s->layer_times, i, PP_LAYER_TIME_INPUT);
        dy = out;
    }
    return 0;
}

/* Does W of every layer, except those that did B. */
static int bwd_weights(const struct pp_stage *s, const struct pp_microbatch *mb,
                       void *const *blocks, void *scratch, bool both,
                       struct pp_err *err)
{
    size_t half = s->hidden * mb->tokens;
    for (size_t i = s->n_layers; i-- > 0;) {
        const struct pp_layer *l = &s->layers[i];
        const struct pp_layer_ops *ops = pp_layer_ops(l->unit.kind);
        struct pp_layer_blocks b = layer_blocks(s, mb, blocks, i);
        if (!(both && ops->bwd) &&
            ops->bwd_weight(l, mb, &b, at(s, scratch, 2 * half), err))
            return -1;
        pp_layer_time(s->layer_times, i, PP_LAYER_TIME_WEIGHT);
    }
    return 0;
}

int pp_stage_bwd_input(const struct pp_stage *s, const struct pp_microbatch *mb,
                       void *dx, const void *dy, void *const *blocks,
                       void *scratch, struct pp_err *err)
{
    return bwd_inputs(s, mb, dx, dy, blocks, scratch, false, err);
}

int pp_stage_bwd_weight(const struct pp_stage *s,
                        const struct pp_microbatch *mb, void *const *blocks,
                        void *scratch, struct pp_err *err)
{
    return bwd_weights(s, mb, blocks, scratch, false, err);
}

int pp_stage_bwd(const struct pp_stage *s, const struct pp_microbatch *mb,
                 void *dx, const void *dy, void *const *blocks, void *scratch,
                 struct pp_err *err)
{
    /* Do I and W apart if the time of each is recorded. */
    bool both = !pp_layer_times_wanted(s->layer_times);
    return bwd_inputs(s, mb, dx, dy, blocks, scratch, both, err) ||
                   bwd_weights(s, mb, blocks, scratch, both, err)
               ? -1
               : 0;
}
