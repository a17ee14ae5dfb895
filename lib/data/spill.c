/* SPDX-License-Identifier: MIT */
/* spill - arrays that grow into files. Room is taken with posix_fallocate:
 * writing into a hole on a full disk would end the program. */
#include "data/spill.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/num.h"

/* Opens a file without a name in dir. Returns -1 on failure. */
static int open_nameless(const char *dir)
{
    int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0)
        return fd;
    /* Some file systems need a name for a moment. */
    size_t n = strlen(dir) + sizeof "/.pppack.XXXXXX";
    char *path = malloc(n);
    if (!path)
        return -1;
    snprintf(path, n, "%s/.pppack.XXXXXX", dir);
    fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0)
        unlink(path);
    free(path);
    return fd;
}

/* Resizes the array's file and maps it. */
static int map_array(struct pp_spill_array *g, size_t bytes, const char *dir,
                     struct pp_err *err)
{
    int fd = g->fd - 1;
    errno = posix_fallocate(fd, 0, (off_t)bytes);
    if (errno)
        return pp_fail_errno(err, "%s: no room for '%zu' bytes of tokens", dir,
                             bytes);
    void *at =
        g->bytes ? mremap(g->at, g->bytes, bytes, MREMAP_MAYMOVE)
                 : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return pp_fail_errno(err, "%s: cannot map '%zu' bytes", dir, bytes);
    g->at = at;
    g->bytes = bytes;
    return 0;
}

/* Moves the array from memory to a file. */
static int move_to_file(struct pp_spill_array *g, size_t used, size_t bytes,
                        const char *dir, struct pp_err *err)
{
    void *memory = g->at;
    g->fd = open_nameless(dir) + 1;
    if (!g->fd)
        return pp_fail_errno(err, "%s: cannot create a file", dir);
    g->at = NULL;
    g->bytes = 0;
    int rc = map_array(g, bytes, dir, err);
    if (rc == 0 && used)
        memcpy(g->at, memory, used);
    free(memory);
    return rc;
}

void pp_spill_release(struct pp_spill_array *g)
{
    if (g->fd && g->bytes)
        madvise(g->at, g->bytes, MADV_DONTNEED);
}

int pp_spill_grow(struct pp_spill_array *g, size_t n, size_t size,
                  const char *dir, size_t limit, struct pp_err *err)
{
    size_t target = g->room + g->room / 2 + 1024, bytes;
    if (target < n)
        target = n;
    if (pp_mul(target, size, &bytes, err) != 0)
        return -1;
    if (g->fd) {
        pp_spill_release(g);
        if (map_array(g, bytes, dir, err) != 0)
            return -1;
    } else if (dir && bytes > limit) {
        if (move_to_file(g, g->room * size, bytes, dir, err) != 0)
            return -1;
    } else {
        g->at = pp_realloc(g->at, target, size);
    }
    g->room = target;
    return 0;
}

void pp_spill_finish(struct pp_spill_array *g)
{
    if (!g->fd)
        free(g->at);
    else if (g->bytes)
        munmap(g->at, g->bytes);
    if (g->fd)
        close(g->fd - 1);
    *g = (struct pp_spill_array){0};
}
