/* SPDX-License-Identifier: MIT */
/* split_colossalai - ColossalAI's distribution of layers over stages. Pure. */
#ifndef PP_SPLIT_SPLIT_COLOSSALAI_H
#define PP_SPLIT_SPLIT_COLOSSALAI_H

#include <stddef.h>

#include "base/err.h"

/* distribute_layers: n_layers div n_stages each, and what does not divide one
 * by one to the stages in the middle. Stages may be left without a layer, the
 * first among them. */
int pp_split_colossalai(size_t n_layers, size_t n_stages, size_t *counts,
                        struct pp_err *err) PP_MUST_USE;

/* The older rule of colossalai.legacy, partition_uniform: every chunk is split
 * by itself, n_layers div n_chunks layers of it, and what does not divide goes
 * to the last ranks. counts[s] is of chunk s div n_ranks on rank s mod n_ranks.
 */
int pp_split_colossalai_legacy(size_t n_layers, size_t n_ranks, size_t n_chunks,
                               size_t *counts, struct pp_err *err) PP_MUST_USE;

/* distribute_t5_layers: stages 0 .. *decoder - 1 hold the encoder's layers, the
 * others the decoder's, each side by distribute_layers, so that a stage of
 * either has about as many; *decoder is n_stages where there is no decoder. */
int pp_split_encoder_decoder(size_t n_encoder, size_t n_decoder,
                             size_t n_stages, size_t *counts, size_t *decoder,
                             struct pp_err *err) PP_MUST_USE;

#endif
