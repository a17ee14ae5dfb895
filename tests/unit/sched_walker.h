/* SPDX-License-Identifier: MIT */
/* sched_walker - a round-robin walk over all ranks that does not use the
 * library's player, for the schedule tests.
 *
 * A header with definitions, like tap.h: each test program includes it once. */
#ifndef PP_TESTS_SCHED_WALKER_H
#define PP_TESTS_SCHED_WALKER_H

#include "schedule/ir/deps.h"
#include "sched_dice.h"

struct message {
    struct pp_action action;
    int from, to;
};

struct world {
    const struct pp_schedule *s;
    size_t pc[MAX_RANKS];
    /* Messages sent but not received, oldest first. */
    struct message pending[4 * MAX_ROW];
    int n;
    bool swapped; /* a message was taken for another */
};

static bool is_backward(enum pp_op op)
{
    return op == PP_SEND_B || op == PP_RECV_B;
}

static int in_flight(const struct world *w, int from, int to, bool backward)
{
    int n = 0;
    for (int i = 0; i < w->n; i++)
        n += w->pending[i].from == from && w->pending[i].to == to &&
             is_backward(w->pending[i].action.op) == backward;
    return n;
}

static bool waits_to_receive(const struct world *w, int rank, int from,
                             bool backward)
{
    if (w->pc[rank] == w->s->rows[rank].n)
        return false;
    struct pp_action a = w->s->rows[rank].actions[w->pc[rank]];
    return pp_is_recv(a.op) && is_backward(a.op) == backward &&
           w->s->graph->stages[a.peer].row == from;
}

/* Does one action of a rank if it can run now. */
static bool advance(struct world *w, int rank)
{
    if (w->pc[rank] == w->s->rows[rank].n)
        return false;
    struct pp_action a = w->s->rows[rank].actions[w->pc[rank]];
    bool backward = is_backward(a.op);
    int depth = w->s->channel_depth;
    if (pp_is_send(a.op)) {
        int to = w->s->graph->stages[a.peer].row;
        int n = in_flight(w, rank, to, backward);
        if (depth ? n >= depth
                  : n > 0 || !waits_to_receive(w, to, rank, backward))
            return false;
        w->pending[w->n++] = (struct message){a, rank, to};
    } else if (pp_is_recv(a.op)) {
        int from = w->s->graph->stages[a.peer].row, i = 0;
        while (i < w->n &&
               !(w->pending[i].from == from && w->pending[i].to == rank &&
                 is_backward(w->pending[i].action.op) == backward))
            i++;
        if (i == w->n)
            return false;
        struct pp_action b = pp_other_end(w->pending[i].action);
        w->swapped |= a.stage != b.stage || a.peer != b.peer ||
                      a.microbatch != b.microbatch || a.op != b.op;
        memmove(w->pending + i, w->pending + i + 1,
                (size_t)(w->n - i - 1) * sizeof *w->pending);
        w->n--;
    }
    w->pc[rank]++;
    return true;
}

/* Returns true if all ranks reach their ends and every message is received as
 * what it is. */
__attribute__((unused)) static bool reaches_end(const struct pp_schedule *s)
{
    struct world w = {.s = s};
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < s->graph->n_rows; r++)
            while (advance(&w, r))
                moved = true;
    }
    for (int r = 0; r < s->graph->n_rows; r++)
        if (w.pc[r] < s->rows[r].n)
            return false;
    return w.n == 0 && !w.swapped;
}

#endif
