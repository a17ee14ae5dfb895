/* SPDX-License-Identifier: MIT */
/* scoring - gives an objective the scored tokens of each sequence of a packed
 * microbatch and their columns.
 *
 * The slices of a microbatch come one after the other. Each leaves its
 * log-probabilities here, and the last one scores the whole microbatch. Ranks
 * that divide sequences add their sums before each scores its own tokens; if
 * they are exact, each scores all tokens as one rank does. */
#ifndef PP_RUN_EXECUTE_SCORING_H
#define PP_RUN_EXECUTE_SCORING_H

#include "run/execute/batch.h"
#include "run/objectives/objective.h"

struct pp_scoring {
    void *room; /* pp_scoring_bytes(n_rows - 1) */
    size_t n_rows;
    const struct pp_env *env; /* borrowed */
    /* On a GPU, pp_scoring_shared_bytes(n_rows - 1) there for messages between
     * the ranks that divide sequences; else NULL. */
    void *shared;

    const struct pp_objective_options *options;
    struct pp_objective_counts step;
    const struct pp_packed *packed;
    const float *reference; /* as in struct pp_pass */
    size_t bin;             /* or PP_NO_BIN */
    const struct pp_host_microbatch *rows;
    double *metrics; /* written; or NULL */
    size_t n_held;   /* scored tokens of the earlier slices of the microbatch */
};

/* Returns room for the log-probabilities of the rows of a microbatch or slice.
 * Log-probabilities of the earlier slices are before it. */
double *pp_scoring_logps(const struct pp_scoring *s);

/* The function of struct pp_microbatch; ctx is a struct pp_scoring, and x its
 * pp_scoring_logps. */
int pp_score_rows(void *ctx, const struct pp_microbatch *mb, double *x,
                  double *loss, struct pp_err *err) PP_MUST_USE;

/* Adds the counts of a bin, from the index alone if that is enough. */
void pp_scoring_count(const struct pp_objective_options *o,
                      const struct pp_packed *p, size_t bin,
                      struct pp_objective_counts *sum);

#endif
