/* SPDX-License-Identifier: MIT */
/* exec_microbatch - the microbatch of an action: its bin, its rows on this
 * rank, and what kernels read of it. */
#include "run/execute/exec_impl.h"

#include <assert.h>
#include <string.h>

static uint64_t place_of(const struct pp_pass *p, struct pp_action a)
{
    return p->first + (uint64_t)a.microbatch * p->stride;
}

size_t pp_exec_bin(const struct pp_exec *e, struct pp_action a)
{
    const struct pp_pass *p = e->pass;
    uint64_t at = place_of(p, a);
    return at < p->end && pp_env_has_tokens(e->env)
               ? pp_packed_place(p->packed, at)
               : PP_NO_BIN;
}

struct pp_image_work pp_exec_images(const struct pp_exec *e, struct pp_action a,
                                    size_t encoder)
{
    return pp_image_work_of(e->env, encoder, e->pass->packed,
                            place_of(e->pass, a), e->pass->end);
}

/* Returns the tokens of the whole microbatch of an action; if its sequences
 * have ranks of their own, as if every rank had as many as this one. */
static size_t tokens_of(const struct pp_exec *e, struct pp_action a)
{
    const int cp = pp_env_mesh(e->env)->cp;
    struct pp_bin b = {0};
    if (pp_exec_bin(e, a) != PP_NO_BIN)
        pp_packed_bin(e->pass->packed, pp_exec_bin(e, a), &b);
    return b.ranks ? (size_t)cp * pp_bin_rank_tokens(&b, cp, e->env->place.cp)
                   : b.tokens;
}

static size_t slice_grain(const struct pp_exec *e)
{
    return pp_mesh_slice_grain(pp_env_mesh(e->env));
}

/* Returns the tokens that the blocks of a slice are laid out for, or 0. */
static size_t layout_room(const struct pp_exec *e, int slice)
{
    return pp_layout_room(e->env, &e->schedule->graph->slices, slice, e->room);
}

size_t pp_exec_elements(const struct pp_exec *e, struct pp_action a,
                        struct pp_edge edge)
{
    const struct pp_slices *s = &e->schedule->graph->slices;
    const struct pp_kernels *k = e->env->kernels;
    const size_t width =
        pp_edge_bytes(edge, k->element_bytes, k->accumulator_bytes) /
        k->element_bytes;
    if (!pp_rows_of_tokens(edge.rows)) {
        const struct pp_image_work w =
            pp_exec_images(e, a, pp_rows_component(edge.rows));
        return pp_image_rows_of_rank(&w, e->env->shard.model, edge.rows) *
               width;
    }
    size_t sharers = (size_t)pp_mesh_sharers(pp_env_mesh(e->env));
    if (edge.rows == PP_ROWS_GENERATED && pp_env_of(e->env, edge.rows))
        return pp_exec_generated(e, a) / sharers * width;
    size_t tokens = tokens_of(e, a) / sharers;
    const size_t grain = slice_grain(e) / sharers;
    return (pp_slice_begin(s, tokens, grain, a.slice + 1) -
            pp_slice_begin(s, tokens, grain, a.slice)) *
           width;
}

size_t pp_exec_passed(const struct pp_exec *e, struct pp_action a, int stage)
{
    const struct pp_edges *x = &e->worker->engine.passed[stage];
    size_t n = 0;
    for (size_t i = 0; i < x->n; i++)
        n += pp_exec_elements(e, a, x->at[i]);
    return n;
}

bool pp_exec_has_room(const struct pp_exec *e, struct pp_action a)
{
    return tokens_of(e, a) <= e->room &&
           (!pp_env_of(e->env, PP_ROWS_GENERATED) ||
            pp_exec_generated(e, a) <= e->generated_room);
}

int pp_exec_fail_room(const struct pp_exec *e, struct pp_action a,
                      struct pp_err *err)
{
    pp_fail(err, PP_EXIT_INPUT,
            "bin %zu has %zu tokens, but the plan has room for %zu",
            pp_exec_bin(e, a), tokens_of(e, a), e->room);
    return pp_exec_fail_at(e, a, err);
}

/* Returns the saved block of an action: where it was saved, or where it came
 * back. */
static void *saved_block(const struct pp_exec *e, enum pp_buffer_kind kind,
                         struct pp_action a)
{
    void *back = a.op == PP_F ? NULL : pp_exec_buffer(e, kind, a.stage, a, 0);
    return back ? back : pp_exec_buffer(e, kind, a.stage, a, -1);
}

void pp_exec_blocks(const struct pp_exec *e, struct pp_action a,
                    void *blocks[PP_N_STAGE_BLOCKS])
{
    static const struct pp_action any = {.microbatch = 0};
    const struct pp_buffer *room =
        pp_exec_find(e, PP_BUF_WORKSPACE, a.overlap, any, -1);
    blocks[PP_SAVED_ACT_I] = saved_block(e, PP_BUF_ACT_I, a);
    blocks[PP_SAVED_ACT_W] = saved_block(e, PP_BUF_ACT_W, a);
    blocks[PP_SAVED_GRAD_W] = pp_exec_buffer(e, PP_BUF_GRAD_W, a.stage, a, -1);
    blocks[PP_SAVED_GRAD_KEYS] =
        pp_exec_buffer(e, PP_BUF_GRAD_KEYS, a.stage, a, -1);
    blocks[PP_SAVED_STATES] = pp_exec_buffer(e, PP_BUF_STATES, a.stage, a, -1);
    blocks[PP_GRAD_LAYER] =
        pp_exec_buffer(e, PP_BUF_GRAD_LAYER, a.stage, a, -1);
    blocks[PP_SAVED_WORKSPACE] = room ? e->arena + room->offset : NULL;
    blocks[PP_WORKSPACE_END] =
        room ? e->arena + room->offset + room->bytes : NULL;
}

/* Lists the earlier slices of the microbatch and their saved blocks. */
static void view_before(const struct pp_exec *e, struct pp_action a)
{
    const struct pp_slices *s = &e->schedule->graph->slices;
    size_t tokens = tokens_of(e, a), grain = slice_grain(e);
    size_t cp = (size_t)pp_env_mesh(e->env)->cp;
    for (int16_t q = 0; q < a.slice; q++) {
        struct pp_action of = a;
        of.slice = q;
        e->before[q].tokens = (pp_slice_begin(s, tokens, grain, q + 1) -
                               pp_slice_begin(s, tokens, grain, q)) /
                              cp;
        e->before[q].room = layout_room(e, q);
        void *blocks[PP_N_STAGE_BLOCKS];
        pp_exec_blocks(e, of, blocks);
        memcpy(e->before[q].block, blocks, sizeof e->before[q].block);
    }
}

/* Adds the images of the rank, of each encoder. */
static int attach_images(struct pp_exec *e, struct pp_engine *on,
                         struct pp_action a, struct pp_host_microbatch *host,
                         struct pp_err *err)
{
    for (size_t k = 0; k < PP_MAX_ENCODERS; k++) {
        if (!on->images[k].memory)
            continue;
        const struct pp_image_work w = pp_exec_images(e, a, k);
        if (pp_image_batch_view(&on->images[k], &on->batch, e->env, &w, host,
                                err))
            return -1;
    }
    return 0;
}

/* Returns the part of the packed data that an action reads. A unit that divides
 * a head has words of its own. */
static struct pp_batch_part batch_part(const struct pp_exec *e,
                                       const struct pp_stage *stage,
                                       struct pp_action a)
{
    const struct pp_layer *l = stage->layers;
    bool divides = stage->n_layers && pp_layer_divides_head(l);
    return (struct pp_batch_part){
        .bin = pp_exec_bin(e, a),
        .slice = a.slice,
        .slices = e->schedule->graph->slices,
        .score_all = e->pass->score_all,
        .score_ends = e->env->shard.model->scores,
        .ahead = e->pass->ahead != NULL,
        .n_ranks = pp_env_mesh(e->env)->cp,
        .rank = e->env->place.cp,
        .first_word =
            divides ? (int32_t)l->words->first_row : e->env->first_word,
        .n_words = divides ? (int32_t)l->n_words : e->env->n_words,
        .grain = slice_grain(e)};
}

/* Completes *host with the settings of the pass. */
static void attach_pass(struct pp_exec *e, const struct pp_engine *on,
                        const struct pp_batch_part *part,
                        struct pp_host_microbatch *host)
{
    const struct pp_pass *p = e->pass;
    struct pp_microbatch *mb = &host->of;
    mb->room = layout_room(e, part->slice);
    mb->base = p->base;
    mb->slice.before = e->before;
    mb->experts.router = p->router;
    mb->experts.rounds = p->expert_rounds;
    mb->ahead.loss = p->ahead;
    mb->loss = (struct pp_head_loss){
        .scale = p->scale,
        .temperature = p->temperature,
        .logps = p->logps || e->digests ? on->batch.logps : NULL};
    if (p->objective) {
        mb->loss.logps = pp_scoring_logps(e->scoring);
        mb->loss.objective = pp_exec_ops.score;
        mb->loss.ctx = e->scoring;
    }
    mb->details = (struct pp_head_details){
        .top_k = p->top_k,
        .entropy = p->entropy,
        .sampler = p->sampler,
        .draw = p->draw + (uint64_t)part->bin * p->draws};
    if (p->top_k || p->entropy || p->sampler) {
        mb->details.values =
            p->scored->values + p->scored->n * p->scored->width + 1;
        mb->details.stride = p->scored->width;
    }
    pp_teacher_attach(&e->teacher, p, part, &on->batch, host);
    pp_replay_attach(&e->replay, p, part, e->env, host);
}

int pp_exec_view(struct pp_exec *e, struct pp_engine *on, struct pp_action a,
                 struct pp_microbatch *mb, struct pp_host_microbatch *host,
                 struct pp_err *err)
{
    const struct pp_batch_part part = batch_part(e, &on->stages[a.stage], a);
    if (pp_exec_ops.view(&on->batch, e->pass->packed, &part, host, err) ||
        attach_images(e, on, a, host, err) ||
        pp_exec_attach_generator(e, on, a, host, err))
        return -1;
    view_before(e, a);
    attach_pass(e, on, &part, host);
    const struct pp_buffer *told = pp_exec_find(e, PP_BUF_TOLD, a.stage, a, -1);
    assert((told ? told->bytes : 0) == on->stages[a.stage].told_bytes);
    host->of.experts.told = told ? e->host + told->offset : NULL;
    return pp_batch_send(&on->batch, host, mb, err) ||
                   pp_image_batches_send(on->images, mb, err) ||
                   pp_generated_send(&on->generated, mb, err)
               ? -1
               : 0;
}
