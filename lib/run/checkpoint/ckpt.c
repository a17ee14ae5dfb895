/* SPDX-License-Identifier: MIT */
/* ckpt - the order in which ranks write a checkpoint.
 *
 * Every step that can fail ends in an agreement, so that no rank goes on
 * alone, and the rename comes when all have synced. */
#include "run/checkpoint/ckpt.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "data/safetensors.h"
#include "run/checkpoint/ckpt_files.h"
#include "run/checkpoint/ckpt_shards.h"
#include "run/checkpoint/ckpt_state.h"

/* What transformers looks for beside weights and config.json. */
static const char *const companions[] = {
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "added_tokens.json",
    "chat_template.jinja",
    "generation_config.json",
};

static int copy_companions(const char *source, const char *to,
                           struct pp_err *err)
{
    char from_path[PP_PATH_TEXT], to_path[PP_PATH_TEXT];
    for (size_t i = 0; i < sizeof companions / sizeof *companions; i++) {
        const void *data;
        size_t bytes;
        if (pp_path(from_path, err, "%s/%s", source, companions[i]) ||
            pp_path(to_path, err, "%s/%s", to, companions[i]))
            return -1;
        if (!pp_file_exists(from_path))
            continue;
        if (pp_file_map(from_path, &data, &bytes, err))
            return -1;
        int rc = pp_file_write(to_path, data, bytes, err);
        pp_file_unmap(data, bytes);
        if (rc)
            return -1;
    }
    return 0;
}

/* Rank 0's. */
static int make_directories(const char *dir, const char *tmp,
                            struct pp_err *err)
{
    char optimizer[PP_PATH_TEXT];
    if (pp_path(optimizer, err, "%s/optimizer", tmp) || pp_dir_make(dir, err) ||
        pp_ckpt_sweep(dir, err))
        return -1;
    return pp_dir_make(optimizer, err);
}

static int write_shards(const struct pp_ckpt *c, const char *tmp,
                        const struct pp_shard_map *map, struct pp_err *err)
{
    static const char *const stems[] = PP_CKPT_STEMS;
    char stem[PP_PATH_TEXT];
    for (enum pp_weights_block b = PP_BLOCK_W; b < PP_N_BLOCKS; b++) {
        if (!stems[b] || !c->params->blocks[b])
            continue;
        if (pp_path(stem, err, "%s/%s", tmp, stems[b]) ||
            pp_shard_write(stem, map, c->params, b, err))
            return -1;
        if (c->comm->rank == 0 &&
            pp_shard_write_index(stem, map, pp_parameters_bytes(c->params, b),
                                 err))
            return -1;
    }
    return 0;
}

/* Rank 0's: everything but tensors, and the directories' own entries. */
static int write_rest(const struct pp_ckpt *c, const struct pp_ckpt_state *s,
                      const char *tmp, struct pp_err *err)
{
    char path[PP_PATH_TEXT];
    if (pp_path(path, err, "%s/config.json", tmp) ||
        pp_file_write(path, c->config_text, strlen(c->config_text), err))
        return -1;
    if (c->source && copy_companions(c->source, tmp, err))
        return -1;
    return pp_ckpt_state_write(tmp, s, err);
}

static int put_in_place(const struct pp_ckpt *c, const struct pp_ckpt_state *s,
                        const char *tmp, struct pp_err *err)
{
    char optimizer[PP_PATH_TEXT];
    if (pp_path(optimizer, err, "%s/optimizer", tmp) ||
        pp_file_sync(optimizer, err) || pp_file_sync(tmp, err) ||
        pp_ckpt_commit(c->dir, tmp, s->step, err))
        return -1;
    return pp_ckpt_prune(c->dir, s->step, c->keep, err);
}

/* The steps, each with an agreement. */
static int save(const struct pp_ckpt *c, const struct pp_ckpt_state *s,
                const char *tmp, struct pp_shard_map *map, struct pp_err *err)
{
    bool first = c->comm->rank == 0;
    int rc = 0;
    if (first)
        rc = make_directories(c->dir, tmp, err);
    if (pp_agree(c->comm, rc, err) ||
        pp_shard_map_gather(map, c->comm, c->params, err))
        return -1;
    rc = write_shards(c, tmp, map, err);
    if (rc == 0 && first)
        rc = write_rest(c, s, tmp, err);
    if (pp_agree(c->comm, rc, err))
        return -1;
    if (first)
        rc = put_in_place(c, s, tmp, err);
    return pp_agree(c->comm, rc, err);
}

/* What cannot be removed now is swept by the next save. */
static void discard(const char *dir)
{
    struct pp_err ignored = {0};
    int rc = pp_dir_remove(dir, &ignored);
    (void)rc;
}

int pp_ckpt_save(const struct pp_ckpt *c, const struct pp_ckpt_state *s,
                 struct pp_err *err)
{
    char tmp[PP_PATH_TEXT];
    struct pp_shard_map map = {0};
    /* The same on every rank, so no agreement is needed. */
    if (pp_path(tmp, err, "%s/" PP_CKPT_NAME ".tmp", c->dir, s->step))
        return -1;
    int rc = save(c, s, tmp, &map, err);
    if (rc && c->comm->rank == 0)
        discard(tmp);
    pp_shard_map_finish(&map);
    return rc;
}
