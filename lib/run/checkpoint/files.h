/* SPDX-License-Identifier: MIT */
/* files - file system operations of a checkpoint, and the names of its
 * directories. It knows nothing of tensors. */
#ifndef PP_RUN_CHECKPOINT_FILES_H
#define PP_RUN_CHECKPOINT_FILES_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define PP_PATH_TEXT 4096

/* Formats a path. Fails with PP_EXIT_SYSTEM if it is too long. */
int pp_path(char buf[PP_PATH_TEXT], struct pp_err *err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4))) PP_MUST_USE;

/* Makes the directory and its parents. It may exist already. */
int pp_dir_make(const char *path, struct pp_err *err) PP_MUST_USE;

/* Removes a file, or a directory with its contents. It may be missing. */
int pp_dir_remove(const char *path, struct pp_err *err) PP_MUST_USE;

/* Copies a regular file with its mode and syncs the copy. Only reads it if to
 * is NULL. Fills in its XXH3. Does not wait for the writer of a FIFO. */
int pp_file_copy(const char *from, const char *to, uint64_t *checksum,
                 struct pp_err *err) PP_MUST_USE;

/* Creates a file with these bytes and syncs it. */
int pp_file_write(const char *path, const void *data, size_t bytes,
                  struct pp_err *err) PP_MUST_USE;

/* Writes all bytes at an offset of an open file. */
int pp_file_write_at(int fd, const char *path, const void *data, size_t bytes,
                     uint64_t offset, struct pp_err *err) PP_MUST_USE;

/* The directory of a step: "step-00000100". */
#define PP_CKPT_NAME "step-%08" PRId64

/* Returns the step that such a name says, or -1 for any other name. */
int64_t pp_ckpt_parse_name(const char *name);

/* Lists the steps of the complete checkpoints in dir, ascending, malloc'ed. A
 * missing dir has none. */
int pp_ckpt_list(const char *dir, int64_t **steps, size_t *n,
                 struct pp_err *err) PP_MUST_USE;

/* Returns the step that dir/latest points to, or -1 if that is not a complete
 * checkpoint. */
int64_t pp_ckpt_latest(const char *dir);

/* A step-N.tmp of ours holds a file "owner" with the host and the process that
 * made it. The process holds a lock on that file as long as it lives. Without
 * flock(2) every owner counts as dead. */

/* Removes every step-N.tmp in dir whose owner is dead, and what a killed commit
 * left in a step-N. A step-N.tmp without an owner file is not ours: it stays,
 * unless it is empty. */
int pp_ckpt_sweep(const char *dir, struct pp_err *err) PP_MUST_USE;

/* Makes dir and tmp, which is dir/step-N.tmp, after a sweep. *owner is a
 * descriptor that the caller closes after pp_ckpt_commit or pp_ckpt_discard;
 * it is -1 if this fails before tmp is ours. */
int pp_ckpt_begin(const char *dir, const char *tmp, int *owner,
                  struct pp_err *err) PP_MUST_USE;

/* Renames the finished directory tmp to the name of the step, replaces an
 * earlier one as a whole, and lets latest point to it. */
int pp_ckpt_commit(const char *dir, const char *tmp, int64_t step,
                   struct pp_err *err) PP_MUST_USE;

/* Removes a tmp of ours. The owner file goes last, so that a later sweep can
 * finish the work of a killed process. It may be missing. */
int pp_ckpt_discard(const char *tmp, struct pp_err *err) PP_MUST_USE;

/* Removes all checkpoints but the `keep` newest. That of `step` stays and
 * counts: a run that started again may write smaller numbers than the old ones.
 */
int pp_ckpt_prune(const char *dir, int64_t step, int keep,
                  struct pp_err *err) PP_MUST_USE;

#endif
