/* SPDX-License-Identifier: MIT */
/* ckpt_load - finds checkpoints and reads them. Every rank reads what it
 * trains by name from all shards, so it does not matter who wrote them. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "run/checkpoint/ckpt.h"
#include "run/checkpoint/ckpt_files.h"
#include "run/checkpoint/ckpt_shards.h"
#include "run/checkpoint/ckpt_state.h"

/* The step to resume from, or -1. */
static int find_step(const char *dir, int64_t *step, struct pp_err *err)
{
    int64_t *steps;
    size_t n;
    *step = pp_ckpt_latest(dir);
    if (*step >= 0)
        return 0;
    /* A run killed between the two renames has a checkpoint and no link. */
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
            return pp_fail(err, PP_EXIT_INPUT, "%s: not a directory", dir);
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

/* Whether there are master weights beside the weights. */
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

int pp_ckpt_load(const char *path, struct pp_parameters *p, struct pp_err *err)
{
    static const char *const stems[] = PP_CKPT_STEMS;
    bool has_master;
    if (find_master(path, stems[PP_BLOCK_MASTER], &has_master, err))
        return -1;
    /* What trains goes on from the master weights, and rounds those. */
    enum pp_weights_block weights =
        has_master && p->blocks[PP_BLOCK_G] ? PP_BLOCK_MASTER : PP_BLOCK_W;
    if (load_block(path, stems[weights], p, PP_BLOCK_W, err))
        return -1;
    for (enum pp_weights_block b = PP_BLOCK_G; b <= PP_BLOCK_V; b++)
        if (stems[b] && p->blocks[b] && load_block(path, stems[b], p, b, err))
            return -1;
    return 0;
}
