/* SPDX-License-Identifier: MIT */
/* moves - the times of an order that changes move by move, private to
 * lib/schedule/search.
 *
 * All ops are kept in a sequence in which each comes after everything that it
 * waits for. A move changes a window of the sequence only: from the first op of
 * the row that shifts to the last. Starts before the window and tails after it
 * stay, so the longest path through the window needs the ops of the window
 * only, and paths elsewhere stay as they were. The sequence is repaired as by
 * Pearce and Kelly, "A dynamic topological sort algorithm for directed acyclic
 * graphs", ACM J. Experimental Algorithmics 11, 2007. */
#ifndef PP_SCHEDULE_SEARCH_MOVES_H
#define PP_SCHEDULE_SEARCH_MOVES_H

#include "schedule/search/problem.h"

/* An op taken from one place of its row and put in another. The ops between
 * move by one. */
struct pp_move {
    int32_t from, to;
};

/* An op of a window, as it was before the move. */
struct pp_window_op {
    int32_t op;
    double start, tail;
};

struct pp_moves {
    const struct pp_search_problem *problem;
    int32_t *order;     /* borrowed; changes with each move */
    struct pp_paths at; /* worst, start, tail and sorted of the order */
    int32_t *place;     /* per op: its place in order */
    int32_t *turn;      /* per op: its place in at.sorted */
    bool *marked;       /* per op: private */
    bool *dirty;        /* per turn: private */
    struct pp_window_op *before; /* as many as n_window */
    struct pp_move move;         /* the move being tried */
    int32_t first, n_window;     /* its window in at.sorted */
};

/* Reads an order. Fails with PP_EXIT_NO if it deadlocks. Finish v in both
 * cases. */
int pp_moves_init(struct pp_moves *v, const struct pp_search_problem *j,
                  int32_t *order, struct pp_err *err) PP_MUST_USE;
void pp_moves_finish(struct pp_moves *v);

/* Makes a move, and returns the longest path through its window; infinity if
 * the order then deadlocks. Paths elsewhere are no longer than at.worst. Then
 * take it back or keep it. */
double pp_moves_try(struct pp_moves *v, struct pp_move m);
void pp_moves_undo(struct pp_moves *v);

/* Fills starts, tails and worst of the whole order. Returns how many ops
 * outside the window it looked at. */
int32_t pp_moves_keep(struct pp_moves *v);

#endif
