/* SPDX-License-Identifier: MIT */
/* full_disk - a library to load before a program: after $PP_WRITES writes to
 * regular files the disk is full. A file $PP_WRITTEN gets a byte for each write
 * that was tried.
 *
 * Streams call write in glibc, where no library can take its place, so streams
 * that write get functions of their own. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NEXT(name) (__extension__(__typeof__(&name)) dlsym(RTLD_NEXT, #name))

enum { STREAMS = 64 };

static struct {
    pthread_mutex_t lock;
    long n; /* writes that were tried */
    FILE *streams[STREAMS];
    int fds[STREAMS];
} disk = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Returns false if the write has to fail. */
static bool has_room(int fd)
{
    const char *room = getenv("PP_WRITES"), *written = getenv("PP_WRITTEN");
    struct stat st;
    if (!room || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        return true;
    pthread_mutex_lock(&disk.lock);
    bool fits = disk.n++ < atol(room);
    int to = written ? open(written, O_WRONLY | O_CREAT | O_APPEND, 0666) : -1;
    if (to >= 0) {
        if (syscall(SYS_write, to, "x", (size_t)1) != 1)
            abort();
        close(to);
    }
    pthread_mutex_unlock(&disk.lock);
    if (!fits)
        errno = ENOSPC;
    return fits;
}

ssize_t write(int fd, const void *data, size_t n)
{
    return has_room(fd) ? syscall(SYS_write, fd, data, n) : -1;
}

/* Its symbol is pwrite64, like the symbols of all calls with 64-bit offsets. */
ssize_t pwrite(int fd, const void *data, size_t n, off_t offset)
{
    return has_room(fd) ? syscall(SYS_pwrite64, fd, data, n, offset) : -1;
}

int posix_fallocate(int fd, off_t at, off_t n)
{
    return has_room(fd) ? NEXT(posix_fallocate)(fd, at, n) : ENOSPC;
}

/* --- streams --- */

static ssize_t put(void *slot, const char *data, size_t n)
{
    size_t done = 0;
    while (done < n) {
        ssize_t k = write(*(int *)slot, data + done, n - done);
        if (k < 0)
            return 0; /* fopencookie's sign of a failure */
        done += (size_t)k;
    }
    return (ssize_t)n;
}

static int seek(void *slot, off64_t *at, int from)
{
    *at = lseek(*(int *)slot, *at, from);
    return *at < 0 ? -1 : 0;
}

static int end(void *slot)
{
    int k = (int)((int *)slot - disk.fds);
    disk.streams[k] = NULL;
    return close(disk.fds[k]);
}

FILE *fdopen(int fd, const char *mode)
{
    static const cookie_io_functions_t functions = {
        .write = put, .seek = seek, .close = end};
    int k = 0;
    if (mode[0] != 'w')
        return NEXT(fdopen)(fd, mode);
    pthread_mutex_lock(&disk.lock);
    while (disk.streams[k])
        if (++k == STREAMS)
            abort();
    disk.fds[k] = fd;
    disk.streams[k] = fopencookie(&disk.fds[k], mode, functions);
    pthread_mutex_unlock(&disk.lock);
    return disk.streams[k];
}

int fileno(FILE *f)
{
    for (int k = 0; k < STREAMS; k++)
        if (disk.streams[k] == f && f)
            return disk.fds[k];
    return NEXT(fileno)(f);
}
