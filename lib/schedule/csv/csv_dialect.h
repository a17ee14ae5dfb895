/* SPDX-License-Identifier: MIT */
/* csv_dialect - PyTorch's letters of before November 2024, private to
 * lib/schedule/csv: B was the input gradient and BW the whole backward, as in
 * the zero-bubble authors' code. */
#ifndef PP_SCHEDULE_CSV_CSV_DIALECT_H
#define PP_SCHEDULE_CSV_CSV_DIALECT_H

#include "schedule/ir/schedule.h"

/* Refuses a cell, of today's dialect, that only the old one has: "2BW0". */
int pp_csv_refuse_old_cell(const char *text, size_t n,
                           struct pp_err *err) PP_MUST_USE;

/* Refuses a row in which a microbatch has B and W, and no I between them. */
int pp_csv_refuse_old_row(const struct pp_row *list, int row,
                          struct pp_err *err) PP_MUST_USE;

/* Writes an old cell in today's letters to now, of PP_ACTION_TEXT bytes, and
 * its length to *n_now. What the old dialect did not have is refused. */
int pp_csv_translate(const char *text, size_t n, char *now, size_t *n_now,
                     struct pp_err *err) PP_MUST_USE;

#endif
