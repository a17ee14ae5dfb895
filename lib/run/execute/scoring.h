/* SPDX-License-Identifier: MIT */
/* scoring - gives an objective the rows of a packed microbatch: the scored
 * tokens of each sequence and their columns. */
#ifndef PP_RUN_EXECUTE_SCORING_H
#define PP_RUN_EXECUTE_SCORING_H

#include "run/execute/batch.h"
#include "run/objectives/objective.h"

struct pp_scoring {
    const struct pp_objective_options *options;
    struct pp_objective_counts step;
    const struct pp_packed *packed;
    size_t bin;                       /* or PP_NO_BIN */
    const struct pp_microbatch *rows; /* arrays in host memory */
    double *metrics;                  /* written; or NULL */
    void *room;                       /* pp_scoring_bytes(n_rows) */
    size_t n_rows;
};

/* The function of struct pp_microbatch; ctx is a struct pp_scoring. The
 * microbatch is whole, not a slice. */
int pp_score_rows(void *ctx, const struct pp_microbatch *mb, double *x,
                  double *loss, struct pp_err *err) PP_MUST_USE;

/* Adds the counts of a bin, from the index alone if that is enough. */
void pp_scoring_count(const struct pp_objective_options *o,
                      const struct pp_packed *p, size_t bin,
                      struct pp_objective_counts *sum);

#endif
