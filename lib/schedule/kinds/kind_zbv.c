/* SPDX-License-Identifier: MIT */
/* zbv - split backward on two stages a rank, placed there and back.
 *
 * Each rank holds stage r on the way down and stage 2p - 1 - r on the way up,
 * so the loss is on rank 0 and memory is the same everywhere. The pattern
 * needs 2p - 1 microbatches; for fewer it is made for as many and the
 * superfluous ones are left out. The order is PyTorch's ZBVZeroBubble. Qi et
 * al., "Zero Bubble Pipeline Parallelism", ICLR 2024. */
#include "sched/kinds.h"

enum { DOWN, UP };

struct vee {
    struct pp_schedule *s;
    const struct pp_kind_options *o;
    int rank, p, n;         /* n: microbatches of the whole pattern */
    int count[2][PP_W + 1]; /* done, by way and op */
    struct pp_err *err;
};

/* Appends the next microbatch of that way and op. Errors stay in err. */
static void put(struct vee *v, enum pp_op op, int way)
{
    int m = v->count[way][op]++;
    int stage = way == DOWN ? v->rank : 2 * v->p - 1 - v->rank;
    if (v->err->code)
        return;
    /* Both fill err themselves. */
    int rc = m < v->o->n_microbatches
                 ? pp_emit(v->s, op, stage, m, v->err)
                 : pp_emit_idle(v->s, v->o, v->rank, 1, v->err);
    (void)rc;
}

static void put_whole(struct vee *v, int way)
{
    put(v, PP_I, way);
    put(v, PP_W, way);
}

static void put_up(struct vee *v)
{
    put(v, PP_F, UP);
    put_whole(v, UP);
}

static int emit_rank(struct vee *v)
{
    int r = v->rank, p = v->p;
    int rc = pp_emit_idle(v->s, v->o, r, r, v->err);
    for (int i = 0; i < 2 * (p - r) - 1; i++)
        put(v, PP_F, DOWN);
    for (int i = 0; i < r; i++) {
        put(v, PP_F, UP);
        put(v, PP_F, DOWN);
    }
    for (int i = 0; i < p - r; i++)
        put_up(v);
    while (v->count[UP][PP_F] < v->count[DOWN][PP_F] ||
           v->count[DOWN][PP_F] < v->n) {
        if (v->count[DOWN][PP_F] < v->n)
            put(v, PP_F, DOWN);
        put_whole(v, DOWN);
        put_up(v);
    }
    for (int i = 0; i < r; i++) {
        put(v, PP_I, DOWN);
        put(v, PP_I, UP);
    }
    for (int i = 0; i < p - r; i++)
        put_whole(v, DOWN);
    for (int way = UP; way >= DOWN; way--)
        while (v->count[way][PP_W] < v->count[way][PP_I])
            put(v, PP_W, way);
    return rc || v->err->code ? -1 : 0;
}

static int emit(struct pp_schedule *s, const struct pp_kind_options *o,
                struct pp_err *err)
{
    int p = s->graph->n_ranks, m = o->n_microbatches;
    if (pp_two_in_a_v(s, err))
        return -1;
    for (int rank = 0; rank < p; rank++) {
        struct vee v = {.s = s,
                        .o = o,
                        .rank = rank,
                        .p = p,
                        .n = m > 2 * p - 1 ? m : 2 * p - 1,
                        .err = err};
        if (emit_rank(&v))
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
    .emit = emit,
};
