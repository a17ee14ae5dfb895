/* SPDX-License-Identifier: MIT */
/* ckpt_files - what a checkpoint does to the file system, and the names of its
 * directories. Knows nothing of tensors. */
#ifndef PP_RUN_CHECKPOINT_CKPT_FILES_H
#define PP_RUN_CHECKPOINT_CKPT_FILES_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define PP_PATH_TEXT 4096

/* Formats a path; too long a one is PP_EXIT_SYSTEM. */
int pp_path(char buf[PP_PATH_TEXT], struct pp_err *err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4))) PP_MUST_USE;

/* Makes the directory and those above it. It may be there. */
int pp_dir_make(const char *path, struct pp_err *err) PP_MUST_USE;

/* Removes a file or a directory with all that it holds. It may be missing. */
int pp_dir_remove(const char *path, struct pp_err *err) PP_MUST_USE;

/* Creates a file of these bytes, on the disk on return. */
int pp_file_write(const char *path, const void *data, size_t bytes,
                  struct pp_err *err) PP_MUST_USE;

/* The directory of a step: "step-00000100". */
#define PP_CKPT_NAME "step-%08" PRId64

/* The complete checkpoints in dir, ascending, malloc'ed. A missing dir has
 * none. */
int pp_ckpt_list(const char *dir, int64_t **steps, size_t *n,
                 struct pp_err *err) PP_MUST_USE;

/* Where dir/latest points, or -1 when that is no complete checkpoint. */
int64_t pp_ckpt_latest(const char *dir);

/* Removes what killed runs left in dir: step-*.tmp. */
int pp_ckpt_sweep(const char *dir, struct pp_err *err) PP_MUST_USE;

/* Renames the finished directory tmp to the step's name, replacing an earlier
 * one whole, and lets latest point to it. */
int pp_ckpt_commit(const char *dir, const char *tmp, int64_t step,
                   struct pp_err *err) PP_MUST_USE;

/* Removes all but the keep newest checkpoints. The one of that step stays and
 * counts: a run that began anew writes smaller numbers than the old ones. */
int pp_ckpt_prune(const char *dir, int64_t step, int keep,
                  struct pp_err *err) PP_MUST_USE;

#endif
