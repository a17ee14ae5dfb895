/* SPDX-License-Identifier: MIT */
/* save - prepares the directories of --save and --stream-weights, and the
 * configuration of what is written there. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "manifest/adapter_config.h"
#include "manifest/config_json.h"
#include "model/precision.h"
#include "pprun.h"
#include "run/checkpoint/ckpt.h"
#include "run/checkpoint/merge.h"
#include "run/checkpoint/files.h"

/* Locks a directory of checkpoints, because a second run, perhaps one that a
 * scheduler left behind, would remove and replace the checkpoints of the first.
 * The lock ends with the process. */
static int lock_directory(const char *dir, int *lock, struct pp_err *err)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return pp_fail_errno(err, "%s", dir);
    *lock = fd;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
        return 0; /* continue on a file system without locks */
    return pp_fail(err, PP_EXIT_SYSTEM,
                   "%s: another run is writing checkpoints here", dir);
}

/* Returns the type of the weights in checkpoints. */
static const struct pp_precision *saved_precision(const struct runner *p)
{
    const struct pp_precision *model = pp_precision_find(p->model.dtype);
    int dtype = pprun_of(p)->options.save_dtype;
    switch (dtype) {
    case PPRUN_SAVE_RUN:
        return &pp_precisions[p->options.dtype];
    case PPRUN_SAVE_MODEL:
        return model ? model : &pp_precisions[RUNNER_FP32];
    default:
        return &pp_precisions[dtype - PPRUN_SAVE_FP32];
    }
}

/* Makes a directory that the run writes to, if it is missing. */
static int prepare_directory(struct runner *p, const char *dir, int *lock)
{
    struct pp_err *err = &p->tool->err;
    if (p->rank == 0 && mkdir(dir, 0777) != 0 && errno != EEXIST)
        return pp_fail_errno(err, "%s", dir);
    if (!pp_file_is_dir(dir))
        return pp_fail(err, PP_EXIT_INPUT, "%s: is not a directory", dir);
    if (access(dir, W_OK | X_OK) != 0)
        return pp_fail_errno(err, "%s", dir);
    return p->rank == 0 &&
                   (lock_directory(dir, lock, err) || pp_ckpt_sweep(dir, err))
               ? -1
               : 0;
}

/* Rank 0 alone looks where the weights go. */
static int prepare_stream(struct runner *p)
{
    const char *path = p->job.stream.path;
    struct stat st;
    if (!path || p->rank != 0)
        return 0;
    if (stat(path, &st) == 0 && (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode)))
        return 0;
    p->job.stream.is_dir = true;
    return prepare_directory(p, path, &pprun_of(p)->stream_lock);
}

int pprun_prepare_save(struct runner *p)
{
    struct pp_err *err = &p->tool->err;
    struct pprun *own = pprun_of(p);
    const char *source = p->manifest.model.source, *save = p->job.save;
    if (!save && !p->job.stream.path)
        return 0;
    if ((save && prepare_directory(p, save, &own->save_lock)) ||
        prepare_stream(p))
        return -1;
    const struct pp_precision *saved = saved_precision(p);
    if (saved != &pp_precisions[p->options.dtype])
        p->job.save_bytes = saved->element_bytes;
    if ((p->model.lora
             ? pp_adapter_config_text(&p->model, source, &own->config_text, err)
             : pp_config_text(source, saved->hugging_face, &own->config_text,
                              err)) ||
        (p->model.generator &&
         pp_config_text(
             p->manifest.components[p->manifest.n_components - 1].source,
             saved->hugging_face, &own->generator_config, err)))
        return -1;
    if (p->rank == 0 && pp_ckpt_check_source(source, err))
        return -1;
    p->job.config_text = own->config_text;
    p->job.generator_config = own->generator_config;
    p->job.model_source = source;
    return 0;
}

int pprun_merge(struct runner *p, const char *manifest)
{
    struct pp_err *err = &p->tool->err;
    if (runner_open_weights(p, manifest))
        return -1;
    const char *source = p->manifest.model.source;
    size_t bytes = pp_dtype_bytes(pp_merge_dtype(&p->model, p->weights));
    const struct pp_precision *type = bytes == 8 ? &pp_precisions[RUNNER_FP64]
                                      : bytes == 2
                                          ? &pp_precisions[RUNNER_BF16]
                                          : &pp_precisions[RUNNER_FP32];
    return pp_config_text(source, type->hugging_face, &pprun_of(p)->config_text,
                          err) ||
                   pp_merge(pprun_of(p)->options.merge, &p->model, p->weights,
                            pprun_of(p)->config_text, source, err)
               ? -1
               : 0;
}

int pprun_spare_checkpoints(struct runner *p)
{
    const char *save = p->job.save;
    char *there = NULL;
    if (!save || p->job.resume || p->rank != 0)
        return 0;
    int rc = pp_ckpt_find(save, &there, &p->tool->err);
    if (there)
        rc = pp_fail(&p->tool->err, PP_EXIT_INPUT,
                     "--save: '%s' exists: continue from it with --resume %s, "
                     "or save elsewhere",
                     there, save);
    free(there);
    return rc;
}
