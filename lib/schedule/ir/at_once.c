/* SPDX-License-Identifier: MIT */
#include "schedule/ir/at_once.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "schedule/ir/deps.h"

/* Returns the place of the next computation from place i on, or row->n. */
static size_t next_computation(const struct pp_row *row, size_t i)
{
    while (i < row->n && !pp_is_compute(row->actions[i].op))
        i++;
    return i;
}

static bool is_same_cell(struct pp_action a, struct pp_action b)
{
    return a.stage == b.stage && a.microbatch == b.microbatch &&
           a.slice == b.slice;
}

/* Returns the place behind the last action of the cell of f's backward, which
 * begins at place i; beyond the row if the stage's sums would change their
 * order because f adds to them now. is has the cells of earlier forwards.
 * *which tells whether the order needs all of these. */
static size_t end_of_backward(const struct pp_schedule *s,
                              const struct pp_row *row, struct pp_action f,
                              size_t i, const enum pp_at_once *is,
                              enum pp_at_once *which)
{
    *which = PP_AT_ONCE_EACH;
    for (; i < row->n; i++) {
        struct pp_action a = row->actions[i];
        if (!pp_is_compute(a.op) || a.stage != f.stage)
            continue;
        if (is_same_cell(a, f) && pp_ends_backward(s->graph, a))
            return i + 1;
        if (is_same_cell(a, f) || !pp_adds_gradients(s->graph, a))
            continue;
        if (is[i] == PP_AT_ONCE_NONE)
            break;
        *which = PP_AT_ONCE_ALL;
    }
    return row->n + 1;
}

void pp_at_once(const struct pp_schedule *s, int row, enum pp_at_once *is)
{
    const struct pp_row *list = &s->rows[row];
    for (size_t i = 0; i < list->n; i++)
        is[i] = PP_AT_ONCE_NONE;
    for (size_t i = 0; i < list->n; i++) {
        struct pp_action f = list->actions[i];
        size_t next = next_computation(list, i + 1);
        if (f.op != PP_F || f.overlap || next == list->n)
            continue;
        struct pp_action b = list->actions[next];
        if (!is_same_cell(b, f) || b.op == PP_W)
            continue;
        enum pp_at_once which;
        size_t end = end_of_backward(s, list, f, next, is, &which);
        if (end > list->n)
            continue;
        for (size_t k = i; k < end; k++)
            if (pp_is_compute(list->actions[k].op) &&
                is_same_cell(list->actions[k], f))
                is[k] = which;
    }
}

void pp_at_once_cells(const struct pp_schedule *s, bool *cells)
{
    int slices = s->graph->slices.n;
    for (int r = 0; r < s->graph->n_rows; r++) {
        const struct pp_row *row = &s->rows[r];
        enum pp_at_once *is = pp_calloc(row->n + 1, sizeof *is);
        pp_at_once(s, r, is);
        for (size_t i = 0; i < row->n; i++) {
            struct pp_action a = row->actions[i];
            if (a.op == PP_F)
                cells[(a.stage * s->n_microbatches + a.microbatch) * slices +
                      a.slice] = is[i] != PP_AT_ONCE_NONE;
        }
        free(is);
    }
}
