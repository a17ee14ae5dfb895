/* SPDX-License-Identifier: MIT */
/* ckpt_files - directories and files of checkpoints, written to the disk. */
#include "run/checkpoint/ckpt_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

int pp_path(char buf[PP_PATH_TEXT], struct pp_err *err, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(buf, PP_PATH_TEXT, fmt, ap);
    va_end(ap);
    if (n < 0 || n >= PP_PATH_TEXT)
        return pp_fail(err, PP_EXIT_SYSTEM, "%.80s...: the path is too long",
                       buf);
    return 0;
}

int pp_dir_make(const char *path, struct pp_err *err)
{
    char part[PP_PATH_TEXT];
    if (pp_path(part, err, "%s", path))
        return -1;
    for (char *p = part + 1; *p; p++) {
        if (*p != '/')
            continue;
        *p = '\0';
        mkdir(part, 0777); /* the last mkdir reports a failure */
        *p = '/';
    }
    if (mkdir(path, 0777) != 0 && !pp_file_is_dir(path))
        return pp_fail_errno(err, "%s: cannot make the directory", path);
    return 0;
}

static int remove_entry(const char *path, const struct stat *st, int type,
                        struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

int pp_dir_remove(const char *path, struct pp_err *err)
{
    if (nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS) != 0 &&
        errno != ENOENT)
        return pp_fail_errno(err, "%s: cannot remove", path);
    return 0;
}

static int write_all(int fd, const char *data, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = write(fd, data, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        data += n;
        bytes -= (size_t)n;
    }
    return fsync(fd);
}

int pp_file_write(const char *path, const void *data, size_t bytes,
                  struct pp_err *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return pp_fail_errno(err, "%s: cannot create", path);
    int rc = write_all(fd, data, bytes);
    if (rc != 0)
        pp_fail_errno(err, "%s: cannot write", path);
    if (close(fd) != 0)
        rc = pp_fail_errno(err, "%s: cannot close", path);
    return rc;
}

/* Returns the number in "step-00000100", or -1 for any other name. */
static int64_t parse_name(const char *name)
{
    char again[32];
    if (strncmp(name, "step-", 5) != 0)
        return -1;
    errno = 0;
    int64_t step = strtoll(name + 5, NULL, 10);
    snprintf(again, sizeof again, PP_CKPT_NAME, step);
    return errno == 0 && !strcmp(name, again) ? step : -1;
}

static bool is_leftover(const char *name)
{
    size_t n = strlen(name);
    return n > 9 && !strncmp(name, "step-", 5) && !strcmp(name + n - 4, ".tmp");
}

static int by_number(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

int pp_ckpt_list(const char *dir, int64_t **steps, size_t *n,
                 struct pp_err *err)
{
    int rc = -1;
    size_t room = 0;
    *steps = NULL;
    *n = 0;
    DIR *d = opendir(dir);
    if (!d && errno == ENOENT)
        return 0;
    if (!d)
        return pp_fail_errno(err, "%s", dir);
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        int64_t step = parse_name(e->d_name);
        if (step < 0)
            continue;
        if (*n == room) {
            room = room ? 2 * room : 16;
            int64_t *more = reallocarray(*steps, room, sizeof *more);
            if (!more) {
                pp_fail(err, PP_EXIT_SYSTEM, "%s: out of memory", dir);
                goto out;
            }
            *steps = more;
        }
        (*steps)[(*n)++] = step;
    }
    if (*n > 0)
        qsort(*steps, *n, sizeof **steps, by_number);
    rc = 0;
out:
    closedir(d);
    if (rc) {
        free(*steps);
        *steps = NULL;
    }
    return rc;
}

int64_t pp_ckpt_latest(const char *dir)
{
    struct pp_err ignored = {0};
    char link[PP_PATH_TEXT], name[64];
    if (pp_path(link, &ignored, "%s/latest", dir) || !pp_file_is_dir(link))
        return -1;
    ssize_t n = readlink(link, name, sizeof name - 1);
    if (n < 0)
        return -1;
    name[n] = '\0';
    return parse_name(name);
}

int pp_ckpt_sweep(const char *dir, struct pp_err *err)
{
    char path[PP_PATH_TEXT];
    int rc = 0;
    DIR *d = opendir(dir);
    if (!d)
        return pp_fail_errno(err, "%s", dir);
    for (struct dirent *e; rc == 0 && (e = readdir(d)) != NULL;)
        if (is_leftover(e->d_name))
            rc = pp_path(path, err, "%s/%s", dir, e->d_name) ||
                         pp_dir_remove(path, err)
                     ? -1
                     : 0;
    closedir(d);
    return rc;
}

/* Puts tmp in the place of an existing directory. If the file system can
 * exchange two names, there is a directory of that name at all times. */
static int replace(const char *dir, const char *tmp, const char *final,
                   struct pp_err *err)
{
    char old[PP_PATH_TEXT];
    if (renameat2(AT_FDCWD, tmp, AT_FDCWD, final, RENAME_EXCHANGE) == 0)
        return pp_file_sync(dir, err) ? -1 : pp_dir_remove(tmp, err);
    if (errno != EINVAL && errno != ENOSYS)
        return pp_fail_errno(err, "%s: cannot replace", final);
    if (pp_path(old, err, "%s.old.tmp", final))
        return -1;
    if (rename(final, old) != 0 || rename(tmp, final) != 0)
        return pp_fail_errno(err, "%s: cannot replace", final);
    return pp_file_sync(dir, err) ? -1 : pp_dir_remove(old, err);
}

static int point_latest(const char *dir, int64_t step, struct pp_err *err)
{
    char name[32], tmp[PP_PATH_TEXT], latest[PP_PATH_TEXT];
    snprintf(name, sizeof name, PP_CKPT_NAME, step);
    if (pp_path(tmp, err, "%s/latest.tmp", dir) ||
        pp_path(latest, err, "%s/latest", dir) || pp_dir_remove(tmp, err))
        return -1;
    if (symlink(name, tmp) != 0 || rename(tmp, latest) != 0)
        return pp_fail_errno(err, "%s: cannot point to '%s'", latest, name);
    return 0;
}

int pp_ckpt_commit(const char *dir, const char *tmp, int64_t step,
                   struct pp_err *err)
{
    char final[PP_PATH_TEXT];
    if (pp_path(final, err, "%s/" PP_CKPT_NAME, dir, step))
        return -1;
    if (pp_file_exists(final)) {
        if (replace(dir, tmp, final, err))
            return -1;
    } else if (rename(tmp, final) != 0) {
        return pp_fail_errno(err, "%s: cannot rename", tmp);
    }
    if (pp_file_sync(dir, err) || point_latest(dir, step, err))
        return -1;
    return pp_file_sync(dir, err);
}

/* Renames the directory first: it is not complete while it is removed. */
static int remove_step(const char *dir, int64_t step, struct pp_err *err)
{
    char path[PP_PATH_TEXT], tmp[PP_PATH_TEXT];
    if (pp_path(path, err, "%s/" PP_CKPT_NAME, dir, step) ||
        pp_path(tmp, err, "%s.tmp", path))
        return -1;
    if (rename(path, tmp) != 0)
        return pp_fail_errno(err, "%s: cannot remove", path);
    return pp_dir_remove(tmp, err);
}

int pp_ckpt_prune(const char *dir, int64_t step, int keep, struct pp_err *err)
{
    int64_t *steps;
    size_t n;
    int rc = 0;
    if (keep <= 0)
        return 0;
    if (pp_ckpt_list(dir, &steps, &n, err))
        return -1;
    size_t others = 1; /* kept so far, with that of step */
    for (size_t i = n; i-- > 0 && rc == 0;)
        if (steps[i] != step && others++ >= (size_t)keep)
            rc = remove_step(dir, steps[i], err);
    free(steps);
    return rc;
}
