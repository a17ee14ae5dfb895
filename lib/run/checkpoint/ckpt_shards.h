/* SPDX-License-Identifier: MIT */
/* ckpt_shards - which rank has which tensor, and files with a shard of them
 * each. What all ranks must agree on is here; directories are not. */
#ifndef PP_RUN_CHECKPOINT_CKPT_SHARDS_H
#define PP_RUN_CHECKPOINT_CKPT_SHARDS_H

#include <stddef.h>
#include <stdint.h>

#include "comm/comm.h"
#include "run/checkpoint/ckpt.h"
#include "run/parameters/parameters.h"
#include "run/parameters/weights.h"

/* A tensor that is saved: one that counts. Travels between ranks. */
struct pp_saved_tensor {
    char name[PP_FQN_TEXT];
    uint64_t rows, cols, order;
    int32_t is_matrix, rank;
};

struct pp_shard_map {
    int n_shards;               /* ranks that have something to save */
    int shard;                  /* this rank's number, from 1; 0 for none */
    struct pp_saved_tensor *at; /* rank 0 only: all, by rank, then by order */
    size_t n;
};

/* Collective. An error of one rank is an error of all; the others take the
 * text of the lowest rank that failed. rc is what this rank's work returned:
 * 0, or -1 with err filled. */
int pp_agree(struct pp_comm *c, int rc, struct pp_err *err) PP_MUST_USE;

/* Collective. map is pp_shard_map_finish's. */
int pp_shard_map_gather(struct pp_shard_map *map, struct pp_comm *c,
                        const struct pp_parameters *p,
                        struct pp_err *err) PP_MUST_USE;
void pp_shard_map_finish(struct pp_shard_map *map);

/* How a file holds the tensor. The name is borrowed. */
struct pp_tensor_spec pp_saved_tensor_spec(const struct pp_saved_tensor *t,
                                           enum pp_dtype dtype);

/* Writes this rank's tensors: STEM.safetensors when there is one shard, else
 * STEM-00001-of-00002.safetensors and so on. */
int pp_shard_write(const char *stem, const struct pp_shard_map *map,
                   const struct pp_parameters *p, enum pp_weights_block block,
                   struct pp_err *err) PP_MUST_USE;

/* Rank 0: STEM.safetensors.index.json when there are several shards. */
int pp_shard_write_index(const char *stem, const struct pp_shard_map *map,
                         size_t element_bytes, struct pp_err *err) PP_MUST_USE;

/* Opens what the two above have written. */
int pp_shard_open(const char *stem, struct pp_tensors **out,
                  struct pp_err *err) PP_MUST_USE;

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
