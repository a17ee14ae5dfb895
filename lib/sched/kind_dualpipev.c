/* SPDX-License-Identifier: MIT */
/* dualpipev - two stages a rank, there and back, forwards paired with
 * backwards.
 *
 * In the steady phase a forward of one stage and the backward of the other make
 * a pair, whose messages a trainer can hide behind the other's arithmetic. The
 * backward is split at both ends. The order is PyTorch's DualPipeV.
 * DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024, in the V form of the
 * DualPipe code. */
#include <stdlib.h>

#include "sched/kinds.h"

enum { NEAR, FAR };

struct ways {
    struct pp_schedule *s;
    const struct pp_two_ways *at;
    int rank, p;                     /* of at */
    int n_forward[2], n_backward[2]; /* by way */
    struct pp_action *waiting;       /* W put off, a queue */
    size_t n_done, n_waiting;        /* of it: done, and in all */
    bool split;         /* the cooldown has turned from B to I and W */
    struct pp_err *err; /* holds the first failure; the rest is then skipped */
};

static void put(struct ways *v, enum pp_op op, int way)
{
    int *count = op == PP_F ? v->n_forward : v->n_backward;
    int stage = v->at->stage[way], m = v->at->first[way] + count[way]++;
    if (v->err->code || pp_emit(v->s, op, stage, m, v->err))
        return;
    if (op == PP_I)
        v->waiting[v->n_waiting++] =
            (struct pp_action){.stage = stage, .microbatch = m};
}

/* The oldest W that waits, if any does. */
static void put_w(struct ways *v)
{
    if (v->n_done == v->n_waiting || v->err->code)
        return;
    struct pp_action w = v->waiting[v->n_done++];
    int rc = pp_emit(v->s, PP_W, w.stage, w.microbatch, v->err);
    (void)rc; /* v->err has it */
}

static void put_pair(struct ways *v, int forward, int backward)
{
    struct pp_row *row =
        &v->s->rows[v->s->graph->stages[v->at->stage[NEAR]].rank];
    put(v, PP_F, forward);
    if (!v->err->code)
        row->actions[row->n - 1].overlap = 1;
    put(v, PP_B, backward);
}

static void warm_up(struct ways *v)
{
    int before = v->rank + 1, behind = v->p - v->rank - 1;
    for (int i = 0; i < 2 * behind; i++)
        put(v, PP_F, NEAR);
    for (int i = 0; i < before; i++) {
        put(v, PP_F, NEAR);
        put(v, PP_F, FAR);
    }
    for (int i = 0; i < behind; i++) {
        put(v, PP_I, FAR);
        put_w(v);
        put(v, PP_F, FAR);
    }
}

/* On the last rank the first pair would be of the two stages next to the loss,
 * one waiting for the other, so it is written apart. */
static void run_steadily(struct ways *v)
{
    int behind = v->p - v->rank - 1;
    for (int i = 0; i < v->at->m - 2 * v->p + v->rank + 1; i++) {
        if (i == 0 && behind == 0) {
            put(v, PP_F, NEAR);
            put(v, PP_B, FAR);
        } else {
            put_pair(v, NEAR, FAR);
        }
        put_pair(v, FAR, NEAR);
    }
    for (int i = 0; i < behind; i++) {
        put(v, PP_B, FAR);
        put_pair(v, FAR, NEAR);
    }
}

static void cool_down(struct ways *v)
{
    int r = v->rank, behind = v->p - r - 1, turn = (r + 1) / 2;
    for (int i = 0; i <= r; i++) {
        v->split |= i == turn && r % 2 == 1;
        put(v, v->split ? PP_I : PP_B, FAR);
        v->split |= i == turn && r % 2 == 0;
        put(v, v->split ? PP_I : PP_B, NEAR);
    }
    for (int i = 0; i < behind; i++) {
        put_w(v);
        put(v, v->split ? PP_I : PP_B, NEAR);
    }
    for (int i = 0; i <= r; i++)
        put_w(v);
}

int pp_emit_two_ways(struct pp_schedule *s, const struct pp_two_ways *w,
                     struct pp_err *err)
{
    struct ways v = {.s = s, .at = w, .rank = w->rank, .p = w->p, .err = err};
    v.waiting = calloc(2 * (size_t)w->m, sizeof *v.waiting);
    if (!v.waiting)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    warm_up(&v);
    run_steadily(&v);
    cool_down(&v);
    free(v.waiting);
    return err->code ? -1 : 0;
}

static int emit(struct pp_schedule *s, const struct pp_kind_options *o,
                struct pp_err *err)
{
    int p = s->graph->n_ranks, m = o->n_microbatches;
    if (pp_two_in_a_v(s, err))
        return -1;
    if (m < 2 * p)
        return pp_fail(err, PP_EXIT_INPUT,
                       "dualpipev needs at least as many microbatches as "
                       "stages, not -m '%d': use -m %d or more",
                       m, 2 * p);
    for (int rank = 0; rank < p; rank++) {
        struct pp_two_ways w = {
            .stage = {rank, 2 * p - 1 - rank}, .m = m, .rank = rank, .p = p};
        if (pp_emit_two_ways(s, &w, err))
            return -1;
    }
    return 0;
}

const struct pp_kind pp_kind_dualpipev = {
    .name = "dualpipev",
    .summary = "two stages a rank in a V, forwards paired with backwards",
    .constraint = "V placement of two chunks (ppsplit -c 2 --placement v); -m "
                  "at least the number of stages",
    .paper = "DeepSeek-AI, DeepSeek-V3 Technical Report, 2024",
    .n_chunks = 2,
    .v = true,
    .emit = emit,
};
