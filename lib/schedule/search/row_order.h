/* SPDX-License-Identifier: MIT */
/* search_words - between words and schedules; private to lib/sched. */
#ifndef PP_SCHED_SEARCH_WORDS_H
#define PP_SCHED_SEARCH_WORDS_H

#include "sched/kind.h"
#include "sched/search_job.h"

/* One microbatch after the other, each gradient as early as may be: nothing
 * holds less. */
void pp_words_serial(const struct pp_job *j, int32_t *word);

/* The least that each rank must be able to hold for any order at all, as
 * pp_words_serial needs it. */
double pp_words_least(const struct pp_job *j, int rank);

/* Whether every rank keeps its limit under these words. */
bool pp_words_fit(const struct pp_job *j, const int32_t *word);

/* The order of a named kind. A whole backward is taken as I then W where the
 * job splits it. PP_AGAIN when the kind does not fit the graph or the job;
 * that is no error. */
int pp_words_of_kind(const struct pp_job *j, const struct pp_kind *kind,
                     int32_t *word, struct pp_err *err) PP_MUST_USE;

/* Appends the words to s's empty rows. */
int pp_words_emit(const struct pp_job *j, const int32_t *word,
                  struct pp_schedule *s, struct pp_err *err) PP_MUST_USE;

#endif
