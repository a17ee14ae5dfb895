/* SPDX-License-Identifier: MIT */
/* exec_compute - computes an action: the forward or the backward of a stage for
 * a microbatch, and what a pass wants to know of it. */
#include "base/clock.h"
#include "run/execute/exec_impl.h"
#include "run/execute/sync.h"
#include "run/parameters/gradients.h"
#include "schedule/ir/deps.h"

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

int pp_exec_copy(struct pp_exec *e, struct pp_action a, struct pp_err *err)
{
    if (a.op == PP_RELOAD && open_slot(e, a, err))
        return -1;
    e->slots -= a.op == PP_OFFLOAD;
    return pp_host_copies_perform(e, err);
}

/* An action at work on an engine. */
struct exec_work {
    struct pp_exec *e;
    struct pp_engine *on;
    struct pp_action a;
    const struct pp_stage *stage;
    struct pp_microbatch mb;
    struct pp_host_microbatch host;
    void *blocks[PP_N_STAGE_BLOCKS];
    bool reduces; /* REDUCE_GRAD begins with the layers */
    struct pp_err *err;
};

/* Hands the output of a stage to the callback, if there is one. */
static int pass_output(const struct exec_work *w, const struct pp_passed *from)
{
    const struct pp_exec *e = w->e;
    const struct pp_edges *x = &w->stage->out;
    for (size_t i = 0; e->pass->output && i < x->n; i++) {
        const struct pp_edge edge = x->at[i];
        if (edge.statistics)
            continue;
        const void *y = pp_device_read(w->on->env->device, from->at[edge.rows],
                                       pp_exec_elements(e, w->a, edge) *
                                           e->env->kernels->element_bytes,
                                       e->output_host, w->err);
        if (!y)
            return -1;
        e->pass->output(e->pass->ctx, w->a.stage, pp_exec_bin(e, w->a), &w->mb,
                        y, edge);
    }
    return 0;
}

static struct pp_digest_rows rows_to_digest(const struct exec_work *w)
{
    const struct pp_place *at = &w->e->env->place;
    return (struct pp_digest_rows){.packed = w->e->pass->packed,
                                   .bin = pp_exec_bin(w->e, w->a),
                                   .host = &w->host,
                                   .cp_rank = (size_t)at->cp,
                                   .tp_rank = (size_t)at->tp,
                                   .tp = (size_t)pp_env_mesh(w->e->env)->tp};
}

static uint64_t *digest_of(const struct exec_work *w, enum pp_digest_of of)
{
    size_t stage = (size_t)pp_original(w->e->schedule->graph, w->a.stage);
    return w->e->digests + stage * PP_DIGEST_N + of;
}

/* Adds rows to the digest of the bits of a stage: what the stage `from` passes
 * on, or the gradient of it. */
static void digest_rows(const struct exec_work *w, enum pp_digest_of of,
                        const void *x, int from)
{
    const struct pp_digest_rows r = rows_to_digest(w);
    const struct pp_edge edge = w->e->worker->engine.passed[from].at[0];
    if (!edge.statistics) /* they are of scored rows, which the head adds up */
        pp_digest_rows(digest_of(w, of), &r, x,
                       edge.width * w->e->env->kernels->element_bytes);
}

/* Adds log-probabilities and loss of the head. Every tensor-parallel rank has
 * all of them, and the first context-parallel rank has the loss. */
static void digest_head(const struct exec_work *w)
{
    struct pp_digest_rows r = rows_to_digest(w);
    if (r.tp_rank > 0)
        return;
    r.tp = 1;
    pp_digest_logps(digest_of(w, PP_DIGEST_OUTPUT), &r, w->host.of.loss.logps);
    if (r.cp_rank == 0 && !w->mb.slice.continues)
        pp_digest_loss(digest_of(w, PP_DIGEST_LOSS), &r, *w->mb.loss.sum);
}

/* Tells the scoring which microbatch the head makes. Without a backward nothing
 * is written for the earlier slices. */
static void prepare_scoring(const struct exec_work *w)
{
    struct pp_exec *e = w->e;
    const struct pp_pass *p = e->pass;
    struct pp_scoring *s = e->scoring;
    size_t at = (size_t)w->a.microbatch * p->stride * p->n_metrics;
    size_t own = (size_t)e->env->context.group.index * PP_MAX_METRICS;
    s->options = p->objective;
    s->step = p->step;
    s->packed = p->packed;
    s->reference = p->reference;
    s->bin = pp_exec_bin(e, w->a);
    /* All tensor-parallel ranks have the same metrics. */
    s->metrics =
        p->metrics && e->env->place.tp == 0 ? p->metrics + at + own : NULL;
    s->rows = &w->host;
    e->before[w->a.slice].n_scored = e->trains ? w->host.of.scored.n : 0;
}

static int forward(struct exec_work *w)
{
    const struct pp_exec *e = w->e;
    struct pp_passed y = pp_exec_output(e, w->a), x;
    /* All tensor-parallel ranks have the same losses: the first one adds them.
     */
    bool reports = e->env->place.tp == 0;
    if (reports)
        w->mb.loss.sum =
            &e->pass->losses[(size_t)w->a.microbatch * e->pass->stride];
    bool has_head = pp_exec_has_head(w->stage);
    if (e->pass->objective && has_head)
        prepare_scoring(w);
    if (pp_exec_join_inputs(e, w->on, w->a, &x, w->err) ||
        pp_stage_fwd(w->stage, &w->mb, &y, &x, w->blocks, w->err) ||
        pass_output(w, &y))
        return -1;
    if (e->digests && has_head)
        digest_head(w);
    else if (e->digests && pp_passed_rows(&y))
        digest_rows(w, PP_DIGEST_OUTPUT, pp_passed_rows(&y), w->a.stage);
    if (e->pass->logps && has_head && reports)
        e->pass->logps(e->pass->ctx, pp_exec_bin(e, w->a), &w->host);
    return 0;
}

/* Reports if this backward is the last one before the REDUCE_GRAD of its stage,
 * which then begins with its layers. A recorder takes that action's time. */
static bool is_reduced(const struct pp_exec *e, size_t place,
                       struct pp_action a)
{
    const struct pp_row *row = &e->schedule->rows[e->env->place.row];
    if (a.op != PP_B || !e->pass->sync || !e->worker->reducer.device ||
        e->recorder)
        return false;
    for (size_t i = place + 1; i < row->n; i++) {
        struct pp_action next = row->actions[i];
        if (next.stage == a.stage && next.op == PP_REDUCE_GRAD)
            return true;
        if (next.stage == a.stage &&
            pp_adds_gradients(e->schedule->graph, next))
            return false;
    }
    return false;
}

static int reduce_layer(void *ctx, const struct pp_layer *l, struct pp_err *err)
{
    const struct exec_work *w = ctx;
    return pp_gradients_settle(w->e->env->params, w->a.stage,
                               (int64_t)l->number, err) ||
                   pp_sync_unit(w->e->worker, w->a.stage, l->number, err)
               ? -1
               : 0;
}

static int backward(struct exec_work *w)
{
    struct pp_exec *e = w->e;
    const struct pp_graph *graph = e->schedule->graph;
    bool weight = w->a.op != PP_I;
    struct pp_passed dx, dy;
    e->slots -= pp_ends_backward(graph, w->a);
    if (!pp_consumes_gradient(graph, w->a))
        return weight ? pp_stage_bwd_weight(w->stage, &w->mb, w->blocks, w->err)
                      : 0;
    dx = pp_exec_input_gradient(e, w->a);
    if (pp_exec_join_gradients(e, w->on, w->a, &dy, w->err))
        return -1;
    pp_layer_done_fn *done = w->reduces ? reduce_layer : NULL;
    if (weight
            ? pp_stage_bwd(w->stage, &w->mb, &dx, &dy, w->blocks, done, w,
                           w->err)
            : pp_stage_bwd_input(w->stage, &w->mb, &dx, &dy, w->blocks, w->err))
        return -1;
    if (e->digests && pp_passed_rows(&dx))
        digest_rows(w, PP_DIGEST_GRADIENT, pp_passed_rows(&dx),
                    graph->stages[w->a.stage].inputs[0]);
    return pp_exec_spread_gradient(e, w->on, w->a, &dx, w->err);
}

static int take_metadata(const struct exec_work *w)
{
    const struct pp_exec *e = w->e;
    size_t at = (size_t)e->pass->number * (size_t)e->schedule->n_microbatches +
                (size_t)w->a.microbatch;
    at = at * (size_t)e->schedule->graph->slices.n + (size_t)w->a.slice;
    /* An encoder with a mesh of its own has images for sequences, and a
     * generator may have other rows than the language model. */
    const struct pp_layer *first = w->stage->layers;
    const struct pp_host_microbatch *given = &w->host;
    if (pp_env_encodes(e->env))
        given = w->host.of.views[e->env->place.component]->host;
    else if (e->env->generates ||
             (w->stage->n_layers && first->rows == PP_ROWS_GENERATED))
        given = &w->on->generated.view;
    return pp_metadata_take(e->metadata, at, w->a.stage, given, w->err)
               ? pp_exec_fail_at(e, w->a, w->err)
               : 0;
}

/* Layers are timed in F, I and W apart. With an objective the head makes
 * gradients in some forwards, and not in forwards of many rows. */
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
    struct exec_work w;
    if (!pp_exec_has_room(e, a))
        return pp_exec_fail_room(e, a, err);
    w.e = e;
    w.on = on;
    w.a = a;
    w.stage = &on->stages[a.stage];
    w.reduces = is_reduced(e, place, a);
    w.err = err;
    if (e->recorder)
        pp_recorder_begin(e->recorder, place, on->env->device);
    if (pp_exec_view(e, on, a, &w.mb, &w.host, err))
        return -1;
    w.mb.loss.at_once = is_at_once(e, place);
    on->generated.there.loss.at_once = w.mb.loss.at_once;
    if (a.op == PP_F && e->metadata && take_metadata(&w))
        return -1;
    pp_exec_blocks(e, a, w.blocks);
    if (e->recorder)
        pp_recorder_layers(e->recorder, place, a, &w.host);
    if (a.op == PP_F ? forward(&w) : backward(&w))
        return -1;
    if (e->recorder)
        pp_recorder_end(e->recorder, place, on->env->device);
    return 0;
}

/* Computes an overlap pair, after all earlier work and before all later work.
 * The backward is queued first: a forward that ends in an objective makes the
 * host wait. */
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
    if (pp_exec_post(e, err) || pp_exec_await_inputs(e, a, err) ||
        pp_host_copies_await(e, err))
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
    return rc || e->has_paired ? rc : pp_host_copies_computed(e, err);
}
