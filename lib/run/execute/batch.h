/* SPDX-License-Identifier: MIT */
/* batch - a packed bin as the layers see it: positions, ids, shifted targets.
 *
 * Made anew for every action from the mapped index, which costs a few integer
 * operations a token and keeps nothing per microbatch. */
#ifndef PP_RUN_EXECUTE_BATCH_H
#define PP_RUN_EXECUTE_BATCH_H

#include <stdbool.h>

#include "data/packed.h"
#include "run/parts/layer.h"

/* A microbatch without tokens, where evaluation has no bin left. */
#define PP_NO_BIN SIZE_MAX

/* First row of a slice of a microbatch; slice n of n begins at its end. */
static inline size_t pp_slice_begin(size_t tokens, int slice, int n)
{
    return (size_t)((uint64_t)tokens * (uint64_t)slice / (uint64_t)n);
}

/* What to look at. */
struct pp_batch_part {
    size_t bin;
    int slice, n_slices;
    bool score_all; /* every token, whatever its label */
};

/* Buffers for one microbatch of up to max_tokens. */
struct pp_batch {
    size_t max_tokens;
    int32_t vocab;
    int32_t *positions, *input_ids, *scored_rows, *targets;
    int32_t *cu_seqlens, *cu_seqlens_padded; /* (max_tokens + 1) */
    double *logps;
    int32_t *ids, *labels; /* where the packed data lie in other files */

    /* Where kernels do not see the host's memory: all integers of one
     * microbatch, here and there. */
    struct pp_device *device;
    int32_t *here, *there;
};

int pp_batch_init(struct pp_batch *b, size_t max_tokens, size_t vocab,
                  struct pp_err *err) PP_MUST_USE;
void pp_batch_finish(struct pp_batch *b);

/* Of the device's memory that a batch of so many tokens attaches. */
size_t pp_batch_bytes(size_t max_tokens);

/* Room on the device, which outlives b, for pp_batch_send. */
int pp_batch_attach(struct pp_batch *b, struct pp_device *d,
                    struct pp_err *err) PP_MUST_USE;

/* Lets the pointers of *mb, which are for the host, point to what kernels can
 * read. Kernels that were queued before have what they were given. */
int pp_batch_send(struct pp_batch *b, struct pp_microbatch *mb,
                  struct pp_err *err) PP_MUST_USE;

/* Fills *mb from a part of a bin of at most max_tokens; the pointers in it are
 * b's. Sequences are those with a row in the part; where it begins inside the
 * first one, at a real row, context counts the rows before. Labels are shifted
 * inside their sequence: row t predicts position t + 1, and the last row of a
 * sequence predicts nothing. Scored rows are those whose label is not -100;
 * with score_all every row but the last of its sequence, predicting the next
 * input id, be it in the slice behind. Leaves scale, loss, logps and before
 * unset. Fails with PP_EXIT_INPUT when an id is outside the vocabulary: columns
 * are mapped, not read, when a directory is opened. */
int pp_batch_view(struct pp_batch *b, const struct pp_packed *p,
                  const struct pp_batch_part *part, struct pp_microbatch *mb,
                  struct pp_err *err) PP_MUST_USE;

#endif
