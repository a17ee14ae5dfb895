/* SPDX-License-Identifier: MIT */
/* objective - turns the log-probabilities of scored tokens into a loss, its
 * gradient and metrics, in fp64. Pure. pp-objectives(7) has the formulas.
 *
 * Every objective is a sum over microbatches: each divides by the counts of the
 * whole step, so that the result does not depend on the microbatches. A
 * microbatch takes two calls. `partial` adds up each sequence; ranks that share
 * a sequence then add their sums; `finish` makes the loss and the gradient of a
 * rank's own tokens from them. */
#ifndef PP_RUN_OBJECTIVES_OBJECTIVE_H
#define PP_RUN_OBJECTIVES_OBJECTIVE_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "data/packed/packed.h"
#include "run/settings/settings.h"

/* The scored tokens of one microbatch. Arrays of columns that the objective
 * does not read may be NULL. */
struct pp_objective_rows {
    size_t n_sequences;
    const uint32_t *first; /* (n_sequences + 1) sequence s has tokens first[s]
                              .. first[s + 1] */
    const double *x;       /* log-probabilities by the trained model, nats; or
                              the reward of a sequence, its only token */
    const double *columns[PP_N_COLUMNS]; /* by token; of ref_logps by
                                            sequence */
    bool adds_whole; /* adds the terms of whole pairs to loss and metrics: one
                        of the ranks that share the sequences does */
};

/* The counts of a whole step. Sequences and pairs without a scored token do not
 * count. */
struct pp_objective_counts {
    double tokens, sequences, pairs;
    double chosen; /* tokens of the chosen sequences of pairs */
};

/* Sums over the scored tokens of a sequence. */
struct pp_sequence_sums {
    double n, x;
    double ratio;      /* of x - p */
    double importance; /* of p - q */
    double reference;  /* of f */
    double up, down;   /* of the advantages above and below 0 */
    double divergence; /* if the sequence's ratio weighs it, of its estimates
                          that no limit changes */
};

enum { PP_MAX_METRICS = 24 };

/* How the metrics of microbatches combine. */
enum pp_combine { PP_COMBINE_SUM, PP_COMBINE_MIN, PP_COMBINE_MAX };

struct pp_metric {
    const char *name;
    enum pp_combine combine;
    unsigned needs; /* columns, as bits */
};

struct pp_objective {
    const char *name;
    enum pp_data_kind kind; /* of the packed data */
    bool any_kind;          /* or another one */
    const struct pp_metric *metrics;
    size_t n_metrics;
    /* Adds to sums (n_sequences), which begin with zeros. */
    void (*partial)(const struct pp_objective_options *o,
                    const struct pp_objective_rows *r,
                    struct pp_sequence_sums *sums);
    /* Writes the loss, its gradient dx (tokens) and the metrics. dx may be
     * r->x. */
    void (*finish)(const struct pp_objective_options *o,
                   const struct pp_objective_rows *r,
                   const struct pp_sequence_sums *sums,
                   const struct pp_objective_counts *step, double *loss,
                   double *metrics, double *dx);
};

extern const struct pp_objective pp_objective_sft, pp_objective_dpo,
    pp_objective_grpo, pp_objective_distill, pp_objective_reward;
extern const struct pp_objective *const pp_objectives[PP_N_OBJECTIVES];

static inline unsigned pp_column_bit(enum pp_column c)
{
    return 1u << c;
}

/* Returns the columns, as bits, that the objective cannot do without, and the
 * columns that it reads if they are there. */
unsigned pp_objective_needs(const struct pp_objective_options *o);
unsigned pp_objective_reads(const struct pp_objective_options *o);

/* Returns whether the gradient of a token depends on the rest of its sequence
 * or on counts of sequences, so that a sequence must not be cut. */
bool pp_objective_by_sequence(const struct pp_objective_options *o);

/* Returns whether the objective compares the sequences of pairs. */
bool pp_objective_in_pairs(const struct pp_objective_options *o);

/* Adds the counts of a bin; labels has an element per position, or NULL if
 * every token is scored. Rewards need no labels. */
void pp_objective_count(const struct pp_objective_options *o,
                        const struct pp_bin *b, const int32_t *labels,
                        struct pp_objective_counts *sum);

/* Adds the sums of the scored tokens that all objectives need. */
void pp_objective_sum(const struct pp_objective_options *o,
                      const struct pp_objective_rows *r,
                      struct pp_sequence_sums *sums);

/* Combines a metric of a microbatch with that of the earlier ones. */
static inline double pp_metric_combine(enum pp_combine how, double a, double b)
{
    return how == PP_COMBINE_MIN   ? fmin(a, b)
           : how == PP_COMBINE_MAX ? fmax(a, b)
                                   : a + b;
}

/* Returns the value that changes nothing. */
static inline double pp_metric_neutral(enum pp_combine how)
{
    return how == PP_COMBINE_MIN   ? HUGE_VAL
           : how == PP_COMBINE_MAX ? -HUGE_VAL
                                   : 0;
}

#endif
