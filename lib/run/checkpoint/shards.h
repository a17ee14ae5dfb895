/* SPDX-License-Identifier: MIT */
/* shards - the tensors of a model, cut into the files of a checkpoint.
 *
 * The tensors are in model order, and a file takes as many as its limit allows.
 * So the files depend on the model, the element types and the limit, and not on
 * the ranks that write them: every rank computes the same files, and knows
 * which of their tensors it holds. The weights of a generator are in files of
 * their own, and so are the weights of its connector. */
#ifndef PP_RUN_CHECKPOINT_SHARDS_H
#define PP_RUN_CHECKPOINT_SHARDS_H

#include <stddef.h>
#include <stdint.h>

#include "run/checkpoint/ckpt.h"
#include "run/checkpoint/exchange.h"
#include "run/checkpoint/files.h"
#include "run/checkpoint/sums.h"
#include "run/parameters/parameters.h"
#include "run/parameters/weights.h"

/* The files of a block, by enum pp_weights_block, without .safetensors; NULL:
 * the block is not saved. */
extern const char *const pp_ckpt_stems[PP_N_BLOCKS];
#define PP_ADAPTER_STEM "adapter_model" /* of weights, if they are adapters */

struct pp_shards {
    struct pp_tensor_info *tensors; /* (n) in the order of files; without the
                                       head of a tied model */
    /* Numbers of the first tensors of a generator and of its connector, which
     * come last; n if there are none. */
    size_t generator, connector;
    const struct pp_model *model;
    const struct pp_parameters *params;
    const struct pp_parameter **mine; /* (n) the tensor if this rank may write a
                                         range of it; NULL: other ranks do */
    size_t n;
    struct {
        size_t *first; /* (n_files + 1) first tensor of each file; then n */
        int n_files;   /* 0: the block is not saved */
        size_t element_bytes;         /* in the files */
        enum pp_weights_block source; /* the rank's block that has them */
    } blocks[PP_N_BLOCKS];
    int n_files; /* of all blocks */
};

/* A file: the tensors from first to end, exclusive, of a block. */
struct pp_shard_file {
    enum pp_weights_block block;
    size_t first, end;
    char name[64]; /* "optimizer/exp_avg-00001-of-00002.safetensors" */
};

/* Returns the name of tensor i in the files of a block: names of a generator's
 * weights have none of its prefix. */
const char *pp_shards_name(const struct pp_shards *s,
                           enum pp_weights_block block, size_t i);

/* Cuts the blocks of p that are saved. A file has at most `limit` bytes of
 * tensors, or one tensor. Weights have elements of save_bytes (base/elements.h)
 * in files, or with 0 the elements of the run. If these are narrower than the
 * exact weights, the exact ones are the master weights. m and p are borrowed.
 * pp_shards_finish frees, also after a failure. */
int pp_shards_init(struct pp_shards *s, const struct pp_model *m,
                   const struct pp_parameters *p, size_t limit,
                   size_t save_bytes, struct pp_err *err) PP_MUST_USE;
void pp_shards_finish(struct pp_shards *s);

/* Returns the block that has the weights for files of these elements. */
enum pp_weights_block pp_shards_source(const struct pp_parameters *p,
                                       size_t save_bytes);

/* Leaves out the blocks of the optimizer. */
void pp_shards_keep_weights(struct pp_shards *s);

/* Returns the rank's block that has tensor i of a block of files. Most
 * frozen tensors have no master weights. */
enum pp_weights_block pp_shards_source_of(const struct pp_shards *s,
                                          enum pp_weights_block block,
                                          size_t i);

/* Returns the bytes of tensor i in the files of a block: 0 if it is not there,
 * as frozen tensors have no optimizer state, and the base of adapters is not in
 * their files. */
size_t pp_shards_bytes(const struct pp_shards *s, enum pp_weights_block block,
                       size_t i);

/* Returns file i of s->n_files. */
struct pp_shard_file pp_shards_at(const struct pp_shards *s, int i);

/* The rank of a file's first element owns the file: it makes it, and reads it
 * again for its checksum when all ranks have written theirs. */

/* Makes the files that this rank owns in the checkpoint's directory, at their
 * full size, with their headers. */
int pp_shards_create(const struct pp_shards *s, const char *checkpoint,
                     struct pp_err *err) PP_MUST_USE;

/* Writes the pieces of this rank to files that exist. Collective over the
 * groups of x and turn, the ranks that divide a tensor, and the ranks that
 * divide the state of a piece; the latter may be in the former. */
int pp_shards_fill(const struct pp_shards *s, struct pp_exchange *x,
                   struct pp_exchange *turn, const char *checkpoint,
                   struct pp_err *err) PP_MUST_USE;

/* Syncs the files that have pieces of this rank. */
int pp_shards_sync(const struct pp_shards *s, const char *checkpoint,
                   struct pp_err *err) PP_MUST_USE;

/* Fills sums (s->n_files) with the XXH3 of the files that this rank owns, and
 * leaves the others. */
int pp_shards_sum(const struct pp_shards *s, const char *checkpoint,
                  uint64_t *sums, struct pp_err *err) PP_MUST_USE;

/* Writes CHECKPOINT/STEM.safetensors.index.json for each block that has several
 * files, and adds its checksum to sums. Called by one rank alone. */
int pp_shards_write_indexes(const struct pp_shards *s, const char *checkpoint,
                            struct pp_ckpt_sums *sums,
                            struct pp_err *err) PP_MUST_USE;

/* Opens the files of a block, with or without an index. */
int pp_shard_open(const char *stem, struct pp_tensors **out,
                  struct pp_err *err) PP_MUST_USE;

/* Writes the state to CHECKPOINT/optimizer/, and adds the checksums of its
 * files to sums. */
int pp_ckpt_state_write(const char *checkpoint, const struct pp_ckpt_state *s,
                        struct pp_ckpt_sums *sums,
                        struct pp_err *err) PP_MUST_USE;

#endif
