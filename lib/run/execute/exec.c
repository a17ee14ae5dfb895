/* SPDX-License-Identifier: MIT */
/* exec - computes the actions of a row; exec_messages.c does the messages. */
#include "run/execute/exec.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/num.h"
#include "run/execute/exec_impl.h"
#include "run/execute/sync.h"
#include "schedule/ir/deps.h"

static int make_inboxes(struct pp_exec *e, struct pp_err *err)
{
    size_t n = 2 * (size_t)e->schedule->graph->n_rows, total;
    int receives;
    if (pp_job_receives(e->schedule, &receives, err) ||
        pp_mul(n, (size_t)receives, &total, err))
        return -1;
    e->n_posted = (size_t)receives;
    e->inboxes = calloc(n, sizeof *e->inboxes);
    e->posted = calloc(total, sizeof *e->posted);
    if (!e->inboxes || !e->posted)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    for (size_t i = 0; i < n; i++)
        e->inboxes[i].at = e->posted + i * e->n_posted;
    return 0;
}

int pp_exec_init(struct pp_exec *e, struct pp_worker *w,
                 const struct pp_schedule *s,
                 const struct pp_stage_bytes *sizes, size_t room,
                 struct pp_err *err)
{
    memset(e, 0, sizeof *e);
    e->worker = w;
    e->env = w->env;
    e->schedule = s;
    e->room = room;
    e->layout = pp_slice_room(e->env, s->graph->n_slices, room);
    if (pp_memory_plan(s, e->env->place.row, sizes, &e->memory, err))
        return -1;
    const struct pp_row *row = &s->rows[e->env->place.row];
    for (size_t i = 0; i < row->n; i++)
        e->trains |= pp_is_compute(row->actions[i].op) &&
                     pp_ends_backward(s->graph, row->actions[i]);
    e->sent = calloc(2 * (size_t)s->graph->n_rows, sizeof *e->sent);
    e->bounds =
        calloc((size_t)pp_layout_ranks(&e->env->layout) + 1, sizeof *e->bounds);
    e->before = calloc((size_t)s->graph->n_slices, sizeof *e->before);
    e->at_once = calloc(row->n + 1, sizeof *e->at_once);
    if (!e->sent || !e->before || !e->bounds || !e->at_once)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    pp_at_once(s, e->env->place.row, e->at_once);
    return make_inboxes(e, err);
}

void pp_exec_finish(struct pp_exec *e)
{
    pp_memory_finish(&e->memory);
    free(e->sent);
    free(e->before);
    free(e->at_once);
    free(e->bounds);
    free(e->inboxes);
    free(e->posted);
    memset(e, 0, sizeof *e);
}

const struct pp_buffer *pp_exec_find(const struct pp_exec *e,
                                     enum pp_buffer_kind kind, int stage,
                                     struct pp_action a, int peer)
{
    return pp_memory_find(&e->memory, kind, stage, a.microbatch, a.slice, peer);
}

void *pp_exec_buffer(const struct pp_exec *e, enum pp_buffer_kind kind,
                     int stage, struct pp_action a, int peer)
{
    const struct pp_buffer *b = pp_exec_find(e, kind, stage, a, peer);
    return b ? e->arena + b->offset : NULL;
}

/* The two actions of an overlap pair have a workspace each. */
static void find_blocks(const struct pp_exec *e, struct pp_action a,
                        void *blocks[PP_N_STAGE_BLOCKS])
{
    static const struct pp_action any = {.microbatch = 0};
    const struct pp_buffer *room =
        pp_exec_find(e, PP_BUF_WORKSPACE, a.overlap, any, -1);
    blocks[PP_SAVED_ACT_I] = pp_exec_buffer(e, PP_BUF_ACT_I, a.stage, a, -1);
    blocks[PP_SAVED_ACT_W] = pp_exec_buffer(e, PP_BUF_ACT_W, a.stage, a, -1);
    blocks[PP_SAVED_GRAD_W] = pp_exec_buffer(e, PP_BUF_GRAD_W, a.stage, a, -1);
    blocks[PP_SAVED_WORKSPACE] = room ? e->arena + room->offset : NULL;
    blocks[PP_WORKSPACE_END] =
        room ? e->arena + room->offset + room->bytes : NULL;
}

static uint64_t place_of(const struct pp_pass *p, struct pp_action a)
{
    return p->first + (uint64_t)a.microbatch * p->stride;
}

/* A rank that has no tokens has no bin. */
static size_t bin_of(const struct pp_exec *e, struct pp_action a)
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

size_t pp_exec_tokens(const struct pp_exec *e, struct pp_action a)
{
    const int cp = pp_env_mesh(e->env)->cp;
    struct pp_bin b = {0};
    if (bin_of(e, a) != PP_NO_BIN)
        pp_packed_bin(e->pass->packed, bin_of(e, a), &b);
    return b.ranks ? (size_t)cp * pp_bin_rank_tokens(&b, cp, e->env->place.cp)
                   : b.tokens;
}

size_t pp_exec_elements(const struct pp_exec *e, struct pp_action a,
                        struct pp_edge edge)
{
    int n = e->schedule->graph->n_slices;
    if (edge.rows >= PP_ROWS_PATCHES) {
        const struct pp_image_work w = pp_exec_images(e, a, edge.encoder);
        return pp_image_rows_of_rank(&w, e->env->model, edge.rows) * edge.width;
    }
    size_t sharers = (size_t)pp_mesh_sharers(pp_env_mesh(e->env));
    if (edge.rows == PP_ROWS_GENERATED && e->env->generator)
        return pp_exec_generated(e, a) / sharers * edge.width;
    size_t tokens = pp_exec_tokens(e, a) / sharers;
    return (pp_slice_begin(tokens, 1, a.slice + 1, n) -
            pp_slice_begin(tokens, 1, a.slice, n)) *
           edge.width;
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
    return pp_exec_tokens(e, a) <= e->room &&
           (!e->env->generator || pp_exec_generated(e, a) <= e->generated_room);
}

int pp_exec_fail_at(const struct pp_exec *e, struct pp_action a,
                    struct pp_err *err)
{
    pp_err_set_origin(err, PP_ORIGIN_RANK, e->env->comm->rank);
    pp_err_set_origin(err, PP_ORIGIN_STAGE, a.stage);
    pp_err_set_origin(err, PP_ORIGIN_MICROBATCH, a.microbatch);
    return pp_fail_at(err, "microbatch %d: rank %d: ", (int)a.microbatch,
                      e->env->comm->rank);
}

int pp_exec_fail_room(const struct pp_exec *e, struct pp_action a,
                      struct pp_err *err)
{
    pp_fail(err, PP_EXIT_INPUT,
            "bin %zu has %zu tokens, but the plan has room for %zu",
            bin_of(e, a), pp_exec_tokens(e, a), e->room);
    return pp_exec_fail_at(e, a, err);
}

static size_t slice_grain(const struct pp_exec *e)
{
    return (size_t)pp_env_mesh(e->env)->tp;
}

/* Lists the earlier slices of the microbatch and their saved blocks. */
static void view_before(const struct pp_exec *e, struct pp_action a)
{
    int n = e->schedule->graph->n_slices;
    size_t tokens = pp_exec_tokens(e, a), grain = slice_grain(e);
    for (int16_t q = 0; q < a.slice; q++) {
        struct pp_action of = a;
        of.slice = q;
        e->before[q].tokens = pp_slice_begin(tokens, grain, q + 1, n) -
                              pp_slice_begin(tokens, grain, q, n);
        e->before[q].room = e->layout;
        void *blocks[PP_N_STAGE_BLOCKS];
        find_blocks(e, of, blocks);
        memcpy(e->before[q].block, blocks, sizeof e->before[q].block);
    }
}

/* Adds the images of the rank, of each encoder. */
static int attach_images(struct pp_exec *e, struct pp_engine *on,
                         struct pp_action a, struct pp_microbatch *host,
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

/* Makes the microbatch for the kernels (*mb) and for the host (*host). */
static int view(struct pp_exec *e, struct pp_engine *on, struct pp_action a,
                struct pp_microbatch *mb, struct pp_microbatch *host,
                struct pp_err *err)
{
    const struct pp_pass *p = e->pass;
    const struct pp_batch_part part = {.bin = bin_of(e, a),
                                       .slice = a.slice,
                                       .n_slices = e->schedule->graph->n_slices,
                                       .score_all = p->score_all,
                                       .score_ends = e->env->model->scores,
                                       .ahead = p->ahead != NULL,
                                       .n_ranks = pp_env_mesh(e->env)->cp,
                                       .rank = e->env->place.cp,
                                       .first_word = e->env->first_word,
                                       .n_words = e->env->n_words,
                                       .grain = slice_grain(e)};
    if (pp_exec_ops.view(&on->batch, p->packed, &part, host, err) ||
        attach_images(e, on, a, host, err) ||
        pp_exec_attach_generator(e, on, a, host, err))
        return -1;
    view_before(e, a);
    host->before = e->before;
    host->room = e->layout;
    host->scale = p->scale;
    host->temperature = p->temperature;
    host->router = p->router;
    host->ahead = p->ahead;
    host->logps = p->logps || e->digests ? on->batch.logps : NULL;
    host->top_k = p->top_k;
    host->entropy = p->entropy;
    host->sampler = p->sampler;
    host->draw = p->draw + (uint64_t)part.bin * p->draws;
    if (p->top_k || p->entropy || p->sampler) {
        host->details = p->scored->values + p->scored->n * p->scored->width + 1;
        host->details_stride = p->scored->width;
    }
    if (p->objective) {
        host->logps = pp_scoring_logps(e->scoring);
        host->objective = pp_exec_ops.score;
        host->objective_ctx = e->scoring;
    }
    pp_teacher_attach(&e->teacher, p, &part, &on->batch, host);
    pp_replay_attach(&e->replay, p, &part, e->env, host);
    *mb = *host;
    return pp_batch_send(&on->batch, mb, err) ||
                   pp_image_batches_send(on->images, mb, err) ||
                   pp_generated_send(&on->generated, mb, err)
               ? -1
               : 0;
}

static int open_slot(struct pp_exec *e, struct pp_action a, struct pp_err *err)
{
    int limit = e->slot_limit ? e->slot_limit : e->memory.peak_slots;
    if (++e->slots > limit) {
        char text[PP_ACTION_TEXT];
        pp_action_format(a, false, text);
        pp_fail(err, PP_EXIT_NO, "'%s' needs %d slots, but the limit is %d",
                text, e->slots, limit);
        return pp_exec_fail_at(e, a, err);
    }
    if (e->slots > e->peak_slots)
        e->peak_slots = e->slots;
    return 0;
}

/* Hands the output of a stage to the callback, if there is one. */
static int pass_output(const struct pp_exec *e, const struct pp_engine *on,
                       const struct pp_microbatch *mb, struct pp_action a,
                       const struct pp_passed *from, struct pp_err *err)
{
    const struct pp_edges *x = &on->stages[a.stage].out;
    for (size_t i = 0; e->pass->output && i < x->n; i++) {
        const struct pp_edge edge = x->at[i];
        const void *y = edge.rows == PP_ROWS_FEATURES
                            ? from->features[edge.encoder]
                            : from->rows;
        y = pp_device_read(on->env->device, y,
                           pp_exec_elements(e, a, edge) *
                               e->env->kernels->element_bytes,
                           e->output_host, err);
        if (!y)
            return -1;
        e->pass->output(e->pass->ctx, a.stage, bin_of(e, a), mb, y, edge);
    }
    return 0;
}

static struct pp_digest_rows rows_to_digest(const struct pp_exec *e,
                                            const struct pp_microbatch *host,
                                            struct pp_action a)
{
    const struct pp_place *at = &e->env->place;
    return (struct pp_digest_rows){.packed = e->pass->packed,
                                   .bin = bin_of(e, a),
                                   .mb = host,
                                   .cp_rank = (size_t)at->cp,
                                   .tp_rank = (size_t)at->tp,
                                   .tp = slice_grain(e)};
}

static uint64_t *digest_of(const struct pp_exec *e, struct pp_action a,
                           enum pp_digest_of of)
{
    size_t stage = (size_t)pp_original(e->schedule->graph, a.stage);
    return e->digests + stage * PP_DIGEST_N + of;
}

/* Adds rows to the digest of the bits of a stage: what the stage `from` passes
 * on, or the gradient of it. */
static void digest_rows(const struct pp_exec *e,
                        const struct pp_microbatch *host, struct pp_action a,
                        enum pp_digest_of of, const void *x, int from)
{
    const struct pp_digest_rows r = rows_to_digest(e, host, a);
    size_t width = e->worker->engine.passed[from].at[0].width;
    pp_digest_rows(digest_of(e, a, of), &r, x,
                   width * e->env->kernels->element_bytes);
}

/* Adds log-probabilities and loss of the head. Every tensor-parallel rank has
 * all of them, and the first context-parallel rank has the loss. */
static void digest_head(const struct pp_exec *e,
                        const struct pp_microbatch *host, struct pp_action a,
                        double loss)
{
    struct pp_digest_rows r = rows_to_digest(e, host, a);
    if (r.tp_rank > 0)
        return;
    r.tp = 1;
    pp_digest_logps(digest_of(e, a, PP_DIGEST_OUTPUT), &r, host->logps);
    if (r.cp_rank == 0)
        pp_digest_loss(digest_of(e, a, PP_DIGEST_LOSS), &r, loss);
}

/* Tells the scoring which microbatch the head makes. Without a backward nothing
 * is written for the earlier slices. */
static void prepare_scoring(struct pp_exec *e, const struct pp_microbatch *host,
                            struct pp_action a)
{
    const struct pp_pass *p = e->pass;
    struct pp_scoring *s = e->scoring;
    size_t at = (size_t)a.microbatch * p->stride * p->n_metrics;
    size_t own = (size_t)e->env->context.group.index * PP_MAX_METRICS;
    s->options = p->objective;
    s->step = p->step;
    s->packed = p->packed;
    s->bin = bin_of(e, a);
    /* All tensor-parallel ranks have the same metrics. */
    s->metrics =
        p->metrics && e->env->place.tp == 0 ? p->metrics + at + own : NULL;
    s->rows = host;
    e->before[a.slice].n_scored = e->trains ? host->n_scored : 0;
}

static int forward(struct pp_exec *e, const struct pp_engine *on,
                   struct pp_microbatch *mb, const struct pp_microbatch *host,
                   struct pp_action a, void *const *blocks, struct pp_err *err)
{
    const struct pp_stage *s = &on->stages[a.stage];
    struct pp_passed y = pp_exec_output(e, a), x;
    double loss = 0;
    mb->loss = &loss;
    bool has_head = pp_exec_has_head(s, PP_ROWS_TOKENS);
    if (e->pass->objective && has_head)
        prepare_scoring(e, host, a);
    if (pp_exec_join_inputs(e, on, a, &x, err) ||
        pp_stage_fwd(s, mb, &y, &x, blocks, err) ||
        pass_output(e, on, mb, a, &y, err))
        return -1;
    if (e->digests && has_head)
        digest_head(e, host, a, loss);
    else if (e->digests && y.rows)
        digest_rows(e, host, a, PP_DIGEST_OUTPUT, y.rows, a.stage);
    /* The slices of a microbatch come in order, so their losses add up. All
     * tensor-parallel ranks have the same: the first one reports it. */
    double *sum = &e->pass->losses[(size_t)a.microbatch * e->pass->stride];
    bool reports = has_head && e->env->place.tp == 0;
    if (reports)
        *sum = (a.slice ? *sum : 0) + loss;
    pp_exec_add_generator_loss(e, on, a);
    if (e->pass->logps && reports)
        e->pass->logps(e->pass->ctx, bin_of(e, a), host);
    return 0;
}

static int backward(struct pp_exec *e, const struct pp_engine *on,
                    const struct pp_microbatch *mb,
                    const struct pp_microbatch *host, struct pp_action a,
                    void *const *blocks, struct pp_err *err)
{
    const struct pp_stage *s = &on->stages[a.stage];
    bool input = pp_consumes_gradient(e->schedule->graph, a);
    bool weight = a.op != PP_I;
    struct pp_passed dx, dy;
    e->slots -= pp_ends_backward(e->schedule->graph, a);
    if (!input)
        return weight ? pp_stage_bwd_weight(s, mb, blocks, err) : 0;
    dx = pp_exec_input_gradient(e, a);
    if (pp_exec_join_gradients(e, on, a, &dy, err))
        return -1;
    if (weight ? pp_stage_bwd(s, mb, &dx, &dy, blocks, err)
               : pp_stage_bwd_input(s, mb, &dx, &dy, blocks, err))
        return -1;
    if (e->digests && dx.rows)
        digest_rows(e, host, a, PP_DIGEST_GRADIENT, dx.rows,
                    e->schedule->graph->stages[a.stage].inputs[0]);
    return pp_exec_spread_gradient(e, on, a, &dx, err);
}

static int take_metadata(const struct pp_exec *e, struct pp_action a,
                         const struct pp_microbatch *host, struct pp_err *err)
{
    size_t at = (size_t)e->pass->number * (size_t)e->schedule->n_microbatches +
                (size_t)a.microbatch;
    /* An encoder with a mesh of its own has images for sequences. */
    const struct pp_microbatch *given =
        pp_env_has_tokens(e->env) ? host
                                  : host->taken[e->env->place.component].images;
    return pp_metadata_take(e->metadata, at, a.stage, given, err)
               ? pp_exec_fail_at(e, a, err)
               : 0;
}

/* Layers are timed in F, I and W apart. With an objective the head makes
 * gradients in some forwards, and not in those of many rows. */
static bool is_at_once(const struct pp_exec *e, size_t place)
{
    enum pp_at_once least =
        e->pass->objective ? PP_AT_ONCE_EACH : PP_AT_ONCE_ALL;
    return e->at_once[place] >= least &&
           !(e->recorder && e->recorder->kept.layers);
}

/* Computes the action at this place of the row. */
static int compute_on(struct pp_exec *e, struct pp_engine *on, size_t place,
                      struct pp_action a, struct pp_err *err)
{
    struct pp_microbatch mb, host;
    void *blocks[PP_N_STAGE_BLOCKS];
    if (!pp_exec_has_room(e, a))
        return pp_exec_fail_room(e, a, err);
    if (e->recorder)
        pp_recorder_begin(e->recorder, place, on->env->device);
    if (view(e, on, a, &mb, &host, err))
        return -1;
    mb.at_once = on->generated.there.at_once = is_at_once(e, place);
    if (a.op == PP_F && e->metadata && take_metadata(e, a, &host, err))
        return -1;
    find_blocks(e, a, blocks);
    if (e->recorder)
        pp_recorder_layers(e->recorder, place, a, &host);
    if (a.op == PP_F ? forward(e, on, &mb, &host, a, blocks, err)
                     : backward(e, on, &mb, &host, a, blocks, err))
        return -1;
    if (e->recorder)
        pp_recorder_end(e->recorder, place, on->env->device);
    return 0;
}

/* Computes an overlap pair, after all earlier work and before all later work.
 * The backward is queued first: a forward that ends in the loss makes the host
 * wait. */
static int compute_pair(struct pp_exec *e, struct pp_action f,
                        struct pp_action b, struct pp_err *err)
{
    struct pp_worker *w = e->worker;
    e->has_paired = false;
    return pp_engine_wait_for(&w->overlap, &w->engine, err) ||
                   compute_on(e, &w->engine, e->pc, b, err) ||
                   compute_on(e, &w->overlap, e->pc - 1, f, err) ||
                   pp_engine_wait_for(&w->engine, &w->overlap, err)
               ? -1
               : 0;
}

int pp_exec_compute(void *ctx, struct pp_action a, struct pp_err *err)
{
    struct pp_exec *e = ctx;
    int rc = 0;
    pp_progress_action(e->worker->progress, e->pc);
    if (a.op == PP_F && e->trains &&
        e->schedule->graph->stages[a.stage].has_backward &&
        open_slot(e, a, err))
        return -1;
    if (pp_exec_await_inputs(e, a, err))
        return -1;
    double start = pp_clock();
    if (a.overlap && e->worker->overlap.env) {
        e->paired = a;
        e->has_paired = true;
    } else {
        rc = e->has_paired ? compute_pair(e, e->paired, a, err)
                           : compute_on(e, &e->worker->engine, e->pc, a, err);
    }
    e->compute_seconds += pp_clock() - start;
    return rc;
}

/* Only UNSHARD and other REDUCE_GRADs run beside a REDUCE_GRAD. */
static int sync_now(struct pp_exec *e, struct pp_action a, struct pp_err *err)
{
    struct pp_tied *tied = e->worker->tied;
    if (a.op != PP_UNSHARD && a.op != PP_REDUCE_GRAD &&
        pp_sync_join(e->worker, err))
        return -1;
    if (a.op == PP_UNSHARD || a.op == PP_RESHARD)
        return pp_sync_weights(e, a, err);
    if (!e->pass->sync)
        return 0;
    if (a.op == PP_REDUCE_GRAD)
        return pp_sync_replicas(e->worker, a.stage, err);
    if (a.op == PP_SYNC_COPIES)
        return pp_sync_copies(e->worker, err);
    for (int k = 0; a.op == PP_SYNC_TIED && k < PP_MAX_COPIES; k++)
        if (tied[k].used && pp_sync_tied(e->worker, &tied[k], err))
            return -1;
    return 0;
}

int pp_exec_sync(void *ctx, struct pp_action a, struct pp_err *err)
{
    struct pp_exec *e = ctx;
    struct pp_device *beside = e->worker->reducer.device;
    struct pp_device *on =
        a.op == PP_REDUCE_GRAD && beside ? beside : e->env->device;
    pp_progress_action(e->worker->progress, e->pc);
    if (e->recorder)
        pp_recorder_begin(e->recorder, e->pc, on);
    int rc = sync_now(e, a, err);
    if (e->recorder)
        pp_recorder_end(e->recorder, e->pc, on);
    return rc;
}

/* Plays the row, through the recorder if there is one. */
static int play(struct pp_exec *e, struct pp_err *err)
{
    const struct pp_player *player = &pp_exec_ops.player;
    struct pp_recorder *r = e->recorder;
    e->pc = 0;
    int row = e->env->place.row;
    if (!r)
        return pp_play(e->schedule, row, &e->pc, player, e, err);
    pp_recorder_pass(r, e->pass->number, player, e, &e->pc);
    int rc = pp_play(e->schedule, row, &e->pc, &pp_recording_player, r, err);
    pp_recorder_passed(r);
    return rc;
}

int pp_exec_run(struct pp_exec *e, const struct pp_pass *pass,
                struct pp_err *err)
{
    double start = pp_clock();
    const struct pp_env *overlap = e->worker->overlap.env;
    e->pass = pass;
    e->slots = 0;
    e->has_paired = false;
    /* Returns at once: the results of the previous step have been read. */
    if (overlap && pass->number == 0 &&
        overlap->device->ops->wait(overlap->device, err))
        return -1;
    if (e->scoring)
        e->scoring->n_held = 0;
    /* The previous pass emptied the rings (below). A row with fewer messages
     * than the channel depth has a ring of that many places. */
    int n_rows = e->schedule->graph->n_rows;
    memset(e->sent, 0, 2 * (size_t)n_rows * sizeof *e->sent);
    if (play(e, err) || pp_sync_join(e->worker, err))
        return -1;
    for (int row = 0; row < n_rows; row++)
        for (int direction = PP_DIRECTION_FORWARD;
             direction <= PP_DIRECTION_BACKWARD; direction++)
            if (e->sent[2 * row + direction] &&
                pp_exec_wait_sent(e, row, (enum pp_direction)direction, 0, err))
                return -1;
    e->seconds += pp_clock() - start;
    return 0;
}
