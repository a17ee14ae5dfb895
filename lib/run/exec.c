/* SPDX-License-Identifier: MIT */
#include "run/exec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "run/sync_copies.h"
#include "sched/deps.h"

int pp_exec_init(struct pp_exec *e, struct pp_worker *w,
                 const struct pp_schedule *s,
                 const struct pp_stage_bytes *sizes, struct pp_err *err)
{
    memset(e, 0, sizeof *e);
    e->worker = w;
    e->schedule = s;
    if (pp_memory_plan(s, w->rank, sizes, &e->memory, err))
        return -1;
    const struct pp_row *row = &s->rows[w->rank];
    for (size_t i = 0; i < row->n; i++)
        e->trains |= row->actions[i].op == PP_B || row->actions[i].op == PP_W;
    e->arena = pp_device_alloc(w->engine.device, e->memory.arena_bytes, 1,
                               "activations and messages", err);
    e->sent = calloc(2 * (size_t)s->graph->n_ranks, sizeof *e->sent);
    e->before = calloc((size_t)s->graph->n_slices, sizeof *e->before);
    if (!e->arena)
        return -1;
    if (!e->sent || !e->before)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    return 0;
}

void pp_exec_finish(struct pp_exec *e)
{
    pp_memory_finish(&e->memory);
    if (e->worker)
        pp_device_free(e->worker->engine.device, e->arena);
    free(e->sent);
    free(e->before);
    memset(e, 0, sizeof *e);
}

static const struct pp_buffer *find(const struct pp_exec *e,
                                    enum pp_buffer_kind kind, int stage,
                                    struct pp_action a, int peer)
{
    return pp_memory_find(&e->memory, kind, stage, a.microbatch, a.slice, peer);
}

static void *buffer(const struct pp_exec *e, enum pp_buffer_kind kind,
                    int stage, struct pp_action a, int peer)
{
    const struct pp_buffer *b = find(e, kind, stage, a, peer);
    return b ? e->arena + b->offset : NULL;
}

/* What passes within an action is apart for the two of a pair. */
static void find_blocks(const struct pp_exec *e, struct pp_action a,
                        void *blocks[PP_N_UNIT_BLOCKS])
{
    static const struct pp_action any = {.microbatch = 0};
    blocks[PP_SAVED_ACT_I] = buffer(e, PP_BUF_ACT_I, a.stage, a, -1);
    blocks[PP_SAVED_ACT_W] = buffer(e, PP_BUF_ACT_W, a.stage, a, -1);
    blocks[PP_SAVED_GRAD_W] = buffer(e, PP_BUF_GRAD_W, a.stage, a, -1);
    blocks[PP_SAVED_PASSING] = buffer(e, PP_BUF_PASSING, a.overlap, any, -1);
}

/* Where a stage finds its input: a local producer's output, or what was
 * received. A chain has at most one of each; pprun refuses others. */
static void *input_of(const struct pp_exec *e, struct pp_action a)
{
    const struct pp_graph *g = e->schedule->graph;
    const struct pp_stage_node *n = &g->stages[a.stage];
    if (n->n_inputs == 0)
        return NULL;
    int from = n->inputs[0];
    if (g->stages[from].rank == n->rank)
        return buffer(e, PP_BUF_OUTPUT, from, a, -1);
    return buffer(e, PP_BUF_INPUT, a.stage, a, from);
}

static void *output_gradient_of(const struct pp_exec *e, struct pp_action a)
{
    const struct pp_graph *g = e->schedule->graph;
    const struct pp_stage_node *n = &g->stages[a.stage];
    if (n->n_outputs == 0)
        return NULL;
    int to = n->outputs[0];
    if (g->stages[to].rank == n->rank)
        return buffer(e, PP_BUF_DINPUT, to, a, a.stage);
    return buffer(e, PP_BUF_DOUTPUT, a.stage, a, to);
}

static size_t bin_of(const struct pp_pass *p, struct pp_action a)
{
    uint64_t at = p->first + (uint64_t)a.microbatch;
    return at < p->end ? (size_t)(at % p->packed->n_bins) : PP_NO_BIN;
}

/* Tokens of a's whole microbatch. */
static size_t tokens_of(const struct pp_pass *p, struct pp_action a)
{
    struct pp_bin b = {0};
    if (bin_of(p, a) != PP_NO_BIN)
        pp_packed_bin(p->packed, bin_of(p, a), &b);
    return b.tokens;
}

/* Every buffer was made for the largest microbatch that the plan knew of. */
static bool has_room(const struct pp_exec *e, struct pp_action a)
{
    return tokens_of(e->pass, a) <= e->worker->engine.batch.max_tokens;
}

static int fail_room(const struct pp_exec *e, struct pp_action a,
                     struct pp_err *err)
{
    return pp_fail(err, PP_EXIT_INPUT,
                   "microbatch %d: rank %d: bin %zu has %zu tokens, and the "
                   "plan has room for %zu",
                   (int)a.microbatch, e->worker->rank, bin_of(e->pass, a),
                   tokens_of(e->pass, a), e->worker->engine.batch.max_tokens);
}

/* The slices of a microbatch before a's, with the blocks of its stage. */
static void view_before(const struct pp_exec *e, struct pp_action a)
{
    int n = e->schedule->graph->n_slices;
    size_t tokens = tokens_of(e->pass, a);
    for (int16_t q = 0; q < a.slice; q++) {
        struct pp_action of = a;
        of.slice = q;
        e->before[q].tokens =
            pp_slice_begin(tokens, q + 1, n) - pp_slice_begin(tokens, q, n);
        find_blocks(e, of, e->before[q].block);
    }
}

/* The microbatch as kernels see it, and as the host does. */
static int view(const struct pp_exec *e, struct pp_engine *on,
                struct pp_action a, struct pp_microbatch *mb,
                struct pp_microbatch *host, struct pp_err *err)
{
    const struct pp_pass *p = e->pass;
    const struct pp_batch_part part = {
        bin_of(p, a), a.slice, e->schedule->graph->n_slices, p->score_all};
    if (pp_batch_view(&on->batch, p->packed, &part, host, err))
        return -1;
    view_before(e, a);
    host->before = e->before;
    host->scale = p->scale;
    host->logps = p->logps ? on->batch.logps : NULL;
    *mb = *host;
    return pp_batch_send(&on->batch, mb, err);
}

static int open_slot(struct pp_exec *e, struct pp_action a, struct pp_err *err)
{
    int limit = e->slot_limit ? e->slot_limit : e->memory.peak_slots;
    if (++e->slots > limit) {
        char text[PP_ACTION_TEXT];
        pp_action_format(a, false, text);
        return pp_fail(err, PP_EXIT_NO,
                       "rank %d: '%s' needs slot %d, and there are %d",
                       e->worker->rank, text, e->slots, limit);
    }
    if (e->slots > e->peak_slots)
        e->peak_slots = e->slots;
    return 0;
}

/* Hands a stage's output to whoever looks at it. */
static int show(const struct pp_exec *e, const struct pp_engine *on,
                const struct pp_microbatch *mb, struct pp_action a,
                const void *y, struct pp_err *err)
{
    const struct pp_stage *s = &on->stages[a.stage];
    if (!e->pass->output || !s->out_width)
        return 0;
    y = pp_device_read(on->device, y,
                       mb->tokens * s->out_width * s->element_bytes, e->shown,
                       err);
    if (!y)
        return -1;
    e->pass->output(e->pass->ctx, a.stage, bin_of(e->pass, a), mb, y,
                    s->out_width);
    return 0;
}

static int forward(struct pp_exec *e, const struct pp_engine *on,
                   struct pp_microbatch *mb, const struct pp_microbatch *host,
                   struct pp_action a, void *const *blocks, struct pp_err *err)
{
    const struct pp_stage *s = &on->stages[a.stage];
    void *y = buffer(e, PP_BUF_OUTPUT, a.stage, a, -1);
    double loss = 0;
    mb->loss = &loss;
    if (pp_stage_fwd(s, mb, y, input_of(e, a), blocks, on->scratch, err) ||
        show(e, on, mb, a, y, err))
        return -1;
    bool has_head =
        s->n_layers > 0 && s->layers[s->n_layers - 1].unit.kind == PP_UNIT_HEAD;
    /* Slices of a microbatch come in order. */
    if (has_head)
        e->pass->losses[a.microbatch] =
            (a.slice ? e->pass->losses[a.microbatch] : 0) + loss;
    if (e->pass->logps && has_head)
        e->pass->logps(e->pass->ctx, bin_of(e->pass, a), host);
    return 0;
}

static int backward(struct pp_exec *e, const struct pp_engine *on,
                    const struct pp_microbatch *mb, struct pp_action a,
                    void *const *blocks, struct pp_err *err)
{
    const struct pp_stage_node *n = &e->schedule->graph->stages[a.stage];
    const struct pp_stage *s = &on->stages[a.stage];
    if (pp_consumes_gradient(e->schedule->graph, a)) {
        void *dx = n->input_grad
                       ? buffer(e, PP_BUF_DINPUT, a.stage, a, n->inputs[0])
                       : NULL;
        if (pp_stage_bwd_input(s, mb, dx, output_gradient_of(e, a), blocks,
                               on->scratch, err))
            return -1;
    }
    if (a.op == PP_I)
        return 0;
    e->slots--;
    return pp_stage_bwd_weight(s, mb, blocks, on->scratch, err);
}

/* place: the action's, in its row. */
static int compute_on(struct pp_exec *e, struct pp_engine *on, size_t place,
                      struct pp_action a, struct pp_err *err)
{
    struct pp_microbatch mb, host;
    void *blocks[PP_N_UNIT_BLOCKS];
    if (!has_room(e, a))
        return fail_room(e, a, err);
    if (e->recorder)
        pp_recorder_begin(e->recorder, place, on->device);
    if (view(e, on, a, &mb, &host, err))
        return -1;
    find_blocks(e, a, blocks);
    if (e->recorder)
        pp_recorder_layers(e->recorder, place, a, &host);
    if (a.op == PP_F ? forward(e, on, &mb, &host, a, blocks, err)
                     : backward(e, on, &mb, a, blocks, err))
        return -1;
    if (e->recorder)
        pp_recorder_end(e->recorder, place, on->device);
    return 0;
}

/* Both actions of a pair, between what was queued before and what comes behind.
 * The backward goes first, for a forward that ends in the loss is waited for.
 */
static int compute_pair(struct pp_exec *e, struct pp_action f,
                        struct pp_action b, struct pp_err *err)
{
    struct pp_worker *w = e->worker;
    e->has_paired = false;
    return pp_engine_follow(&w->beside, &w->engine, err) ||
                   compute_on(e, &w->engine, e->pc, b, err) ||
                   compute_on(e, &w->beside, e->pc - 1, f, err) ||
                   pp_engine_follow(&w->engine, &w->beside, err)
               ? -1
               : 0;
}

static int compute(void *ctx, struct pp_action a, struct pp_err *err)
{
    struct pp_exec *e = ctx;
    double start = pp_clock();
    int rc = 0;
    if (a.op == PP_F && e->trains && open_slot(e, a, err))
        return -1;
    if (a.overlap && e->worker->beside.device) {
        e->paired = a;
        e->has_paired = true;
    } else {
        rc = e->has_paired ? compute_pair(e, e->paired, a, err)
                           : compute_on(e, &e->worker->engine, e->pc, a, err);
    }
    e->compute_seconds += pp_clock() - start;
    return rc;
}

/* Bytes of a message's rows: the tokens of its slice at the width of the
 * boundary it crosses. */
static size_t row_bytes(const struct pp_exec *e, struct pp_action a)
{
    const struct pp_stage *s = &e->worker->engine.stages[a.stage];
    bool out = a.op == PP_SEND_F || a.op == PP_RECV_B;
    size_t tokens = tokens_of(e->pass, a);
    int n = e->schedule->graph->n_slices;
    size_t rows = pp_slice_begin(tokens, a.slice + 1, n) -
                  pp_slice_begin(tokens, a.slice, n);
    return rows * (out ? s->out_width : s->in_width) * s->element_bytes;
}

static int send(void *ctx, struct pp_action a, int peer, struct pp_err *err)
{
    struct pp_exec *e = ctx;
    struct pp_comm *c = e->worker->comm;
    struct pp_device *d = e->worker->engine.device;
    int lane = a.op == PP_SEND_F ? PP_LANE_FORWARD : PP_LANE_BACKWARD;
    int depth = e->schedule->channel_depth;
    const struct pp_buffer *from =
        a.op == PP_SEND_F ? find(e, PP_BUF_OUTPUT, a.stage, a, -1)
                          : find(e, PP_BUF_DINPUT, a.stage, a, a.peer);
    unsigned char *buf = e->arena + from->offset;
    size_t rows = row_bytes(e, a), bytes = rows;
    if (e->shapes == PP_SHAPES_MAX) {
        bytes = from->bytes;
        if (d->ops->zero(d, buf + rows, bytes - rows, err))
            return -1;
    }
    e->messages++;
    e->message_bytes += bytes;
    if (depth == 0)
        return c->ops->send(c, peer, (enum pp_lane)lane, buf, bytes, err);

    /* The output is free once it is in the ring, whose oldest place is free
     * once fewer than depth messages are under way. */
    size_t *sent = &e->sent[2 * (size_t)peer + (size_t)lane];
    const struct pp_buffer *place = pp_memory_find(
        &e->memory, PP_BUF_RING, peer, (int)(*sent % (size_t)depth), 0, lane);
    if (c->ops->send_wait(c, peer, (enum pp_lane)lane, depth - 1, err))
        return -1;
    void *ring = e->arena + place->offset;
    if (d->ops->copy(d, ring, buf, bytes, err))
        return -1;
    (*sent)++;
    return c->ops->send(c, peer, (enum pp_lane)lane, ring, bytes, err);
}

/* Waits for a message and holds its size against that of the index. */
static int learn_size(const struct pp_exec *e, struct pp_action a, int from,
                      enum pp_lane lane, size_t rows, struct pp_err *err)
{
    struct pp_comm *c = e->worker->comm;
    size_t bytes = 0;
    if (c->ops->probe(c, from, lane, &bytes, err))
        return -1;
    if (bytes == rows)
        return 0;
    return pp_fail(err, PP_EXIT_SYSTEM,
                   "microbatch %d: rank %d: the message from rank %d brings "
                   "%zu bytes, and by the index it has %zu",
                   (int)a.microbatch, e->worker->rank, from, bytes, rows);
}

static int receive(void *ctx, struct pp_action a, int peer, struct pp_err *err)
{
    struct pp_exec *e = ctx;
    struct pp_comm *c = e->worker->comm;
    bool is_forward = a.op == PP_RECV_F;
    enum pp_lane lane = is_forward ? PP_LANE_FORWARD : PP_LANE_BACKWARD;
    const struct pp_buffer *to =
        find(e, is_forward ? PP_BUF_INPUT : PP_BUF_DOUTPUT, a.stage, a, a.peer);
    size_t bytes = row_bytes(e, a);
    /* A sender with the same index refuses before it sends, and is waited for
     * so that the first rank on the way is the one that speaks. */
    if (!has_room(e, a))
        return c->ops->probe && c->ops->probe(c, peer, lane, &bytes, err)
                   ? -1
                   : fail_room(e, a, err);
    if (e->shapes == PP_SHAPES_MAX)
        bytes = to->bytes;
    if (e->shapes == PP_SHAPES_EXCHANGE &&
        learn_size(e, a, peer, lane, bytes, err))
        return -1;
    if (c->ops->recv(c, peer, lane, e->arena + to->offset, bytes, err) == 0)
        return 0;
    /* A failure that begins with this rank is its own: a size. */
    char own[32];
    snprintf(own, sizeof own, "rank %d: ", e->worker->rank);
    return strncmp(err->text, own, strlen(own))
               ? -1
               : pp_fail_at(err, "microbatch %d: ", (int)a.microbatch);
}

/* Both ranks add embedding + head in that order: the same bits everywhere. */
static int sync_tied(struct pp_exec *e, struct pp_tied *t, struct pp_err *err)
{
    struct pp_comm *c = e->worker->comm;
    const struct pp_kernels *k = e->worker->kernels;
    void *mine = t->embed ? t->embed : t->head;
    struct pp_device *d = e->worker->engine.device;
    size_t bytes = t->n * k->accumulator_bytes;
    if (t->peer < 0) {
        int failed = k->add_gradient(t->embed, t->embed, t->head, t->n,
                                     e->worker->engine.stream);
        return failed ? pp_fail(err, PP_EXIT_SYSTEM, "add failed: %d", failed)
                      : d->ops->copy(d, t->head, t->embed, bytes, err);
    }
    if (c->ops->send(c, t->peer, PP_LANE_SYNC, mine, bytes, err) ||
        c->ops->recv(c, t->peer, PP_LANE_SYNC, t->received, bytes, err) ||
        c->ops->send_wait(c, t->peer, PP_LANE_SYNC, 0, err))
        return -1;
    const void *embed = t->embed ? t->embed : t->received;
    const void *head = t->embed ? t->received : t->head;
    int failed =
        k->add_gradient(mine, embed, head, t->n, e->worker->engine.stream);
    return failed ? pp_fail(err, PP_EXIT_SYSTEM, "add failed: %d", failed) : 0;
}

static int synchronise(void *ctx, struct pp_action a, struct pp_err *err)
{
    struct pp_exec *e = ctx;
    struct pp_tied *tied = e->worker->tied;
    if (a.op == PP_SYNC_COPIES && e->pass->sync)
        return pp_sync_copies(e->worker, err);
    for (int k = 0; a.op == PP_SYNC_TIED && k < PP_MAX_COPIES; k++)
        if (e->pass->sync && tied[k].used && sync_tied(e, &tied[k], err))
            return -1;
    /* With one data-parallel lane there is nothing to reduce, and unsharded
     * parameters are always there. */
    return 0;
}

/* Walks the list, past the recorder where there is one. */
static int play(struct pp_exec *e, struct pp_err *err)
{
    static const struct pp_player player = {compute, send, receive,
                                            synchronise};
    struct pp_recorder *r = e->recorder;
    e->pc = 0;
    if (!r)
        return pp_play(e->schedule, e->worker->rank, &e->pc, &player, e, err);
    pp_recorder_pass(r, e->pass->number, &player, e, &e->pc);
    int rc = pp_play(e->schedule, e->worker->rank, &e->pc, &pp_recording_player,
                     r, err);
    pp_recorder_passed(r);
    return rc;
}

int pp_exec_run(struct pp_exec *e, const struct pp_pass *pass,
                struct pp_err *err)
{
    double start = pp_clock();
    struct pp_device *beside = e->worker->beside.device;
    e->pass = pass;
    e->slots = 0;
    e->has_paired = false;
    /* Returns at once: the step before has been read. */
    if (beside && pass->number == 0 && beside->ops->wait(beside, err))
        return -1;
    /* All rings were emptied below: a list of fewer messages than the channel
     * holds has only as many places. */
    memset(e->sent, 0, 2 * (size_t)e->worker->comm->size * sizeof *e->sent);
    if (play(e, err))
        return -1;
    struct pp_comm *c = e->worker->comm;
    for (int to = 0; to < c->size; to++)
        for (int lane = PP_LANE_FORWARD; lane <= PP_LANE_BACKWARD; lane++)
            if (e->sent[2 * to + lane] &&
                c->ops->send_wait(c, to, (enum pp_lane)lane, 0, err))
                return -1;
    e->seconds += pp_clock() - start;
    return 0;
}
