/* SPDX-License-Identifier: MIT */
/* files - directories and files of checkpoints, written to the disk. */
#include "run/checkpoint/files.h"

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
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/checksum.h"
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
    return 0;
}

/* Copies the rest of one file to another, or reads it if out is -1. */
static int copy_bytes(int in, int out, const char *from, const char *to,
                      struct pp_checksum_sum *sum, struct pp_err *err)
{
    char data[1 << 14];
    for (;;) {
        ssize_t n = read(in, data, sizeof data);
        if (n == 0)
            break;
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return pp_fail_errno(err, "%s: cannot read", from);
        pp_checksum_add(sum, data, (size_t)n);
        if (out >= 0 && write_all(out, data, (size_t)n) != 0)
            return pp_fail_errno(err, "%s: cannot write", to);
    }
    if (out >= 0 && fsync(out) != 0)
        return pp_fail_errno(err, "%s: cannot write", to);
    return 0;
}

int pp_file_copy(const char *from, const char *to, uint64_t *checksum,
                 struct pp_err *err)
{
    struct stat st;
    struct pp_checksum_sum sum = {0};
    int in = pp_file_open(from, &st, err), out = -1, rc = -1;
    if (in < 0)
        return -1;
    if (pp_checksum_begin(&sum, err))
        goto out;
    if (to) {
        /* The umask may take bits away, which fchmod puts back. */
        mode_t mode = st.st_mode & 0777;
        out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
        if (out < 0 || fchmod(out, mode) != 0) {
            pp_fail_errno(err, "%s: cannot create", to);
            goto out;
        }
    }
    rc = copy_bytes(in, out, from, to, &sum, err);
    *checksum = pp_checksum_value(&sum);
out:
    pp_checksum_finish(&sum);
    close(in);
    if (out >= 0 && close(out) != 0 && rc == 0)
        rc = pp_fail_errno(err, "%s: cannot close", to);
    return rc;
}

int pp_file_write_at(int fd, const char *path, const void *data, size_t bytes,
                     uint64_t offset, struct pp_err *err)
{
    const size_t most = (size_t)1 << 30; /* what every kernel takes at once */
    for (const char *at = data; bytes > 0;) {
        ssize_t n = pwrite(fd, at, bytes < most ? bytes : most, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return pp_fail_errno(err, "%s: cannot write", path);
        at += n;
        offset += (uint64_t)n;
        bytes -= (size_t)n;
    }
    return 0;
}

int pp_file_write(const char *path, const void *data, size_t bytes,
                  struct pp_err *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return pp_fail_errno(err, "%s: cannot create", path);
    int rc = write_all(fd, data, bytes) != 0 ? -1 : fsync(fd);
    if (rc != 0)
        pp_fail_errno(err, "%s: cannot write", path);
    if (close(fd) != 0)
        rc = pp_fail_errno(err, "%s: cannot close", path);
    return rc;
}

int64_t pp_ckpt_parse_name(const char *name)
{
    char again[32];
    if (strncmp(name, "step-", 5) != 0)
        return -1;
    errno = 0;
    int64_t step = strtoll(name + 5, NULL, 10);
    snprintf(again, sizeof again, PP_CKPT_NAME, step);
    return errno == 0 && !strcmp(name, again) ? step : -1;
}

/* Returns true for "step-00000100.tmp" and "step-00000100.old.tmp". */
static bool is_unfinished(const char *name)
{
    char stem[32];
    size_t n = strlen(name);
    if (n < 4 || n >= sizeof stem || strcmp(name + n - 4, ".tmp") != 0)
        return false;
    n -= n > 8 && !strncmp(name + n - 8, ".old", 4) ? 8 : 4;
    snprintf(stem, sizeof stem, "%.*s", (int)n, name);
    return pp_ckpt_parse_name(stem) >= 0;
}

static int by_number(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

int pp_ckpt_list(const char *dir, int64_t **steps, size_t *n,
                 struct pp_err *err)
{
    int rc = 0;
    size_t room = 0;
    *steps = NULL;
    *n = 0;
    DIR *d = opendir(dir);
    if (!d && errno == ENOENT)
        return 0;
    if (!d)
        return pp_fail_errno(err, "%s", dir);
    for (struct dirent *e; rc == 0 && (e = readdir(d)) != NULL;) {
        int64_t step = pp_ckpt_parse_name(e->d_name);
        if (step < 0)
            continue;
        rc = pp_try_array_reserve(steps, &room, *n + 1, sizeof **steps, err);
        if (rc == 0)
            (*steps)[(*n)++] = step;
    }
    closedir(d);
    if (rc) {
        free(*steps);
        *steps = NULL;
        return pp_fail_at(err, "%s: ", dir);
    }
    if (*n > 0)
        qsort(*steps, *n, sizeof **steps, by_number);
    return 0;
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
    return pp_ckpt_parse_name(name);
}

/* --- owners --- */

#define OWNER "owner"
static const char owner_magic[] = "pptools ";

/* Makes this process the owner of a directory. The disk has its name before
 * anything else changes there: after a power cut, what is left is known as
 * ours. */
static int claim(const char *path, int *owner, struct pp_err *err)
{
    char file[PP_PATH_TEXT], host[256] = "";
    *owner = -1;
    if (pp_path(file, err, "%s/" OWNER, path))
        return -1;
    int fd = open(file, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0)
        return pp_fail_errno(err, "%s: cannot create", file);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        close(fd);
        return pp_fail(err, PP_EXIT_SYSTEM, "%s: another run is writing it",
                       path);
    }
    gethostname(host, sizeof host - 1);
    int rc = 0;
    if (ftruncate(fd, 0) != 0 ||
        dprintf(fd, "%s%s %ld\n", owner_magic, host, (long)getpid()) < 0 ||
        fsync(fd) != 0)
        rc = pp_fail_errno(err, "%s: cannot write", file);
    if (rc || pp_file_sync(path, err)) {
        unlink(file);
        close(fd);
        return -1;
    }
    *owner = fd;
    return 0;
}

/* Locks the owner file of a directory of ours whose owner is dead. Returns a
 * descriptor, or -1. A process that was killed before it wrote its name leaves
 * an empty file; after a power cut it may hold a part, or zeros. */
static int lock_dead(const char *path)
{
    char magic[sizeof owner_magic] = "";
    int dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0)
        return -1;
    int fd = openat(dir, OWNER, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    close(dir);
    if (fd < 0)
        return -1;
    ssize_t n = read(fd, magic, sizeof magic - 1);
    if (n >= 0 && !strncmp(magic, owner_magic, strlen(magic)) &&
        (flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK))
        return fd;
    close(fd);
    return -1;
}

int pp_ckpt_discard(const char *tmp, struct pp_err *err)
{
    char path[PP_PATH_TEXT];
    int rc = 0;
    DIR *d = opendir(tmp);
    if (!d)
        return errno == ENOENT ? 0 : pp_fail_errno(err, "%s", tmp);
    for (struct dirent *e; rc == 0 && (e = readdir(d)) != NULL;)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
            strcmp(e->d_name, OWNER) != 0)
            rc = pp_path(path, err, "%s/%s", tmp, e->d_name) ||
                         pp_dir_remove(path, err)
                     ? -1
                     : 0;
    closedir(d);
    return rc || pp_file_sync(tmp, err) ? -1 : pp_dir_remove(tmp, err);
}

/* Removes what a killed commit left in a complete checkpoint. */
static void tidy(const char *path)
{
    int dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;
    if (fstatat(dir, "latest", &st, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISLNK(st.st_mode))
        unlinkat(dir, "latest", 0);
    unlinkat(dir, OWNER, 0);
    close(dir);
}

static int sweep_one(const char *path, bool unfinished, struct pp_err *err)
{
    /* A process that was killed before it made the owner file leaves an empty
     * directory. */
    if (unfinished && rmdir(path) == 0)
        return 0;
    int owner = lock_dead(path), rc = 0;
    if (owner < 0)
        return 0;
    if (unfinished)
        rc = pp_ckpt_discard(path, err);
    else
        tidy(path);
    close(owner);
    return rc;
}

int pp_ckpt_sweep(const char *dir, struct pp_err *err)
{
    char path[PP_PATH_TEXT];
    int rc = 0;
    DIR *d = opendir(dir);
    if (!d)
        return pp_fail_errno(err, "%s", dir);
    for (struct dirent *e; rc == 0 && (e = readdir(d)) != NULL;) {
        bool unfinished = is_unfinished(e->d_name);
        if (unfinished || pp_ckpt_parse_name(e->d_name) >= 0)
            rc = pp_path(path, err, "%s/%s", dir, e->d_name) ||
                         sweep_one(path, unfinished, err)
                     ? -1
                     : 0;
    }
    closedir(d);
    return rc;
}

/* Syncs the directory that contains dir, or a power cut could take dir away. A
 * user who may not read that directory cannot sync it. */
static int sync_parent(const char *dir, struct pp_err *err)
{
    char parent[PP_PATH_TEXT];
    if (pp_path(parent, err, "%s/..", dir))
        return -1;
    return access(parent, R_OK) == 0 ? pp_file_sync(parent, err) : 0;
}

int pp_ckpt_begin(const char *dir, const char *tmp, int *owner,
                  struct pp_err *err)
{
    *owner = -1;
    if (pp_dir_make(dir, err) || sync_parent(dir, err) ||
        pp_ckpt_sweep(dir, err))
        return -1;
    if (mkdir(tmp, 0777) == 0)
        return claim(tmp, owner, err);
    if (errno != EEXIST)
        return pp_fail_errno(err, "%s: cannot make the directory", tmp);
    return pp_fail(err, PP_EXIT_SYSTEM,
                   "%s: another run is writing it, or it is not a checkpoint "
                   "in progress; it is left as it is",
                   tmp);
}

/* Puts tmp in the place of an existing directory. If the file system can
 * exchange two names, there is a directory of that name at all times. */
static int replace(const char *dir, const char *tmp, const char *final,
                   struct pp_err *err)
{
    char old[PP_PATH_TEXT];
    int owner, rc = -1;
    /* The old directory is removed under a name that a sweep knows. */
    if (claim(final, &owner, err))
        return -1;
    if (renameat2(AT_FDCWD, tmp, AT_FDCWD, final, RENAME_EXCHANGE) == 0)
        rc = pp_file_sync(dir, err) ? -1 : pp_ckpt_discard(tmp, err);
    else if (errno != EINVAL && errno != ENOSYS)
        pp_fail_errno(err, "%s: cannot replace", final);
    else if (pp_path(old, err, "%s.old.tmp", final))
        rc = -1;
    else if (rename(final, old) != 0 || rename(tmp, final) != 0)
        pp_fail_errno(err, "%s: cannot replace", final);
    else
        rc = pp_file_sync(dir, err) ? -1 : pp_ckpt_discard(old, err);
    close(owner);
    return rc;
}

/* Makes the link inside the checkpoint, where a sweep finds it if this process
 * is killed before the rename. */
static int point_latest(const char *dir, const char *final, int64_t step,
                        struct pp_err *err)
{
    char name[32], link[PP_PATH_TEXT], latest[PP_PATH_TEXT];
    snprintf(name, sizeof name, PP_CKPT_NAME, step);
    if (pp_path(link, err, "%s/latest", final) ||
        pp_path(latest, err, "%s/latest", dir))
        return -1;
    if (symlink(name, link) == 0 && rename(link, latest) == 0)
        return 0;
    pp_fail_errno(err, "%s: cannot point to '%s'", latest, name);
    unlink(link);
    return -1;
}

int pp_ckpt_commit(const char *dir, const char *tmp, int64_t step,
                   struct pp_err *err)
{
    char final[PP_PATH_TEXT], owner[PP_PATH_TEXT];
    if (pp_path(final, err, "%s/" PP_CKPT_NAME, dir, step) ||
        pp_path(owner, err, "%s/" OWNER, final))
        return -1;
    if (pp_file_exists(final)) {
        if (replace(dir, tmp, final, err))
            return -1;
    } else if (rename(tmp, final) != 0) {
        return pp_fail_errno(err, "%s: cannot rename", tmp);
    }
    if (pp_file_sync(dir, err) || point_latest(dir, final, step, err))
        return -1;
    if (unlink(owner) != 0)
        return pp_fail_errno(err, "%s: cannot remove", owner);
    return pp_file_sync(dir, err);
}

/* Renames the directory first: it is not complete while it is removed. The disk
 * must have the new name before it forgets the first file. */
static int remove_step(const char *dir, int64_t step, struct pp_err *err)
{
    char path[PP_PATH_TEXT], tmp[PP_PATH_TEXT];
    int owner, rc;
    if (pp_path(path, err, "%s/" PP_CKPT_NAME, dir, step) ||
        pp_path(tmp, err, "%s.tmp", path) || claim(path, &owner, err))
        return -1;
    if (rename(path, tmp) != 0)
        rc = pp_fail_errno(err, "%s: cannot rename to %s.tmp", path, path);
    else
        rc = pp_file_sync(dir, err) ? -1 : pp_ckpt_discard(tmp, err);
    close(owner);
    return rc;
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
