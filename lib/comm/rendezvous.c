/* SPDX-License-Identifier: MIT */
/* rendezvous - state of a job, and data between its ranks. */
#include "comm/rendezvous.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "comm/rendezvous_state.h"
#include "comm/tree.h"

int pp_rendezvous_rank(const struct pp_rendezvous *j)
{
    return j->rank;
}

int pp_rendezvous_size(const struct pp_rendezvous *j)
{
    return j->size;
}

int pp_rendezvous_local(const struct pp_rendezvous *j)
{
    return j->local;
}

const char *pp_rendezvous_host(const struct pp_rendezvous *j, int rank)
{
    return j->hosts[rank];
}

/* Fails after a data connection or the job has ended. The watching thread knows
 * the reason, because its connection to the same process ends too. */
static int fail_wire(struct pp_rendezvous *j, int rank, struct pp_err *err)
{
    const char *reason = errno ? strerror(errno) : "its connection has ended";
    if (pp_rendezvous_await_abort(j))
        return pp_rendezvous_fail(j, err);
    return pp_fail(err, PP_EXIT_SYSTEM, "rank %d on %s is lost: %s", rank,
                   j->hosts[rank], reason);
}

int pp_rendezvous_send(struct pp_rendezvous *j, int to, const void *buf,
                       size_t bytes, struct pp_err *err)
{
    uint64_t n = bytes;
    int fd = j->data[to];
    errno = 0;
    if (pp_wire_write(fd, j->stop, INFINITY, &n, sizeof n) ||
        pp_wire_write(fd, j->stop, INFINITY, buf, bytes))
        return fail_wire(j, to, err);
    return 0;
}

int pp_rendezvous_recv(struct pp_rendezvous *j, int from, void *buf,
                       size_t bytes, struct pp_err *err)
{
    uint64_t n;
    char why[120];
    int fd = j->data[from];
    errno = 0;
    if (pp_wire_read(fd, j->stop, INFINITY, &n, sizeof n))
        return fail_wire(j, from, err);
    if (n != bytes) {
        snprintf(why, sizeof why,
                 "message from rank %d has %llu bytes, expected %zu", from,
                 (unsigned long long)n, bytes);
        pp_rendezvous_abort(j, why);
        return pp_rendezvous_fail(j, err);
    }
    return pp_wire_read(fd, j->stop, INFINITY, buf, bytes)
               ? fail_wire(j, from, err)
               : 0;
}

static int send_to(void *ctx, int to, const void *buf, size_t bytes,
                   struct pp_err *err)
{
    return pp_rendezvous_send(ctx, to, buf, bytes, err);
}

static int receive_from(void *ctx, int from, void *buf, size_t bytes,
                        struct pp_err *err)
{
    return pp_rendezvous_recv(ctx, from, buf, bytes, err);
}

static struct pp_tree_links links_of(struct pp_rendezvous *j)
{
    return (struct pp_tree_links){j->rank, j->size, send_to, receive_from, j};
}

int pp_rendezvous_allgather(struct pp_rendezvous *j, const void *mine,
                            void *all, size_t bytes, struct pp_err *err)
{
    const struct pp_tree_links l = links_of(j);
    return pp_rendezvous_aborted(j) ? pp_rendezvous_fail(j, err)
                                    : pp_tree_gather(&l, mine, all, bytes, err);
}

int pp_rendezvous_judge(struct pp_rendezvous *j, struct pp_verdict *v,
                        struct pp_err *err)
{
    const struct pp_tree_links l = links_of(j);
    return pp_rendezvous_aborted(j) ? pp_rendezvous_fail(j, err)
                                    : pp_tree_judge(&l, v, err);
}

int pp_rendezvous_broadcast(struct pp_rendezvous *j, void **data, size_t *bytes,
                            struct pp_err *err)
{
    const struct pp_tree_links l = links_of(j);
    uint64_t n = *bytes;
    if (pp_tree_spread(&l, &n, sizeof n, err))
        return -1;
    if (j->rank != 0) {
        *bytes = (size_t)n;
        *data = n < SIZE_MAX ? malloc(*bytes + 1) : NULL;
    }
    if (j->rank != 0 && !*data)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory: %zu bytes", *bytes);
    return pp_tree_spread(&l, *data, *bytes, err);
}

static struct pp_rendezvous *
create_rendezvous(const struct pp_rendezvous_place *p)
{
    struct pp_rendezvous *j = calloc(1, sizeof *j);
    size_t n = (size_t)p->size;
    if (!j)
        return NULL;
    j->rank = p->rank;
    j->size = p->size;
    j->lost = -1;
    j->tree.listener = -1;
    pthread_mutex_init(&j->lock, NULL);
    pthread_cond_init(&j->changed, NULL);
    j->stop = eventfd(0, EFD_CLOEXEC);
    j->wake = eventfd(0, EFD_CLOEXEC);
    j->hosts = calloc(n, sizeof *j->hosts);
    j->data = malloc(n * sizeof *j->data);
    j->monitor = malloc(n * sizeof *j->monitor);
    j->gone = calloc(n, sizeof *j->gone);
    j->peers = calloc(n, sizeof *j->peers);
    if (p->observer)
        j->observer = *p->observer;
    for (size_t r = 0; j->data && j->monitor && r < n; r++)
        j->data[r] = j->monitor[r] = -1;
    return j;
}

static int meet(struct pp_rendezvous *j, const struct pp_rendezvous_place *p,
                struct pp_err *err)
{
    struct pp_hello own;
    pp_hello_fill(p, &own);
    memcpy(j->hosts[p->rank], own.host, sizeof own.host);
    j->local = p->local < 0 ? 0 : p->local;
    if (p->size == 1)
        return p->failure
                   ? pp_fail(err, p->failure->code, "%s", p->failure->text)
                   : 0;
    if (p->rank == 0 ? pp_rendezvous_gather(j, p, err)
                     : pp_rendezvous_join(j, p, err))
        return -1;
    for (int r = 0; r < j->size; r++)
        if (j->monitor[r] >= 0)
            pp_wire_prepare(j->monitor[r], true);
    return 0;
}

/* Connects the ranks that have met. */
static int connect_ranks(struct pp_rendezvous *j,
                         const struct pp_rendezvous_place *p,
                         struct pp_err *err)
{
    if (pp_rendezvous_watch_begin(j, err))
        return -1;
    if (pp_rendezvous_connect_tree(j, p, err)) {
        /* Rank 0 prints the reason, and every observer that a rank is lost. */
        if (p->told)
            *p->told = err->origin.known & PP_ORIGIN_LOST ||
                       (j->rank != 0 && err->origin.rank != j->rank &&
                        pp_rendezvous_lost(j) != 0);
        return -1;
    }
    for (int r = 0; r < j->size; r++)
        if (j->data[r] >= 0)
            pp_wire_prepare(j->data[r], false);
    return 0;
}

int pp_rendezvous_open(const struct pp_rendezvous_place *p,
                       struct pp_rendezvous **out, struct pp_err *err)
{
    struct pp_rendezvous *j = create_rendezvous(p);
    if (!j || !j->hosts || !j->data || !j->monitor || !j->gone || !j->peers ||
        j->stop < 0 || j->wake < 0)
        pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    else if (meet(j, p, err) == 0 && connect_ranks(j, p, err) == 0) {
        *out = j;
        return 0;
    }
    pp_rendezvous_close(j);
    return -1;
}

static void close_all(const int *fds, int n)
{
    for (int r = 0; fds && r < n; r++)
        if (fds[r] >= 0)
            close(fds[r]);
}

void pp_rendezvous_close(struct pp_rendezvous *j)
{
    if (!j)
        return;
    if (j->watched)
        pp_rendezvous_watch_end(j);
    close_all(j->data, j->size);
    close_all(j->monitor, j->size);
    if (j->stop >= 0)
        close(j->stop);
    if (j->wake >= 0)
        close(j->wake);
    if (j->tree.listener >= 0)
        close(j->tree.listener);
    pthread_cond_destroy(&j->changed);
    pthread_mutex_destroy(&j->lock);
    free(j->hosts);
    free(j->data);
    free(j->monitor);
    free(j->gone);
    free(j->peers);
    free(j);
}
