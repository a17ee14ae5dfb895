/* SPDX-License-Identifier: MIT */
/* sched_copies - random OFFLOADs and RELOADs in the rows of a schedule, for the
 * schedule tests.
 *
 * A header with definitions, like tap.h: each test program includes it once. */
#ifndef PP_TESTS_SCHED_COPIES_H
#define PP_TESTS_SCHED_COPIES_H

#include "sched_dice.h"

static void insert_action(struct fixture *f, int row, size_t at,
                          struct pp_action a)
{
    struct pp_row *list = &f->s.rows[row];
    pp_schedule_add(&f->s, row, a);
    for (size_t i = list->n - 1; i > at; i--)
        list->actions[i] = list->actions[i - 1];
    list->actions[at] = a;
}

/* Returns the place of the backward of a forward, or of the pair that it is in,
 * or the end of the row. */
static size_t backward_of(const struct pp_row *list, struct pp_action f,
                          size_t from)
{
    for (size_t i = from; i < list->n; i++) {
        struct pp_action a = list->actions[i];
        if (pp_is_compute(a.op) && a.op != PP_F && a.stage == f.stage &&
            a.microbatch == f.microbatch)
            return i - pp_is_second_of_pair(list, i);
    }
    return list->n;
}

/* Returns a place from first to last, not within a pair. */
static size_t random_place(const struct pp_row *list, struct dice *d,
                           size_t first, size_t last)
{
    size_t at = first + (size_t)roll(d, (int)(last - first) + 1);
    return pp_is_second_of_pair(list, at) ? at - 1 : at;
}

/* Sends the activations of about half of the microbatches away, each with the
 * OFFLOAD and the RELOAD anywhere between its forward and its backward. Returns
 * their number; none in a schedule with slices. */
__attribute__((unused)) static int add_copies(struct fixture *f, struct dice *d)
{
    int n = 0;
    for (int r = 0; r < f->s.graph->n_rows && f->s.graph->slices.n == 1; r++) {
        struct pp_row *list = &f->s.rows[r];
        for (size_t i = 0; i < list->n; i++) {
            struct pp_action a = list->actions[i];
            size_t first = i + 1 + a.overlap;
            if (a.op != PP_F || !f->s.graph->stages[a.stage].has_backward ||
                roll(d, 2))
                continue;
            size_t last = backward_of(list, a, first);
            if (last == list->n)
                continue;
            a.overlap = 0;
            size_t back = random_place(list, d, first, last);
            size_t away = random_place(list, d, first, back);
            a.op = PP_RELOAD;
            insert_action(f, r, back, a);
            a.op = PP_OFFLOAD;
            insert_action(f, r, away, a);
            n++;
        }
    }
    return n;
}

#endif
