/* SPDX-License-Identifier: MIT */
/* zb-interleaved - interleaved with the backward split.
 *
 * Half the warm-up of interleaved; every input gradient is followed by the
 * oldest weight gradient once the rank has put off as many as its number. The
 * order is PyTorch's InterleavedZeroBubble. Qi et al., "Zero Bubble Pipeline
 * Parallelism", ICLR 2024. */
#include <stdlib.h>

#include "sched/cells.h"
#include "sched/kinds.h"

static int emit_rank(struct pp_schedule *s, const struct pp_rounds *z,
                     const struct pp_kind_options *o, int rank,
                     struct pp_err *err)
{
    size_t total = (size_t)z->m * (size_t)z->c, w = 0;
    size_t warmup =
        (size_t)(z->c - 1) * (size_t)z->g + (size_t)(z->p - 1 - rank);
    if (warmup > total)
        warmup = total;
    if (pp_emit_idle(s, o, rank, rank, err))
        return -1;
    for (size_t k = 0; k < total + warmup; k++) {
        if (k < total && pp_rounds_emit(s, z, PP_F, rank, k, err))
            return -1;
        if (k + 1 == warmup && pp_emit_idle(s, o, rank, z->p - 1 - rank, err))
            return -1;
        if (k < warmup)
            continue;
        if (pp_rounds_emit(s, z, PP_I, rank, k - warmup, err))
            return -1;
        if (k - warmup >= (size_t)rank &&
            pp_rounds_emit(s, z, PP_W, rank, w++, err))
            return -1;
    }
    for (; w < total; w++)
        if (pp_rounds_emit(s, z, PP_W, rank, w, err))
            return -1;
    return 0;
}

/* --- empty cells --- */

struct aligning {
    const struct pp_schedule *from;
    struct pp_schedule *to;
    const struct pp_kind_options *options;
    struct pp_cells cells;
    size_t *column; /* by cell: the column of its forward, from 1; 0 before */
    size_t *pc;     /* per rank */
};

/* Puts rank's cell of the column: its next, or an empty one while that is a
 * forward whose input is not of an earlier column. */
static int align_rank(struct aligning *a, int rank, size_t column,
                      struct pp_err *err)
{
    struct pp_action next = a->from->rows[rank].actions[a->pc[rank]];
    if (next.op == PP_F && next.stage > 0) {
        size_t before = a->column[pp_cell(&a->cells, next.stage - 1,
                                          next.microbatch, next.slice)];
        if (before == 0 || before == column)
            return pp_emit_idle(a->to, a->options, rank, 1, err);
    }
    if (next.op == PP_F)
        a->column[pp_cell(&a->cells, next.stage, next.microbatch, next.slice)] =
            column;
    a->pc[rank]++;
    return pp_schedule_add(a->to, rank, next, err);
}

static int align_all(struct aligning *a, struct pp_err *err)
{
    int n_ranks = a->from->graph->n_ranks;
    bool moved = true;
    for (size_t column = 1; moved; column++) {
        moved = false;
        for (int r = 0; r < n_ranks; r++) {
            if (a->pc[r] == a->from->rows[r].n)
                continue;
            moved = true;
            if (align_rank(a, r, column, err))
                return -1;
        }
    }
    return 0;
}

/* Replaces s by one whose rows line up, as PyTorch's class does. */
static int align(struct pp_schedule *s, const struct pp_kind_options *o,
                 struct pp_err *err)
{
    struct pp_schedule to;
    struct aligning a = {.from = s, .to = &to, .options = o};
    if (pp_schedule_init(&to, s->graph, s->kind, s->n_microbatches, err))
        return -1;
    int rc = pp_cells_init(&a.cells, s, err);
    if (!rc) {
        a.column = calloc(a.cells.n_cells, sizeof *a.column);
        a.pc = calloc((size_t)s->graph->n_ranks, sizeof *a.pc);
        rc = a.column && a.pc ? align_all(&a, err)
                              : pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    }
    free(a.column);
    free(a.pc);
    pp_cells_finish(&a.cells);
    if (!rc) {
        struct pp_schedule old = *s;
        *s = to;
        to = old;
    }
    pp_schedule_finish(&to);
    return rc;
}

static int emit(struct pp_schedule *s, const struct pp_kind_options *o,
                struct pp_err *err)
{
    struct pp_rounds z;
    if (pp_rounds_init(&z, s, o, err))
        return -1;
    z.g = pp_rounds_group(z.m, z.p);
    if (z.g == 0)
        return pp_rounds_fail(&z, "zb-interleaved", "", err);
    for (int rank = 0; rank < z.p; rank++)
        if (emit_rank(s, &z, o, rank, err))
            return -1;
    return o->idle ? align(s, o, err) : 0;
}

const struct pp_kind pp_kind_zb_interleaved = {
    .name = "zb-interleaved",
    .summary = "interleaved with the backward split and half the warm-up",
    .constraint = "loop placement (ppsplit --placement loop -c N); -m a "
                  "multiple of max(1, m div p)",
    .paper = "Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024",
    .n_chunks = 2,
    .emit = emit,
};
