/* SPDX-License-Identifier: MIT */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* What an empty file maps to. */
static const char nothing[1];

int pp_file_map(const char *path, const void **data, size_t *bytes,
                struct pp_err *err)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC), rc = -1;
    if (fd < 0)
        return pp_fail(err, PP_EXIT_INPUT, "%s: %s", path, strerror(errno));
    if (fstat(fd, &st) != 0) {
        pp_fail_errno(err, "%s", path);
        goto out;
    }
    if (!S_ISREG(st.st_mode)) {
        pp_fail(err, PP_EXIT_INPUT, "%s: not a regular file", path);
        goto out;
    }
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
