/* SPDX-License-Identifier: MIT */
/* file - whole files: mapped, read from a stream, synced to disk, and outputs
 * that replace a file only when they are complete. */
#ifndef PP_BASE_FILE_H
#define PP_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "base/err.h"

/* Opens a regular file to read, and fills in *st. Returns the descriptor, or
 * -1: PP_EXIT_INPUT for a file of another type, which is not waited for. The
 * message begins with the path. */
int pp_file_open(const char *path, struct stat *st,
                 struct pp_err *err) PP_MUST_USE;

/* Maps a regular file read-only. An empty file gives a valid pointer and 0
 * bytes. A missing or unreadable file is PP_EXIT_INPUT, another failure
 * PP_EXIT_SYSTEM; the message begins with the path. */
int pp_file_map(const char *path, const void **data, size_t *bytes,
                struct pp_err *err) PP_MUST_USE;

/* Does nothing if data is NULL. */
void pp_file_unmap(const void *data, size_t bytes);

bool pp_file_exists(const char *path);
bool pp_file_is_dir(const char *path);

/* The most bytes of a document or of a line of text. A stream may have no end:
 * readers of text stop at the first byte that cannot belong, or here. */
#define PP_TEXT_BYTES ((size_t)1 << 30)

/* Reads at most bytes bytes, as soon as there are some. Returns 0 at the end,
 * or -1 with errno. Nothing else may have read the stream. */
ssize_t pp_file_next(FILE *f, void *data, size_t bytes);

/* Fails with PP_EXIT_INPUT, because standard input has no bytes. */
int pp_file_fail_empty(const char *name, struct pp_err *err);

/* Reads a stream to its end. *text has *n bytes and a NUL, and belongs to the
 * caller, who frees it, also after a failure. Fails at a zero byte, at more
 * than PP_TEXT_BYTES and at more than most_lines lines, and if standard input
 * is empty. The message begins with the name. */
int pp_file_read_text(FILE *f, const char *name, size_t most_lines, char **text,
                      size_t *n, struct pp_err *err) PP_MUST_USE;

/* Reads a stream by lines. Set f and name, and zero the rest. */
struct pp_lines {
    FILE *f;
    const char *name;
    bool keep_zeros; /* else a line ends behind its first zero byte */
    bool ended;
    char *text;
    size_t room, at, end;
    size_t n; /* lines read */
};

/* Returns 1 with the next line, 0 at the end, or -1. *line has *n bytes without
 * the newline and then a NUL, and is valid until the next call. A line is at
 * most PP_TEXT_BYTES long, and standard input has one. The message begins with
 * the name. See pp_fail_read for the status of a failed read. */
int pp_lines_next(struct pp_lines *l, char **line, size_t *n,
                  struct pp_err *err) PP_MUST_USE;

void pp_lines_finish(struct pp_lines *l);

/* Calls fsync(2) on a file or a directory, so that it survives a power
 * failure. */
int pp_file_sync(const char *path, struct pp_err *err) PP_MUST_USE;

/* A file or directory PATH.RANDOM.tmp beside its place PATH. It is new: no
 * link or file of that name is followed or overwritten. Its owner holds a lock
 * on it, which ends with the process, so that the next run with the same PATH
 * tells the remains of a killed run from the work of a live one. On a file
 * system without flock(2), remains are never removed. */
struct pp_tmp {
    char *path; /* NULL if there is none */
    int lock;   /* an open descriptor of it; valid if path is not NULL */
};

/* Removes the remains of killed runs, then makes and locks the file. If
 * remove_dir is not NULL it makes a directory, and calls remove_dir for each
 * directory that remained. The message of a failure begins with path. */
int pp_tmp_make(struct pp_tmp *t, const char *path,
                void (*remove_dir)(const char *dir),
                struct pp_err *err) PP_MUST_USE;

/* Unlocks it. The caller has renamed or removed it. */
void pp_tmp_finish(struct pp_tmp *t);

/* An output file. A device or a pipe cannot be replaced: it is written
 * directly, and tmp.path is NULL. Otherwise the stream writes tmp. A zeroed
 * struct is closed. */
struct pp_output {
    FILE *f;
    const char *path; /* borrowed until commit or abort */
    struct pp_tmp tmp;
};

int pp_output_open(struct pp_output *o, const char *path,
                   struct pp_err *err) PP_MUST_USE;

/* Fails if a file of that path cannot be made now, or if its place is taken by
 * a FIFO or a socket, which waits for a reader. Does not open what is no file.
 */
int pp_output_check(const char *path, struct pp_err *err) PP_MUST_USE;

/* Closes the stream and renames the file to its place. If a write failed, it
 * aborts, and the file in that place stays as it was. */
int pp_output_commit(struct pp_output *o, struct pp_err *err) PP_MUST_USE;

/* Closes the stream and removes the file. */
void pp_output_abort(struct pp_output *o);

#endif
