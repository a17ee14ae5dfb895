/* SPDX-License-Identifier: MIT */
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/foreign.h"

enum { READ_BYTES = 1 << 16 };

/* An empty file maps to this: mmap(2) refuses 0 bytes. */
static const char nothing[1];

int pp_file_open(const char *path, struct stat *st, struct pp_err *err)
{
    /* A FIFO without a writer must not hold up the program. */
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return pp_fail(err, PP_EXIT_INPUT, "%s: %s", path, strerror(errno));
    if (fstat(fd, st) == 0 && S_ISREG(st->st_mode))
        return fd;
    close(fd);
    return pp_fail(err, PP_EXIT_INPUT, "%s: not a regular file", path);
}

int pp_file_map(const char *path, const void **data, size_t *bytes,
                struct pp_err *err)
{
    struct stat st;
    int fd = pp_file_open(path, &st, err), rc = -1;
    if (fd < 0)
        return -1;
    *bytes = (size_t)st.st_size;
    *data = nothing;
    if (*bytes > 0) {
        void *p = mmap(NULL, *bytes, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED) {
            pp_fail_errno(err, "%s: cannot map", path);
            goto out;
        }
        *data = p;
    }
    rc = 0;
out:
    close(fd);
    return rc;
}

void pp_file_unmap(const void *data, size_t bytes)
{
    if (data && data != nothing)
        munmap((void *)(size_t)data, bytes);
}

ssize_t pp_file_next(FILE *f, void *data, size_t bytes)
{
    int fd = fileno(f);
    ssize_t n;
    if (fd < 0) { /* a stream in memory */
        n = (ssize_t)fread(data, 1, bytes, f);
        return n == 0 && ferror(f) ? -1 : n;
    }
    do
        n = read(fd, data, bytes);
    while (n < 0 && errno == EINTR);
    return n;
}

int pp_file_fail_empty(const char *name, struct pp_err *err)
{
    return pp_fail(err, PP_EXIT_INPUT,
                   "%s: is empty; the program before it wrote nothing", name);
}

static size_t count_newlines(const char *text, size_t n)
{
    size_t lines = 0;
    for (size_t i = 0; i < n; i++)
        lines += text[i] == '\n';
    return lines;
}

int pp_file_read_text(FILE *f, const char *name, size_t most_lines, char **text,
                      size_t *n, struct pp_err *err)
{
    size_t room = 0, lines = 0;
    ssize_t got;
    *text = NULL;
    *n = 0;
    do {
        if (*n > PP_TEXT_BYTES)
            return pp_fail(err, PP_EXIT_INPUT, "%s: is longer than 1 GiB",
                           name);
        pp_array_reserve(text, &room, *n + READ_BYTES + 1, 1);
        got = pp_file_next(f, *text + *n, READ_BYTES);
        if (got < 0)
            return pp_fail_read(err, name);
        const char *other =
            *n == 0 ? pp_foreign_file(*text, (size_t)got) : NULL;
        if (other)
            return pp_fail(err, PP_EXIT_INPUT, "%s: is %s", name, other);
        if (memchr(*text + *n, '\0', (size_t)got))
            return pp_fail(err, PP_EXIT_INPUT, "%s: has a zero byte", name);
        lines += count_newlines(*text + *n, (size_t)got);
        if (lines > most_lines)
            return pp_fail(err, PP_EXIT_INPUT, "%s: has more than %zu lines",
                           name, most_lines);
        *n += (size_t)got;
    } while (got > 0);
    if (*n == 0 && f == stdin)
        return pp_file_fail_empty(name, err);
    (*text)[*n] = '\0';
    return 0;
}

/* Reads more bytes behind an unfinished line. */
static int fill_lines(struct pp_lines *l, struct pp_err *err)
{
    if (l->at > 0) {
        memmove(l->text, l->text + l->at, l->end - l->at);
        l->end -= l->at;
        l->at = 0;
    }
    if (l->end > PP_TEXT_BYTES)
        return pp_fail(err, PP_EXIT_INPUT, "%s: line %zu: is longer than 1 GiB",
                       l->name, l->n + 1);
    pp_array_reserve(&l->text, &l->room, l->end + READ_BYTES + 1, 1);
    ssize_t got = pp_file_next(l->f, l->text + l->end, READ_BYTES);
    if (got < 0)
        return pp_fail_read(err, l->name);
    l->ended = got == 0;
    l->end += (size_t)got;
    return 0;
}

int pp_lines_next(struct pp_lines *l, char **line, size_t *n,
                  struct pp_err *err)
{
    for (size_t looked = 0;;) {
        char *from = l->text ? l->text + l->at : NULL;
        size_t have = l->end - l->at;
        char *stop =
            have > looked ? memchr(from + looked, '\n', have - looked) : NULL;
        size_t to = stop ? (size_t)(stop - from) : have;
        char *zero = to > looked && !l->keep_zeros
                         ? memchr(from + looked, '\0', to - looked)
                         : NULL;
        if (zero)
            to = (size_t)(zero - from) + 1;
        looked = have;
        if (!stop && !zero && !l->ended) {
            if (fill_lines(l, err))
                return -1;
            continue;
        }
        if (have == 0 && l->n == 0 && l->f == stdin)
            return pp_file_fail_empty(l->name, err);
        if (have == 0)
            return 0;
        if (!zero)
            from[to] = '\0';
        l->at += to + (stop && !zero);
        l->n++;
        *line = from;
        *n = to;
        return 1;
    }
}

void pp_lines_finish(struct pp_lines *l)
{
    free(l->text);
    l->text = NULL;
}

bool pp_file_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

bool pp_file_is_dir(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

int pp_file_sync(const char *path, struct pp_err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return pp_fail_errno(err, "%s", path);
    int rc = fsync(fd);
    /* Some file systems cannot sync a directory and say EINVAL. */
    if (rc != 0 && errno != EINVAL)
        pp_fail_errno(err, "%s: cannot sync", path);
    else
        rc = 0;
    close(fd);
    return rc;
}

/* --- outputs --- */

enum { TMP_DIGITS = 12, TMP_SUFFIX = TMP_DIGITS + 5, TMP_TRIES = 100 };

/* Returns true if name is base with ".", TMP_DIGITS digits and ".tmp". */
static bool is_tmp_of(const char *name, const char *base)
{
    size_t n = strlen(base);
    if (strlen(name) != n + TMP_SUFFIX || strncmp(name, base, n) != 0 ||
        name[n] != '.' || strcmp(name + n + 1 + TMP_DIGITS, ".tmp") != 0)
        return false;
    return strspn(name + n + 1, "0123456789abcdef") == TMP_DIGITS;
}

/* Returns a locked descriptor of a file or directory that no process owns, or
 * -1. */
static int lock_dead(int dir, const char *name, bool is_dir)
{
    struct stat st;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
        (is_dir ? !S_ISDIR(st.st_mode) : !S_ISREG(st.st_mode)))
        return -1;
    /* flock(2) over NFS needs a file that is open for writing. */
    int fd = openat(dir, name,
                    (is_dir ? O_RDONLY | O_DIRECTORY : O_RDWR) | O_NOFOLLOW |
                        O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* Removes what killed runs left beside path. */
static void remove_dead(const char *path, void (*remove_dir)(const char *))
{
    size_t n = strlen(path) + TMP_SUFFIX + 1;
    char *full = malloc(n), *folder = strdup(path);
    const char *slash = strrchr(path, '/');
    const char *base = slash ? slash + 1 : path;
    size_t before = (size_t)(base - path);
    if (folder)
        folder[before] = '\0';
    DIR *d = full && folder ? opendir(before ? folder : ".") : NULL;
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        if (!is_tmp_of(e->d_name, base))
            continue;
        int fd = lock_dead(dirfd(d), e->d_name, remove_dir != NULL);
        if (fd < 0)
            continue;
        snprintf(full, n, "%s%s", folder, e->d_name);
        if (remove_dir)
            remove_dir(full);
        else
            unlink(full);
        close(fd);
    }
    if (d)
        closedir(d);
    free(full);
    free(folder);
}

/* Locks a new file. Returns false if another run took it for a remainder and
 * removed it before the lock. */
static bool lock_new(const char *path, int fd)
{
    struct stat here, there;
    while (flock(fd, LOCK_EX) != 0 && errno == EINTR)
        ;
    return fstat(fd, &here) == 0 && lstat(path, &there) == 0 &&
           here.st_dev == there.st_dev && here.st_ino == there.st_ino;
}

/* Makes what the name says. Returns a locked descriptor, or -1 with errno:
 * EEXIST asks for another name. */
static int make_new(const char *path, bool is_dir)
{
    int fd;
    if (is_dir && mkdir(path, 0777) != 0)
        return -1;
    if (is_dir)
        fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    else
        fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0 && lock_new(path, fd))
        return fd;
    if (fd >= 0)
        close(fd);
    if (fd >= 0 || (is_dir && errno == ENOENT))
        errno = EEXIST;
    return -1;
}

int pp_tmp_make(struct pp_tmp *t, const char *path,
                void (*remove_dir)(const char *), struct pp_err *err)
{
    size_t n = strlen(path) + TMP_SUFFIX + 1;
    *t = (struct pp_tmp){.path = malloc(n), .lock = -1};
    if (!t->path)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    remove_dead(path, remove_dir);
    errno = EEXIST;
    for (int i = 0; i < TMP_TRIES && t->lock < 0 && errno == EEXIST; i++) {
        uint64_t r;
        if (getrandom(&r, sizeof r, 0) != (ssize_t)sizeof r)
            break;
        r >>= 64 - 4 * TMP_DIGITS;
        snprintf(t->path, n, "%s.%0*llx.tmp", path, TMP_DIGITS,
                 (unsigned long long)r);
        t->lock = make_new(t->path, remove_dir != NULL);
    }
    if (t->lock >= 0)
        return 0;
    pp_fail_errno(err, "%s", path);
    free(t->path);
    t->path = NULL;
    return -1;
}

void pp_tmp_finish(struct pp_tmp *t)
{
    if (t->path)
        close(t->lock);
    free(t->path);
    *t = (struct pp_tmp){0};
}

int pp_output_open(struct pp_output *o, const char *path, struct pp_err *err)
{
    struct stat st;
    *o = (struct pp_output){.path = path};
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
        o->f = fopen(path, "we");
        return o->f ? 0 : pp_fail_errno(err, "%s", path);
    }
    if (pp_tmp_make(&o->tmp, path, NULL, err))
        return -1;
    /* The lock must outlive the stream, so that no other run takes the closed
     * file for a remainder before it is renamed. */
    int fd = fcntl(o->tmp.lock, F_DUPFD_CLOEXEC, 0);
    o->f = fd < 0 ? NULL : fdopen(fd, "w");
    if (o->f)
        return 0;
    pp_fail_errno(err, "%s", path);
    if (fd >= 0)
        close(fd);
    pp_output_abort(o);
    return -1;
}

int pp_output_check(const char *path, struct pp_err *err)
{
    struct stat st;
    struct pp_output o;
    bool exists = stat(path, &st) == 0;
    if (exists && (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode)))
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s: a %s may have no reader; give a file", path,
                       S_ISFIFO(st.st_mode) ? "FIFO" : "socket");
    if (exists && !S_ISREG(st.st_mode))
        return !S_ISDIR(st.st_mode) && access(path, W_OK) == 0
                   ? 0
                   : pp_fail(err, PP_EXIT_SYSTEM, "%s: %s", path,
                             strerror(S_ISDIR(st.st_mode) ? EISDIR : errno));
    if (pp_output_open(&o, path, err))
        return -1;
    pp_output_abort(&o);
    return 0;
}

int pp_output_commit(struct pp_output *o, struct pp_err *err)
{
    /* An earlier write may have failed without leaving its errno. */
    bool failed = ferror(o->f) != 0;
    int rc = 0;
    errno = EIO;
    failed = fflush(o->f) != 0 || failed;
    if (failed)
        rc = pp_fail_errno(err, "writing %s failed", o->path);
    if (fclose(o->f) != 0 && rc == 0)
        rc = pp_fail_errno(err, "writing %s failed", o->path);
    o->f = NULL;
    if (rc == 0 && o->tmp.path && rename(o->tmp.path, o->path) != 0)
        rc = pp_fail_errno(err, "%s", o->path);
    if (rc != 0)
        pp_output_abort(o);
    pp_tmp_finish(&o->tmp);
    *o = (struct pp_output){0};
    return rc;
}

void pp_output_abort(struct pp_output *o)
{
    if (o->f)
        fclose(o->f);
    if (o->tmp.path)
        unlink(o->tmp.path);
    pp_tmp_finish(&o->tmp);
    *o = (struct pp_output){0};
}
