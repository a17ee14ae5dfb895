/* SPDX-License-Identifier: MIT */
/* ckpt_shards - the files of a checkpoint: a shard of tensors per rank, the
 * index, and the state of the trainer. It also has the agreements of the ranks,
 * but not the directories. */
#ifndef PP_RUN_CHECKPOINT_CKPT_SHARDS_H
#define PP_RUN_CHECKPOINT_CKPT_SHARDS_H

#include <stddef.h>
#include <stdint.h>

#include "comm/comm.h"
#include "run/checkpoint/ckpt.h"
#include "run/checkpoint/ckpt_files.h"
#include "run/checkpoint/ckpt_sums.h"
#include "run/parameters/parameters.h"
#include "run/parameters/weights.h"

/* A tensor to save: one that counts (pp_parameter_counts). Ranks exchange it.
 */
struct pp_saved_tensor {
    char name[PP_FQN_TEXT];
    uint64_t rows, cols, order;
    int32_t n_dims, rank;
};

struct pp_shard_map {
    int n_shards;               /* ranks that save something */
    int shard;                  /* this rank's, from 1; 0: none */
    struct pp_saved_tensor *at; /* rank 0 only: all, by rank, then by order */
    size_t n;
};

/* Collective. Fails on every rank if one has failed: a rank without an error
 * takes that of the lowest rank that failed. rc is the result of this rank: 0,
 * or -1 with err filled. */
int pp_agree(struct pp_comm *c, int rc, struct pp_err *err) PP_MUST_USE;

/* Collective. Lists the tensors of all ranks. Release map with
 * pp_shard_map_finish. */
int pp_shard_map_gather(struct pp_shard_map *map, struct pp_comm *c,
                        const struct pp_parameters *p,
                        struct pp_err *err) PP_MUST_USE;
void pp_shard_map_finish(struct pp_shard_map *map);

/* Returns the description of the tensor for a file. The name is borrowed. */
struct pp_tensor_spec pp_saved_tensor_spec(const struct pp_saved_tensor *t,
                                           enum pp_dtype dtype);

/* Formats the name of a shard, from 1 on: STEM.safetensors if there is one
 * shard, else STEM-00001-of-00002.safetensors and so on. */
int pp_shard_path(char buf[PP_PATH_TEXT], const char *stem, int shard,
                  int n_shards, struct pp_err *err) PP_MUST_USE;

/* Writes the tensors of this rank, and fills in the XXH3 of the file. Does
 * nothing if this rank has no shard. */
int pp_shard_write(const char *stem, const struct pp_shard_map *map,
                   const struct pp_parameters *p, enum pp_weights_block block,
                   uint64_t *checksum, struct pp_err *err) PP_MUST_USE;

/* Writes CHECKPOINT/STEM.safetensors.index.json if there are several shards,
 * and adds its checksum to sums. Called by rank 0 alone. */
int pp_shard_write_index(const char *checkpoint, const char *stem,
                         const struct pp_shard_map *map, size_t element_bytes,
                         struct pp_ckpt_sums *sums,
                         struct pp_err *err) PP_MUST_USE;

/* Opens the files that the two functions above wrote. */
int pp_shard_open(const char *stem, struct pp_tensors **out,
                  struct pp_err *err) PP_MUST_USE;

/* The files of the blocks, by enum pp_weights_block, without .safetensors. */
#define PP_CKPT_STEMS                                               \
    {                                                               \
        [PP_BLOCK_W] = "model", [PP_BLOCK_M] = "optimizer/exp_avg", \
        [PP_BLOCK_V] = "optimizer/exp_avg_sq",                      \
        [PP_BLOCK_MASTER] = "optimizer/master",                     \
    }

/* Writes CHECKPOINT/optimizer/state.safetensors, and adds its checksum to
 * sums. */
int pp_ckpt_state_write(const char *checkpoint, const struct pp_ckpt_state *s,
                        struct pp_ckpt_sums *sums,
                        struct pp_err *err) PP_MUST_USE;

#endif
