/* SPDX-License-Identifier: MIT */
/* exec_compute - computes an action: the forward or the backward of a stage for
 * a microbatch, and what a pass wants to know of it. */
#include "base/clock.h"
#include "run/execute/exec_impl.h"
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
        e->pass->output(e->pass->ctx, a.stage, pp_exec_bin(e, a), mb, y, edge);
    }
    return 0;
}

static struct pp_digest_rows
rows_to_digest(const struct pp_exec *e, const struct pp_host_microbatch *host,
               struct pp_action a)
{
    const struct pp_place *at = &e->env->place;
    return (struct pp_digest_rows){.packed = e->pass->packed,
                                   .bin = pp_exec_bin(e, a),
                                   .host = host,
                                   .cp_rank = (size_t)at->cp,
                                   .tp_rank = (size_t)at->tp,
                                   .tp = (size_t)pp_env_mesh(e->env)->tp};
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
                        const struct pp_host_microbatch *host,
                        struct pp_action a, enum pp_digest_of of, const void *x,
                        int from)
{
    const struct pp_digest_rows r = rows_to_digest(e, host, a);
    size_t width = e->worker->engine.passed[from].at[0].width;
    pp_digest_rows(digest_of(e, a, of), &r, x,
                   width * e->env->kernels->element_bytes);
}

/* Adds log-probabilities and loss of the head. Every tensor-parallel rank has
 * all of them, and the first context-parallel rank has the loss. */
static void digest_head(const struct pp_exec *e,
                        const struct pp_host_microbatch *host,
                        struct pp_action a, double loss)
{
    struct pp_digest_rows r = rows_to_digest(e, host, a);
    if (r.tp_rank > 0)
        return;
    r.tp = 1;
    pp_digest_logps(digest_of(e, a, PP_DIGEST_OUTPUT), &r, host->of.loss.logps);
    if (r.cp_rank == 0)
        pp_digest_loss(digest_of(e, a, PP_DIGEST_LOSS), &r, loss);
}

/* Tells the scoring which microbatch the head makes. Without a backward nothing
 * is written for the earlier slices. */
static void prepare_scoring(struct pp_exec *e,
                            const struct pp_host_microbatch *host,
                            struct pp_action a)
{
    const struct pp_pass *p = e->pass;
    struct pp_scoring *s = e->scoring;
    size_t at = (size_t)a.microbatch * p->stride * p->n_metrics;
    size_t own = (size_t)e->env->context.group.index * PP_MAX_METRICS;
    s->options = p->objective;
    s->step = p->step;
    s->packed = p->packed;
    s->bin = pp_exec_bin(e, a);
    /* All tensor-parallel ranks have the same metrics. */
    s->metrics =
        p->metrics && e->env->place.tp == 0 ? p->metrics + at + own : NULL;
    s->rows = host;
    e->before[a.slice].n_scored = e->trains ? host->of.scored.n : 0;
}

static int forward(struct pp_exec *e, const struct pp_engine *on,
                   struct pp_microbatch *mb,
                   const struct pp_host_microbatch *host, struct pp_action a,
                   void *const *blocks, struct pp_err *err)
{
    const struct pp_stage *s = &on->stages[a.stage];
    struct pp_passed y = pp_exec_output(e, a), x;
    double loss = 0;
    mb->loss.sum = &loss;
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
        e->pass->logps(e->pass->ctx, pp_exec_bin(e, a), host);
    return 0;
}

static int backward(struct pp_exec *e, const struct pp_engine *on,
                    const struct pp_microbatch *mb,
                    const struct pp_host_microbatch *host, struct pp_action a,
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
                         const struct pp_host_microbatch *host,
                         struct pp_err *err)
{
    size_t at = (size_t)e->pass->number * (size_t)e->schedule->n_microbatches +
                (size_t)a.microbatch;
    /* An encoder with a mesh of its own has images for sequences. */
    const struct pp_host_microbatch *given =
        pp_env_has_tokens(e->env)
            ? host
            : host->of.taken[e->env->place.component].images->host;
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
    struct pp_microbatch mb;
    struct pp_host_microbatch host;
    void *blocks[PP_N_STAGE_BLOCKS];
    if (!pp_exec_has_room(e, a))
        return pp_exec_fail_room(e, a, err);
    if (e->recorder)
        pp_recorder_begin(e->recorder, place, on->env->device);
    if (pp_exec_view(e, on, a, &mb, &host, err))
        return -1;
    mb.loss.at_once = on->generated.there.loss.at_once = is_at_once(e, place);
    if (a.op == PP_F && e->metadata && take_metadata(e, a, &host, err))
        return -1;
    pp_exec_blocks(e, a, blocks);
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
