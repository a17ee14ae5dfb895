/* SPDX-License-Identifier: MIT */
/* ckpt - checkpoints: Hugging Face directories with an optimizer/ beside.
 *
 * DIR/step-00000100/ holds config.json, the files of the tokenizer and others
 * beside the weights of the model, and model.safetensors, or shards of limited
 * size with model.safetensors.index.json. Its bytes do not depend on the ranks
 * that save it. Its optimizer/ holds the moments, under the same names, and the
 * counters of the trainer. generator/ holds config.json and weights of a
 * generator behind the language model, and connector.safetensors; its moments
 * are with the others. checksums.xxh3 lists the checksums of all these files.
 * The directory is written as step-00000100.tmp, synced, and renamed: a
 * directory without .tmp is complete. DIR/latest is a symbolic link to the
 * newest.
 *
 * Of a model with adapters these alone are saved, as PEFT does:
 * adapter_model.safetensors and adapter_config.json are in place of
 * model.safetensors and config.json, and nothing is copied. The base stays
 * where it is; the state has its checksum.
 *
 * The weights have the element type of the run, or another one that is asked
 * for. F32 and F64 weights of such a run are the master weights; optimizer/ has
 * no second copy of them. If the files have narrower weights, as the files of a
 * BF16 run do, optimizer/ has the master weights too. */
#ifndef PP_RUN_CHECKPOINT_CKPT_H
#define PP_RUN_CHECKPOINT_CKPT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/group.h"
#include "comm/comm.h"
#include "run/parameters/parameters.h"
#include "run/settings/settings.h"

struct pp_ckpt {
    const char *dir;
    struct pp_comm *comm;
    const struct pp_model *model;
    struct pp_parameters *params; /* this rank's */
    /* The ranks that may exchange what they write, in PP_DIRECTION_DATA: the
     * ranks of this rank's row; or its tensor-parallel ranks, and in
     * PP_DIRECTION_WEIGHTS the ranks that hold the same weights. And device
     * memory for that, which is not in use during a save. n or room is 0: none.
     */
    struct pp_group group, owners;
    void *room;
    size_t room_bytes;
    const char *source; /* copy what is beside the weights of this model: its
                           directory or config.json; or NULL */
    const char *config_text;      /* contents of config.json, or of adapters'
                                     adapter_config.json */
    const char *generator_config; /* and of a generator's; or NULL */
    int keep;                     /* newest checkpoints to keep; 0: all */
    size_t shard_size; /* most bytes of tensors in a file; a larger tensor
a file of its own */
    size_t save_bytes; /* of an element of the weights in files; 0: as in
                          the run */
    /* Called by every rank, with end, before the checkpoint is complete: what
     * must not fail first (pp_job.check_files). Another thread may call it. May
     * be NULL. */
    int (*check)(void *ctx, bool end, struct pp_err *err);
    void *ctx;
    bool weights_only; /* without optimizer/: no checkpoint to resume, but
                          a version of the weights for other programs */
};

/* The usual shard size: Hugging Face's "5GB". */
#define PP_CKPT_SHARD_SIZE ((size_t)5000000000)

/* The counters of the trainer and the settings that its moments depend on,
 * which are tensors in optimizer/state.safetensors; and the settings of the
 * objective, routers and losses, which are the text optimizer/settings. */
struct pp_ckpt_state {
    int64_t step;              /* optimizer steps done */
    int64_t microbatches;      /* consumed since the start */
    int64_t step_microbatches; /* of one step: all passes, on all ranks */
    uint64_t data_checksum;
    int64_t optimizer;          /* enum pp_optimizer */
    double betas[2];            /* AdamW's */
    double lr;                  /* peak learning rate */
    int64_t epoch_microbatches; /* of one epoch, with empty microbatches so that
                                   it ends with a step */
    uint64_t base_checksum; /* of the base of adapters; 0: random, or none */
    char settings[PP_SETTINGS_LINES]; /* of pp_settings_write */
};

/* Reads the files that a checkpoint copies from source, a model's directory or
 * its config.json, so that a run finds out before its first step if it cannot.
 * They are all regular files of the directory but weights, indexes of weights
 * and hidden files; of the folder of a config.json, the files that transformers
 * looks for; and the files of additional_chat_templates/ in either. */
int pp_ckpt_check_source(const char *source, struct pp_err *err) PP_MUST_USE;

/* Saves a checkpoint. Collective: every rank writes its tensors, rank 0 writes
 * the rest and renames the directory after all ranks have synced. Replaces a
 * checkpoint of the same step as a whole, and removes the step-N.tmp that
 * killed runs of ours left. On failure it keeps the earlier checkpoints,
 * removes the .tmp directory, and every rank fails with the message of the rank
 * that failed. */
int pp_ckpt_save(const struct pp_ckpt *c, const struct pp_ckpt_state *s,
                 struct pp_err *err) PP_MUST_USE;

/* Finds the newest complete checkpoint in dir: the one that latest points to,
 * or else that of the highest step. *path is malloc'ed, or NULL if there is
 * none (dir may be missing). dir may also be a checkpoint itself. */
int pp_ckpt_find(const char *dir, char **path, struct pp_err *err) PP_MUST_USE;

/* Finds the complete checkpoint before the one at path, in the same directory.
 * *before is malloc'ed, or NULL if there is none. */
int pp_ckpt_find_before(const char *path, char **before,
                        struct pp_err *err) PP_MUST_USE;

/* Returns whether dir has a complete checkpoint of this step. */
bool pp_ckpt_exists(const char *dir, int64_t step);

/* Compares every n_parts-th file of a checkpoint, from number `part` on, with
 * its list of checksums. Fails with PP_EXIT_INPUT and the name of a file that
 * is damaged or missing. With `only` it compares files whose name begins like
 * this, of any directory with weights: no list is then no error. */
int pp_ckpt_verify(const char *path, const char *only, int part, int n_parts,
                   struct pp_err *err) PP_MUST_USE;

/* Reads the state alone; reads the weights of this rank, and the moments if p
 * has them. A split can load what any other split saved. Fails with
 * PP_EXIT_INPUT if a tensor is missing or has another shape. */
int pp_ckpt_state_read(const char *path, struct pp_ckpt_state *s,
                       struct pp_err *err) PP_MUST_USE;
int pp_ckpt_load(const char *path, struct pp_parameters *p,
                 struct pp_err *err) PP_MUST_USE;

/* Writes the gradients of all ranks to one safetensors file: Hugging Face
 * names, F32 or of an fp64 run F64, tied weights once. Collective; rank 0
 * writes. */
int pp_ckpt_dump_grads(const char *path, struct pp_comm *comm,
                       const struct pp_parameters *p,
                       struct pp_err *err) PP_MUST_USE;

#endif
