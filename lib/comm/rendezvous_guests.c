/* SPDX-License-Identifier: MIT */
#include "comm/rendezvous_guests.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Connections that have not said hello, besides one for each rank. */
enum { MAX_STRANGERS = 256 };

struct pp_guest {
    int fd;
    bool called;  /* its call was answered; it has yet to send its hello */
    size_t bytes; /* received of the message */
    struct pp_greeting greeting;
    struct pp_hello hello;
};

static void remove_guest(struct pp_guests *g, int k)
{
    free(g->at[k]);
    memmove(g->at + k, g->at + k + 1, (size_t)(--g->n - k) * sizeof *g->at);
}

/* Closes a connection of another program, of another job or of a rank that does
 * not know the secret. */
static void turn_away(struct pp_guests *g, int k)
{
    close(g->at[k]->fd);
    g->n_strange++;
    remove_guest(g, k);
}

/* Reports if a connection waits. accept4(2) fails for want of a descriptor also
 * if none does. */
static bool has_waiting(const struct pp_guests *g)
{
    struct pollfd at = {g->listener, POLLIN, 0};
    return poll(&at, 1, 0) > 0;
}

/* Accepts some of the connections that wait. Fails if not even one can be
 * open. */
static int take_guests(struct pp_guests *g, struct pp_err *err)
{
    for (int k = 0; k < MAX_STRANGERS && has_waiting(g); k++) {
        if (g->n == g->max)
            turn_away(g, 0);
        int fd = accept4(g->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
            if (g->n == 0)
                return pp_fail_errno(err, "cannot accept another rank");
            turn_away(g, 0);
            continue;
        }
        struct pp_guest *one = fd >= 0 ? calloc(1, sizeof *one) : NULL;
        if (!one) {
            if (fd >= 0)
                close(fd);
            return 0;
        }
        one->fd = fd;
        one->greeting = g->greeting;
        g->at[g->n++] = one;
    }
    return 0;
}

/* Reads what has arrived of a guest's message. Returns 1 if it is complete, 0
 * if not, -1 if the guest is to be turned away. */
static int read_guest(struct pp_guest *g)
{
    size_t want = g->called ? sizeof g->hello : sizeof g->greeting.call;
    char *to = g->called ? (char *)&g->hello : (char *)&g->greeting.call;
    ssize_t n = recv(g->fd, to + g->bytes, want - g->bytes, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n <= 0)
        return -1;
    g->bytes += (size_t)n;
    return g->bytes == want;
}

static bool answer_guest(struct pp_guest *g)
{
    const struct pp_answer *a = &g->greeting.answer;
    g->called = true;
    g->bytes = 0;
    return pp_greeting_answer(&g->greeting) &&
           send(g->fd, a, sizeof *a, MSG_NOSIGNAL | MSG_DONTWAIT) ==
               (ssize_t)sizeof *a;
}

/* Reads from guest k. Returns its descriptor, which the caller owns, when it
 * has sent a hello of this job: *h. Otherwise returns -1; the guest may be
 * gone. */
static int hear_guest(struct pp_guests *g, int k, struct pp_hello *h)
{
    struct pp_guest *one = g->at[k];
    int rc = read_guest(one), fd = one->fd;
    if (rc == 0)
        return -1;
    if (rc > 0 && !one->called && answer_guest(one))
        return -1;
    if (rc < 0 || !one->called || one->bytes == 0 ||
        !pp_hello_accept(&one->greeting, &one->hello)) {
        turn_away(g, k);
        return -1;
    }
    *h = one->hello;
    remove_guest(g, k);
    return fd;
}

int pp_guests_init(struct pp_guests *g, int n_ranks, struct pp_err *err)
{
    g->max = n_ranks + MAX_STRANGERS;
    g->at = calloc((size_t)g->max, sizeof *g->at);
    return g->at ? 0 : pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
}

void pp_guests_finish(struct pp_guests *g)
{
    while (g->n > 0)
        turn_away(g, g->n - 1);
    if (g->listener >= 0)
        close(g->listener);
    free(g->at);
    *g = (struct pp_guests){.listener = -1};
}

void pp_guests_list(const struct pp_guests *g, struct pollfd *at)
{
    at[0] = (struct pollfd){g->listener, POLLIN, 0};
    for (int k = 0; k < g->n; k++)
        at[1 + k] = (struct pollfd){g->at[k]->fd, POLLIN, 0};
}

int pp_guests_serve(struct pp_guests *g, const struct pollfd *at,
                    pp_guest_fn *take, void *ctx, struct pp_err *err)
{
    struct pp_hello h;
    for (int k = g->n - 1; k >= 0; k--) {
        int fd = at[1 + k].revents ? hear_guest(g, k, &h) : -1;
        if (fd >= 0 && take(ctx, &h, fd, err))
            return -1;
    }
    return at[0].revents ? take_guests(g, err) : 0;
}
