/* SPDX-License-Identifier: MIT */
/* stream - writes versions of the weights to a reader that may be slow or
 * gone. Nothing that the reader does fails the run. */
#include "run/checkpoint/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "run/checkpoint/agree.h"
#include "run/checkpoint/gather.h"
#include "run/checkpoint/shards.h"

/* The writer, at rank 0. */
struct writer {
    const struct pp_stream *s;
    int fd;
    char *why; /* "" as long as the reader takes what comes */
};

static void note(struct writer *w, const char *what)
{
    snprintf(w->why, 256, "%.160s: %s", w->s->path, what);
}

static void note_slow(struct writer *w, const char *what)
{
    char text[80];
    snprintf(text, sizeof text, "%s within %g s", what, w->s->timeout);
    note(w, text);
}

/* Returns whether the run was asked to stop. It then has no time for a reader.
 */
static bool is_stopped(struct writer *w)
{
    if (!w->s->stop || w->s->stop(w->s->ctx) == 0)
        return false;
    note(w, "the run was asked to stop");
    return true;
}

/* Opens the FIFO or connects to the socket. Returns -1 with errno set. */
static int open_reader(const char *path)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    struct stat st;
    if (stat(path, &st) != 0)
        return -1;
    if (!S_ISSOCK(st.st_mode))
        return open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (strlen(path) >= sizeof to.sun_path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    strcpy(to.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && (connect(fd, (struct sockaddr *)&to, sizeof to) != 0 ||
                    fcntl(fd, F_SETFL, O_NONBLOCK) != 0)) {
        int reason = errno;
        close(fd);
        errno = reason;
        return -1;
    }
    return fd;
}

/* Waits until somebody reads. A sampler that starts again makes its FIFO or
 * socket anew, so a missing one counts as no reader. */
static void await_reader(struct writer *w)
{
    const struct timespec pause = {.tv_nsec = 5000000};
    double end = pp_clock() + w->s->timeout;
    while ((w->fd = open_reader(w->s->path)) < 0) {
        if (errno != ENXIO && errno != ECONNREFUSED && errno != ENOENT &&
            errno != EINTR) {
            note(w, strerror(errno));
            return;
        }
        if (is_stopped(w))
            return;
        if (pp_clock() > end) {
            note_slow(w, "no reader came");
            return;
        }
        nanosleep(&pause, NULL);
    }
}

/* Waits until the reader takes more. Returns false, with a note or errno, if
 * it does not. */
static bool await_room(struct writer *w)
{
    enum { SLICE_MS = 50 };
    struct pollfd at = {.fd = w->fd, .events = POLLOUT};
    double end = pp_clock() + w->s->timeout;
    int n = 0;
    while (n == 0 && !is_stopped(w)) {
        n = poll(&at, 1, SLICE_MS);
        if (n == 0 && pp_clock() > end) {
            note_slow(w, "the reader took nothing");
            return false;
        }
    }
    return n > 0 || (n < 0 && errno == EINTR);
}

/* Writes all bytes unless the reader leaves. */
static void write_bytes(struct writer *w, const char *data, size_t bytes)
{
    while (bytes > 0 && !w->why[0]) {
        ssize_t n = write(w->fd, data, bytes);
        if (n > 0) {
            data += n;
            bytes -= (size_t)n;
        } else if (n < 0 && errno == EPIPE) {
            note(w, "the reader left");
        } else if (n < 0 && errno != EINTR && errno != EAGAIN) {
            note(w, strerror(errno));
        } else if (!await_room(w) && !w->why[0]) {
            note(w, strerror(errno));
        }
    }
}

static int begin_version(void *ctx, const struct pp_tensor_spec *specs,
                         size_t n, struct pp_err *err)
{
    struct writer *w = ctx;
    char line[160], *header;
    size_t bytes;
    uint64_t data_bytes;
    if (pp_tensor_header_make(specs, n, &header, &bytes, &data_bytes, err))
        return -1;
    int length = snprintf(line, sizeof line,
                          "{\"format\": \"pp-weights\", \"version\": 1, "
                          "\"step\": %" PRId64 ", \"bytes\": %" PRIu64 "}\n",
                          w->s->step, bytes + data_bytes);
    write_bytes(w, line, (size_t)length);
    write_bytes(w, header, bytes);
    free(header);
    return 0;
}

static int put_version(void *ctx, const void *data, size_t bytes,
                       struct pp_err *err)
{
    (void)err;
    write_bytes(ctx, data, bytes);
    return 0;
}

/* Collective. Tells all ranks whether there is a reader. */
static int share(struct pp_comm *c, bool reads, bool *any, struct pp_err *err)
{
    const unsigned char mine = reads;
    unsigned char *all = calloc((size_t)c->size, 1);
    if (!all)
        return pp_give_up(c, err);
    int rc = c->ops->allgather(c, &mine, all, 1, err);
    *any = all[0];
    free(all);
    return rc;
}

int pp_ckpt_stream(const struct pp_stream *s, char why[256], struct pp_err *err)
{
    struct writer w = {.s = s, .fd = -1, .why = why};
    enum pp_weights_block block = pp_shards_source(s->params, s->save_bytes);
    const struct pp_gather g = {
        .comm = s->comm,
        .params = s->params,
        .block = block,
        .element_bytes = s->save_bytes ? s->save_bytes
                                       : pp_parameters_bytes(s->params, block),
        .sink = {begin_version, put_version, &w},
    };
    bool any = false;
    why[0] = '\0';
    if (s->comm->rank == 0)
        await_reader(&w);
    int rc = share(s->comm, w.fd >= 0, &any, err);
    if (rc == 0 && any)
        rc = pp_ckpt_gather(&g, err);
    if (w.fd >= 0)
        close(w.fd);
    return rc;
}
