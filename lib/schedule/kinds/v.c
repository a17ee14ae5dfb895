/* SPDX-License-Identifier: MIT */
/* zbv, dualpipev, dualpipe - kinds that pass the ranks in both directions. */
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "schedule/kinds/kinds.h"

/* zbv - split backward on two stages per rank, placed in a V.
 *
 * Rank r holds stage r on the way down and stage 2p - 1 - r on the way up, so
 * the loss is on rank 0 and memory is the same on all ranks. The pattern needs
 * 2p - 1 microbatches; if there are fewer, the extra ones are left out. The
 * order is PyTorch's ZBVZeroBubble. Qi et al., "Zero Bubble Pipeline
 * Parallelism", ICLR 2024. */

enum { DOWN, UP };

struct zbv_row {
    struct pp_schedule *s;
    const struct pp_kind_options *o;
    int row, p, n;          /* n: microbatches of the full pattern */
    int count[2][PP_W + 1]; /* emitted, by way and op */
};

/* Appends the next microbatch of that way and op. */
static void emit_zbv_next(struct zbv_row *v, enum pp_op op, int way)
{
    int m = v->count[way][op]++;
    int stage = way == DOWN ? v->row : 2 * v->p - 1 - v->row;
    if (m < v->o->n_microbatches)
        pp_emit(v->s, op, stage, m);
    else
        pp_emit_idle(v->s, v->o, v->row, 1);
}

/* One action of a repeated part of the pattern. PP_N_OPS ends the part. */
struct zbv_step {
    enum pp_op op;
    int way;
};

/* Appends a part of the pattern n times. Without empty cells the repetitions
 * end when all microbatches have passed, so that few microbatches on many
 * ranks take little time. */
static void emit_zbv_times(struct zbv_row *v, int n,
                           const struct zbv_step *part)
{
    bool more = true;
    for (int done = 0; done < n; done++) {
        if (!more && !v->o->idle) {
            for (const struct zbv_step *x = part; x->op != PP_N_OPS; x++)
                v->count[x->way][x->op] += n - done;
            return;
        }
        more = false;
        for (const struct zbv_step *x = part; x->op != PP_N_OPS; x++) {
            emit_zbv_next(v, x->op, x->way);
            more |= v->count[x->way][x->op] < v->o->n_microbatches;
        }
    }
}

static void emit_zbv_row(struct zbv_row *v)
{
    static const struct zbv_step
        f_down[] = {{PP_F, DOWN}, {PP_N_OPS, DOWN}},
        f_both[] = {{PP_F, UP}, {PP_F, DOWN}, {PP_N_OPS, DOWN}},
        up[] = {{PP_F, UP}, {PP_I, UP}, {PP_W, UP}, {PP_N_OPS, DOWN}},
        steady[] = {{PP_F, DOWN}, {PP_I, DOWN}, {PP_W, DOWN},    {PP_F, UP},
                    {PP_I, UP},   {PP_W, UP},   {PP_N_OPS, DOWN}},
        i_both[] = {{PP_I, DOWN}, {PP_I, UP}, {PP_N_OPS, DOWN}},
        down[] = {{PP_I, DOWN}, {PP_W, DOWN}, {PP_N_OPS, DOWN}},
        w_up[] = {{PP_W, UP}, {PP_N_OPS, DOWN}},
        w_down[] = {{PP_W, DOWN}, {PP_N_OPS, DOWN}};
    int r = v->row, p = v->p, warmup = 2 * p - r - 1;
    pp_emit_idle(v->s, v->o, r, r);
    emit_zbv_times(v, 2 * (p - r) - 1, f_down);
    emit_zbv_times(v, r, f_both);
    emit_zbv_times(v, p - r, up);
    emit_zbv_times(v, v->n - warmup, steady);
    /* The forwards down have ended. */
    emit_zbv_times(v, warmup - p, steady + 1);
    emit_zbv_times(v, r, i_both);
    emit_zbv_times(v, p - r, down);
    emit_zbv_times(v, v->count[UP][PP_I] - v->count[UP][PP_W], w_up);
    emit_zbv_times(v, v->count[DOWN][PP_I] - v->count[DOWN][PP_W], w_down);
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
                            .n = m > 2 * p - 1 ? m : 2 * p - 1};
        emit_zbv_row(&v);
    }
    return 0;
}

const struct pp_kind pp_kind_zbv = {
    .name = "zbv",
    .summary = "two stages per rank in a V, split backward; 1f1b's memory",
    .constraint = "placement v, 2 chunks",
    .paper = "Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024",
    .chain = true,
    .n_chunks = 2,
    .v = true,
    .emit = emit_zbv,
};

/* dualpipev - two stages per rank in a V, with forwards and backwards paired.
 *
 * In the steady phase a forward of one stage and the backward of the other make
 * a pair; a trainer can hide the messages of one behind the arithmetic of the
 * other. The backward is split at both ends. The order is PyTorch's DualPipeV.
 * DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024, in the V form of the
 * DualPipe code. */

enum { NEAR, FAR };

/* The part that dualpipe and dualpipev share: the order of one rank that
 * forwards and backwards pass in both directions. */
struct two_ways {
    int stage[2]; /* stage on the nearer way, and on the farther */
    int first[2]; /* first microbatch of each way */
    int m;        /* microbatches of each way */
    int row, p;   /* position of the rank, and ranks before the turn */
};

struct two_way_row {
    struct pp_schedule *s;
    const struct two_ways *at;
    int row, p;                      /* copied from at */
    int n_forward[2], n_backward[2]; /* by way */
    struct pp_action *waiting;       /* the queue of delayed W */
    size_t n_done, n_waiting;        /* the queue's emitted entries, and all */
    bool split; /* true once the cooldown emits I and W, not B */
};

static void emit_next(struct two_way_row *v, enum pp_op op, int way)
{
    int *count = op == PP_F ? v->n_forward : v->n_backward;
    int stage = v->at->stage[way], m = v->at->first[way] + count[way]++;
    pp_emit(v->s, op, stage, m);
    if (op == PP_I)
        v->waiting[v->n_waiting++] =
            (struct pp_action){.stage = stage, .microbatch = m};
}

/* Emits the oldest delayed W, if there is one. */
static void emit_waiting_w(struct two_way_row *v)
{
    if (v->n_done == v->n_waiting)
        return;
    struct pp_action w = v->waiting[v->n_done++];
    pp_emit(v->s, PP_W, w.stage, w.microbatch);
}

static void emit_pair(struct two_way_row *v, int forward, int backward)
{
    struct pp_row *list =
        &v->s->rows[v->s->graph->stages[v->at->stage[NEAR]].row];
    emit_next(v, PP_F, forward);
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

/* On the last rank the first pair would be the two stages next to the loss, one
 * of which waits for the other, so they are emitted one by one. */
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

static void emit_two_ways(struct pp_schedule *s, const struct two_ways *w)
{
    struct two_way_row v = {.s = s, .at = w, .row = w->row, .p = w->p};
    v.waiting = pp_calloc(2 * (size_t)w->m, sizeof *v.waiting);
    emit_warmup(&v);
    emit_steady(&v);
    emit_cooldown(&v);
    free(v.waiting);
}

static int emit_dualpipev(struct pp_schedule *s,
                          const struct pp_kind_options *o, struct pp_err *err)
{
    int p = s->graph->n_rows, m = o->n_microbatches;
    char enough[32];
    if (pp_two_in_a_v(s, err))
        return -1;
    snprintf(enough, sizeof enough, "%d or more", 2 * p);
    if (m < 2 * p)
        return pp_fail_setting(
            err, PP_EXIT_INPUT, "microbatches", enough,
            "dualpipev needs at least as many microbatches as "
            "stages, not %d",
            m);
    for (int row = 0; row < p; row++) {
        struct two_ways w = {
            .stage = {row, 2 * p - 1 - row}, .m = m, .row = row, .p = p};
        emit_two_ways(s, &w);
    }
    return 0;
}

const struct pp_kind pp_kind_dualpipev = {
    .name = "dualpipev",
    .summary = "two stages per rank in a V, forwards paired with backwards",
    .constraint = "placement v, 2 chunks; at least 2p microbatches",
    .paper = "DeepSeek-AI, DeepSeek-V3 Technical Report, 2024",
    .chain = true,
    .n_chunks = 2,
    .v = true,
    .emit = emit_dualpipev,
};

/* dualpipe - two copies of the weights, with microbatches entering at both
 * ends.
 *
 * The first half of the microbatches passes from rank 0 to rank p - 1, the
 * second half through the copies from rank p - 1 to rank 0. Rank p - 1 - r
 * mirrors rank r. Each half of the ranks runs the order of dualpipev, whose V
 * turns in the middle. DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024, and
 * the DualPipe code. */

static int check_shape(const struct pp_schedule *s, int m, struct pp_err *err)
{
    int p = s->graph->n_rows;
    char enough[32];
    snprintf(enough, sizeof enough, "%d%s", m < 2 * p ? 2 * p : m + 1,
             m < 2 * p ? " or more" : "");
    if (!pp_graph_is(s->graph, PP_PLACEMENT_BOTH_WAYS) || p % 2)
        return pp_fail(err, PP_EXIT_INPUT,
                       "dualpipe needs an even number of ranks with one stage "
                       "and one copy each: use %d ranks and placement "
                       "both-ways",
                       p + p % 2);
    if (m < 2 * p || m % 2)
        return pp_fail_setting(err, PP_EXIT_INPUT, "microbatches", enough,
                               "dualpipe needs an even number of "
                               "microbatches, at least two per rank, not %d",
                               m);
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
        emit_two_ways(s, &w);
    }
    return 0;
}

const struct pp_kind pp_kind_dualpipe = {
    .name = "dualpipe",
    .summary = "two copies of the weights, microbatches from both ends",
    .constraint = "placement both-ways; even p and m, m at least 2p",
    .paper = "DeepSeek-AI, DeepSeek-V3 Technical Report, 2024",
    .copies = true,
    .emit = emit_dualpipe,
};
