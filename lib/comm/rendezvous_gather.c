/* SPDX-License-Identifier: MIT */
/* rendezvous_gather - rank 0 waits for the other ranks. It serves all
 * connections at once, so that those of other programs, which say nothing or
 * something else, delay nobody. A rank that cannot start also connects, to
 * report why. Then rank 0 refuses all ranks, also those that connect a little
 * later. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/hello.h"
#include "comm/rendezvous_state.h"

/* Seconds in which rank 0 refuses late ranks. */
enum { LATE_S = 5 };

/* Connections that have not joined yet, besides one for each rank. If there are
 * more, the oldest one is closed: a rank calls again. */
enum { MAX_STRANGERS = 256 };

/* A connection that has not joined yet. */
struct guest {
    int fd;
    bool called;  /* its call was answered; it has yet to send its hello */
    size_t bytes; /* received of the message */
    struct pp_greeting greeting;
    struct pp_hello hello;
};

/* State of rank 0 while ranks join. */
struct meeting {
    struct pp_rendezvous *j;
    const struct pp_rendezvous_place *place;
    struct pp_greeting greeting; /* with the key of the job */
    int listener;
    double until;
    int n_accepted; /* connections kept */
    int n_hellos;   /* ranks that sent a hello */
    int n_strange;  /* connections of other programs, jobs or secrets */
    unsigned char (*process)[PP_NONCE_BYTES]; /* (size) of each rank */
    struct guest **guests;                    /* (max_guests), oldest first */
    int n_guests, max_guests;
    struct pollfd *at; /* (1 + size + max_guests) */
};

static void refuse(int fd, const struct pp_err *why, bool yours)
{
    struct pp_welcome w = {.refused = (int32_t)why->code, .yours = yours};
    snprintf(w.why, sizeof w.why, "%.390s", why->text);
    (void)pp_wire_write(fd, -1, pp_clock() + 1, &w, sizeof w);
}

static bool has_place(const struct meeting *m, const struct pp_hello *h)
{
    const struct pp_rendezvous *j = m->j;
    bool known = j->data[h->rank] >= 0 || j->monitor[h->rank] >= 0;
    return (h->is_monitor ? j->monitor : j->data)[h->rank] < 0 &&
           (!known ||
            !memcmp(m->process[h->rank], h->process, sizeof h->process));
}

/* Keeps the connection of a rank, or fails with the reason why the job cannot
 * begin. */
static int accept_rank(struct meeting *m, const struct pp_hello *h, int fd,
                       struct pp_err *err)
{
    const struct pp_rendezvous_place *p = m->place;
    struct pp_rendezvous *j = m->j;
    if (h->failed && h->rank < 0)
        return pp_fail(err, (enum pp_exit)h->failed,
                       "a rank on %s cannot start: %.300s", h->host, h->why);
    if (h->failed)
        return pp_fail(err, (enum pp_exit)h->failed,
                       "rank %d on %s cannot start: %.300s", (int)h->rank,
                       h->host, h->why);
    if (strncmp(h->version, p->version, sizeof h->version - 1))
        return pp_fail(err, PP_EXIT_INPUT,
                       "rank %d on %s is version '%s', not '%s'", (int)h->rank,
                       h->host, h->version, p->version);
    if (h->size != p->size)
        return pp_fail(err, PP_EXIT_INPUT,
                       "rank %d on %s expects %d ranks, but rank 0 expects %d",
                       (int)h->rank, h->host, (int)h->size, p->size);
    if (h->rank < 1 || h->rank >= p->size)
        return pp_fail(err, PP_EXIT_INPUT,
                       "rank '%d' on %s is outside a job of %d ranks",
                       (int)h->rank, h->host, p->size);
    if (!has_place(m, h))
        return pp_fail(err, PP_EXIT_INPUT,
                       "two processes are rank %d, on %s and on %s",
                       (int)h->rank, j->hosts[h->rank], h->host);
    (h->is_monitor ? j->monitor : j->data)[h->rank] = fd;
    memcpy(m->process[h->rank], h->process, sizeof h->process);
    memcpy(j->hosts[h->rank], h->host, sizeof h->host);
    m->n_accepted++;
    return 0;
}

/* --- connections --- */

static void remove_guest(struct meeting *m, int k)
{
    free(m->guests[k]);
    memmove(m->guests + k, m->guests + k + 1,
            (size_t)(--m->n_guests - k) * sizeof *m->guests);
}

/* Closes a connection of another program, of another job or of a rank that does
 * not know the secret. */
static void turn_away(struct meeting *m, int k)
{
    close(m->guests[k]->fd);
    m->n_strange++;
    remove_guest(m, k);
}

/* Accepts some of the connections that wait. */
static void take_guests(struct meeting *m)
{
    for (int k = 0; k < MAX_STRANGERS; k++) {
        if (m->n_guests == m->max_guests)
            turn_away(m, 0);
        int fd = accept4(m->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 && (errno == EMFILE || errno == ENFILE) && m->n_guests > 0) {
            turn_away(m, 0);
            continue;
        }
        struct guest *g = fd >= 0 ? calloc(1, sizeof *g) : NULL;
        if (!g) {
            if (fd >= 0)
                close(fd);
            return;
        }
        g->fd = fd;
        g->greeting = m->greeting;
        m->guests[m->n_guests++] = g;
    }
}

/* Reads what has arrived of a guest's message. Returns 1 if it is complete, 0
 * if not, -1 if the guest is to be turned away. */
static int read_guest(struct guest *g)
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

static bool answer_guest(struct guest *g)
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
static int hear_guest(struct meeting *m, int k, struct pp_hello *h)
{
    struct guest *g = m->guests[k];
    int rc = read_guest(g), fd = g->fd;
    if (rc == 0)
        return -1;
    if (rc > 0 && !g->called && answer_guest(g))
        return -1;
    if (rc < 0 || !g->called || g->bytes == 0 ||
        !pp_hello_accept(&g->greeting, &g->hello)) {
        turn_away(m, k);
        return -1;
    }
    *h = g->hello;
    m->n_hellos += !h->is_monitor;
    remove_guest(m, k);
    return fd;
}

/* --- the meeting --- */

static int fail_missing(const struct meeting *m, struct pp_err *err)
{
    const struct pp_rendezvous *j = m->j;
    int missing = 0, first = -1;
    char others[100] = "";
    for (int r = 1; r < j->size; r++)
        if (j->data[r] < 0 || j->monitor[r] < 0)
            first = missing++ ? first : r;
    if (m->n_strange || m->n_guests)
        snprintf(others, sizeof others,
                 "; other programs connected, or ranks of another job or with "
                 "another secret");
    return pp_fail(err, PP_EXIT_SYSTEM,
                   "%d of %d ranks did not join in time, for example rank %d%s",
                   missing, j->size, first, others);
}

static int fail_lost(int rank, const char *host, struct pp_err *err)
{
    return pp_fail(err, PP_EXIT_SYSTEM, "rank %d on %s is lost: %s", rank, host,
                   errno ? strerror(errno) : "its connection has ended");
}

/* Waits until a connection has something to say, or time is up. Ranks that have
 * joined send nothing while they wait, so an event on their connection means
 * that they have ended. Guest k is at[size + k]. */
static int wait_for_ranks(struct meeting *m, struct pp_err *err)
{
    const struct pp_rendezvous *j = m->j;
    double left = m->until - pp_clock();
    if (left <= 0)
        return fail_missing(m, err);
    m->at[0] = (struct pollfd){m->listener, POLLIN, 0};
    for (int r = 1; r < j->size; r++)
        m->at[r] = (struct pollfd){j->data[r], POLLIN, 0};
    for (int k = 0; k < m->n_guests; k++)
        m->at[j->size + k] = (struct pollfd){m->guests[k]->fd, POLLIN, 0};
    int ms = left < 1e6 ? (int)(left * 1000) + 1 : -1;
    if (poll(m->at, (nfds_t)(j->size + m->n_guests), ms) < 0)
        memset(m->at, 0, (size_t)(j->size + m->n_guests) * sizeof *m->at);
    errno = 0;
    for (int r = 1; r < j->size; r++)
        if (m->at[r].revents)
            return fail_lost(r, j->hosts[r], err);
    return 0;
}

/* Serves all connections that have something to say. With why it refuses the
 * ranks among them. */
static int serve(struct meeting *m, const struct pp_err *why,
                 struct pp_err *err)
{
    struct pp_hello h;
    for (int k = m->n_guests - 1; k >= 0; k--) {
        int fd = m->at[m->j->size + k].revents ? hear_guest(m, k, &h) : -1;
        if (fd < 0 || (!why && accept_rank(m, &h, fd, err) == 0))
            continue;
        refuse(fd, why ? why : err, !why);
        close(fd);
        if (!why)
            return -1;
    }
    if (m->at[0].revents)
        take_guests(m);
    return 0;
}

/* Returns the index of a rank on its machine. */
static int local_of(const struct pp_rendezvous *j, int rank)
{
    int n = 0;
    for (int r = 0; r < rank; r++)
        n += !strcmp(j->hosts[r], j->hosts[rank]);
    return n;
}

static int welcome_all(const struct meeting *m, struct pp_err *err)
{
    struct pp_rendezvous *j = m->j;
    double until = fmax(m->until, pp_clock() + 1);
    for (int r = 1; r < j->size; r++) {
        const struct pp_welcome w = {.local = local_of(j, r)};
        errno = ETIMEDOUT;
        if (pp_wire_write(j->data[r], -1, until, &w, sizeof w) ||
            pp_wire_write(j->data[r], -1, until, j->hosts,
                          (size_t)j->size * sizeof *j->hosts))
            return fail_lost(r, j->hosts[r], err);
    }
    return 0;
}

/* Tells all joined ranks why the job cannot begin, and then late ranks. If rank
 * 0 did not listen for them, they would wait for it to start. */
static void refuse_rest(struct meeting *m, const struct pp_err *why)
{
    struct pp_err ignored = {0};
    m->until = fmin(m->until, pp_clock() + LATE_S);
    for (int r = 1; r < m->j->size; r++)
        if (m->j->data[r] >= 0) {
            refuse(m->j->data[r], why, false);
            close(m->j->data[r]);
            m->j->data[r] = -1; /* it may end now */
        }
    while (m->n_hellos < m->j->size - 1 && pp_clock() < m->until &&
           wait_for_ranks(m, &ignored) == 0)
        (void)serve(m, why, &ignored);
}

/* Makes room for the connections. Raises the limit of descriptors if it must,
 * and takes fewer strangers if it cannot. */
static int make_room(struct meeting *m, struct pp_err *err)
{
    int size = m->place->size, kept = 2 * size + 64;
    struct rlimit limit;
    m->max_guests = size + MAX_STRANGERS;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 &&
        limit.rlim_cur < (rlim_t)(kept + m->max_guests)) {
        rlim_t want = (rlim_t)(kept + m->max_guests);
        limit.rlim_cur = want < limit.rlim_max ? want : limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < (rlim_t)kept)
        return pp_fail(err, PP_EXIT_SYSTEM,
                       "rank 0 needs %d open files for %d ranks, but the limit "
                       "is %llu (ulimit -n)",
                       kept, size, (unsigned long long)limit.rlim_cur);
    m->process = calloc((size_t)size, sizeof *m->process);
    m->guests = calloc((size_t)m->max_guests, sizeof *m->guests);
    m->at = calloc((size_t)(size + m->max_guests), sizeof *m->at);
    return m->process && m->guests && m->at
               ? 0
               : pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
}

static void finish_meeting(struct meeting *m)
{
    while (m->n_guests > 0)
        turn_away(m, m->n_guests - 1);
    if (m->listener >= 0)
        close(m->listener);
    free(m->process);
    free(m->guests);
    free(m->at);
}

int pp_rendezvous_gather(struct pp_rendezvous *j,
                         const struct pp_rendezvous_place *p,
                         struct pp_err *err)
{
    struct meeting m = {
        .j = j, .place = p, .listener = -1, .until = pp_clock() + p->seconds};
    struct pp_err why = {0};
    int rc = pp_greeting_init(&m.greeting, p, err) || make_room(&m, err) ||
                     pp_wire_listen(p->address, p->port, &m.listener, err)
                 ? -1
                 : 0;
    if (rc == 0 && p->failure) {
        rc = pp_fail(err, p->failure->code, "%s", p->failure->text);
        pp_fail(&why, err->code, "rank 0 on %s cannot start: %.300s",
                j->hosts[0], err->text);
    }
    while (rc == 0 && m.n_accepted < 2 * (p->size - 1))
        rc = wait_for_ranks(&m, err) || serve(&m, NULL, err) ? -1 : 0;
    if (rc == 0)
        rc = welcome_all(&m, err);
    if (rc && m.listener >= 0)
        refuse_rest(&m, why.code ? &why : err);
    finish_meeting(&m);
    return rc;
}
