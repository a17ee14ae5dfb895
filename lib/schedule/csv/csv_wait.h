/* SPDX-License-Identifier: MIT */
/* csv_wait - the WAIT actions of newer CSV files, private to lib/schedule/csv.
 *
 * From 2026 on PyTorch writes WAIT_SEND_F, WAIT_SEND_B and WAIT_REDUCE_GRAD
 * where it waits for what it began. Here a channel's depth says when a send
 * waits, and a gradient's sum is waited for at once; so these are read, each
 * must have what it waits for, and they become no actions. */
#ifndef PP_SCHEDULE_CSV_CSV_WAIT_H
#define PP_SCHEDULE_CSV_CSV_WAIT_H

#include "schedule/ir/schedule.h"

struct pp_csv_wait {
    struct pp_action of;    /* SEND_F, SEND_B or REDUCE_GRAD */
    size_t n_before, place; /* actions of the row before it; its cell */
};

/* Of one row; zeroed at first, list is malloc'ed. */
struct pp_csv_waits {
    struct pp_csv_wait *list;
    size_t n, capacity;
};

/* Whether a cell is one of them, whatever follows the word. */
bool pp_csv_is_wait(const char *text, size_t n);

/* Adds the one that the cell is. Fails with PP_EXIT_INPUT, quoting it. */
int pp_csv_add_wait(struct pp_csv_waits *w, const char *text, size_t n,
                    size_t n_before, size_t place,
                    struct pp_err *err) PP_MUST_USE;

/* Every one comes after what it waits for, and but once (PP_EXIT_NO). */
int pp_csv_check_waits(struct pp_csv_waits *w, const struct pp_row *list,
                       struct pp_err *err) PP_MUST_USE;

#endif
