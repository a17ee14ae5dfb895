/* SPDX-License-Identifier: MIT */
/* split_hybrid - Megatron-LM's hybrid layer patterns: one symbol for each
 * layer, bars between stages, multi-token prediction behind slashes. Pure.
 *
 * Layers are M (Mamba), G (gated delta net), * (attention), D (sparse
 * attention), + (latent attention), - (MLP) and E (mixture of experts). */
#ifndef PP_SPLIT_SPLIT_HYBRID_H
#define PP_SPLIT_SPLIT_HYBRID_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "split/split_megatron.h"

struct pp_hybrid {
    const char *main; /* layers and bars; points into the pattern */
    size_t length;    /* of main */
    const char *mtp;  /* the layers of one depth, into the pattern */
    size_t mtp_length;
    size_t n_mtp;      /* depths; 0: there is none */
    size_t n_layers;   /* of main, bars not counted */
    size_t n_segments; /* bars and one */
};

/* Reads "main/mtp/mtp/...". Depths must be the same pattern, without bars; an
 * attention * beside D or + is refused, as Megatron does. The pattern is
 * borrowed. */
int pp_hybrid_parse(const char *pattern, struct pp_hybrid *h,
                    struct pp_err *err) PP_MUST_USE;

/* The number of chunks on each rank: with bars what they say, which n_chunks,
 * unless it is 0, must be too; without bars one. */
int pp_hybrid_chunks(const struct pp_hybrid *h, size_t n_ranks, size_t n_chunks,
                     size_t *out, struct pp_err *err) PP_MUST_USE;

/* Layers of each of the n_ranks * n_chunks stages: between bars where there are
 * any, which exclude first and last; otherwise as pp_split_megatron. m's
 * n_layers is the pattern's. */
int pp_hybrid_split(const struct pp_hybrid *h, const struct pp_megatron *m,
                    size_t *counts, struct pp_err *err) PP_MUST_USE;

#endif
