/* SPDX-License-Identifier: MIT */
/* inject - faults for pprun --verify to catch, made where they would be made.
 *
 * Linked into a pprun of its own; the linker hands the calls below over
 * (--wrap). PP_INJECT names the fault. Runs of one rank, which the reference
 * is, stay whole. The product has none of this. */
#include <math.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "run/execute/exec.h"
#include "run/parts/layer_impl.h"
#include "run/parameters/optim.h"

/* What this rank is doing. Every run has threads of its own. */
static _Thread_local struct pp_exec *exec;
static _Thread_local const struct pp_player *inner;
static _Thread_local struct pp_action now;
static _Thread_local size_t row_bytes; /* of the message to be sent */
static _Thread_local const struct pp_packed *evaluated; /* last, or NULL */

static bool is(const char *fault)
{
    const char *name = getenv("PP_INJECT");
    return exec && exec->worker->comm->size > 1 && name && !strcmp(name, fault);
}

int __real_pp_exec_run(struct pp_exec *e, const struct pp_pass *pass,
                       struct pp_err *err);
int __wrap_pp_exec_run(struct pp_exec *e, const struct pp_pass *pass,
                       struct pp_err *err);

/* Of the whole model: every rank runs a pass before the first gathering. */
static atomic_size_t n_tensors;

/* tied-unsummed, copies-unsummed: the last pass is not known as such.
 * dummy-counted: a sequence that fills a bin up is scored too.
 * eval-wrapped: an evaluation begins anew where it should be at its end. */
int __wrap_pp_exec_run(struct pp_exec *e, const struct pp_pass *pass,
                       struct pp_err *err)
{
    struct pp_pass p = *pass;
    exec = e;
    for (size_t i = 0; i < e->worker->params->n; i++) {
        size_t n = e->worker->params->at[i].order + 1, most = n_tensors;
        while (n > most && !atomic_compare_exchange_weak(&n_tensors, &most, n))
            ;
    }
    if (is("tied-unsummed") || is("copies-unsummed"))
        p.sync = false;
    if (is("dummy-counted"))
        p.scale = 1 / (1 / p.scale + 1);
    if (!e->trains && is("eval-wrapped"))
        p.end = UINT64_MAX;
    if (!e->trains)
        evaluated = p.packed;
    return __real_pp_exec_run(e, &p, err);
}

static int compute(void *ctx, struct pp_action a, struct pp_err *err)
{
    now = a;
    return inner->compute(ctx, a, err);
}

/* padding: what lies behind the rows of a message are no numbers. */
static int send(void *ctx, struct pp_action a, int peer, struct pp_err *err)
{
    const struct pp_stage *s = &exec->worker->engine.stages[a.stage];
    size_t width = a.op == PP_SEND_F ? s->out_width : s->in_width;
    int n = exec->schedule->graph->n_slices;
    uint64_t at = exec->pass->first + (uint64_t)a.microbatch;
    struct pp_bin v;
    pp_packed_bin(exec->pass->packed, at % exec->pass->packed->n_bins, &v);
    row_bytes = (pp_slice_begin(v.tokens, a.slice + 1, n) -
                 pp_slice_begin(v.tokens, a.slice, n)) *
                width * s->element_bytes;
    return inner->send(ctx, a, peer, err);
}

int __real_pp_play(const struct pp_schedule *s, int rank, size_t *pc,
                   const struct pp_player *p, void *ctx, struct pp_err *err);
int __wrap_pp_play(const struct pp_schedule *s, int rank, size_t *pc,
                   const struct pp_player *p, void *ctx, struct pp_err *err);

int __wrap_pp_play(const struct pp_schedule *s, int rank, size_t *pc,
                   const struct pp_player *p, void *ctx, struct pp_err *err)
{
    const struct pp_player outer = {compute, send, p->recv, p->sync};
    inner = p;
    return exec ? __real_pp_play(s, rank, pc, &outer, ctx, err)
                : __real_pp_play(s, rank, pc, p, ctx, err);
}

void __real_pp_packed_bin(const struct pp_packed *p, size_t b,
                          struct pp_bin *out);
void __wrap_pp_packed_bin(const struct pp_packed *p, size_t b,
                          struct pp_bin *out);

/* stale-shapes: after an evaluation rank 1 has the sizes of its microbatches
 * where it should have those of the step.
 * bin-smaller: the index that the last rank reads has 8 tokens less in bin 2.
 * bin-too-large: it has more there than any was declared to have.
 * bins-too-large: that of every rank has. */
void __wrap_pp_packed_bin(const struct pp_packed *p, size_t b,
                          struct pp_bin *out)
{
    __real_pp_packed_bin(p, b, out);
    if (evaluated && exec->trains && exec->worker->rank == 1 &&
        is("stale-shapes")) {
        struct pp_bin stale;
        __real_pp_packed_bin(evaluated, b % evaluated->n_bins, &stale);
        out->tokens = stale.tokens;
    }
    bool last = exec && exec->worker->rank + 1 == exec->worker->comm->size;
    if (b == 2 && last && is("bin-smaller"))
        out->tokens -= 8;
    if (b == 2 && ((last && is("bin-too-large")) || is("bins-too-large")))
        out->tokens = p->capacity + 7;
}

int __real_pp_batch_view(struct pp_batch *b, const struct pp_packed *p,
                         const struct pp_batch_part *part,
                         struct pp_microbatch *mb, struct pp_err *err);
int __wrap_pp_batch_view(struct pp_batch *b, const struct pp_packed *p,
                         const struct pp_batch_part *part,
                         struct pp_microbatch *mb, struct pp_err *err);

/* label-shift: over the bounds of sequences, whose last row then predicts the
 * first token of the next.
 * positions: not restarted where a sequence begins.
 * slice-context: a slice does not attend to those before. */
int __wrap_pp_batch_view(struct pp_batch *b, const struct pp_packed *p,
                         const struct pp_batch_part *part,
                         struct pp_microbatch *mb, struct pp_err *err)
{
    struct pp_bin v;
    if (__real_pp_batch_view(b, p, part, mb, err))
        return -1;
    if (is("label-shift")) {
        pp_packed_bin(p, part->bin, &v);
        mb->n_scored = 0;
        for (uint32_t t = 0; t + 1 < v.tokens; t++) {
            if (v.labels[t + 1] == PP_LABEL_IGNORE)
                continue;
            b->scored_rows[mb->n_scored] = (int32_t)t;
            b->targets[mb->n_scored++] = v.labels[t + 1];
        }
    }
    if (is("slice-context"))
        mb->context = 0;
    for (size_t t = 0; is("positions") && t < mb->tokens; t++)
        b->positions[t] = (int32_t)(t % p->max_seqlen); /* the table's end */
    return 0;
}

/* A microbatch as a faulty stage sees it. */
struct seen {
    struct pp_microbatch mb;
    int32_t whole[2];
};

/* bounds: the sequences of a middle stage's microbatch became one.
 * local-mean: each microbatch is divided by its own scored tokens.
 * slice-gradients: what the slices behind add to keys and values is lost. */
static const struct pp_microbatch *see(struct seen *s,
                                       const struct pp_microbatch *mb)
{
    s->mb = *mb;
    s->whole[1] = (int32_t)mb->tokens;
    if (is("bounds") && now.stage == 1) {
        s->mb.n_sequences = 1;
        s->mb.cu_seqlens = s->mb.cu_seqlens_padded = s->whole;
    }
    if (is("slice-gradients") && now.op != PP_F)
        s->mb.goes_on = false;
    if (is("local-mean") && mb->n_scored > 0)
        s->mb.scale = 1 / (double)mb->n_scored / exec->schedule->n_microbatches;
    return &s->mb;
}

int __real_pp_stage_fwd(const struct pp_stage *s,
                        const struct pp_microbatch *mb, void *y, const void *x,
                        void *const *blocks, void *scratch, struct pp_err *err);
int __wrap_pp_stage_fwd(const struct pp_stage *s,
                        const struct pp_microbatch *mb, void *y, const void *x,
                        void *const *blocks, void *scratch, struct pp_err *err);
int __real_pp_stage_bwd_input(const struct pp_stage *s,
                              const struct pp_microbatch *mb, void *dx,
                              const void *dy, void *const *blocks,
                              void *scratch, struct pp_err *err);
int __wrap_pp_stage_bwd_input(const struct pp_stage *s,
                              const struct pp_microbatch *mb, void *dx,
                              const void *dy, void *const *blocks,
                              void *scratch, struct pp_err *err);
int __real_pp_stage_bwd_weight(const struct pp_stage *s,
                               const struct pp_microbatch *mb,
                               void *const *blocks, void *scratch,
                               struct pp_err *err);
int __wrap_pp_stage_bwd_weight(const struct pp_stage *s,
                               const struct pp_microbatch *mb,
                               void *const *blocks, void *scratch,
                               struct pp_err *err);
int __wrap_pp_stage_bwd(const struct pp_stage *s,
                        const struct pp_microbatch *mb, void *dx,
                        const void *dy, void *const *blocks, void *scratch,
                        struct pp_err *err);

int __wrap_pp_stage_fwd(const struct pp_stage *s,
                        const struct pp_microbatch *mb, void *y, const void *x,
                        void *const *blocks, void *scratch, struct pp_err *err)
{
    struct seen seen = {.whole = {0, 0}};
    return __real_pp_stage_fwd(s, see(&seen, mb), y, x, blocks, scratch, err);
}

int __wrap_pp_stage_bwd_input(const struct pp_stage *s,
                              const struct pp_microbatch *mb, void *dx,
                              const void *dy, void *const *blocks,
                              void *scratch, struct pp_err *err)
{
    struct seen seen = {.whole = {0, 0}};
    return __real_pp_stage_bwd_input(s, see(&seen, mb), dx, dy, blocks, scratch,
                                     err);
}

/* weight-skipped: one microbatch of one stage has no weight gradient.
 * weight-twice: has it twice. */
int __wrap_pp_stage_bwd_weight(const struct pp_stage *s,
                               const struct pp_microbatch *mb,
                               void *const *blocks, void *scratch,
                               struct pp_err *err)
{
    struct seen seen = {.whole = {0, 0}};
    bool chosen = now.stage == 1 && now.microbatch == 2;
    if (is("weight-skipped") && chosen)
        return 0;
    if (is("weight-twice") && chosen &&
        __real_pp_stage_bwd_weight(s, see(&seen, mb), blocks, scratch, err))
        return -1;
    return __real_pp_stage_bwd_weight(s, see(&seen, mb), blocks, scratch, err);
}

/* One after the other: the same bits, with the faults of each. */
int __wrap_pp_stage_bwd(const struct pp_stage *s,
                        const struct pp_microbatch *mb, void *dx,
                        const void *dy, void *const *blocks, void *scratch,
                        struct pp_err *err)
{
    return __wrap_pp_stage_bwd_input(s, mb, dx, dy, blocks, scratch, err) ||
                   __wrap_pp_stage_bwd_weight(s, mb, blocks, scratch, err)
               ? -1
               : 0;
}

const struct pp_buffer *__real_pp_memory_find(const struct pp_memory *m,
                                              enum pp_buffer_kind kind,
                                              int stage, int microbatch,
                                              int slice, int peer);
const struct pp_buffer *__wrap_pp_memory_find(const struct pp_memory *m,
                                              enum pp_buffer_kind kind,
                                              int stage, int microbatch,
                                              int slice, int peer);

/* slot: a backward takes the activations of the next microbatch. */
const struct pp_buffer *__wrap_pp_memory_find(const struct pp_memory *m,
                                              enum pp_buffer_kind kind,
                                              int stage, int microbatch,
                                              int slice, int peer)
{
    bool activations = kind == PP_BUF_ACT_I || kind == PP_BUF_ACT_W;
    if (activations && now.op != PP_F && now.stage == 1 &&
        now.microbatch == 0 && is("slot"))
        microbatch = 1;
    return __real_pp_memory_find(m, kind, stage, microbatch, slice, peer);
}

int __real_pp_layer_recompute(const struct pp_layer *l,
                              const struct pp_microbatch *mb,
                              const struct pp_layer_blocks *b, void *const *s,
                              void *scratch, struct pp_err *err);
int __wrap_pp_layer_recompute(const struct pp_layer *l,
                              const struct pp_microbatch *mb,
                              const struct pp_layer_blocks *b, void *const *s,
                              void *scratch, struct pp_err *err);

/* again-bounds: a middle stage makes again as if sequences were one.
 * again-input: from the input of the next microbatch. */
int __wrap_pp_layer_recompute(const struct pp_layer *l,
                              const struct pp_microbatch *mb,
                              const struct pp_layer_blocks *b, void *const *s,
                              void *scratch, struct pp_err *err)
{
    int32_t whole[2] = {0, (int32_t)mb->tokens};
    struct pp_microbatch seen = *mb;
    void *at[PP_MAX_SAVED];
    memcpy(at, s, sizeof at);
    if (is("again-bounds") && now.stage == 1) {
        seen.n_sequences = 1;
        seen.cu_seqlens = seen.cu_seqlens_padded = whole;
    }
    if (is("again-input") && now.stage == 1 && now.microbatch == 0) {
        const struct pp_buffer *own = __real_pp_memory_find(
            &exec->memory, PP_BUF_ACT_W, now.stage, 0, 0, -1);
        const struct pp_buffer *next = __real_pp_memory_find(
            &exec->memory, PP_BUF_ACT_W, now.stage, 1, 0, -1);
        at[PP_S_X] = (char *)s[PP_S_X] +
                     ((ptrdiff_t)next->offset - (ptrdiff_t)own->offset);
    }
    return __real_pp_layer_recompute(l, &seen, b, at, scratch, err);
}

int __real_pp_optim_update(const struct pp_optim *o, const struct pp_kernels *k,
                           struct pp_parameters *p, int64_t step,
                           double g_scale, void *stream, struct pp_err *err);
int __wrap_pp_optim_update(const struct pp_optim *o, const struct pp_kernels *k,
                           struct pp_parameters *p, int64_t step,
                           double g_scale, void *stream, struct pp_err *err);

/* update-lost: the third step leaves a rank's last tensor alone.
 * update-infinite: the first step's is no number any more. */
int __wrap_pp_optim_update(const struct pp_optim *o, const struct pp_kernels *k,
                           struct pp_parameters *p, int64_t step,
                           double g_scale, void *stream, struct pp_err *err)
{
    struct pp_parameters fewer = *p;
    if (step == 3 && is("update-lost"))
        fewer.n--;
    if (step == 1 && is("update-infinite"))
        g_scale = INFINITY;
    return __real_pp_optim_update(o, k, &fewer, step, g_scale, stream, err);
}

/* A transport with faults of its own in front of the real one. */
static const struct pp_transport *real_ops;

/* shared-lane: forward and backward traffic between two ranks is one channel.
 */
static enum pp_direction direction_of(enum pp_direction direction)
{
    return direction == PP_DIRECTION_BACKWARD && is("shared-lane")
               ? PP_DIRECTION_FORWARD
               : direction;
}

static int faulty_send(struct pp_comm *c, int to, enum pp_direction direction,
                       const void *buf, size_t bytes, struct pp_err *err)
{
    if (is("padding") && direction != PP_DIRECTION_SYNC) /* in the arena */
        memset((char *)(uintptr_t)buf + row_bytes, 0xff, bytes - row_bytes);
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

/* Messages that overtook each other, by lane. */
static _Thread_local struct {
    int n; /* received on the lane */
    void *late;
} directions[PP_N_DIRECTIONS];

/* overtaking-forward, -backward: from the first rank that sends on the lane,
 * the first message comes after the second. */
static int faulty_recv(struct pp_comm *c, int from, enum pp_direction direction,
                       void *buf, size_t bytes, struct pp_err *err)
{
    bool overtakes =
        (direction == PP_DIRECTION_FORWARD && is("overtaking-forward")) ||
        (direction == PP_DIRECTION_BACKWARD && is("overtaking-backward"));
    int n = directions[direction].n++;
    if (!overtakes || n > 1)
        return real_ops->recv(c, from, direction_of(direction), buf, bytes,
                              err);
    if (n == 1) {
        memcpy(buf, directions[direction].late, bytes);
        free(directions[direction].late);
        return 0;
    }
    directions[direction].late = malloc(bytes);
    return real_ops->recv(c, from, direction, directions[direction].late, bytes,
                          err) ||
                   real_ops->recv(c, from, direction, buf, bytes, err)
               ? -1
               : 0;
}

/* norm-local: the norm is that of the tensors of the rank which prints it.
 * last-rank: the loss is the last rank's, which in a V has no head. */
static int faulty_allgather(struct pp_comm *c, const void *mine, void *all,
                            size_t bytes, struct pp_err *err)
{
    if (real_ops->allgather(c, mine, all, bytes, err))
        return -1;
    size_t n = bytes / sizeof(double), tensors = n_tensors;
    size_t losses = (size_t)(exec ? exec->schedule->n_microbatches : 0);
    for (int r = 0; r < c->size && n > tensors; r++) {
        double *row = (double *)all + (size_t)r * n;
        if (r > 0 && is("norm-local"))
            memset(row, 0, tensors * sizeof *row);
        if (r + 1 < c->size && is("last-rank"))
            memset(row + tensors, 0, losses * sizeof *row);
    }
    return 0;
}

int __real_pp_comm_threads_open(struct pp_comm_world *w, int rank,
                                struct pp_comm **out, struct pp_err *err);
int __wrap_pp_comm_threads_open(struct pp_comm_world *w, int rank,
                                struct pp_comm **out, struct pp_err *err);

/* Called for one rank after the other, before their threads start. */
int __wrap_pp_comm_threads_open(struct pp_comm_world *w, int rank,
                                struct pp_comm **out, struct pp_err *err)
{
    static struct pp_transport faulty;
    if (__real_pp_comm_threads_open(w, rank, out, err))
        return -1;
    real_ops = (*out)->ops;
    faulty = *real_ops;
    faulty.send = faulty_send;
    faulty.send_wait = faulty_send_wait;
    faulty.recv = faulty_recv;
    faulty.probe = faulty_probe;
    faulty.allgather = faulty_allgather;
    (*out)->ops = &faulty;
    return 0;
}
