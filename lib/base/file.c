/* SPDX-License-Identifier: MIT */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"

enum { READ_BYTES = 1 << 16 };

/* An empty file maps to this: mmap(2) refuses 0 bytes. */
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

int pp_file_read_stream(FILE *f, const char *name, char **data, size_t *bytes,
                        struct pp_err *err)
{
    char *text = NULL;
    size_t capacity = 0, n = 0, got;
    do {
        if (pp_array_reserve(&text, &capacity, n + READ_BYTES, 1, err)) {
            free(text);
            return pp_fail_at(err, "%s: ", name);
        }
        got = fread(text + n, 1, capacity - n, f);
        n += got;
    } while (got);
    if (ferror(f)) {
        (void)pp_fail_read(err, name);
        free(text);
        return -1;
    }
    *data = text;
    *bytes = n;
    return 0;
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
