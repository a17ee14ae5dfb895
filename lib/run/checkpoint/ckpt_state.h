/* SPDX-License-Identifier: MIT */
/* ckpt_state - names inside a checkpoint that writing and reading share, and
 * the trainer's state as tensors. */
#ifndef PP_RUN_CHECKPOINT_CKPT_STATE_H
#define PP_RUN_CHECKPOINT_CKPT_STATE_H

#include "run/checkpoint/ckpt.h"
#include "run/parameters/weights.h"

/* Files of the blocks, by enum pp_weights_block: without .safetensors. */
#define PP_CKPT_STEMS                                               \
    {                                                               \
        [PP_BLOCK_W] = "model", [PP_BLOCK_M] = "optimizer/exp_avg", \
        [PP_BLOCK_V] = "optimizer/exp_avg_sq",                      \
        [PP_BLOCK_MASTER] = "optimizer/master",                     \
    }

/* Into CHECKPOINT/optimizer/state.safetensors. */
int pp_ckpt_state_write(const char *checkpoint, const struct pp_ckpt_state *s,
                        struct pp_err *err) PP_MUST_USE;

#endif
