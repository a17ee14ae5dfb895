/* SPDX-License-Identifier: MIT */
/* ckpt - writes, finds and reads checkpoints.
 *
 * Every step of a save that can fail ends with an agreement of all ranks, so
 * that no rank continues alone. The rename comes after all ranks have synced.
 */
#include "run/checkpoint/ckpt.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/checksum.h"
#include "base/file.h"
#include "data/safetensors.h"
#include "run/checkpoint/ckpt_agree.h"
#include "run/checkpoint/ckpt_files.h"
#include "run/checkpoint/ckpt_shards.h"
#include "run/checkpoint/ckpt_sums.h"

/* Files that transformers looks for beside weights and config.json. */
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

/* Copies the companions of source and adds their checksums to sums, or only
 * reads them if to is NULL. */
static int copy_companions(const char *source, const char *to,
                           struct pp_ckpt_sums *sums, struct pp_err *err)
{
    char from_path[PP_PATH_TEXT], to_path[PP_PATH_TEXT];
    for (size_t i = 0; i < sizeof companions / sizeof *companions; i++) {
        uint64_t sum;
        if (pp_path(from_path, err, "%s/%s", source, companions[i]) ||
            pp_path(to_path, err, "%s/%s", to ? to : "", companions[i]))
            return -1;
        if (!pp_file_exists(from_path))
            continue;
        if (pp_file_copy(from_path, to ? to_path : NULL, &sum, err) ||
            (to && pp_ckpt_sums_add(sums, companions[i], sum, err)))
            return -1;
    }
    return 0;
}

int pp_ckpt_check_source(const char *source, struct pp_err *err)
{
    return copy_companions(source, NULL, NULL, err);
}

/* Called by rank 0 alone. */
static int make_directories(const struct pp_ckpt *c, const char *tmp,
                            int *owner, struct pp_err *err)
{
    char optimizer[PP_PATH_TEXT];
    if (pp_path(optimizer, err, "%s/optimizer", tmp) ||
        pp_ckpt_begin(c->dir, tmp, owner, err))
        return -1;
    return c->weights_only ? 0 : pp_dir_make(optimizer, err);
}

/* Writes the files of all tensors, and fills sums, at every rank: each file has
 * one owner, and the sum is 0 at the others. all has room for the sums of every
 * rank. */
static int write_shards(const struct pp_ckpt *c, const struct pp_shards *shards,
                        const char *tmp, uint64_t *sums, uint64_t *all,
                        struct pp_err *err)
{
    struct pp_comm *comm = c->comm;
    size_t n = (size_t)shards->n_files;
    if (pp_agree(comm, pp_shards_create(shards, tmp, err), err) ||
        pp_agree(comm, pp_shards_fill(shards, c->params, tmp, err), err) ||
        pp_agree(comm, pp_shards_sum(shards, tmp, sums, err), err) ||
        comm->ops->allgather(comm, sums, all, n * sizeof *sums, err))
        return -1;
    for (size_t i = 0; i < n * (size_t)comm->size; i++)
        sums[i % n] |= all[i];
    return 0;
}

/* Writes everything but shards. Called by rank 0 alone. */
static int write_rest(const struct pp_ckpt *c, const struct pp_ckpt_state *s,
                      const char *tmp, const struct pp_shards *shards,
                      const uint64_t *shard_sums, struct pp_err *err)
{
    char path[PP_PATH_TEXT];
    size_t n = strlen(c->config_text);
    struct pp_ckpt_sums sums = {0};
    int rc = -1;
    if (pp_path(path, err, "%s/config.json", tmp) ||
        pp_file_write(path, c->config_text, n, err) ||
        pp_ckpt_sums_add(&sums, "config.json",
                         pp_checksum_of(PP_CHECKSUM_XXH3, c->config_text, n),
                         err) ||
        (c->source && copy_companions(c->source, tmp, &sums, err)) ||
        pp_shards_write_indexes(shards, tmp, &sums, err))
        goto out;
    for (int i = 0; i < shards->n_files; i++)
        if (pp_ckpt_sums_add(&sums, pp_shards_at(shards, i).name, shard_sums[i],
                             err))
            goto out;
    if (c->weights_only || pp_ckpt_state_write(tmp, s, &sums, err) == 0)
        rc = pp_ckpt_sums_write(&sums, tmp, err);
out:
    pp_ckpt_sums_finish(&sums);
    return rc;
}

static int put_in_place(const struct pp_ckpt *c, const struct pp_ckpt_state *s,
                        const char *tmp, struct pp_err *err)
{
    char optimizer[PP_PATH_TEXT];
    if (pp_path(optimizer, err, "%s/optimizer", tmp) ||
        (!c->weights_only && pp_file_sync(optimizer, err)) ||
        pp_file_sync(tmp, err) || pp_ckpt_commit(c->dir, tmp, s->step, err))
        return -1;
    return pp_ckpt_prune(c->dir, s->step, c->keep, err);
}

/* Does the steps of a save, each with an agreement. */
static int save(const struct pp_ckpt *c, const struct pp_ckpt_state *s,
                const char *tmp, struct pp_shards *shards, int *owner,
                struct pp_err *err)
{
    bool first = c->comm->rank == 0;
    uint64_t *sums = NULL, *all = NULL;
    int rc = pp_shards_init(shards, c->model, c->params, c->shard_size,
                            c->save_bytes, err);
    if (rc == 0 && c->weights_only)
        pp_shards_keep_weights(shards);
    if (rc == 0) {
        size_t n = (size_t)shards->n_files;
        sums = pp_calloc(n, sizeof *sums, err);
        all = pp_calloc(n * (size_t)c->comm->size, sizeof *all, err);
        rc = sums && all ? 0 : -1;
    }
    if (first && rc == 0)
        rc = make_directories(c, tmp, owner, err);
    rc = pp_agree(c->comm, rc, err);
    if (rc == 0)
        rc = write_shards(c, shards, tmp, sums, all, err);
    if (rc == 0) {
        if (first && (write_rest(c, s, tmp, shards, sums, err) ||
                      put_in_place(c, s, tmp, err)))
            rc = -1;
        rc = pp_agree(c->comm, rc, err);
    }
    free(all);
    free(sums);
    return rc;
}

/* Removes the unfinished directory. If that fails, the next save removes it. */
static void discard(const char *dir)
{
    struct pp_err ignored = {0};
    int rc = pp_ckpt_discard(dir, &ignored);
    (void)rc;
}

int pp_ckpt_save(const struct pp_ckpt *c, const struct pp_ckpt_state *s,
                 struct pp_err *err)
{
    char tmp[PP_PATH_TEXT];
    struct pp_shards shards = {0};
    int owner = -1; /* rank 0's */
    /* This fails on every rank or on none: no agreement is needed. */
    if (pp_path(tmp, err, "%s/" PP_CKPT_NAME ".tmp", c->dir, s->step))
        return -1;
    int rc = save(c, s, tmp, &shards, &owner, err);
    if (rc && owner >= 0)
        discard(tmp);
    if (owner >= 0)
        close(owner);
    pp_shards_finish(&shards);
    return rc;
}

/* --- finding and reading --- */

/* Finds the step to resume from, or -1. */
static int find_step(const char *dir, int64_t *step, struct pp_err *err)
{
    int64_t *steps;
    size_t n;
    *step = pp_ckpt_latest(dir);
    if (*step >= 0)
        return 0;
    /* A run that was killed between the two renames has no link. */
    if (pp_ckpt_list(dir, &steps, &n, err))
        return -1;
    if (n > 0)
        *step = steps[n - 1];
    free(steps);
    return 0;
}

int pp_ckpt_find(const char *dir, char **path, struct pp_err *err)
{
    char found[PP_PATH_TEXT];
    int64_t step;
    *path = NULL;
    if (pp_path(found, err, "%s/optimizer", dir))
        return -1;
    if (pp_file_is_dir(found)) {
        if (pp_path(found, err, "%s", dir))
            return -1;
    } else {
        if (pp_file_exists(dir) && !pp_file_is_dir(dir))
            return pp_fail(err, PP_EXIT_INPUT, "%s: is not a directory", dir);
        if (find_step(dir, &step, err))
            return -1;
        if (step < 0)
            return 0;
        if (pp_path(found, err, "%s/" PP_CKPT_NAME, dir, step))
            return -1;
    }
    *path = strdup(found);
    if (!*path)
        return pp_fail(err, PP_EXIT_SYSTEM, "%s: out of memory", dir);
    return 0;
}

/* Returns the step of the checkpoint at path, or -1, and leaves the name of its
 * directory in dir. */
static int64_t split_path(const char *path, char dir[PP_PATH_TEXT])
{
    size_t n = strlen(path);
    snprintf(dir, PP_PATH_TEXT, "%s", path);
    while (n > 1 && n < PP_PATH_TEXT && dir[n - 1] == '/')
        dir[--n] = '\0';
    char *slash = strrchr(dir, '/');
    int64_t step = pp_ckpt_parse_name(slash ? slash + 1 : dir);
    if (slash)
        slash[slash == dir] = '\0';
    else
        strcpy(dir, ".");
    return step;
}

int pp_ckpt_find_before(const char *path, char **before, struct pp_err *err)
{
    char dir[PP_PATH_TEXT], found[PP_PATH_TEXT];
    int64_t *steps, step = -1, last = split_path(path, dir);
    size_t n;
    *before = NULL;
    if (last < 0) { /* a link, such as latest */
        char *real = realpath(path, NULL);
        last = real ? split_path(real, dir) : -1;
        free(real);
    }
    if (last < 0)
        return 0;
    if (pp_ckpt_list(dir, &steps, &n, err))
        return -1;
    for (size_t i = 0; i < n && steps[i] < last; i++)
        step = steps[i];
    free(steps);
    if (step < 0)
        return 0;
    if (pp_path(found, err, "%s/" PP_CKPT_NAME, dir, step))
        return -1;
    *before = strdup(found);
    return *before ? 0 : pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
}

bool pp_ckpt_exists(const char *dir, int64_t step)
{
    struct pp_err ignored = {0};
    int64_t *steps;
    size_t n;
    bool found = false;
    if (pp_ckpt_list(dir, &steps, &n, &ignored))
        return false;
    for (size_t i = 0; i < n; i++)
        found = found || steps[i] == step;
    free(steps);
    return found;
}

static int load_block(const char *path, const char *stem,
                      struct pp_parameters *p, enum pp_weights_block block,
                      struct pp_err *err)
{
    char full[PP_PATH_TEXT];
    struct pp_tensors *t;
    if (pp_path(full, err, "%s/%s", path, stem) || pp_shard_open(full, &t, err))
        return -1;
    int rc = pp_weights_read(p, block, t, err);
    if (rc)
        pp_fail_at(err, "%s: ", full);
    pp_tensors_close(t);
    return rc;
}

/* Finds out if there are master weights beside the weights. */
static int find_master(const char *path, const char *stem, bool *found,
                       struct pp_err *err)
{
    char one[PP_PATH_TEXT], index[PP_PATH_TEXT];
    if (pp_path(one, err, "%s/%s.safetensors", path, stem) ||
        pp_path(index, err, "%s.index.json", one))
        return -1;
    *found = pp_file_exists(one) || pp_file_exists(index);
    return 0;
}

static bool has_frozen(const struct pp_parameters *p)
{
    bool any = false;
    for (size_t i = 0; i < p->n; i++)
        any |= p->at[i].info.frozen;
    return any;
}

int pp_ckpt_load(const char *path, struct pp_parameters *p, struct pp_err *err)
{
    bool has_master;
    if (find_master(path, pp_ckpt_stems[PP_BLOCK_MASTER], &has_master, err))
        return -1;
    /* Training continues from the master weights and rounds them. */
    enum pp_weights_block weights =
        has_master && p->blocks[PP_BLOCK_G] ? PP_BLOCK_MASTER : PP_BLOCK_W;
    /* They may lack frozen tensors. */
    if ((weights == PP_BLOCK_MASTER && has_frozen(p) &&
         load_block(path, pp_ckpt_stems[PP_BLOCK_W], p, PP_BLOCK_W, err)) ||
        load_block(path, pp_ckpt_stems[weights], p, PP_BLOCK_W, err))
        return -1;
    for (enum pp_weights_block b = PP_BLOCK_G; b <= PP_BLOCK_V; b++)
        if (pp_ckpt_stems[b] && p->blocks[b] &&
            load_block(path, pp_ckpt_stems[b], p, b, err))
            return -1;
    return 0;
}
