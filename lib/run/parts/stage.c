/* SPDX-License-Identifier: MIT */
/* stage - runs the layers of a stage, forward and backward. */
#include "run/parts/stage.h"

#include <stdlib.h>
#include <string.h>

#include "kernel_sizes.h"
#include "model/lora.h"
#include "model/precision.h"
#include "model/vision.h"
#include "run/parts/call.h"
#include "run/parts/stage_states.h"

/* Returns the types that the sizes of blocks depend on. */
static struct pp_precision precision_of(const struct pp_kernels *k)
{
    return (struct pp_precision){.element_bytes = k->element_bytes,
                                 .accumulator_bytes = k->accumulator_bytes};
}

/* Returns the slot in which this rank has what has the slot in the table of the
 * unit: that of its first expert, if ranks divide experts. */
static size_t slot_here(const struct pp_env *env, size_t slot)
{
    if (pp_env_ep(env) == 1 || slot < PP_P_EXPERT_GATE)
        return slot;
    return slot + (size_t)env->experts.group.index *
                      pp_shard_experts(&env->shard) *
                      (PP_N_LAYER_PARAMS - PP_P_EXPERT_GATE);
}

void pp_stage_take_weights(struct pp_stage *s, void *whole)
{
    const struct pp_parameters *params = s->env->params;
    for (size_t i = 0; i < s->n_layers; i++)
        for (size_t slot = 0; slot < PP_N_LAYER_PARAMS; slot++) {
            const struct pp_parameter *p = pp_parameters_find(
                params, s->copy, s->layers[i].number, slot_here(s->env, slot));
            s->layers[i].w[slot] =
                p && whole ? (char *)whole + p->whole * params->element_bytes
                           : NULL;
        }
}

static void bind_adapters(struct pp_layer *l,
                          const struct pp_parameters *params, int copy)
{
    bool adapts = l->env->shard.model->lora && l->unit.kind == PP_UNIT_LAYER;
    for (size_t i = 0; adapts && i < PP_N_ADAPTED; i++) {
        int weight = pp_lora_slots[i], a = PP_P_ADAPTERS + 2 * (int)i;
        const struct pp_parameter *b =
            pp_parameters_find(params, copy, l->number, (size_t)a + 1);
        const struct pp_parameter *w =
            pp_parameters_find(params, copy, l->number, (size_t)weight);
        if (b && w)
            l->adapters[l->n_adapters++] = (struct pp_adapter){
                weight, a, b->piece.rows, b->piece.cols,
                pp_lora_scale(l->env->shard.model->lora, w->info.name)};
    }
}

static void bind(struct pp_layer *l, const struct pp_env *env,
                 const struct pp_stage_units *u, size_t unit)
{
    struct pp_unit_id id = pp_model_unit(env->shard.model, unit);
    *l = (struct pp_layer){
        .env = pp_env_of(env, pp_unit_rows(id)),
        .unit = id,
        .number = unit,
        .rows = pp_unit_rows(id),
        .role = pp_unit_role(env->shard.model, id),
        .recompute = pp_unit_is_vision(id) ? PP_RECOMPUTE_NONE : u->recompute,
    };
    pp_unit_model(env->shard.model, &l->unit);
    for (size_t slot = 0; slot < PP_N_LAYER_PARAMS; slot++) {
        const struct pp_parameter *p = pp_parameters_find(
            env->params, u->copy, unit, slot_here(env, slot));
        l->tensor[slot] = p;
        l->w[slot] = p && !env->params->divided ? p->w : NULL;
        l->g[slot] = p ? p->g : NULL;
        if (p && p->load)
            l->load = p->load;
    }
    bind_adapters(l, env->params, u->copy);
    const struct pp_parameter *first =
        pp_parameters_find(env->params, u->copy, unit, PP_P_WEIGHT);
    if (l->unit.kind == PP_UNIT_HEAD && first) {
        l->words = &first->info;
        l->n_words = first->piece.rows;
    }
}

/* Binds the next layer, and finds where its saved tensors begin. */
static void add_layer(struct pp_stage *s, const struct pp_stage_units *u,
                      size_t unit)
{
    const struct pp_precision types = precision_of(s->env->kernels);
    size_t i = s->n_layers++;
    struct pp_layer *l = &s->layers[i];
    bind(l, s->env, u, unit);
    l->states = s->states_bytes;
    s->states_bytes +=
        pp_unit_states(&l->env->shard, l->unit, types.accumulator_bytes);
    l->told = s->told_bytes;
    if (l->tensor[PP_P_ROUTER] && !pp_env_is_host(l->env))
        s->told_bytes += pp_experts_told(&l->env->shard) * sizeof(int32_t);
    s->edges[i] = pp_edge_read(s->env->shard.model, unit);
    s->edges[i + 1] = pp_edge_read(s->env->shard.model, unit + 1);
    if (l->rows >= PP_ROWS_FEATURES)
        s->projectors[l->unit.component] = l;
    for (int k = 0; k < PP_N_UNIT_BLOCKS; k++) {
        size_t bytes =
            pp_unit_saved_bytes(&l->env->shard, l->unit, l->recompute,
                                (enum pp_saved_block)k, &types);
        if (k == PP_SAVED_WORKSPACE) {
            s->offsets[k][i][l->rows] = bytes;
            continue;
        }
        memcpy(s->offsets[k][i + 1], s->offsets[k][i], sizeof *s->offsets[k]);
        s->offsets[k][i + 1][l->rows] += bytes;
    }
}

int pp_stage_init(struct pp_stage *s, const struct pp_env *env,
                  const struct pp_stage_units *u, struct pp_err *err)
{
    const struct pp_model *m = env->shard.model;
    *s = (struct pp_stage){
        .env = env,
        .out = pp_stage_edges(m, u->first, u->n),
        .input_grad = u->input_grad,
        .copy = u->copy,
    };
    for (size_t k = 0; k < PP_MAX_ENCODERS; k++)
        s->holds[k] = pp_stage_holds(m, u->first, u->n, k);
    const struct pp_backend b = pp_env_backend(env);
    bool generates =
        u->n > 0 && u->first >= pp_component_first(m, PP_GENERATOR);
    size_t rows = generates ? PP_ROWS_GENERATED : PP_ROWS_TOKENS;
    if (pp_env_tp(env) > 1)
        s->gathered_row_bytes =
            pp_gathered_row_bytes(&pp_env_of(env, rows)->shard, &b);
    s->layers = calloc(u->n + 1, sizeof *s->layers);
    s->edges = calloc(u->n + 1, sizeof *s->edges);
    bool failed = !s->layers || !s->edges;
    for (int k = 0; k < PP_N_UNIT_BLOCKS; k++) {
        s->offsets[k] = calloc(u->n + 1, sizeof *s->offsets[k]);
        failed |= !s->offsets[k];
    }
    if (failed)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    for (size_t unit = u->first; unit < u->first + u->n; unit++) {
        if (pp_unit_runs(m, pp_model_unit(m, unit)))
            add_layer(s, u, unit);
    }
    return 0;
}

void pp_stage_finish(struct pp_stage *s)
{
    free(s->layers);
    free(s->edges);
    for (int k = 0; k < PP_N_UNIT_BLOCKS; k++)
        free(s->offsets[k]);
    memset(s, 0, sizeof *s);
}

/* The functions below share it: a stage at work on a microbatch. */
struct stage_work {
    const struct pp_stage *s;
    const struct pp_microbatch *mb;
    void *const *blocks;
    struct pp_err *err;
};

/* Returns the rows of the microbatch on this rank. */
static size_t rows_of(const struct stage_work *w, size_t rows)
{
    const struct pp_microbatch *mb = pp_microbatch_of(w->mb, rows);
    if (pp_rows_of_tokens(rows))
        return (mb ? mb : w->mb)->tokens / pp_env_tp(w->s->env);
    return !mb                       ? 0
           : rows < PP_ROWS_FEATURES ? mb->tokens
                                     : mb->encoder.n_features;
}

static size_t edge_bytes(const struct stage_work *w, struct pp_edge e)
{
    const struct pp_kernels *k = w->s->env->kernels;
    return rows_of(w, e.rows) *
           pp_edge_bytes(e, k->element_bytes, k->accumulator_bytes);
}

/* Returns the bytes of the features that are held of encoders before k. They
 * are at the end of the workspace. */
static size_t held_bytes(const struct stage_work *w, size_t k)
{
    size_t sum = 0, hidden = w->s->env->shard.model->hidden;
    for (size_t i = 0; i < k; i++) {
        const struct pp_edge e = {PP_ROWS_FEATURES + i, hidden};
        sum += w->s->holds[i] ? pp_line_bytes(edge_bytes(w, e)) : 0;
    }
    return sum;
}

/* Returns the room for what layer i reads from layer i - 1: even ones are at
 * the start of the workspace, odd ones at its end. */
static void *handed_on(const struct stage_work *w, size_t i)
{
    size_t bytes = pp_line_bytes(edge_bytes(w, w->s->edges[i])) +
                   held_bytes(w, PP_MAX_ENCODERS);
    return i % 2 ? (char *)w->blocks[PP_WORKSPACE_END] - bytes
                 : w->blocks[PP_SAVED_WORKSPACE];
}

/* Returns the room for the features that the projector of an encoder makes for
 * layer `embed` of the stage, or for their gradients. */
static void *features_room(const struct stage_work *w, size_t encoder,
                           size_t embed)
{
    return w->s->holds[encoder] ? (char *)w->blocks[PP_WORKSPACE_END] -
                                      held_bytes(w, encoder + 1)
                                : handed_on(w, embed);
}

/* Returns the rows that the blocks of the microbatch are laid out for. */
static size_t laid_out_rows(const struct stage_work *w, size_t rows)
{
    return rows == PP_ROWS_TOKENS ? pp_layer_room(w->mb->tokens, w->mb->room) /
                                        pp_env_tp(w->s->env)
                                  : rows_of(w, rows);
}

/* Returns the bytes of the microbatch at that offset in a block. */
static size_t bytes_at(const struct stage_work *w,
                       const size_t offset[PP_N_ROWS])
{
    bool host = pp_env_is_host(w->s->env);
    size_t bytes = 0;
    for (size_t r = 0; r < PP_N_ROWS; r++)
        bytes += offset[r] * pp_saved_rows(host, laid_out_rows(w, r));
    return bytes;
}

/* Returns the room for parts of sums in layer i of an encoder, if ranks divide
 * its tensors. */
static size_t image_room(const struct stage_work *w, size_t i)
{
    const struct pp_layer *l = &w->s->layers[i];
    const struct pp_edge row = {l->rows, l->env->shard.model->hidden};
    return pp_env_tp(l->env) > 1 ? pp_line_bytes(edge_bytes(w, row)) : 0;
}

/* Finds the blocks of layer i. */
static struct pp_layer_blocks blocks_of(const struct stage_work *w, size_t i)
{
    const struct pp_stage *s = w->s;
    const struct pp_layer *l = &s->layers[i];
    struct pp_layer_blocks b;
    struct pp_edge first = s->edges[i + i % 2];
    bool of_tokens = pp_rows_of_tokens(l->rows);
    size_t room = of_tokens
                      ? pp_line_bytes(s->gathered_row_bytes *
                                      pp_microbatch_of(w->mb, l->rows)->tokens)
                      : image_room(w, i);
    for (int k = 0; k < PP_N_UNIT_BLOCKS; k++) {
        char *block = k == PP_SAVED_WORKSPACE ? NULL : w->blocks[k];
        b.offset[k] = s->offsets[k][i][of_tokens ? l->rows : PP_ROWS_TOKENS];
        b.block[k] = block ? block + bytes_at(w, s->offsets[k][i]) : NULL;
    }
    if (w->blocks[PP_SAVED_STATES])
        b.block[PP_SAVED_STATES] =
            (char *)w->blocks[PP_SAVED_STATES] + l->states;
    if (w->blocks[PP_GRAD_LAYER])
        b.block[PP_SAVED_GRAD_W] = w->blocks[PP_GRAD_LAYER];
    b.gathered = (char *)w->blocks[PP_SAVED_WORKSPACE] +
                 pp_line_bytes(edge_bytes(w, first));
    b.summed = (char *)b.gathered + room;
    char *rest = (char *)b.summed + (of_tokens ? room : 0);
    b.offset[PP_SAVED_WORKSPACE] = 0;
    b.block[PP_SAVED_WORKSPACE] = rest;
    b.scratch =
        rest + pp_line_bytes(bytes_at(w, s->offsets[PP_SAVED_WORKSPACE][i]));
    return b;
}

static struct pp_call call_of(const struct stage_work *w, size_t i,
                              enum pp_saved_when when)
{
    const struct pp_layer *l = &w->s->layers[i];
    const struct pp_layer_blocks b = blocks_of(w, i);
    return pp_layer_call(l, pp_microbatch_of(w->mb, l->rows), &b, when, w->err);
}

/* Copies the input of a stage without layers to its output. Nothing passes
 * before the first unit or behind the head. */
static int pass_on(const struct stage_work *w, const struct pp_passed *to,
                   const struct pp_passed *from)
{
    const struct pp_stage *s = w->s;
    for (size_t k = 0; s->n_layers == 0 && k < s->out.n; k++) {
        const struct pp_edge e = s->out.at[k];
        if (!to->at[e.rows])
            continue;
        int rc = s->env->kernels->copy(to->at[e.rows], from->at[e.rows],
                                       rows_of(w, e.rows), e.width, e.width,
                                       e.width, s->env->stream);
        if (rc)
            return pp_fail(w->err, PP_EXIT_SYSTEM, "copy failed: %d", rc);
    }
    return 0;
}

static bool is_embedding(const struct pp_layer *l)
{
    return l->rows == PP_ROWS_TOKENS && l->unit.kind == PP_UNIT_EMBED;
}

/* Returns the place of the embedding; n_layers if it is in another stage. */
static size_t embedding_of(const struct pp_stage *s)
{
    size_t i = 0;
    while (i < s->n_layers && !is_embedding(&s->layers[i]))
        i++;
    return i;
}

/* Returns where layer i keeps what it reads, or the gradient of what it writes;
 * NULL if it does not, or if others copy between. Rows of patches may have
 * states beside them. A frozen layer may keep it in its workspace, which the
 * layer that writes it has for itself. */
static void *kept_by(const struct stage_work *w, size_t i,
                     enum pp_saved_when when)
{
    const struct pp_layer *l = &w->s->layers[i];
    struct pp_edge e = w->s->edges[when == PP_IN_FORWARD ? i : i + 1];
    if (l->rows != PP_ROWS_TOKENS || e.width != l->env->shard.model->hidden)
        return NULL;
    struct pp_layer_blocks b = blocks_of(w, i);
    b.block[PP_SAVED_WORKSPACE] = NULL;
    const struct pp_call c = pp_layer_call(l, w->mb, &b, when, w->err);
    return pp_layer_kept(&c, when);
}

/* --- forward --- */

/* Returns the rows that layer i makes. */
static size_t made_by(const struct pp_stage *s, size_t i)
{
    size_t rows = s->layers[i].rows;
    return rows >= PP_ROWS_FEATURES ? rows : s->edges[i + 1].rows;
}

/* Returns where the output of layer i goes. */
static void *output_of(const struct stage_work *w, const struct pp_passed *y,
                       size_t i)
{
    const struct pp_layer *l = &w->s->layers[i];
    size_t embed = embedding_of(w->s), last = w->s->n_layers;
    bool features = l->rows >= PP_ROWS_FEATURES;
    if (features ? embed == last : i + 1 == last)
        return y->at[made_by(w->s, i)];
    if (features)
        return features_room(w, l->unit.component, embed);
    void *kept = kept_by(w, i + 1, PP_IN_FORWARD);
    return kept ? kept : handed_on(w, i + 1);
}

int pp_stage_fwd(const struct pp_stage *s, const struct pp_microbatch *mb,
                 const struct pp_passed *y, const struct pp_passed *x,
                 void *const *blocks, struct pp_err *err)
{
    const struct stage_work w = {s, mb, blocks, err};
    struct pp_passed at = *x;
    if (pass_on(&w, y, x))
        return -1;
    for (size_t i = 0; i < s->n_layers; i++) {
        const struct pp_layer *l = &s->layers[i];
        const struct pp_call c = call_of(&w, i, PP_IN_FORWARD);
        void *out = output_of(&w, y, i);
        const void *in = !s->edges[i].width ? NULL
                         : is_embedding(l)  ? (const void *)at.at
                                            : at.at[s->edges[i].rows];
        if (pp_layer_fwd(&c, out, in) ||
            (l->rows < PP_LANGUAGE && pp_states_fwd(&c, &s->edges[i], out, in)))
            return -1;
        pp_layer_time(s->layer_times, i, PP_LAYER_TIME_FWD);
        at.at[made_by(s, i)] = out;
    }
    return 0;
}

/* --- backward --- */

/* Finds where the gradients of the features that layer i reads go: to other
 * stages, or to projectors of this one that need them. */
static void find_gradients(const struct stage_work *w,
                           const struct pp_passed *dx, size_t i,
                           struct pp_passed *at)
{
    for (size_t k = 0, r = PP_ROWS_FEATURES; r < PP_N_ROWS; k++, r++) {
        const struct pp_layer *made = w->s->projectors[k];
        at->at[r] = !made ? dx->at[r] : NULL;
        if (made && made->role != PP_ROLE_FORWARD)
            at->at[r] = features_room(w, k, i);
    }
}

/* Returns where the gradient of what layer i reads goes. The first unit of the
 * model or of an encoder has none. If a stage sends none, its first layer still
 * computes one, because W needs I. In the room of one layer, no other layer
 * keeps it. */
static void *gradient_of(const struct stage_work *w, const struct pp_passed *dx,
                         size_t i, struct pp_passed *at)
{
    const struct pp_stage *s = w->s;
    if (!s->edges[i].width)
        return NULL;
    if (is_embedding(&s->layers[i])) {
        find_gradients(w, dx, i, at);
        return at->at;
    }
    if (i == 0 && dx->at[s->edges[0].rows])
        return dx->at[s->edges[0].rows];
    /* A generator's layers read rows of another number. */
    bool inside = i > 0 && s->layers[i].rows == PP_ROWS_TOKENS;
    void *kept = inside && !w->blocks[PP_GRAD_LAYER]
                     ? kept_by(w, i - 1, PP_IN_BACKWARD)
                     : NULL;
    return kept ? kept : handed_on(w, i);
}

/* Reports whether a layer does I and W at once if a stage does both. They are
 * apart if the time of each is recorded. */
static bool joins(const struct stage_work *w, const struct pp_layer *l,
                  bool both)
{
    return both && l->role == PP_ROLE_TRAINED && pp_layer_joins(l) &&
           !pp_layer_times_wanted(w->s->layer_times);
}

/* Returns the call of a layer in the backward. dy stays until the next layer,
 * and the room of one layer does not copy it. */
static struct pp_call backward_of(const struct stage_work *w, size_t i,
                                  void *dy)
{
    struct pp_call c = call_of(w, i, PP_IN_BACKWARD);
    if (w->blocks[PP_GRAD_LAYER])
        pp_layer_lend(&c, dy);
    return c;
}

/* Computes the gradient dx of what layer i reads. */
static int layer_bwd_input(const struct stage_work *w, size_t i, void *dx,
                           void *dy, bool both)
{
    const struct pp_layer *l = &w->s->layers[i];
    const struct pp_edge *at = &w->s->edges[i];
    bool has_states = l->rows < PP_LANGUAGE;
    if (l->role == PP_ROLE_FORWARD)
        return 0;
    const struct pp_call c = backward_of(w, i, dy);
    if (has_states && pp_states_join(&c, at, dy))
        return -1;
    if (joins(w, l, both) ? pp_layer_bwd(&c, dx, dy)
                          : pp_layer_bwd_input(&c, dx, dy))
        return -1;
    return has_states ? pp_states_bwd(&c, at, dx, dy) : 0;
}

/* Does W of layer i, if it trains and has not done B. */
static int layer_bwd_weight(const struct stage_work *w, size_t i, void *dy,
                            bool both)
{
    const struct pp_layer *l = &w->s->layers[i];
    if (l->role != PP_ROLE_TRAINED || joins(w, l, both))
        return 0;
    const struct pp_call c = backward_of(w, i, dy);
    return pp_layer_bwd_weight(&c);
}

/* Does I of every layer that has a backward. With both, W of a layer follows
 * its I: the next layer may overwrite what it needs. */
static int bwd(const struct stage_work *w, const struct pp_passed *dx,
               const struct pp_passed *dy, bool both,
               pp_layer_done_fn *layer_done, void *ctx)
{
    const struct pp_stage *s = w->s;
    struct pp_passed at = *dy;
    if (pass_on(w, dx, dy))
        return -1;
    for (size_t i = s->n_layers; i-- > 0;) {
        const struct pp_layer *l = &s->layers[i];
        void *from = at.at[made_by(s, i)];
        void *out = gradient_of(w, dx, i, &at);
        if (layer_bwd_input(w, i, out, from, both))
            return -1;
        pp_layer_time(s->layer_times, i, PP_LAYER_TIME_INPUT);
        if (both && layer_bwd_weight(w, i, from, both))
            return -1;
        if (both)
            pp_layer_time(s->layer_times, i, PP_LAYER_TIME_WEIGHT);
        if (layer_done && layer_done(ctx, l, w->err))
            return -1;
        if (!is_embedding(l))
            at.at[s->edges[i].rows] = out;
    }
    return 0;
}

int pp_stage_bwd_input(const struct pp_stage *s, const struct pp_microbatch *mb,
                       const struct pp_passed *dx, const struct pp_passed *dy,
                       void *const *blocks, struct pp_err *err)
{
    const struct stage_work w = {s, mb, blocks, err};
    return bwd(&w, dx, dy, false, NULL, NULL);
}

int pp_stage_bwd_weight(const struct pp_stage *s,
                        const struct pp_microbatch *mb, void *const *blocks,
                        struct pp_err *err)
{
    const struct stage_work w = {s, mb, blocks, err};
    for (size_t i = s->n_layers; i-- > 0;) {
        if (layer_bwd_weight(&w, i, NULL, false))
            return -1;
        pp_layer_time(s->layer_times, i, PP_LAYER_TIME_WEIGHT);
    }
    return 0;
}

int pp_stage_bwd(const struct pp_stage *s, const struct pp_microbatch *mb,
                 const struct pp_passed *dx, const struct pp_passed *dy,
                 void *const *blocks, pp_layer_done_fn *layer_done, void *ctx,
                 struct pp_err *err)
{
    const struct stage_work w = {s, mb, blocks, err};
    return bwd(&w, dx, dy, true, layer_done, ctx);
}
