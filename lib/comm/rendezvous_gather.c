/* SPDX-License-Identifier: MIT */
/* rendezvous_gather - rank 0 waits for the other ranks. A rank that cannot
 * start also connects, to report why. Then rank 0 refuses all ranks, also ranks
 * that connect a little later. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/rendezvous_guests.h"
#include "comm/rendezvous_state.h"
#include "comm/tree.h"

/* Seconds in which rank 0 refuses late ranks. */
enum { LATE_S = 5 };

/* State of rank 0 while ranks join. */
struct meeting {
    struct pp_rendezvous *j;
    const struct pp_rendezvous_place *place;
    double until;
    int n_accepted;                           /* connections kept */
    int n_hellos;                             /* ranks that sent a hello */
    const struct pp_err *refusal;             /* of all ranks; or NULL */
    unsigned char (*process)[PP_NONCE_BYTES]; /* (size) of each rank */
    union pp_address *listens;                /* (size) */
    struct pp_guests guests;
    struct pollfd *at; /* (size + 1 + guests.max) */
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
    if (!h->is_monitor)
        m->listens[h->rank] = h->listens;
    memcpy(j->hosts[h->rank], h->host, sizeof h->host);
    m->n_accepted++;
    return 0;
}

static int fail_missing(const struct meeting *m, struct pp_err *err)
{
    const struct pp_rendezvous *j = m->j;
    int missing = 0, first = -1;
    char others[100] = "";
    for (int r = 1; r < j->size; r++)
        if (j->data[r] < 0 || j->monitor[r] < 0)
            first = missing++ ? first : r;
    if (m->guests.n_strange || m->guests.n)
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
 * that they have ended. The guests are at[size] and later. */
static int wait_for_ranks(struct meeting *m, struct pp_err *err)
{
    const struct pp_rendezvous *j = m->j;
    size_t n = (size_t)(j->size + 1 + m->guests.n);
    double left = m->until - pp_clock();
    if (left <= 0)
        return fail_missing(m, err);
    for (int r = 0; r < j->size; r++)
        m->at[r] = (struct pollfd){j->data[r], POLLIN, 0};
    pp_guests_list(&m->guests, m->at + j->size);
    int ms = left < 1e6 ? (int)(left * 1000) + 1 : -1;
    if (poll(m->at, n, ms) < 0)
        memset(m->at, 0, n * sizeof *m->at);
    errno = 0;
    for (int r = 1; r < j->size; r++)
        if (m->at[r].revents)
            return fail_lost(r, j->hosts[r], err);
    return 0;
}

static int take_rank(void *ctx, const struct pp_hello *h, int fd,
                     struct pp_err *err)
{
    struct meeting *m = ctx;
    bool refused = m->refusal;
    m->n_hellos += !h->is_monitor;
    if (!refused && accept_rank(m, h, fd, err) == 0)
        return 0;
    refuse(fd, refused ? m->refusal : err, !refused);
    close(fd);
    return refused ? 0 : -1;
}

static int serve(struct meeting *m, struct pp_err *err)
{
    return pp_guests_serve(&m->guests, m->at + m->j->size, take_rank, m, err);
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
    struct pp_welcome w = {0};
    pp_hello_random(w.session, sizeof w.session);
    for (int r = 1; r < j->size; r++) {
        w.local = local_of(j, r);
        w.parent = m->listens[pp_tree_parent(r)];
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
    m->refusal = why;
    for (int r = 1; r < m->j->size; r++)
        if (m->j->data[r] >= 0) {
            refuse(m->j->data[r], why, false);
            close(m->j->data[r]);
            m->j->data[r] = -1; /* it may end now */
        }
    while (m->n_hellos < m->j->size - 1 && pp_clock() < m->until &&
           wait_for_ranks(m, &ignored) == 0)
        if (serve(m, &ignored))
            break;
}

/* Makes room for the connections. Raises the limit of descriptors if it must;
 * if it cannot, strangers are turned away sooner. */
static int make_room(struct meeting *m, struct pp_err *err)
{
    int size = m->place->size, kept = 2 * size + 64;
    struct rlimit limit;
    if (pp_guests_init(&m->guests, size, err))
        return -1;
    rlim_t want = (rlim_t)(kept + m->guests.max);
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < want) {
        limit.rlim_cur = want < limit.rlim_max ? want : limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < (rlim_t)kept)
        return pp_fail(err, PP_EXIT_SYSTEM,
                       "rank 0 needs %d open files for %d ranks, but the limit "
                       "is %llu (ulimit -n)",
                       kept, size, (unsigned long long)limit.rlim_cur);
    m->process = calloc((size_t)size, sizeof *m->process);
    m->listens = calloc((size_t)size, sizeof *m->listens);
    m->at = calloc((size_t)(size + 1 + m->guests.max), sizeof *m->at);
    return m->process && m->listens && m->at
               ? 0
               : pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
}

int pp_rendezvous_gather(struct pp_rendezvous *j,
                         const struct pp_rendezvous_place *p,
                         struct pp_err *err)
{
    struct meeting m = {.j = j,
                        .place = p,
                        .guests = {.listener = -1},
                        .until = pp_clock() + p->seconds};
    struct pp_err why = {0};
    int rc =
        pp_greeting_init(&m.guests.greeting, p, err) || make_room(&m, err) ||
                pp_wire_listen(p->address, p->port, &m.guests.listener, err)
            ? -1
            : 0;
    if (rc == 0 && p->failure) {
        rc = pp_fail(err, p->failure->code, "%s", p->failure->text);
        pp_fail(&why, err->code, "rank 0 on %s cannot start: %.300s",
                j->hosts[0], err->text);
    }
    while (rc == 0 && m.n_accepted < 2 * (p->size - 1))
        rc = wait_for_ranks(&m, err) || serve(&m, err) ? -1 : 0;
    if (rc == 0)
        rc = welcome_all(&m, err);
    if (rc && m.guests.listener >= 0)
        refuse_rest(&m, why.code ? &why : err);
    pp_guests_finish(&m.guests);
    free(m.process);
    free(m.listens);
    free(m.at);
    return rc;
}
