/* SPDX-License-Identifier: MIT */
/* search_words - between words and schedules; private to lib/schedule/search.
 */
#ifndef PP_SCHEDULE_SEARCH_ROW_ORDER_H
#define PP_SCHEDULE_SEARCH_ROW_ORDER_H

#include "schedule/kinds/kind.h"
#include "schedule/search/search_problem.h"

/* One microbatch after the other, each gradient as early as may be: nothing
 * holds less. */
void pp_row_order_serial(const struct pp_search_problem *j, int32_t *order);

/* The least that each rank must be able to hold for any order at all, as
 * pp_row_order_serial needs it. */
double pp_row_order_least(const struct pp_search_problem *j, int row);

/* Whether every rank keeps its limit under these words. */
bool pp_row_order_fits(const struct pp_search_problem *j, const int32_t *order);

/* The order of a named kind. A whole backward is taken as I then W where the
 * job splits it. PP_AGAIN when the kind does not fit the graph or the job;
 * that is no error. */
int pp_row_order_of_kind(const struct pp_search_problem *j,
                         const struct pp_kind *kind, int32_t *order,
                         struct pp_err *err) PP_MUST_USE;

/* Appends the words to s's empty rows. */
int pp_row_order_emit(const struct pp_search_problem *j, const int32_t *order,
                      struct pp_schedule *s, struct pp_err *err) PP_MUST_USE;

#endif
