/* SPDX-License-Identifier: MIT */
/* scored_rows - what the head reads of a microbatch: the rows whose predictions
 * are scored, what becomes of their log-probabilities, and what else is wanted
 * of their logits. Multi-token prediction has scored rows of its own. */
#ifndef PP_RUN_PARTS_HEAD_SCORED_ROWS_H
#define PP_RUN_PARTS_HEAD_SCORED_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct pp_microbatch;

/* The rows, and the token that each should predict, already shifted inside its
 * sequence. The first n_labelled ascend, and so do the others. No block of rows
 * has both, since the bits of a product may depend on the rows beside it. */
struct pp_scored_rows {
    size_t n, n_labelled;
    const int32_t *rows, *targets; /* (n) */
    int32_t predicts; /* the row of position t is scored for the token of
                         t + predicts; 0 without targets */
};

/* The loss of multi-token prediction in a step. F adds the sums of this rank to
 * *sum, without weight. */
struct pp_ahead_loss {
    double weight; /* in the loss that is minimised */
    double *sum;   /* in the memory of the kernels */
};

/* For multi-token prediction. The row of position t predicts the token of t + 2
 * from the trunk's output and the token of t + 1, as input_ids has it; -1 at
 * the end of a sequence. A row is scored if that target is. */
struct pp_ahead {
    struct pp_ahead_loss *loss; /* of a step that trains; else NULL */
    const int32_t *next_ids;    /* (tokens) */
    struct pp_scored_rows scored;
};

/* The loss of a generator, as of multi-token prediction. */
struct pp_generator_loss {
    double weight;
    double scale; /* 1 / its scored tokens of the step; 0 if there are none */
    double *sum;
};

/* How the log-probabilities of the scored rows become a loss. */
struct pp_head_loss {
    double scale;       /* 1 / scored tokens of the whole step */
    double temperature; /* divides logits; 0: 1 */
    double *sum;   /* in the memory of the kernels: F adds the sum of -logp over
                      scored rows, in row order, times scale; or
                      the loss of `objective`. NULL: another rank does */
    double *logps; /* (n) F writes; may be NULL without objective */
    bool at_once;  /* the backward follows F at once (schedule/ir/at_once.h); F
                      may do what belongs to it, also to gradients */
    /* Turns log-probabilities of the scored rows, x, into the loss, and
     * replaces them by its negative gradient; or scores of sequences by its
     * gradient. With slices the last one does so for all, whose x come one
     * before the other; a slice that continues leaves them. NULL: every row's
     * is scale. */
    int (*objective)(void *ctx, const struct pp_microbatch *mb, double *x,
                     double *loss, struct pp_err *err);
    void *ctx;
    const struct pp_generator_loss *generator; /* of its head; else NULL */
};

enum { PP_MOST_TOP_K = 1024 };

/* The distributions that the scored rows should predict in place of targets.
 * fetch writes the distributions from `at` on, for k words each: ids (n, k), as
 * targets are, their weights, and the entropies (n). The log-probability of a
 * row is then minus the divergence from its distribution. */
struct pp_head_targets {
    int (*fetch)(void *ctx, size_t at, size_t n, int32_t *ids, double *weights,
                 double *entropy, struct pp_err *err); /* or NULL */
    void *ctx;
    size_t k; /* at most PP_MOST_TOP_K */
};

/* How the head draws tokens. */
struct pp_sampler {
    bool greedy;  /* the largest logit */
    uint64_t key; /* of the noise */
    void *room;   /* (vocab) elements in host memory */
};

/* If wanted, F writes the entropy at every scored row, then top_k ids and as
 * many logits, stride apart. Or it draws a token for every scored row, and
 * writes its id and its log-probability. */
struct pp_head_details {
    double *values; /* of the first row; or NULL */
    size_t stride;
    size_t top_k; /* at most PP_MOST_TOP_K */
    bool entropy;
    const struct pp_sampler *sampler; /* or NULL */
    uint64_t draw; /* number of the first one; a row has one of its own */
};

#endif
