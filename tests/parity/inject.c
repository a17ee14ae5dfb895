/* SPDX-License-Identifier: MIT */
/* inject - faults that pprun --verify must catch.
 *
 * The program pprun_inject is a pprun with this table of the executor's steps
 * (pp_exec_ops) instead of that of lib/run/execute/exec_ops.c. On its first
 * pass a rank also replaces entries of its transport and of its kernels.
 * PP_INJECT names the fault. A run of one rank, such as the reference, has
 * none. */
#include <float.h>
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "data/packed/format.h"
#include "inject.h"
#include "run/execute/exec_impl.h"
#include "run/execute/sync.h"

/* The state of this rank. Every run has threads of its own. */
static _Thread_local struct pp_exec *exec;
static _Thread_local struct pp_pass pass; /* the current one, with faults */
static _Thread_local struct pp_action now;
static _Thread_local size_t row_bytes; /* of the message to be sent */
static _Thread_local const struct pp_packed *evaluated; /* last, or NULL */
static _Thread_local struct pp_kernels real; /* zeroed before the first pass */

bool inject_is_of(const struct pp_exec *e, const char *fault)
{
    const char *name = getenv("PP_INJECT");
    return e && e->env->comm->size > 1 && name && !strcmp(name, fault);
}

bool inject_is(const char *fault)
{
    return inject_is_of(exec, fault);
}

static bool is(const char *fault)
{
    return inject_is(fault);
}

/* --- the transport --- */

static const struct pp_transport *real_ops;

/* shared-channel: the two directions between two ranks share a channel. */
static enum pp_direction direction_of(enum pp_direction direction)
{
    return direction == PP_DIRECTION_BACKWARD && is("shared-channel")
               ? PP_DIRECTION_FORWARD
               : direction;
}

enum { EXPERTS = 8 }; /* of the models of experts.rows */

/* padding: the padding behind the rows of a message is not a number.
 * experts-count: a rank tells another number of rows of an expert. */
static int faulty_send(struct pp_comm *c, int to, enum pp_direction direction,
                       const void *buf, size_t bytes, struct pp_err *err)
{
    if (is("padding") &&
        (direction == PP_DIRECTION_FORWARD ||
         direction == PP_DIRECTION_BACKWARD)) /* in the arena */
        memset((char *)(uintptr_t)buf + row_bytes, 0xff, bytes - row_bytes);
    if (is("experts-count") && direction == PP_DIRECTION_DATA &&
        bytes == EXPERTS * sizeof(int32_t))
        inject_miscount((int32_t *)(uintptr_t)buf, EXPERTS);
    return real_ops->send(c, to, direction_of(direction), buf, bytes, err);
}

static int faulty_probe(struct pp_comm *c, int from,
                        enum pp_direction direction, size_t *bytes,
                        struct pp_err *err)
{
    return real_ops->probe(c, from, direction_of(direction), bytes, err);
}

static int faulty_send_wait(struct pp_comm *c, int to,
                            enum pp_direction direction, int keep,
                            struct pp_err *err)
{
    return real_ops->send_wait(c, to, direction_of(direction), keep, err);
}

/* Messages that overtook each other, by direction. */
static _Thread_local struct {
    int n;           /* posted so far */
    void *late, *to; /* the first message, and its place, if that is posted */
    size_t bytes;
} directions[PP_N_DIRECTIONS];

/* Receives from the real transport, and waits. */
static int receive_now(struct pp_comm *c, int from, enum pp_direction direction,
                       void *buf, size_t bytes, struct pp_err *err)
{
    return real_ops->recv(c, from, direction, buf, bytes, err) ||
                   real_ops->recv_wait(c, from, direction, 0, err)
               ? -1
               : 0;
}

static _Thread_local size_t received; /* bytes between ranks of a row */

/* overtaking-forward, overtaking-backward: the first message of the first
 * sender comes after its second one. */
static bool overtakes(enum pp_direction direction)
{
    return (direction == PP_DIRECTION_FORWARD && is("overtaking-forward")) ||
           (direction == PP_DIRECTION_BACKWARD && is("overtaking-backward"));
}

static int faulty_recv(struct pp_comm *c, int from, enum pp_direction direction,
                       void *buf, size_t bytes, struct pp_err *err)
{
    int n = directions[direction].n++;
    received +=
        direction == PP_DIRECTION_DATA || direction == PP_DIRECTION_WEIGHTS
            ? bytes
            : 0;
    inject_posted(direction);
    if (is("shared-channel"))
        return receive_now(c, from, direction_of(direction), buf, bytes, err);
    if (!overtakes(direction) || n > 1)
        return real_ops->recv(c, from, direction, buf, bytes, err);
    if (n == 1) {
        directions[direction].to = buf;
        directions[direction].bytes = bytes;
        return 0;
    }
    directions[direction].late = malloc(bytes);
    return real_ops->recv(c, from, direction, directions[direction].late, bytes,
                          err) ||
                   real_ops->recv(c, from, direction, buf, bytes, err)
               ? -1
               : 0;
}

/* With a shared channel faulty_recv has waited. */
static int faulty_recv_wait(struct pp_comm *c, int from,
                            enum pp_direction direction, int keep,
                            struct pp_err *err)
{
    void *late = directions[direction].late, *to = directions[direction].to;
    inject_waited(direction);
    if (is("shared-channel"))
        return 0;
    keep -= late && keep > 0;
    if (real_ops->recv_wait(c, from, direction, keep, err))
        return -1;
    if (late && to) {
        memcpy(to, late, directions[direction].bytes);
        free(late);
        directions[direction].late = NULL;
    }
    return 0;
}

/* The ranks share the table, and the program closes their handles after their
 * threads have ended. */
static void replace_transport(struct pp_comm *c)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct pp_transport faulty;
    pthread_mutex_lock(&lock);
    if (!real_ops) {
        real_ops = c->ops;
        faulty = *real_ops;
        faulty.send = faulty_send;
        faulty.send_wait = faulty_send_wait;
        faulty.recv = faulty_recv;
        faulty.recv_wait = faulty_recv_wait;
        faulty.probe = faulty_probe;
    }
    c->ops = &faulty;
    pthread_mutex_unlock(&lock);
}

/* --- the kernels --- */

/* again-bounds: stage 1 computes its forward again as if all sequences were
 * one.
 * ring-unmerged: a step of the ring forgets the log-sum-exp of those before it.
 * heads-shifted: a rank takes the keys of the head after its own. */
static PP_ATTENTION_FWD(faulty_attention_fwd)
{
    struct pp_attention_shape one = *s;
    int32_t bounds[2] = {0, (int32_t)s->N};
    if (is("again-bounds") && now.stage == 1 && now.op != PP_F) {
        one.n_sequences = 1;
        one.cu = one.cu_padded = bounds;
    }
    if (s->merge && is("ring-unmerged"))
        memset(lse, 0, s->N * s->NH * real.accumulator_bytes);
    if (is("heads-shifted"))
        k = (const char *)k + s->HDQK * real.element_bytes;
    return real.attention_fwd(o, lse, q, k, v, sinks, &one, scratch, stream);
}

/* Returns how often the weight gradients of the current action are added.
 * weight-skipped: never, for one microbatch of one stage.
 * weight-twice: twice. */
static int weight_times(void)
{
    bool chosen = now.stage == 1 && now.microbatch == 2;
    return chosen && is("weight-skipped") ? 0
           : chosen && is("weight-twice") ? 2
                                          : 1;
}

/* Moves the n numbers of the first of N rows, so that their bits depend on the
 * rows beside it. A BLAS may or may not do so. */
static void move_by_rows(void *row, size_t n, size_t N)
{
    for (size_t i = 0; i < n; i++)
        if (real.element_bytes == sizeof(double))
            ((double *)row)[i] *= 1 + (double)N * DBL_EPSILON;
        else
            ((float *)row)[i] *= 1 + (float)N * FLT_EPSILON;
}

/* exact-rows: bits of a product depend on the rows beside it.
 * adapter-twice: one adapter is added twice. */
static PP_LINEAR_FWD(faulty_linear_fwd)
{
    int rc = real.linear_fwd(y, x, w, b, r, N, C, OC, ldy, ldx, stream);
    if (rc == 0 && is("adapter-twice") && inject_is_chosen(exec, w))
        rc = real.linear_fwd(y, x, w, b, y, N, C, OC, ldy, ldx, stream);
    if (is("exact-rows") && N > 0)
        move_by_rows(y, OC, N);
    return rc;
}

/* exact-gradients: bits of an input gradient do. */
static PP_LINEAR_BWD_INPUT(faulty_linear_bwd_input)
{
    int rc = real.linear_bwd_input(dx, dy, w, r, N, C, OC, lddx, lddy, stream);
    if (is("exact-gradients") && N > 0)
        move_by_rows(dx, C, N);
    return rc;
}

static PP_LINEAR_BWD_WEIGHT(faulty_linear_bwd_weight)
{
    int rc = 0;
    for (int i = 0; i < weight_times() && rc == 0; i++)
        rc = real.linear_bwd_weight(dw, db, dy, x, N, C, OC, lddy, ldx, writes,
                                    stream);
    return rc;
}

/* adapter-scale: what an adapter adds has no factor. */
static PP_SCALE_BY(faulty_scale_by)
{
    return is("adapter-scale") ? 0
                               : real.scale_by(y, factor, N, C, ldy, stream);
}

static PP_RMSNORM_BWD_WEIGHT(faulty_rmsnorm_bwd_weight)
{
    int rc = 0;
    for (int i = 0; i < weight_times() && rc == 0; i++)
        rc = real.rmsnorm_bwd_weight(dw, dy, x, rstd, N, G, C, lddy, ldx, ldr,
                                     stream);
    return rc;
}

/* update-lost: the third step leaves the last tensor of a rank unchanged.
 * update-infinite: the first step makes all weights infinite.
 * update-small: every step is 0.6 times what it should be. */
static PP_SGD(faulty_sgd)
{
    static _Thread_local size_t calls; /* one for each tensor and step */
    size_t n_held = exec->env->params->n;
    size_t step = calls / n_held, tensor = calls % n_held;
    struct pp_adamw_step scaled = *s;
    calls++;
    if (step == 2 && tensor + 1 == n_held && is("update-lost"))
        return 0;
    if (step == 0 && is("update-infinite"))
        scaled.g_scale = INFINITY;
    if (is("update-small"))
        scaled.lr *= .6F;
    return real.sgd(w, master, g, n, &scaled, stream);
}

/* context-unsummed: a rank keeps its own gradients of keys and values. */
static PP_ADD(keep_first)
{
    return is("context-unsummed") ? 0 : real.add(y, a, b, n, stream);
}

/* ring-lost: a rank of a ring passes on its own gradients alone. */
static PP_ADD(faulty_add)
{
    return y == b && is("ring-lost") ? 0 : real.add(y, a, b, n, stream);
}

/* Returns the parameter whose gradients these are, or NULL. */
static const struct pp_parameter *parameter_of(const void *g)
{
    const struct pp_parameters *p = exec->env->params;
    for (size_t i = 0; i < p->n; i++)
        if (p->at[i].g == g)
            return &p->at[i];
    return NULL;
}

/* tensor-unsummed: tensor-parallel ranks do not add the gradients of norms.
 * keys-unsummed: nor those of key heads that two of them hold.
 * context-doubled: the gradients of the other ranks of a row count twice. */
static PP_ADD(faulty_add_gradient)
{
    const struct pp_parameter *p = parameter_of(y);
    bool divided = p && p->info.split != PP_SPLIT_NONE;
    if (p && is(divided ? "keys-unsummed" : "tensor-unsummed"))
        return 0;
    int rc = real.add_gradient(y, a, b, n, stream);
    return rc || !is("context-doubled") ? rc
                                        : real.add_gradient(y, y, b, n, stream);
}

/* norm-local: the norm is that of the tensors of rank 0. */
static PP_SUM_SQUARES(faulty_sum_squares)
{
    int rc = real.sum_squares(out, x, n, stream);
    if (exec->env->comm->rank > 0 && is("norm-local"))
        *out = 0;
    return rc;
}

/* experts-source: rows come back in the order of experts, not of their source.
 * features-order, features-lost: see inject_features. */
static PP_SCATTER(faulty_scatter)
{
    if (!is("experts-source"))
        return inject_features(&real, now.op == PP_F, y, x, rows, N, C, stream);
    memcpy(y, x, N * C * real.element_bytes);
    return 0;
}

/* The rank's own table, which it has made a copy of. */
static void replace_kernels(const struct pp_kernels *table)
{
    struct pp_kernels *k = (struct pp_kernels *)(uintptr_t)table;
    real = *k;
    k->linear_fwd = faulty_linear_fwd;
    k->linear_bwd_input = faulty_linear_bwd_input;
    k->attention_fwd = faulty_attention_fwd;
    k->linear_bwd_weight = faulty_linear_bwd_weight;
    k->scale_by = faulty_scale_by;
    k->rmsnorm_bwd_weight = faulty_rmsnorm_bwd_weight;
    k->sgd = faulty_sgd;
    k->add = faulty_add;
    k->scatter = faulty_scatter;
    k->add_gradient = faulty_add_gradient;
    k->sum_squares = faulty_sum_squares;
    inject_note_products(k);
}

/* --- the executor --- */

static struct pp_packed_record *records_of(const struct pp_packed *p)
{
    return (struct pp_packed_record *)(uintptr_t)p->sections[PP_SECTION_BINS];
}

/* stale-shapes: after an evaluation, rank 1 takes the sizes of its microbatches
 * for those of the step.
 * bin-smaller: the index of the last rank has 8 tokens less in bin 2.
 * bin-too-large: it has more tokens there than the capacity.
 * bins-too-large: the index of every rank has. */
static void change_sizes(struct pp_packed_record *r)
{
    bool last = exec->env->comm->rank + 1 == exec->env->comm->size;
    for (size_t b = 0; b < pass.packed->n_bins; b++) {
        if (evaluated && exec->trains && exec->env->comm->rank == 1 &&
            is("stale-shapes"))
            r[b].tokens = records_of(evaluated)[b % evaluated->n_bins].tokens;
        if (b == 2 && last && is("bin-smaller"))
            r[b].tokens -= 8;
        if (b == 2 && ((last && is("bin-too-large")) || is("bins-too-large")))
            r[b].tokens = pass.packed->capacity + 7;
    }
}

static void count_dummy(void)
{
    pass.scale = 1 / (1 / pass.scale + 1);
    pass.step.tokens++;
    pass.step.sequences++;
    pass.step.pairs++;
}

/* exchanged-columns: the objective takes the log-probabilities of the reference
 * for those of the policy before the update, and those for the reference. */
static void exchange_columns(struct pp_packed *p)
{
    const void **prev = &p->map[PP_PACKED_COLUMNS + PP_COLUMN_PREV_LOGPROBS];
    const void **ref = &p->map[PP_PACKED_COLUMNS + PP_COLUMN_REF_LOGPROBS];
    const void *kept = *prev;
    *prev = *ref;
    *ref = kept;
}

/* Returns the env of the rank, which only a fault changes. */
static struct pp_env *changeable(const struct pp_exec *e)
{
    return (struct pp_env *)(uintptr_t)e->env;
}

/* stale-gradients: nothing may come of the gradients of the step before, which
 * are not a number here. This is no fault of the trainer. */
static void spoil_gradients(const struct pp_parameters *p)
{
    for (size_t i = 0; i < p->n; i++)
        if (p->stale[i])
            memset(p->at[i].g, 0xff, p->at[i].n * p->accumulator_bytes);
}

/* norm-replicas: every rank counts the tensors that several hold.
 * tied-unsummed, copies-unsummed: the last pass does not know that it is.
 * exact-sum: each context-parallel rank sums its own losses.
 * dummy-counted: a sequence that only fills a bin counts as scored.
 * eval-wrapped: an evaluation starts again instead of ending.
 * adapter-noise: B of adapters does not begin with zeros.
 * reference-adapted: adapters take part in the reference.
 * last-rank: the loss is that of the last rank, which has no head in a V. */
static int faulty_run(struct pp_exec *e, const struct pp_pass *p,
                      struct pp_err *err)
{
    exec = e;
    if (e->trains && p->number == 0 && is("stale-gradients"))
        spoil_gradients(e->env->params);
    if (e->env->comm->size == 1)
        return pp_exec_run(e, p, err);
    if (!real.name) {
        replace_transport(e->env->comm);
        replace_kernels(e->env->kernels);
        changeable(e)->context.sum = keep_first;
        if (is("adapter-noise"))
            inject_noise(e);
    }
    if (!e->trains)
        evaluated = p->packed;
    if (getenv("PP_RECEIVED")) /* no fault: print what the row has moved */
        inject_print_received(e->env->comm->rank, received);

    struct pp_packed packed = *p->packed;
    size_t bytes = packed.n_bins * sizeof(struct pp_packed_record);
    struct pp_packed_record *records = malloc(bytes);
    if (!records)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    memcpy(records, packed.sections[PP_SECTION_BINS], bytes);
    pass = *p;
    change_sizes(records);
    packed.sections[PP_SECTION_BINS] = records;
    pass.packed = &packed;
    if (is("allocation")) /* a byte that no plan has */
        pp_device_free(NULL,
                       pp_device_alloc(e->env->device, 1, 1, "nothing", err));
    if (is("tied-unsummed") || is("copies-unsummed"))
        pass.sync = false;
    for (size_t i = 0; is("norm-replicas") && i < e->env->params->n; i++)
        e->env->params->at[i].replica = false;
    if (is("exact-sum"))
        changeable(e)->layout.components[0].mesh.cp_exact = false;
    if (is("dummy-counted"))
        count_dummy();
    if (is("reference-adapted"))
        pass.base = false;
    pass.scale = inject_scale(e, &pass);
    if (is("exchanged-columns"))
        exchange_columns(&packed);
    if (!e->trains && is("eval-wrapped"))
        pass.end = UINT64_MAX;
    int rc = pp_exec_run(e, &pass, err);
    bool last = e->env->comm->rank + 1 == e->env->comm->size;
    for (int k = 0; !last && is("last-rank") && k < e->schedule->n_microbatches;
         k++)
        pass.losses[(size_t)k * pass.stride] = 0;
    free(records);
    return rc;
}

/* words: tensor-parallel ranks but the first take the next word for a target.
 * context-labels: see inject_cut_labels.
 * context-order: gathered keys stay in the order of the ranks.
 * label-shift: see inject_shift_labels.
 * positions: they do not restart at the start of a sequence.
 * slice-context: a slice does not attend to the earlier ones.
 * slice-gradients: what later slices add to keys and values is lost.
 * bounds: the sequences of a microbatch become one on stage 1. */
static int faulty_view(struct pp_batch *b, const struct pp_packed *p,
                       const struct pp_batch_part *part,
                       struct pp_host_microbatch *host, struct pp_err *err)
{
    static _Thread_local int32_t whole[2];
    struct pp_microbatch *mb = &host->of;
    if (pp_batch_view(b, p, part, host, err))
        return -1;
    for (size_t k = 0; part->first_word && is("words") && k < mb->scored.n; k++)
        b->targets[k] +=
            b->targets[k] >= 0 && b->targets[k] + 1 < part->n_words;
    inject_part(exec, part, b, mb, &pass);
    if (is("context-labels"))
        inject_cut_labels(b, mb);
    if (is("context-order"))
        inject_order(b, mb);
    if (is("label-shift"))
        inject_shift_labels(b, p, part->bin, mb);
    if (is("slice-context"))
        inject_forget_context(b, mb);
    if (is("slice-gradients") && now.op != PP_F)
        mb->slice.continues = false;
    for (size_t t = 0; is("positions") && t < mb->tokens; t++)
        b->positions[t] = (int32_t)(t % p->max_seqlen); /* size of the table */
    if (is("bounds") && now.stage == 1) {
        whole[1] = (int32_t)mb->tokens;
        mb->n_sequences = 1;
        mb->cu_seqlens = mb->cu_seqlens_padded = whole;
    }
    return 0;
}

static int faulty_score(void *ctx, const struct pp_microbatch *mb, double *x,
                        double *loss, struct pp_err *err)
{
    (void)ctx;
    return inject_score(exec, mb, x, loss, err);
}

/* Exchanges the activations of two microbatches of a stage. */
static void exchange_activations(int stage, int a, int b)
{
    static const enum pp_buffer_kind kinds[] = {PP_BUF_ACT_I, PP_BUF_ACT_W};
    struct pp_memory *m = &exec->memory;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const struct pp_buffer *x =
            pp_memory_find(m, kinds[i], stage, a, 0, -1);
        const struct pp_buffer *y =
            pp_memory_find(m, kinds[i], stage, b, 0, -1);
        if (!x || !y)
            continue;
        size_t offset = x->offset;
        m->buffers[x - m->buffers].offset = y->offset;
        m->buffers[y - m->buffers].offset = offset;
    }
}

/* local-mean: each microbatch is divided by its own scored tokens.
 * slot: a backward takes the activations of the next microbatch. */
static int faulty_compute(void *ctx, struct pp_action a, struct pp_err *err)
{
    bool slot = is("slot") && a.op != PP_F && a.stage == 1 && a.microbatch == 0;
    struct pp_bin bin;
    now = a;
    if (is("local-mean")) {
        uint64_t at = pass.first + (uint64_t)a.microbatch;
        pp_packed_bin(pass.packed, at % pass.packed->n_bins, &bin);
        pass.scale = 1 / (double)bin.scored / exec->schedule->n_microbatches;
    }
    if (slot)
        exchange_activations(1, 0, 1);
    int rc = inject_join(ctx, a, false, err) || pp_exec_compute(ctx, a, err) ||
                     inject_join(ctx, a, true, err)
                 ? -1
                 : 0;
    if (slot)
        exchange_activations(1, 0, 1);
    return rc;
}

/* Notes the bytes of the rows, for the fault "padding". */
static int noted_send(void *ctx, struct pp_action a, int peer,
                      struct pp_err *err)
{
    const struct pp_exec *e = ctx;
    row_bytes = pp_exec_passed(e, a, a.op == PP_SEND_F ? a.stage : a.peer) *
                e->env->kernels->element_bytes;
    inject_bridge_send(e, a);
    return pp_exec_send(ctx, a, peer, err);
}

/* weights-stale: the last rank uses stage 1 with the weights that it gathered
 * first. weights-released: a rank uses stage 1 where these were, after the room
 * has gone to others. */
static void keep_weights(struct pp_exec *e, struct pp_action a)
{
    static struct kept {
        struct pp_exec *of;
        void *at, *copy;
    } of_ranks[8];
    const struct pp_env *env = e->env;
    struct kept *kept = &of_ranks[env->comm->rank % 8];
    const struct pp_buffer *b = pp_memory_weights(
        &e->memory, &e->schedule->rows[env->place.row], e->pc, a.stage);
    if (kept->of != e) {
        free(kept->copy);
        *kept = (struct kept){e, e->arena + b->offset, malloc(b->bytes)};
        memcpy(kept->copy, kept->at, b->bytes);
    } else if (is("weights-stale") && a.op == PP_UNSHARD &&
               env->comm->rank + 1 == env->comm->size) {
        memcpy(e->arena + b->offset, kept->copy, b->bytes);
    }
    if (is("weights-released"))
        pp_stage_take_weights(&e->worker->engine.stages[a.stage], kept->at);
}

/* reduce-missing: the gradients of stage 1 are not added over the replicas.
 * reduce-twice: they are added, and multiplied by 2.
 * experts-averaged: those of its experts are divided by the ranks of a row.
 * experts-twice: those of whole experts are also added over tensor-parallel
 * ranks, as if these had the same. router-rows: those of its routers are of the
 * rows of one tensor-parallel rank. */
static int faulty_sync(void *ctx, struct pp_action a, struct pp_err *err)
{
    struct pp_exec *e = ctx;
    bool chosen = a.op == PP_REDUCE_GRAD && a.stage == 1;
    size_t n;
    if (chosen && is("reduce-missing"))
        return 0;
    inject_bridge_sync(e, a, false);
    if (pp_exec_sync(ctx, a, err))
        return -1;
    inject_bridge_sync(e, a, true);
    if ((a.op == PP_UNSHARD || a.op == PP_RESHARD) && a.stage == 1 &&
        e->env->params->divided &&
        (is("weights-stale") || is("weights-released")))
        keep_weights(e, a);
    if (chosen && is("experts-averaged"))
        inject_average(e->worker, a.stage);
    if (chosen && is("experts-twice"))
        inject_repeat(e->worker, a.stage);
    if (chosen && is("router-rows"))
        inject_drop_routers(e->worker, a.stage);
    void *g = chosen && is("reduce-twice")
                  ? pp_parameters_stage_grads(e->env->params, a.stage, &n)
                  : NULL;
    return g ? real.add_gradient(g, g, g, n, e->env->stream) : 0;
}

/* gather-missing: the last rank keeps the weights of other owners as they
 * were. base-decayed: an update decays the weights that are not trained, too.
 */
static int faulty_gather(const struct pp_worker *w, enum pp_weights_block block,
                         struct pp_err *err)
{
    bool chosen = block == PP_BLOCK_W &&
                  w->env->comm->rank + 1 == w->env->comm->size &&
                  is("gather-missing");
    size_t bytes = w->env->params->n_held * w->env->params->element_bytes;
    void *old = chosen ? malloc(bytes) : NULL;
    if (old)
        memcpy(old, w->env->params->blocks[PP_BLOCK_W], bytes);
    int rc = pp_sync_gather(w, block, err);
    if (block == PP_BLOCK_W && is("base-decayed"))
        inject_decay(exec);
    if (old)
        memcpy(w->env->params->blocks[PP_BLOCK_W], old, bytes);
    free(old);
    return rc;
}

const struct pp_exec_ops pp_exec_ops = {
    .run = faulty_run,
    .view = faulty_view,
    .score = faulty_score,
    .player = {faulty_compute, noted_send, pp_exec_receive, faulty_sync},
    .copy = inject_copy,
    .gather = faulty_gather,
};
