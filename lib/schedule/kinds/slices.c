/* SPDX-License-Identifier: MIT */
/* slices - the order of any kind over slices of sequences.
 *
 * A kind orders the slices of all microbatches as if each were a microbatch, a
 * turn. Forwards take the slices of a microbatch from the first, because a
 * token attends to earlier tokens. Backwards take them from the last, because
 * keys and values gather gradients from later tokens: so the backward of the
 * last slice comes first, and its forward is up to k - 1 turns later than the
 * forward of its turn. The kind is asked for k - 1 turns more, and the first k
 * - 1 backwards and the last k - 1 forwards are left out. Every backward then
 * comes k - 1 turns later, and what it waits for was waited for before: if the
 * order of the kind does not deadlock, neither does this one. It only needs to
 * take the microbatches of each stage in ascending order.
 *
 * Of 1f1b this makes Seq1F1B: Sun et al., "Seq1F1B: Efficient Sequence-Level
 * Pipeline Parallelism for Large Language Model Training", NAACL 2025. Of gpipe
 * it makes TeraPipe: Li et al., ICML 2021. */
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "schedule/kinds/kinds.h"

/* The turns of a schedule with slices, and the order of a kind over them. */
struct slice_turns {
    int slices, each, copies; /* each: turns of each copy of the weights */
    struct pp_graph whole;    /* the graph without slices */
    struct pp_schedule order;
    int (*last)[3]; /* of each stage: the latest F, I or B, and W */
};

/* Emits the kind with at least n turns: a few more if it does not take n. Those
 * beyond the slices that there are come last, and are left out too. */
static int emit_order(struct slice_turns *t, const struct pp_kind *k,
                      const struct pp_schedule *s,
                      const struct pp_kind_options *o, int n,
                      struct pp_err *err)
{
    struct pp_kind_options options = *o;
    struct pp_err first = {0};
    int most = n + 2 * s->graph->n_stages + o->group;
    options.idle = false;
    for (;; n += t->copies) {
        struct pp_err why = {0};
        options.n_microbatches = n;
        pp_schedule_init(&t->order, &t->whole, s->kind, n);
        if (!pp_emit_whole(k, &t->order, &options, &why))
            return 0;
        pp_schedule_finish(&t->order);
        first = first.code ? first : why;
        if (n >= most || why.code != PP_EXIT_INPUT)
            break;
    }
    *err = first;
    return -1;
}

/* Returns true if an action comes after earlier ones of its stage and kind. */
static bool ascends(const struct slice_turns *t, struct pp_action a, int turn)
{
    int *last = t->last[a.stage];
    bool after = true;
    for (int i = 0; i < 3; i++) {
        bool has = i == 0   ? a.op == PP_F
                   : i == 1 ? a.op == PP_I || a.op == PP_B
                            : a.op == PP_W || a.op == PP_B;
        after &= !has || turn > last[i];
        last[i] = has ? turn : last[i];
    }
    return after;
}

static int take_row(const struct slice_turns *t, int row, struct pp_schedule *s,
                    struct pp_err *err)
{
    const struct pp_row *from = &t->order.rows[row];
    struct pp_row *to = &s->rows[row];
    for (size_t i = 0; i < from->n; i++) {
        struct pp_action a = from->actions[i];
        int copy = pp_copy_number(s->graph, a.stage);
        int turn = a.microbatch - copy * (t->order.n_microbatches / t->copies) -
                   (a.op == PP_F ? 0 : t->slices - 1);
        if (!ascends(t, a, turn + t->slices))
            return pp_fail(err, PP_EXIT_INPUT,
                           "%s takes whole sequences: slices need a kind that "
                           "runs the microbatches of each stage in ascending "
                           "order",
                           s->kind);
        if (turn < 0 || turn >= t->each) {
            if (to->n > 0) /* it may have been paired with this */
                to->actions[to->n - 1].overlap = 0;
            continue;
        }
        int slice = turn % t->slices;
        a.microbatch = (copy * t->each + turn) / t->slices;
        a.slice = (int16_t)(a.op == PP_F ? slice : t->slices - 1 - slice);
        pp_schedule_add(s, row, a);
    }
    return 0;
}

int pp_emit_slices(const struct pp_kind *k, struct pp_schedule *s,
                   const struct pp_kind_options *o, struct pp_err *err)
{
    const struct pp_graph *g = s->graph;
    struct slice_turns t = {.slices = g->slices.n,
                            .each =
                                o->n_microbatches / g->n_copies * g->slices.n,
                            .copies = g->n_copies,
                            .whole = *g};
    int n = (t.each + t.slices - 1) * t.copies, rc = 0;
    t.whole.slices.n = 1;
    /* A kind with copies says itself that microbatches do not divide. */
    if (o->n_microbatches % t.copies)
        return pp_emit_whole(k, s, o, err);
    if (o->group && o->group < g->n_rows) {
        char least[16];
        snprintf(least, sizeof least, "%d", g->n_rows);
        return pp_fail_setting(err, PP_EXIT_INPUT, "group", least,
                               "groups of %d slices do not fit: a group needs "
                               "a slice for each of the %d ranks",
                               o->group, g->n_rows);
    }
    if (emit_order(&t, k, s, o, n, err))
        return -1;
    t.last = pp_calloc((size_t)g->n_stages, sizeof *t.last);
    for (int r = 0; rc == 0 && r < g->n_rows; r++)
        rc = take_row(&t, r, s, err);
    free(t.last);
    pp_schedule_finish(&t.order);
    return rc;
}
