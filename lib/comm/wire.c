/* SPDX-License-Identifier: MIT */
/* wire - TCP for the ranks of a job: listening, connecting, and whole reads and
 * writes that return early when the job ends. */
#include "comm/rendezvous_state.h"

#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"

/* Seconds after which another address is tried. */
enum { CONNECT_S = 10 };

static int resolve(const char *address, int port, bool passive,
                   struct addrinfo **out, struct pp_err *err)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC,
                                   .ai_socktype = SOCK_STREAM,
                                   .ai_flags = passive ? AI_PASSIVE : 0};
    char service[16];
    snprintf(service, sizeof service, "%d", port);
    int rc = getaddrinfo(address, service, &hints, out);
    return rc ? pp_fail(err, PP_EXIT_INPUT,
                        "'%s' is not an address: %s; set MASTER_ADDR to the "
                        "address of rank 0's machine",
                        address ? address : "", gai_strerror(rc))
              : 0;
}

int pp_wire_find(const char *address, int port, struct addrinfo **out,
                 struct pp_err *err)
{
    return resolve(address, port, false, out, err);
}

/* Returns a socket that listens at one of the addresses, or -1 with errno. */
static int listen_at(const struct addrinfo *a)
{
    int fd = -1, saved = 0, one = 1;
    for (; a && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK,
                    0);
        if (fd >= 0) {
            setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
            if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 &&
                listen(fd, SOMAXCONN) == 0)
                return fd;
        }
        saved = errno;
        if (fd >= 0)
            close(fd);
        fd = -1;
    }
    errno = saved;
    return -1;
}

int pp_wire_listen(const char *address, int port, int *fd, struct pp_err *err)
{
    struct addrinfo *at;
    if (resolve(address, port, false, &at, err))
        return -1;
    *fd = listen_at(at);
    freeaddrinfo(at);
    if (*fd < 0 && errno == EADDRNOTAVAIL) {
        if (resolve(NULL, port, true, &at, err))
            return -1;
        *fd = listen_at(at);
        freeaddrinfo(at);
    }
    return *fd < 0 ? pp_fail_errno(err, "cannot listen at %s:%d", address, port)
                   : 0;
}

int pp_wire_listen_beside(int connection, union pp_address *at, int *fd,
                          struct pp_err *err)
{
    socklen_t n = sizeof *at;
    struct addrinfo one = {.ai_socktype = SOCK_STREAM, .ai_addr = &at->any};
    *at = (union pp_address){0};
    *fd = -1;
    if (getsockname(connection, &at->any, &n) == 0) {
        at->v6.sin6_port = 0; /* v4.sin_port is at the same place */
        one.ai_family = at->any.sa_family;
        one.ai_addrlen = n;
        *fd = listen_at(&one);
    }
    if (*fd >= 0 && getsockname(*fd, &at->any, &n) == 0)
        return 0;
    pp_fail_errno(err, "cannot listen for other ranks");
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
    return -1;
}

/* Waits until fd can be used, the job ends or time is up. Data that has arrived
 * is read even if the job has ended, because it may hold the reason. */
static enum pp_wire wait_ready(int fd, short events, int stop, double until)
{
    struct pollfd at[2] = {{fd, events, 0}, {stop, POLLIN, 0}};
    for (;;) {
        double left = 1000 * (until - pp_clock());
        int ms = left > INT_MAX ? -1 : left > 0 ? (int)left + 1 : 0;
        int n = poll(at, 2, ms);
        if (n == 0 && ms >= 0)
            return PP_WIRE_LATE;
        if (n > 0)
            break;
        if (errno != EINTR)
            return PP_WIRE_LOST;
    }
    bool arrived = events == POLLIN && at[0].revents;
    return at[1].revents && !arrived ? PP_WIRE_STOPPED : PP_WIRE_DONE;
}

/* Waits for a connection that has begun. */
static enum pp_wire finish_connect(int fd, int stop, double until)
{
    int error = 0;
    socklen_t n = sizeof error;
    enum pp_wire rc = wait_ready(fd, POLLOUT, stop, until);
    if (rc)
        return rc;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n) != 0)
        error = errno;
    errno = error;
    return error ? PP_WIRE_LOST : PP_WIRE_DONE;
}

enum pp_wire pp_wire_connect(const struct addrinfo *a, int stop, double until,
                             int *fd)
{
    enum pp_wire rc = PP_WIRE_LOST;
    int saved = 0;
    for (*fd = -1; a && rc != PP_WIRE_STOPPED; a = a->ai_next) {
        *fd = socket(a->ai_family,
                     a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (*fd >= 0 && connect(*fd, a->ai_addr, a->ai_addrlen) == 0)
            return PP_WIRE_DONE;
        if (*fd >= 0 && errno == EINPROGRESS)
            rc = finish_connect(*fd, stop, fmin(until, pp_clock() + CONNECT_S));
        if (rc == PP_WIRE_DONE)
            return rc;
        saved = errno;
        if (*fd >= 0)
            close(*fd);
        *fd = -1;
    }
    errno = saved;
    return rc;
}

void pp_wire_prepare(int fd, bool has_beats)
{
    int one = 1, idle = 20, interval = 10, count = 4;
    unsigned timeout_ms = 60000;
    if (has_beats)
        setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms,
                   sizeof timeout_ms);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
}

/* Returns whether to call recv or send again after they returned n. Sets *rc if
 * not. */
static bool may_retry(ssize_t n, enum pp_wire *rc)
{
    if (n > 0)
        return true;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return true;
    if (n == 0)
        errno = 0;
    *rc = PP_WIRE_LOST;
    return false;
}

enum pp_wire pp_wire_write(int fd, int stop, double until, const void *data,
                           size_t bytes)
{
    const char *at = data;
    enum pp_wire rc = PP_WIRE_DONE;
    while (bytes > 0 && rc == PP_WIRE_DONE) {
        rc = wait_ready(fd, POLLOUT, stop, until);
        if (rc)
            break;
        ssize_t n = send(fd, at, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (may_retry(n, &rc) && n > 0) {
            at += n;
            bytes -= (size_t)n;
        }
    }
    return rc;
}

enum pp_wire pp_wire_read(int fd, int stop, double until, void *data,
                          size_t bytes)
{
    char *at = data;
    enum pp_wire rc = PP_WIRE_DONE;
    while (bytes > 0 && rc == PP_WIRE_DONE) {
        rc = wait_ready(fd, POLLIN, stop, until);
        if (rc)
            break;
        ssize_t n = recv(fd, at, bytes, MSG_DONTWAIT);
        if (may_retry(n, &rc) && n > 0) {
            at += n;
            bytes -= (size_t)n;
        }
    }
    return rc;
}
