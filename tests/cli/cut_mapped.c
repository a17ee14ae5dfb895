/* SPDX-License-Identifier: MIT */
/* cut_mapped - a library to load before a program: it empties the file whose
 * path ends in $PP_CUT when the program has mapped it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

/* Its symbol is mmap64, like that of all calls with 64-bit offsets. */
void *mmap(void *at, size_t n, int protection, int flags, int fd, off_t from)
{
    const char *end = getenv("PP_CUT");
    char link[64], path[4096];
    void *p = (void *)syscall(SYS_mmap, at, n, (long)protection, (long)flags,
                              (long)fd, (long)from);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t m = end && fd >= 0 ? readlink(link, path, sizeof path - 1) : -1;
    if (m < 0)
        return p;
    path[m] = '\0';
    size_t k = strlen(end);
    if ((size_t)m >= k && !strcmp(path + m - k, end) && truncate(path, 0) != 0)
        abort();
    return p;
}
