/* SPDX-License-Identifier: MIT */
/* metadata - what attention is told of the packed sequences: the same on every
 * rank of a data-parallel lane, whatever its stages, and its place among
 * context- and tensor-parallel ranks. A rank that loses it computes across the
 * bounds of sequences, and no shape tells. */
#ifndef PP_RUN_EXECUTE_METADATA_H
#define PP_RUN_EXECUTE_METADATA_H

#include <stddef.h>
#include <stdint.h>

#include "run/parts/microbatch.h"

/* The sequences of the microbatches of a step, or of their slices. */
struct pp_metadata {
    struct pp_metadata_of {
        uint32_t *words; /* (n) or NULL: count, real and padded cu_seqlens,
                            maximum length; of a slice also the tokens of its
                            first sequence in earlier ones */
        size_t n;
        int stage; /* the first to which they came */
    } * at;        /* (n_views) */
    size_t n_views;
};

int pp_metadata_init(struct pp_metadata *m, size_t n_views,
                     struct pp_err *err) PP_MUST_USE;
void pp_metadata_finish(struct pp_metadata *m);

/* Begins a step. */
void pp_metadata_clear(struct pp_metadata *m);

/* Takes the sequences that a stage is about to compute: for a context-parallel
 * rank whole ones. Fails if there are none but there are
 * tokens, or if an earlier stage of the rank had others. */
int pp_metadata_take(struct pp_metadata *m, size_t view, int stage,
                     const struct pp_host_microbatch *host,
                     struct pp_err *err) PP_MUST_USE;

/* Returns the FNV-1a of all views in order: 32-bit little-endian
 * integers. */
uint64_t pp_metadata_hash(const struct pp_metadata *m);

#endif
