/* SPDX-License-Identifier: MIT */
/* ckpt - checkpoints: Hugging Face directories with an optimizer/ beside.
 *
 * DIR/step-00000100/ holds config.json and the tokenizer's files, one
 * safetensors shard per rank with model.safetensors.index.json (a single
 * model.safetensors for one rank), and optimizer/ with the moments under the
 * same names and the trainer's counters. It is written as
 * step-00000100.tmp, synced, and renamed: a directory without .tmp is
 * complete. DIR/latest is a symbolic link to the newest.
 *
 * Weights have the run's element type. Where that is F32 or F64 they are the
 * master weights: there is no second copy of them in optimizer/. A BF16 run
 * keeps F32 master weights there, and every moment in F32. */
#ifndef PP_RUN_CHECKPOINT_CKPT_H
#define PP_RUN_CHECKPOINT_CKPT_H

#include <stdint.h>

#include "comm/comm.h"
#include "run/parameters/parameters.h"

struct pp_ckpt {
    const char *dir;
    struct pp_comm *comm;
    struct pp_parameters *params; /* this rank's */
    const char *source;      /* directory whose tokenizer files go along, or
                                NULL */
    const char *config_text; /* contents of config.json */
    int keep;                /* newest checkpoints to keep; 0: all */
};

/* The trainer's counters, and what gives its moments their meaning: tensors in
 * optimizer/state.safetensors. */
struct pp_ckpt_state {
    int64_t step;                           /* optimizer steps done */
    int64_t microbatches;                   /* consumed since the start */
    int64_t n_microbatches, accumulate, dp; /* of a step, when saved */
    uint64_t data_checksum;
    int64_t optimizer; /* enum pp_optimizer; -1: not said, by older
                          checkpoints */
    double betas[2];   /* AdamW's; read where the optimizer is said */
};

/* Collective: every rank writes its shard, rank 0 the rest, and the rename
 * happens when all have synced. On failure nothing of the earlier checkpoints
 * is touched, the .tmp directory is removed, and every rank fails with the
 * message of the rank that did. A checkpoint of the same step is replaced
 * whole, and what killed runs left as step-*.tmp is removed. */
int pp_ckpt_save(const struct pp_ckpt *c, const struct pp_ckpt_state *s,
                 struct pp_err *err) PP_MUST_USE;

/* The newest complete checkpoint in dir, which is the one that latest points to
 * or else that of the highest step, as a malloc'ed path; *path = NULL when
 * there is none (dir itself may be missing). dir may also be a checkpoint
 * itself. */
int pp_ckpt_find(const char *dir, char **path, struct pp_err *err) PP_MUST_USE;

/* Reads the state alone, then this rank's weights and moments (when p has
 * them). Any split loads what any other saved. What is missing or has another
 * shape is PP_EXIT_INPUT. */
int pp_ckpt_state_read(const char *path, struct pp_ckpt_state *s,
                       struct pp_err *err) PP_MUST_USE;
int pp_ckpt_load(const char *path, struct pp_parameters *p,
                 struct pp_err *err) PP_MUST_USE;

/* Writes block g of all ranks to one safetensors file, Hugging Face names,
 * F32, tied once: --dump-grads. Collective; rank 0 writes. */
int pp_ckpt_dump_grads(const char *path, struct pp_comm *comm,
                       const struct pp_parameters *p,
                       struct pp_err *err) PP_MUST_USE;

#endif
