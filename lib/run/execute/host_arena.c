/* SPDX-License-Identifier: MIT */
/* host_arena - memory of the host for offloaded activations, and for what GPUs
 * tell their hosts. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/num.h"
#include "run/execute/host_copies.h"

static int fail_dir(const char *dir, size_t bytes, int why, struct pp_err *err)
{
    char size[32];
    pp_format_size(bytes, size);
    return pp_fail(err, PP_EXIT_SYSTEM, "%s: a rank needs %s of the host: %s",
                   dir, size, strerror(why));
}

/* Maps a file without a name, all of whose blocks are allocated. */
static int map_file(struct pp_host_arena *h, const char *dir,
                    struct pp_err *err)
{
    char path[4096];
    int n = snprintf(path, sizeof path, "%s/pp-offload-XXXXXX", dir);
    if (n < 0 || (size_t)n >= sizeof path)
        return fail_dir(dir, h->bytes, ENAMETOOLONG, err);
    int fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0)
        return fail_dir(dir, h->bytes, errno, err);
    unlink(path);
    int why = posix_fallocate(fd, 0, (off_t)h->bytes);
    void *at = MAP_FAILED;
    if (!why) {
        at = mmap(NULL, h->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        why = errno;
    }
    close(fd);
    if (at == MAP_FAILED)
        return fail_dir(dir, h->bytes, why, err);
    memset(at, 0, h->bytes); /* so that no page fault falls inside a step */
    h->at = at;
    h->is_file = true;
    return 0;
}

int pp_host_arena_open(struct pp_host_arena *h, struct pp_device *d,
                       size_t bytes, const char *dir, struct pp_err *err)
{
    char size[32];
    *h = (struct pp_host_arena){.bytes = bytes, .device = d};
    if (dir)
        return map_file(h, dir, err);
    h->at = d->ops->alloc_host(d, bytes);
    if (h->at)
        return 0;
    pp_format_size(bytes, size);
    return pp_fail(err, PP_EXIT_SYSTEM,
                   "out of memory: a rank needs %s of the host", size);
}

void pp_host_arena_close(struct pp_host_arena *h)
{
    if (h->is_file)
        munmap(h->at, h->bytes);
    else if (h->at)
        h->device->ops->free_host(h->device, h->at);
    *h = (struct pp_host_arena){0};
}
