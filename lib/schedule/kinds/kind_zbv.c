/* SPDX-License-Identifier: MIT */
/* zbv - split backward on two stages a rank, placed there and back.
 *
 * Each rank holds stage r on the way down and stage 2p - 1 - r on the way up,
 * so the loss is on rank 0 and memory is the same everywhere. The pattern
 * needs 2p - 1 microbatches; for fewer it is made for as many and the
 * superfluous ones are left out. The order is PyTorch's ZBVZeroBubble. Qi et
 * al., "Zero Bubble Pipeline Parallelism", ICLR 2024. */
#include "schedule/kinds/kinds.h"

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
