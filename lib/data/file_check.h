/* SPDX-License-Identifier: MIT */
/* file_check - compares mapped files with their checksums: at once, or in a
 * thread beside other work. */
#ifndef PP_DATA_FILE_CHECK_H
#define PP_DATA_FILE_CHECK_H

#include <stdbool.h>
#include <stddef.h>

#include "base/checksum.h"
#include "base/err.h"

/* A file that pp_file_map mapped, and the checksum that it must have. */
struct pp_file_check {
    char *path;       /* for messages */
    const void *data; /* borrowed */
    size_t bytes;
    uint64_t checksum;
};

/* A list of files. A zeroed struct is empty. */
struct pp_file_checks {
    struct pp_file_check *at;
    size_t n, capacity;
};

/* Appends DIR/NAME, or NAME if dir is NULL. */
int pp_file_checks_add(struct pp_file_checks *c, const char *dir,
                       const char *name, const void *data, size_t bytes,
                       uint64_t checksum, struct pp_err *err) PP_MUST_USE;

/* Maps one file and compares it likewise. */
int pp_file_check_path(const char *path, uint64_t checksum,
                       struct pp_err *err) PP_MUST_USE;

/* Returns the bytes of all files. */
size_t pp_file_checks_bytes(const struct pp_file_checks *c);

/* Reads all files. Fails with PP_EXIT_INPUT and its name at the first that has
 * another checksum. */
int pp_file_checks_run(const struct pp_file_checks *c,
                       struct pp_err *err) PP_MUST_USE;

void pp_file_checks_finish(struct pp_file_checks *c);

/* A check in a thread. It runs only while a processor is idle, until somebody
 * waits for it. */
struct pp_background_check;

/* Takes the contents of c, also on failure. The files must stay mapped until
 * pp_background_check_destroy. */
int pp_background_check_start(struct pp_file_checks *c,
                              struct pp_background_check **out,
                              struct pp_err *err) PP_MUST_USE;

/* Returns whether a file was found that has another checksum. Does not wait.
 * Any thread may call it. */
bool pp_background_check_failed(const struct pp_background_check *b);

/* Waits until all files are read. Fails like pp_file_checks_run. Any thread may
 * call it. */
int pp_background_check_wait(struct pp_background_check *b,
                             struct pp_err *err) PP_MUST_USE;

/* Ends the thread, even if it has not read all files. Accepts NULL. */
void pp_background_check_destroy(struct pp_background_check *b);

#endif
