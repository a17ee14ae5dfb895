/* SPDX-License-Identifier: MIT */
/* sft - the loss of the next token, and the sums of a sequence that all
 * objectives need. */
#include "run/objectives/objective.h"

#include <math.h>

static double at(const double *column, size_t t)
{
    return column ? column[t] : 0;
}

void pp_objective_sum(const struct pp_objective_options *o,
                      const struct pp_objective_rows *r,
                      struct pp_sequence_sums *sums)
{
    const double *p = r->columns[PP_COLUMN_PREV_LOGPROBS];
    const double *q = r->columns[PP_COLUMN_LOGPROBS];
    const double *f = r->columns[PP_COLUMN_REF_LOGPROBS];
    const double *a = r->columns[PP_COLUMN_ADVANTAGES];
    (void)o;
    for (size_t s = 0; s < r->n_sequences; s++)
        for (size_t t = r->first[s]; t < r->first[s + 1]; t++) {
            sums[s].n += 1;
            sums[s].x += r->x[t];
            sums[s].ratio += p ? r->x[t] - p[t] : 0;
            sums[s].importance += p && q ? p[t] - q[t] : 0;
            sums[s].reference += at(f, t);
            sums[s].up += fmax(at(a, t), 0);
            sums[s].down += fmin(at(a, t), 0);
        }
}

/* Adds in token order, and multiplies once. */
static void finish_sft(const struct pp_objective_options *o,
                       const struct pp_objective_rows *r,
                       const struct pp_sequence_sums *sums,
                       const struct pp_objective_counts *step, double *loss,
                       double *metrics, double *dx)
{
    double scale = step->tokens > 0 ? 1 / step->tokens : 0, sum = 0;
    (void)o;
    (void)sums;
    (void)metrics;
    for (size_t t = 0; t < r->first[r->n_sequences]; t++) {
        sum -= r->x[t];
        dx[t] = -scale;
    }
    *loss = sum * scale;
}

const struct pp_objective pp_objective_sft = {
    .name = "sft",
    .kind = PP_DATA_DOCUMENTS,
    .partial = pp_objective_sum,
    .finish = finish_sft,
};

/* The head gives minus the divergence from the teacher for each token. */
const struct pp_objective pp_objective_distill = {
    .name = "distill",
    .kind = PP_DATA_DOCUMENTS,
    .any_kind = true,
    .partial = pp_objective_sum,
    .finish = finish_sft,
};
