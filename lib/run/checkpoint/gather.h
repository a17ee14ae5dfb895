/* SPDX-License-Identifier: MIT */
/* gather - the tensors of all ranks as one safetensors file, tensor after
 * tensor, at rank 0. */
#ifndef PP_RUN_CHECKPOINT_GATHER_H
#define PP_RUN_CHECKPOINT_GATHER_H

#include "comm/comm.h"
#include "data/tensors/safetensors.h"
#include "run/parameters/parameters.h"

/* Takes the file. Rank 0 calls begin once, then put for the data of the
 * tensors, in the order of the specs and of their elements. */
struct pp_gather_sink {
    int (*begin)(void *ctx, const struct pp_tensor_spec *specs, size_t n,
                 struct pp_err *err);
    int (*put)(void *ctx, const void *data, size_t bytes, struct pp_err *err);
    void *ctx;
};

struct pp_gather {
    struct pp_comm *comm;
    const struct pp_parameters *params; /* this rank's */
    enum pp_weights_block block;        /* must be complete */
    size_t element_bytes;               /* in the file (base/elements.h) */
    struct pp_gather_sink sink;
};

/* Gives the sink a block of the model: Hugging Face names, tied weights once.
 * Collective. Rank 0 needs memory for the largest tensor, or twice that; the
 * others for their largest piece. Fails on every rank or on none. */
int pp_ckpt_gather(const struct pp_gather *g, struct pp_err *err) PP_MUST_USE;

#endif
