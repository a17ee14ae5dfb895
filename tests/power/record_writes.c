/* SPDX-License-Identifier: MIT */
/* record_writes - a library to load before a program: it appends to
 * $PP_RECORD all that the program does to names and contents of files below
 * $PP_RECORD_ROOT.
 *
 * A record is a line "OPERATION BYTES PATH [PATH]" and so many bytes, the
 * content of the file. Names are relative to the root and have no spaces. A
 * lock makes the order of the records that of the operations. */
/* It defines both open and open64. */
#undef _FILE_OFFSET_BITS
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TEXT = 4096 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Finds the function that the caller takes the place of. */
#define NEXT(name) (__extension__(__typeof__(&name)) dlsym(RTLD_NEXT, #name))

static void fail(const char *what)
{
    fprintf(stderr, "record_writes: %s: %s\n", what, strerror(errno));
    abort();
}

/* Puts the name below the root into out; that of the root is ".". Returns false
 * for other names. */
static bool below_root(int dir, const char *path, char out[TEXT])
{
    const char *root = getenv("PP_RECORD_ROOT");
    char full[TEXT], at[TEXT], link[64];
    if (!root || !getenv("PP_RECORD"))
        return false;
    if (path[0] == '/') {
        snprintf(full, TEXT, "%s", path);
    } else {
        snprintf(link, sizeof link, "/proc/self/fd/%d", dir);
        if (dir == AT_FDCWD)
            strcpy(link, "/proc/self/cwd");
        ssize_t n = readlink(link, at, TEXT - 1);
        if (n < 0)
            return false;
        at[n] = '\0';
        if (snprintf(full, TEXT, "%s/%s", at, path) >= TEXT)
            return false;
    }
    size_t n = strlen(root);
    if (strncmp(full, root, n) != 0 || strchr(full, ' ') ||
        (full[n] != '/' && full[n] != '\0'))
        return false;
    strcpy(out, full[n] ? full + n + 1 : ".");
    return true;
}

static bool below_root_fd(int fd, char out[TEXT])
{
    char link[64], path[TEXT];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, TEXT - 1);
    if (n < 0)
        return false;
    path[n] = '\0';
    return path[0] == '/' && below_root(AT_FDCWD, path, out);
}

/* Appends a record, with the content of fd if that is not -1. */
static void record(const char *operation, const char *path, const char *other,
                   int fd)
{
    struct stat st = {.st_size = 0};
    FILE *f = fopen(getenv("PP_RECORD"), "a");
    if (!f || (fd >= 0 && fstat(fd, &st) != 0))
        fail("cannot record");
    char link[64], *data = malloc((size_t)st.st_size + 1);
    if (!data)
        fail("malloc");
    if (fd >= 0) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        int in = NEXT(open)(link, O_RDONLY | O_CLOEXEC);
        if (in < 0 || pread(in, data, (size_t)st.st_size, 0) != st.st_size)
            fail("cannot read a file again");
        NEXT(close)(in);
    }
    fprintf(f, "%s %lld %s %s\n", operation, (long long)st.st_size, path,
            other ? other : "-");
    fwrite(data, 1, (size_t)st.st_size, f);
    free(data);
    if (NEXT(fclose)(f) != 0)
        fail("cannot record");
}

/* Says what a descriptor's file holds, and if the disk does. */
static void record_content(int fd, bool synced)
{
    char path[TEXT];
    struct stat st;
    int flags = fcntl(fd, F_GETFL), saved = errno;
    if (flags >= 0 && below_root_fd(fd, path) && fstat(fd, &st) == 0) {
        if (S_ISDIR(st.st_mode) && synced)
            record("sync-dir", path, NULL, -1);
        else if (S_ISREG(st.st_mode) && st.st_nlink > 0 &&
                 (synced || (flags & O_ACCMODE) != O_RDONLY))
            record(synced ? "sync" : "close", path, NULL, fd);
    }
    errno = saved;
}

static int open_recorded(int dir, const char *path, int flags, mode_t mode)
{
    char name[TEXT];
    struct stat st;
    if ((flags & O_ACCMODE) == O_RDONLY || !below_root(dir, path, name))
        return NEXT(openat)(dir, path, flags, mode);
    pthread_mutex_lock(&lock);
    bool existed = fstatat(dir, path, &st, AT_SYMLINK_NOFOLLOW) == 0;
    int fd = NEXT(openat)(dir, path, flags, mode), saved = errno;
    if (fd >= 0 && !existed)
        record("create", name, NULL, -1);
    if (fd >= 0)
        record(flags & O_TRUNC ? "empty" : "open", name, NULL, -1);
    pthread_mutex_unlock(&lock);
    errno = saved;
    return fd;
}

static mode_t mode_of(int flags, va_list ap)
{
    return flags & O_CREAT ? va_arg(ap, mode_t) : 0;
}

#define OPEN(name)                                         \
    int name(const char *path, int flags, ...)             \
    {                                                      \
        va_list ap;                                        \
        va_start(ap, flags);                               \
        mode_t mode = mode_of(flags, ap);                  \
        va_end(ap);                                        \
        return open_recorded(AT_FDCWD, path, flags, mode); \
    }
#define OPENAT(name)                                    \
    int name(int dir, const char *path, int flags, ...) \
    {                                                   \
        va_list ap;                                     \
        va_start(ap, flags);                            \
        mode_t mode = mode_of(flags, ap);               \
        va_end(ap);                                     \
        return open_recorded(dir, path, flags, mode);   \
    }
OPEN(open)
OPEN(open64)
OPENAT(openat64)

/* Calls the function under the lock, and records what it did if it did it. */
#define RECORDED(operation, dir, path, call) \
    char name[TEXT];                         \
    bool seen = below_root(dir, path, name); \
    pthread_mutex_lock(&lock);               \
    int rc = call, saved = errno;            \
    if (rc == 0 && seen)                     \
        record(operation, name, NULL, -1);   \
    pthread_mutex_unlock(&lock);             \
    errno = saved;                           \
    return rc

int mkdir(const char *path, mode_t mode)
{
    RECORDED("mkdir", AT_FDCWD, path, NEXT(mkdir)(path, mode));
}

int rmdir(const char *path)
{
    RECORDED("remove", AT_FDCWD, path, NEXT(rmdir)(path));
}

int unlink(const char *path)
{
    RECORDED("remove", AT_FDCWD, path, NEXT(unlink)(path));
}

int unlinkat(int dir, const char *path, int flags)
{
    RECORDED("remove", dir, path, NEXT(unlinkat)(dir, path, flags));
}

int remove(const char *path)
{
    RECORDED("remove", AT_FDCWD, path, NEXT(remove)(path));
}

static int two_names(const char *operation, const char *from, const char *to,
                     unsigned flags)
{
    char a[TEXT], b[TEXT];
    bool seen = below_root(AT_FDCWD, from, a) && below_root(AT_FDCWD, to, b);
    pthread_mutex_lock(&lock);
    int rc = NEXT(renameat2)(AT_FDCWD, from, AT_FDCWD, to, flags);
    int saved = errno;
    if (rc == 0 && seen)
        record(operation, a, b, -1);
    pthread_mutex_unlock(&lock);
    errno = saved;
    return rc;
}

int rename(const char *from, const char *to)
{
    return two_names("rename", from, to, 0);
}

int renameat2(int from_dir, const char *from, int to_dir, const char *to,
              unsigned flags)
{
    if (from_dir != AT_FDCWD || to_dir != AT_FDCWD)
        fail("renameat2 in a directory is not recorded");
    return two_names(flags & RENAME_EXCHANGE ? "exchange" : "rename", from, to,
                     flags);
}

int symlink(const char *target, const char *path)
{
    char name[TEXT];
    bool seen = below_root(AT_FDCWD, path, name);
    pthread_mutex_lock(&lock);
    int rc = NEXT(symlink)(target, path), saved = errno;
    if (rc == 0 && seen)
        record("symlink", name, target, -1);
    pthread_mutex_unlock(&lock);
    errno = saved;
    return rc;
}

int fsync(int fd)
{
    pthread_mutex_lock(&lock);
    int rc = NEXT(fsync)(fd);
    if (rc == 0)
        record_content(fd, true);
    pthread_mutex_unlock(&lock);
    return rc;
}

int close(int fd)
{
    pthread_mutex_lock(&lock);
    record_content(fd, false);
    int rc = NEXT(close)(fd);
    pthread_mutex_unlock(&lock);
    return rc;
}

int fclose(FILE *f)
{
    int fd = fileno(f);
    if (fd < 0)
        return NEXT(fclose)(f);
    pthread_mutex_lock(&lock);
    fflush(f);
    record_content(fd, false);
    int rc = NEXT(fclose)(f);
    pthread_mutex_unlock(&lock);
    return rc;
}
