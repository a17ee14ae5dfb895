/* SPDX-License-Identifier: MIT */
#include "split/colossalai.h"

#include <math.h>

int pp_split_colossalai(size_t n_layers, size_t n_stages, size_t *counts,
                        struct pp_err *err)
{
    if (n_stages == 0)
        return pp_fail(err, PP_EXIT_INPUT, "no stages to split into");
    size_t rest = n_layers % n_stages;
    size_t first = n_stages / 2 - rest / 2;
    for (size_t s = 0; s < n_stages; s++)
        counts[s] =
            n_layers / n_stages + (s >= first && s - first < rest ? 1 : 0);
    return 0;
}

int pp_split_colossalai_legacy(size_t n_layers, size_t n_ranks, size_t n_chunks,
                               size_t *counts, struct pp_err *err)
{
    if (n_ranks == 0 || n_chunks == 0)
        return pp_fail(err, PP_EXIT_INPUT, "no stages to split into");
    if (n_layers % n_chunks)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%zu layers do not divide by %zu chunks", n_layers,
                       n_chunks);
    size_t layers = n_layers / n_chunks, rest = layers % n_ranks;
    for (size_t s = 0; s < n_ranks * n_chunks; s++)
        counts[s] = layers / n_ranks + (s % n_ranks >= n_ranks - rest);
    return 0;
}

/* Returns the difference of the layers per stage of the two sides. */
static double unevenness(size_t n_encoder, size_t n_decoder, size_t n_stages,
                         size_t split)
{
    return fabs((double)n_encoder / (double)split -
                (double)n_decoder / (double)(n_stages - split));
}

int pp_split_encoder_decoder(size_t n_encoder, size_t n_decoder,
                             size_t n_stages, size_t *counts, size_t *decoder,
                             struct pp_err *err)
{
    if (n_encoder == 0)
        return pp_fail(err, PP_EXIT_INPUT, "the encoder has no layers");
    if (n_encoder + n_decoder < n_stages)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%zu stages are too many for %zu layers of encoder and "
                       "decoder",
                       n_stages, n_encoder + n_decoder);
    *decoder = n_stages;
    if (n_decoder == 0)
        return pp_split_colossalai(n_encoder, n_stages, counts, err);
    if (n_stages < 2)
        return pp_fail(err, PP_EXIT_INPUT,
                       "an encoder and a decoder need at least 2 stages, not "
                       "%zu",
                       n_stages);
    *decoder = 1;
    for (size_t i = 2; i < n_stages; i++)
        if (unevenness(n_encoder, n_decoder, n_stages, i) <
            unevenness(n_encoder, n_decoder, n_stages, *decoder))
            *decoder = i;
    if (pp_split_colossalai(n_encoder, *decoder, counts, err))
        return -1;
    return pp_split_colossalai(n_decoder, n_stages - *decoder,
                               counts + *decoder, err);
}
