/* SPDX-License-Identifier: MIT */
/* hybrid - Megatron-LM's hybrid layer patterns: one symbol for each
 * layer, '|' between stages, multi-token prediction after '/'. Pure.
 *
 * Layers are M (Mamba), G (gated delta net), * (attention), D (sparse
 * attention), + (latent attention), - (MLP) and E (mixture of experts). */
#ifndef PP_SPLIT_HYBRID_H
#define PP_SPLIT_HYBRID_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "split/megatron.h"

struct pp_hybrid {
    const char *main; /* layers and bars; points into the pattern */
    size_t length;    /* characters of main */
    const char *mtp;  /* layers of one depth; points into the pattern */
    size_t mtp_length;
    size_t n_mtp;      /* number of depths */
    size_t n_layers;   /* layers of main */
    size_t n_segments; /* bars in main, plus 1 */
};

/* Reads "main/mtp/mtp/...". All depths must have the same pattern, without
 * bars. Attention '*' cannot be mixed with D or +, as in Megatron-LM. Borrows
 * the pattern. */
int pp_hybrid_parse(const char *pattern, struct pp_hybrid *h,
                    struct pp_err *err) PP_MUST_USE;

/* Finds the number of chunks on each rank: with bars the number of segments
 * divided by n_ranks, without bars 1. Fails if n_chunks is another number but
 * not 0. */
int pp_hybrid_chunks(const struct pp_hybrid *h, size_t n_ranks, size_t n_chunks,
                     size_t *out, struct pp_err *err) PP_MUST_USE;

/* Counts the layers of each of the n_ranks * n_chunks stages: the layers
 * between bars if there are bars, which exclude first and last; otherwise as
 * pp_split_megatron. m->n_layers is the pattern's. */
int pp_hybrid_split(const struct pp_hybrid *h, const struct pp_megatron *m,
                    size_t *counts, struct pp_err *err) PP_MUST_USE;

#endif
