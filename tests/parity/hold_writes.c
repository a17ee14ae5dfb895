/* SPDX-License-Identifier: MIT */
/* hold_writes - a library to load before a program: it holds or fails what the
 * program does to the data of tensors.
 *
 * $PP_HOLD is pwrite or fsync, and $PP_HOLD_IN a part of the file's path. Such
 * a call waits until the file $PP_HOLD_GATE exists, or fails with the number
 * $PP_HOLD_ERRNO. A header, at offset 0, passes. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static bool is_held(const char *call, int fd)
{
    const char *want = getenv("PP_HOLD"), *part = getenv("PP_HOLD_IN");
    char link[64], path[4096];
    if (!want || !part || strcmp(want, call) != 0)
        return false;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n < 0)
        return false;
    path[n] = '\0';
    return strstr(path, part) && strstr(path, ".safetensors");
}

/* Returns false if the call has to fail. */
static bool passes(const char *call, int fd)
{
    const char *gate = getenv("PP_HOLD_GATE"), *number;
    if (!is_held(call, fd))
        return true;
    number = getenv("PP_HOLD_ERRNO");
    if (number) {
        errno = atoi(number);
        return false;
    }
    while (access(gate, F_OK) != 0)
        usleep(5000);
    return true;
}

/* Its symbol is pwrite64, like that of all calls with 64-bit offsets. */
ssize_t pwrite(int fd, const void *data, size_t n, off_t offset)
{
    if (offset > 0 && !passes("pwrite", fd))
        return -1;
    return syscall(SYS_pwrite64, fd, data, n, offset);
}

int fsync(int fd)
{
    return passes("fsync", fd) ? (int)syscall(SYS_fsync, fd) : -1;
}
