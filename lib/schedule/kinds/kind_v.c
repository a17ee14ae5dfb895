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

#include "schedule/kinds/kinds.h"

/* zbv - split backward on two stages a rank, placed there and back.
 *
 * Each rank holds stage r on the way down and stage 2p - 1 - r on the way up,
 * so the loss is on rank 0 and memory is the same everywhere. The pattern
 * needs 2p - 1 microbatches; for fewer it is made for as many and the
 * superfluous ones are left out. The order is PyTorch's ZBVZeroBubble. Qi et
 * al., "Zero Bubble Pipeline Parallelism", ICLR 2024. */

enum { DOWN, UP };

struct zbv_row {
    struct pp_schedule *s;
    const struct pp_kind_options *o;
    int row, p, n;          /* n: microbatches of the whole pattern */
    int count[2][PP_W + 1]; /* done, by way and op */
    struct pp_err *err;
};

/* Appends the next microbatch of that way and op. Errors stay in err. */
static void emit_zbv_next(struct zbv_row *v, enum pp_op op, int way)
{
    int m = v->count[way][op]++;
    int stage = way == DOWN ? v->row : 2 * v->p - 1 - v->row;
    if (v->err->code)
        return;
    /* Both fill err themselves. */
    int rc = m < v->o->n_microbatches
                 ? pp_emit(v->s, op, stage, m, v->err)
                 : pp_emit_idle(v->s, v->o, v->row, 1, v->err);
    (void)rc;
}

static void emit_zbv_backward(struct zbv_row *v, int way)
{
    emit_zbv_next(v, PP_I, way);
    emit_zbv_next(v, PP_W, way);
}

static void emit_zbv_up(struct zbv_row *v)
{
    emit_zbv_next(v, PP_F, UP);
    emit_zbv_backward(v, UP);
}

static int emit_zbv_row(struct zbv_row *v)
{
    int r = v->row, p = v->p;
    int rc = pp_emit_idle(v->s, v->o, r, r, v->err);
    for (int i = 0; i < 2 * (p - r) - 1; i++)
        emit_zbv_next(v, PP_F, DOWN);
    for (int i = 0; i < r; i++) {
        emit_zbv_next(v, PP_F, UP);
        emit_zbv_next(v, PP_F, DOWN);
    }
    for (int i = 0; i < p - r; i++)
        emit_zbv_up(v);
    while (v->count[UP][PP_F] < v->count[DOWN][PP_F] ||
           v->count[DOWN][PP_F] < v->n) {
        if (v->count[DOWN][PP_F] < v->n)
            emit_zbv_next(v, PP_F, DOWN);
        emit_zbv_backward(v, DOWN);
        emit_zbv_up(v);
    }
    for (int i = 0; i < r; i++) {
        emit_zbv_next(v, PP_I, DOWN);
        emit_zbv_next(v, PP_I, UP);
    }
    for (int i = 0; i < p - r; i++)
        emit_zbv_backward(v, DOWN);
    for (int way = UP; way >= DOWN; way--)
        while (v->count[way][PP_W] < v->count[way][PP_I])
            emit_zbv_next(v, PP_W, way);
    return rc || v->err->code ? -1 : 0;
}

static int emit_zbv(struct pp_schedule *s, const struct pp_kind_options *o,
                    struct pp_err *err)
{
    int p = s->graph->n_rows, m = o->n_microbatches;
    if (pp_two_in_a_v(s, err))
        return -1;
    for (int row = 0; row < p; row++) {
        struct zbv_row v = {.s = s,
                            .o = o,
                            .row = row,
                            .p = p,
                            .n = m > 2 * p - 1 ? m : 2 * p - 1,
                            .err = err};
        if (emit_zbv_row(&v))
            return -1;
    }
    return 0;
}

const struct pp_kind pp_kind_zbv = {
    .name = "zbv",
    .summary = "two stages a rank in a V, backward split; 1f1b's memory",
    .constraint = "V placement of two chunks (ppsplit -c 2 --placement v), "
                  "any -m",
    .paper = "Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024",
    .n_chunks = 2,
    .v = true,
    .emit = emit_zbv,
};

enum { NEAR, FAR };

/* The order of one rank that forwards and backwards pass in both directions:
 * the part that dualpipe and dualpipev share. */
struct two_ways {
    int stage[2]; /* of the way that begins nearer, and of the other */
    int first[2]; /* microbatch of each */
    int m;        /* microbatches of each */
    int row, p;   /* place of the rank, and how many until the ways turn */
};

struct two_way_row {
    struct pp_schedule *s;
    const struct two_ways *at;
    int row, p;                      /* of at */
    int n_forward[2], n_backward[2]; /* by way */
    struct pp_action *waiting;       /* W put off, a queue */
    size_t n_done, n_waiting;        /* of it: done, and in all */
    bool split;         /* the cooldown has turned from B to I and W */
    struct pp_err *err; /* holds the first failure; the rest is then skipped */
};

static void emit_next(struct two_way_row *v, enum pp_op op, int way)
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
static void emit_waiting_w(struct two_way_row *v)
{
    if (v->n_done == v->n_waiting || v->err->code)
        return;
    struct pp_action w = v->waiting[v->n_done++];
    int rc = pp_emit(v->s, PP_W, w.stage, w.microbatch, v->err);
    (void)rc; /* v->err has it */
}

static void emit_pair(struct two_way_row *v, int forward, int backward)
{
    struct pp_row *list =
        &v->s->rows[v->s->graph->stages[v->at->stage[NEAR]].row];
    emit_next(v, PP_F, forward);
    if (!v->err->code)
        list->actions[list->n - 1].overlap = 1;
    emit_next(v, PP_B, backward);
}

static void emit_warmup(struct two_way_row *v)
{
    int before = v->row + 1, behind = v->p - v->row - 1;
    for (int i = 0; i < 2 * behind; i++)
        emit_next(v, PP_F, NEAR);
    for (int i = 0; i < before; i++) {
        emit_next(v, PP_F, NEAR);
        emit_next(v, PP_F, FAR);
    }
    for (int i = 0; i < behind; i++) {
        emit_next(v, PP_I, FAR);
        emit_waiting_w(v);
        emit_next(v, PP_F, FAR);
    }
}

/* On the last rank the first pair would be of the two stages next to the loss,
 * one waiting for the other, so it is written apart. */
static void emit_steady(struct two_way_row *v)
{
    int behind = v->p - v->row - 1;
    for (int i = 0; i < v->at->m - 2 * v->p + v->row + 1; i++) {
        if (i == 0 && behind == 0) {
            emit_next(v, PP_F, NEAR);
            emit_next(v, PP_B, FAR);
        } else {
            emit_pair(v, NEAR, FAR);
        }
        emit_pair(v, FAR, NEAR);
    }
    for (int i = 0; i < behind; i++) {
        emit_next(v, PP_B, FAR);
        emit_pair(v, FAR, NEAR);
    }
}

static void emit_cooldown(struct two_way_row *v)
{
    int r = v->row, behind = v->p - r - 1, turn = (r + 1) / 2;
    for (int i = 0; i <= r; i++) {
        v->split |= i == turn && r % 2 == 1;
        emit_next(v, v->split ? PP_I : PP_B, FAR);
        v->split |= i == turn && r % 2 == 0;
        emit_next(v, v->split ? PP_I : PP_B, NEAR);
    }
    for (int i = 0; i < behind; i++) {
        emit_waiting_w(v);
        emit_next(v, v->split ? PP_I : PP_B, NEAR);
    }
    for (int i = 0; i <= r; i++)
        emit_waiting_w(v);
}

static int emit_two_ways(struct pp_schedule *s, const struct two_ways *w,
                         struct pp_err *err)
{
    struct two_way_row v = {
        .s = s, .at = w, .row = w->row, .p = w->p, .err = err};
    v.waiting = calloc(2 * (size_t)w->m, sizeof *v.waiting);
    if (!v.waiting)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    emit_warmup(&v);
    emit_steady(&v);
    emit_cooldown(&v);
    free(v.waiting);
    return err->code ? -1 : 0;
}

static int emit_dualpipev(struct pp_schedule *s,
                          const struct pp_kind_options *o, struct pp_err *err)
{
    int p = s->graph->n_rows, m = o->n_microbatches;
    if (pp_two_in_a_v(s, err))
        return -1;
    if (m < 2 * p)
        return pp_fail(err, PP_EXIT_INPUT,
                       "dualpipev needs at least as many microbatches as "
                       "stages, not -m '%d': use -m %d or more",
                       m, 2 * p);
    for (int row = 0; row < p; row++) {
        struct two_ways w = {
            .stage = {row, 2 * p - 1 - row}, .m = m, .row = row, .p = p};
        if (emit_two_ways(s, &w, err))
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
    .emit = emit_dualpipev,
};

/* dualpipe - two copies of the weights, microbatches entering at both ends.
 *
 * The first half of the microbatches goes from rank 0 to rank p - 1, the second
 * half through the copies from rank p - 1 to rank 0. Rank r then does for the
 * one what rank p - 1 - r does for the other, and each half of the ranks runs
 * the order of dualpipev, whose V turns in the middle. DeepSeek-AI,
 * "DeepSeek-V3 Technical Report", 2024, and the DualPipe code. */

static int check_shape(const struct pp_schedule *s, int m, struct pp_err *err)
{
    int p = s->graph->n_rows;
    if (!pp_graph_is(s->graph, PP_PLACEMENT_BOTH_WAYS) || p % 2)
        return pp_fail(err, PP_EXIT_INPUT,
                       "dualpipe needs a chain of one stage on each of an even "
                       "number of ranks, and its copy the other way: split "
                       "with 'ppsplit -p %d --placement both-ways'",
                       p + p % 2);
    if (m < 2 * p || m % 2)
        return pp_fail(err, PP_EXIT_INPUT,
                       "dualpipe needs an even number of microbatches, at "
                       "least two for each rank, not -m '%d': use -m %d%s",
                       m, m < 2 * p ? 2 * p : m + 1,
                       m < 2 * p ? " or more" : "");
    return 0;
}

static int emit_dualpipe(struct pp_schedule *s, const struct pp_kind_options *o,
                         struct pp_err *err)
{
    int p = s->graph->n_rows, half = o->n_microbatches / 2;
    if (check_shape(s, o->n_microbatches, err))
        return -1;
    for (int r = 0; r < p; r++) {
        bool mirrored = r >= p / 2;
        int there = r, back = 2 * p - 1 - r;
        struct two_ways w = {
            .stage = {mirrored ? back : there, mirrored ? there : back},
            .first = {mirrored ? half : 0, mirrored ? 0 : half},
            .m = half,
            .row = mirrored ? p - 1 - r : r,
            .p = p / 2};
        if (emit_two_ways(s, &w, err))
            return -1;
    }
    return 0;
}

const struct pp_kind pp_kind_dualpipe = {
    .name = "dualpipe",
    .summary = "two copies of the weights, microbatches from both ends",
    .constraint = "copies both ways (ppsplit --placement both-ways), -p and -m "
                  "even, -m at least 2p",
    .paper = "DeepSeek-AI, DeepSeek-V3 Technical Report, 2024",
    .copies = true,
    .emit = emit_dualpipe,
};
