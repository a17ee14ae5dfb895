/* SPDX-License-Identifier: MIT */
/* digest - a number for the bits of activations, whichever ranks have them: two
 * runs with equal numbers had the same bits in every row of every microbatch.
 *
 * Each row of a token is hashed with its place in the packed data, and the
 * hashes are added, so that neither the order of rows nor their ranks matter.
 * Padding does not count. For memory of the host. */
#ifndef PP_RUN_EXECUTE_DIGEST_H
#define PP_RUN_EXECUTE_DIGEST_H

#include <stddef.h>
#include <stdint.h>

#include "data/packed/packed.h"
#include "run/parts/microbatch.h"

enum pp_digest_of {
    PP_DIGEST_OUTPUT,   /* of a stage; of the head: log-probabilities, or
                           their gradients by an objective */
    PP_DIGEST_GRADIENT, /* of the input of a stage */
    PP_DIGEST_LOSS,     /* of the head, for each microbatch */
    PP_DIGEST_N
};

/* The rows of a rank: of its sequences and tokens. */
struct pp_digest_rows {
    const struct pp_packed *packed;
    size_t bin;
    const struct pp_host_microbatch *host;
    size_t cp_rank;     /* with keys.order: which of its rows are here */
    size_t tp_rank, tp; /* the part of these rows that a tensor has */
};

/* Adds the rows of a tensor, row_bytes each, to *sum. */
void pp_digest_rows(uint64_t *sum, const struct pp_digest_rows *r,
                    const void *x, size_t row_bytes);

/* Adds the log-probability of every scored row; tp must be 1. */
void pp_digest_logps(uint64_t *sum, const struct pp_digest_rows *r,
                     const double *logps);

/* Adds the loss of the bin. One rank does it. */
void pp_digest_loss(uint64_t *sum, const struct pp_digest_rows *r, double loss);

#endif
