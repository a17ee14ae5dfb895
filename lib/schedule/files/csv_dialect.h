/* SPDX-License-Identifier: MIT */
/* csv_dialect - WAIT cells of CSV files, private to lib/schedule/files.
 *
 * From 2026 on PyTorch writes WAIT_SEND_F, WAIT_SEND_B and WAIT_REDUCE_GRAD to
 * wait for something that it began. Here a channel's depth says when a send
 * waits, and a REDUCE_GRAD waits at once. So WAIT cells are checked and become
 * no actions. */
#ifndef PP_SCHEDULE_FILES_CSV_DIALECT_H
#define PP_SCHEDULE_FILES_CSV_DIALECT_H

#include "schedule/ir/schedule.h"

struct pp_csv_wait {
    struct pp_action of;    /* SEND_F, SEND_B or REDUCE_GRAD */
    size_t n_before, place; /* actions before it in the row; its cell */
};

/* The waits of one row. Zero it first; the caller frees list. */
struct pp_csv_waits {
    struct pp_csv_wait *list;
    size_t n, capacity;
};

/* Reports if a cell is a WAIT, whatever follows the prefix. */
bool pp_csv_is_wait(const char *text, size_t n);

/* Adds the WAIT of a cell. Fails with PP_EXIT_INPUT if the cell is malformed.
 */
int pp_csv_add_wait(struct pp_csv_waits *w, const char *text, size_t n,
                    size_t n_before, size_t place,
                    struct pp_err *err) PP_MUST_USE;

/* Fails with PP_EXIT_NO unless every WAIT comes after its action, and only one
 * for each. */
int pp_csv_check_waits(struct pp_csv_waits *w, const struct pp_row *list,
                       struct pp_err *err) PP_MUST_USE;

#endif
