/* SPDX-License-Identifier: MIT */
/* colossalai - ColossalAI's rules for the layers of each stage. Pure. */
#ifndef PP_SPLIT_COLOSSALAI_H
#define PP_SPLIT_COLOSSALAI_H

#include <stddef.h>

#include "base/err.h"

/* Splits like distribute_layers: n_layers div n_stages layers for each stage,
 * and one more for each of the n_layers mod n_stages stages in the middle. A
 * stage may have no layer, also the first. */
int pp_split_colossalai(size_t n_layers, size_t n_stages, size_t *counts,
                        struct pp_err *err) PP_MUST_USE;

/* Splits like partition_uniform of colossalai.legacy: every chunk has n_layers
 * div n_chunks layers and is split alone; the remainder goes to the last ranks.
 * counts[s] is for chunk s div n_ranks on rank s mod n_ranks. */
int pp_split_colossalai_legacy(size_t n_layers, size_t n_ranks, size_t n_chunks,
                               size_t *counts, struct pp_err *err) PP_MUST_USE;

/* Splits like distribute_t5_layers: stages 0 .. *decoder - 1 hold the encoder's
 * layers, the others the decoder's, each side split by distribute_layers.
 * *decoder makes the stages of both sides about equal. It is n_stages if there
 * is no decoder. */
int pp_split_encoder_decoder(size_t n_encoder, size_t n_decoder,
                             size_t n_stages, size_t *counts, size_t *decoder,
                             struct pp_err *err) PP_MUST_USE;

#endif
