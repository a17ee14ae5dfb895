/* SPDX-License-Identifier: MIT */
/* ckpt - finds and reads checkpoints. */
#include "run/checkpoint/ckpt.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "data/tensors/safetensors.h"
#include "run/checkpoint/files.h"
#include "run/checkpoint/shards.h"

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

/* Adds the weights of a generator, if the checkpoint has one. */
static int add_generator(const char *path, struct pp_tensors *t,
                         struct pp_err *err)
{
    char dir[PP_PATH_TEXT], connector[PP_PATH_TEXT];
    if (pp_path(dir, err, "%s/generator", path) ||
        pp_path(connector, err, "%s/connector.safetensors", dir))
        return -1;
    if (!pp_file_is_dir(dir))
        return 0;
    return pp_tensors_add(t, dir, PP_GENERATOR_PREFIX, err) ||
                   pp_tensors_add(t, connector,
                                  PP_GENERATOR_PREFIX PP_CONNECTOR_PREFIX, err)
               ? -1
               : 0;
}

/* Reads the files of one block into a block. */
static int load_block(const char *path, enum pp_weights_block from,
                      struct pp_parameters *p, enum pp_weights_block block,
                      struct pp_err *err)
{
    const char *stem =
        from == PP_BLOCK_W && p->adapts ? PP_ADAPTER_STEM : pp_ckpt_stems[from];
    char full[PP_PATH_TEXT];
    struct pp_tensors *t;
    if (pp_path(full, err, "%s/%s", path, stem) || pp_shard_open(full, &t, err))
        return -1;
    int rc = 0;
    if (from == PP_BLOCK_W)
        rc = add_generator(path, t, err);
    if (rc == 0)
        rc = pp_weights_read(p, block, t, err);
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
    /* Training continues from the master weights and rounds them, also on a
     * rank that has no gradients, as all of its tensors are frozen. */
    enum pp_weights_block weights =
        has_master && p->wanted[PP_BLOCK_G] ? PP_BLOCK_MASTER : PP_BLOCK_W;
    /* They may lack frozen tensors. */
    if ((weights == PP_BLOCK_MASTER && has_frozen(p) &&
         load_block(path, PP_BLOCK_W, p, PP_BLOCK_W, err)) ||
        load_block(path, weights, p, PP_BLOCK_W, err))
        return -1;
    for (enum pp_weights_block b = PP_BLOCK_G; b <= PP_BLOCK_V; b++)
        if (pp_ckpt_stems[b] && p->blocks[b] && load_block(path, b, p, b, err))
            return -1;
    return 0;
}
