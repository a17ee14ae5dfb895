/* SPDX-License-Identifier: MIT */
/* file - whole files: mapped, read from a stream, synced to disk. */
#ifndef PP_BASE_FILE_H
#define PP_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/err.h"

/* Maps a regular file read-only. An empty file gives a valid pointer and 0
 * bytes. A missing or unreadable file is PP_EXIT_INPUT, another failure
 * PP_EXIT_SYSTEM; the message begins with the path. */
int pp_file_map(const char *path, const void **data, size_t *bytes,
                struct pp_err *err) PP_MUST_USE;

/* Does nothing if data is NULL. */
void pp_file_unmap(const void *data, size_t bytes);

bool pp_file_exists(const char *path);
bool pp_file_is_dir(const char *path);

/* Reads a stream to its end. *data holds *bytes bytes and belongs to the
 * caller, who frees it. The message begins with name. See pp_fail_read for the
 * status of a failed read. */
int pp_file_read_stream(FILE *f, const char *name, char **data, size_t *bytes,
                        struct pp_err *err) PP_MUST_USE;

/* Calls fsync(2) on a file or a directory, so that it survives a power
 * failure. */
int pp_file_sync(const char *path, struct pp_err *err) PP_MUST_USE;

#endif
