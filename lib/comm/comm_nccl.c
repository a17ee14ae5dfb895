/* SPDX-License-Identifier: MIT */
/* comm_nccl - messages through NCCL, without its blocking calls: they start an
 * operation, and the rank polls the operation and the state of the job. It is
 * one file because it is one table of functions over one struct. */
#include "comm/comm.h"

#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "comm/nccl.h"
#include "comm/rendezvous.h"
#include "comm/tree.h"

/* One channel of which this rank is the sender or the receiver. */
struct nccl_link {
    const struct pp_nccl *lib;
    struct pp_comm_channel of;
    int peer;
    size_t id;         /* index in the list of all channels */
    void *comm;        /* ncclComm_t of two ranks: from is 0, to is 1 */
    void *stream;      /* carries this channel */
    void *ready;       /* event: earlier computation is done */
    void **done;       /* (n_done) events: message k is done[k % n_done] */
    size_t n_shared;   /* links of its busier rank, which share a GPU */
    size_t n_done;     /* two more than messages or receives at a time */
    size_t n;          /* messages so far */
    size_t n_awaited;  /* receives that computation waits for */
    pthread_t aborter; /* with aborts */
    bool aborts;
};

struct nccl_comm {
    struct pp_comm base;
    struct pp_rendezvous *join;
    struct pp_nccl lib;
    const struct pp_stream_ops *streams; /* of base.device */
    struct nccl_link *links;
    size_t n_links, n_channels;
    int processors; /* fewest of a GPU of the job */
    struct pp_comm_room room;

    /* Held during every use of a link's communicator, because the watching
     * thread looks for errors and aborts. */
    pthread_mutex_t lock;
    bool aborted;
};

static struct nccl_comm *nccl_of(struct pp_comm *c)
{
    return (struct nccl_comm *)c;
}

static struct nccl_link *find_link(struct nccl_comm *c, int from, int to,
                                   enum pp_direction direction)
{
    for (size_t i = 0; i < c->n_links; i++) {
        const struct pp_comm_channel *of = &c->links[i].of;
        if (of->from == from && of->to == to && of->direction == direction)
            return &c->links[i];
    }
    return NULL;
}

/* Fails with an error of NCCL on a link. */
static int fail_nccl(struct nccl_comm *c, const struct nccl_link *l, int rc,
                     struct pp_err *err)
{
    const char *more =
        rc == PP_NCCL_REMOTE_ERROR ? "" : c->lib.last_error(NULL);
    return pp_fail(
        err, PP_EXIT_SYSTEM,
        "NCCL: messages between rank %d and rank %d on %s: %s%s%.200s",
        c->base.rank, l->peer, pp_rendezvous_host(c->join, l->peer),
        c->lib.error_text(rc), more && *more ? ": " : "", more ? more : "");
}

/* Returns the state of a link, or success if the link is gone. */
static int link_state(struct nccl_comm *c, const struct nccl_link *l)
{
    int state = PP_NCCL_SUCCESS;
    pthread_mutex_lock(&c->lock);
    int rc = c->aborted || !l->comm ? PP_NCCL_SUCCESS
                                    : c->lib.async_error(l->comm, &state);
    pthread_mutex_unlock(&c->lock);
    return rc ? rc : state;
}

/* Waits until the host's part of an operation is done. */
static int await_link(struct nccl_comm *c, const struct nccl_link *l, int rc,
                      struct pp_err *err)
{
    while (rc == PP_NCCL_IN_PROGRESS) {
        sched_yield();
        if (pp_rendezvous_aborted(c->join))
            return pp_rendezvous_fail(c->join, err);
        rc = link_state(c, l);
    }
    /* If the arguments are wrong, no other rank has ended. */
    bool is_ours =
        !rc || rc == PP_NCCL_INVALID_ARGUMENT || rc == PP_NCCL_INVALID_USAGE;
    if (is_ours ? pp_rendezvous_aborted(c->join)
                : pp_rendezvous_await_abort(c->join))
        return pp_rendezvous_fail(c->join, err);
    return rc ? fail_nccl(c, l, rc, err) : 0;
}

static int transfer(struct nccl_comm *c, const struct nccl_link *l, void *in,
                    const void *out, size_t bytes, struct pp_err *err)
{
    int rc = PP_NCCL_SUCCESS;
    pthread_mutex_lock(&c->lock);
    if (!c->aborted && out)
        rc = c->lib.send(out, bytes, PP_NCCL_INT8, 1, l->comm, l->stream);
    else if (!c->aborted)
        rc = c->lib.recv(in, bytes, PP_NCCL_INT8, 0, l->comm, l->stream);
    pthread_mutex_unlock(&c->lock);
    return await_link(c, l, rc, err);
}

/* Queues one message after all work that the rank has queued. */
static int queue_message(struct nccl_comm *c, struct nccl_link *l, void *in,
                         const void *out, size_t bytes, struct pp_err *err)
{
    const struct pp_stream_ops *q = c->streams;
    void *done = l->done[l->n % l->n_done];
    if (q->event_record(c->base.device, l->ready, NULL, err) ||
        q->wait_event(c->base.device, l->stream, l->ready, err))
        return -1;
    if (bytes > 0 && transfer(c, l, in, out, bytes, err))
        return -1;
    l->n++;
    return q->event_record(c->base.device, done, l->stream, err);
}

/* Makes later computation wait for the first n messages. */
static int follow_messages(struct nccl_comm *c, const struct nccl_link *l,
                           size_t n, struct pp_err *err)
{
    assert(l->n - n < l->n_done);
    return n == 0 ? 0
                  : c->streams->wait_event(c->base.device, NULL,
                                           l->done[(n - 1) % l->n_done], err);
}

static int nccl_send(struct pp_comm *base, int to, enum pp_direction direction,
                     const void *buf, size_t bytes, struct pp_err *err)
{
    struct nccl_comm *c = nccl_of(base);
    if (direction == PP_DIRECTION_HOST)
        return pp_rendezvous_send(c->join, to, buf, bytes, err);
    struct nccl_link *l = find_link(c, base->rank, to, direction);
    assert(l);
    if (pp_rendezvous_aborted(c->join))
        return pp_rendezvous_fail(c->join, err);
    if (queue_message(c, l, NULL, buf, bytes, err))
        return -1;
    return c->room.depth == 0 && direction < PP_DIRECTION_SYNC
               ? follow_messages(c, l, l->n, err)
               : 0;
}

static int nccl_send_wait(struct pp_comm *base, int to,
                          enum pp_direction direction, int keep,
                          struct pp_err *err)
{
    struct nccl_comm *c = nccl_of(base);
    if (direction == PP_DIRECTION_HOST)
        return 0;
    struct nccl_link *l = find_link(c, base->rank, to, direction);
    if (pp_rendezvous_aborted(c->join))
        return pp_rendezvous_fail(c->join, err);
    return l && l->n > (size_t)keep
               ? follow_messages(c, l, l->n - (size_t)keep, err)
               : 0;
}

/* Makes later computation wait for all but the newest keep receives. */
static int follow_receives(struct nccl_comm *c, struct nccl_link *l,
                           size_t keep, struct pp_err *err)
{
    if (l->n - l->n_awaited <= keep)
        return 0;
    l->n_awaited = l->n - keep;
    return follow_messages(c, l, l->n_awaited, err);
}

static int nccl_recv(struct pp_comm *base, int from,
                     enum pp_direction direction, void *buf, size_t bytes,
                     struct pp_err *err)
{
    struct nccl_comm *c = nccl_of(base);
    if (direction == PP_DIRECTION_HOST)
        return pp_rendezvous_recv(c->join, from, buf, bytes, err);
    struct nccl_link *l = find_link(c, from, base->rank, direction);
    assert(l);
    if (pp_rendezvous_aborted(c->join))
        return pp_rendezvous_fail(c->join, err);
    return follow_receives(c, l, (size_t)c->room.receives - 1, err) ||
                   queue_message(c, l, buf, NULL, bytes, err)
               ? -1
               : 0;
}

static int nccl_recv_wait(struct pp_comm *base, int from,
                          enum pp_direction direction, int keep,
                          struct pp_err *err)
{
    struct nccl_comm *c = nccl_of(base);
    if (direction == PP_DIRECTION_HOST)
        return 0;
    struct nccl_link *l = find_link(c, from, base->rank, direction);
    if (pp_rendezvous_aborted(c->join))
        return pp_rendezvous_fail(c->join, err);
    return l ? follow_receives(c, l, (size_t)keep, err) : 0;
}

static int nccl_allgather(struct pp_comm *base, const void *mine, void *all,
                          size_t bytes, struct pp_err *err)
{
    return pp_rendezvous_allgather(nccl_of(base)->join, mine, all, bytes, err);
}

static int nccl_barrier(struct pp_comm *base, struct pp_err *err)
{
    char none = 0;
    return pp_rendezvous_allgather(nccl_of(base)->join, &none, &none, 0, err);
}

static void nccl_abort(struct pp_comm *base, const char *why)
{
    pp_rendezvous_abort(nccl_of(base)->join, why);
}

/* Runs on the watching thread, which must notice lost ranks even if a call of
 * NCCL does not return: it looks again later. */
static int check_links(void *ctx, struct pp_err *err)
{
    struct nccl_comm *c = ctx;
    if (pthread_mutex_trylock(&c->lock) != 0)
        return 0;
    pthread_mutex_unlock(&c->lock);
    for (size_t i = 0; i < c->n_links; i++) {
        int state = link_state(c, &c->links[i]);
        if (state != PP_NCCL_SUCCESS && state != PP_NCCL_IN_PROGRESS)
            return fail_nccl(c, &c->links[i], state, err);
    }
    return 0;
}

static void *abort_link(void *arg)
{
    const struct nccl_link *l = arg;
    l->lib->abort(l->comm);
    return NULL;
}

/* Begins to end operations on the GPU, so that nobody waits for them for ever.
 * NCCL's abort of a communicator frees memory, and so waits for all work of the
 * GPU: also for operations of the other links, which end when these are aborted
 * too. So all are aborted at the same time, each by a thread. If a thread
 * cannot be started, the others may wait for ever (comm.h). */
static void abort_links(void *ctx)
{
    struct nccl_comm *c = ctx;
    pthread_mutex_lock(&c->lock);
    for (size_t i = 0; i < c->n_links && !c->aborted; i++) {
        struct nccl_link *l = &c->links[i];
        l->aborts =
            l->comm && pthread_create(&l->aborter, NULL, abort_link, l) == 0;
    }
    c->aborted = true;
    pthread_mutex_unlock(&c->lock);
}

static void await_aborts(struct nccl_comm *c)
{
    for (size_t i = 0; i < c->n_links; i++) {
        if (c->links[i].aborts)
            pthread_join(c->links[i].aborter, NULL);
        c->links[i].aborts = false;
    }
}

/* Identifiers on their way to rank 0, with their channels. */
struct id_list {
    uint64_t *channels;
    struct pp_nccl_id *ids, *all; /* all: (n_channels) */
};

enum { IDS_AT_A_TIME = 128 };

static void take_ids(void *ctx, size_t first, size_t n)
{
    const struct id_list *l = ctx;
    for (size_t i = first; i < first + n; i++)
        l->all[l->channels[i]] = l->ids[i];
}

/* Fills the identifiers of all channels. The sender of a channel makes its
 * identifier. */
static int exchange_ids(struct nccl_comm *c, struct pp_nccl_id *all,
                        struct pp_err *err)
{
    size_t room = c->n_links + IDS_AT_A_TIME;
    struct id_list l = {calloc(room, sizeof *l.channels),
                        calloc(room, sizeof *l.ids), all};
    struct pp_records r = {
        .part = IDS_AT_A_TIME,
        .columns = {{l.channels, sizeof *l.channels}, {l.ids, sizeof *l.ids}}};
    int rc =
        l.channels && l.ids ? 0 : pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    for (size_t i = 0; i < c->n_links && rc == 0; i++) {
        const struct nccl_link *link = &c->links[i];
        if (link->of.from != c->base.rank)
            continue;
        int failed = c->lib.get_unique_id(&l.ids[r.n]);
        l.channels[r.n++] = link->id;
        rc = failed ? fail_nccl(c, link, failed, err) : 0;
    }
    if (rc == 0)
        rc = pp_tree_collect(&c->base, &r, take_ids, &l, err) ||
                     pp_tree_broadcast(&c->base, all,
                                       c->n_channels * sizeof *all, err)
                 ? -1
                 : 0;
    free(l.channels);
    free(l.ids);
    return rc;
}

/* Returns how many blocks of a kernel of NCCL a message of a link may have. A
 * kernel holds its blocks, nearly a processor of the GPU each, until the other
 * rank's runs. If the processors of every rank waited for messages of ranks
 * whose own processors wait, no rank would go on. So few links keep the default
 * of up to 32 blocks where some processors are left, and many links share half
 * of a GPU. It is a power of two, because NCCL rounds up to one. */
static int most_blocks(const struct nccl_comm *c, size_t n)
{
    enum { DEFAULT = 32, LEFT = 4 };
    size_t most = (size_t)c->processors;
    int blocks = DEFAULT;
    if (n * DEFAULT + LEFT <= most)
        return PP_NCCL_UNDEFINED;
    while (blocks > 1 && (size_t)blocks * n > most / 2)
        blocks /= 2;
    return blocks;
}

/* Finds the GPU with the fewest processors: NCCL cuts a message by the blocks
 * that a rank may have, so both ranks of a channel must say the same. */
static int count_processors(struct nccl_comm *c, struct pp_err *err)
{
    enum { UNKNOWN = 132 };
    int own = c->streams->processors(c->base.device);
    int *all = calloc((size_t)c->base.size, sizeof *all);
    if (!all)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    int rc = pp_rendezvous_allgather(c->join, &own, all, sizeof own, err);
    c->processors = UNKNOWN;
    for (int r = 0; r < c->base.size && rc == 0; r++)
        if (all[r] > 0 && all[r] < c->processors)
            c->processors = all[r];
    free(all);
    return rc;
}

static int connect_link(struct nccl_comm *c, struct nccl_link *l,
                        const struct pp_nccl_id *ids, struct pp_err *err)
{
    struct pp_nccl_config config = {.size = sizeof config,
                                    .magic = PP_NCCL_MAGIC,
                                    .version = PP_NCCL_OLDEST,
                                    .blocking = 0,
                                    .cga_cluster_size = PP_NCCL_UNDEFINED,
                                    .min_ctas = PP_NCCL_UNDEFINED,
                                    .max_ctas = most_blocks(c, l->n_shared),
                                    .split_share = PP_NCCL_UNDEFINED};
    const struct pp_stream_ops *q = c->streams;
    if (q->open(c->base.device, &l->stream, err) ||
        q->event_open(c->base.device, &l->ready, err))
        return -1;
    for (size_t i = 0; i < l->n_done; i++)
        if (q->event_open(c->base.device, &l->done[i], err))
            return -1;
    pthread_mutex_lock(&c->lock);
    int rc = c->aborted ? PP_NCCL_SUCCESS
                        : c->lib.init(&l->comm, 2, ids[l->id],
                                      l->of.to == c->base.rank, &config);
    pthread_mutex_unlock(&c->lock);
    return await_link(c, l, rc, err);
}

#define TRIAL_BYTES 64

/* Sends or receives a first message and waits until it is done. */
static int try_first_message(struct nccl_comm *c, struct nccl_link *l,
                             void *room, struct pp_err *err)
{
    bool sends = l->of.from == c->base.rank, done = false;
    if (queue_message(c, l, sends ? NULL : room, sends ? room : NULL,
                      TRIAL_BYTES, err))
        return -1;
    while (!done) {
        if (await_link(c, l, link_state(c, l), err) ||
            c->streams->is_done(c->base.device, l->stream, &done, err))
            return -1;
        sched_yield();
    }
    l->n_awaited = l->n;
    return 0;
}

static int nccl_attach(struct pp_comm *base, struct pp_device *d,
                       const struct pp_stream_ops *q, struct pp_err *err)
{
    struct nccl_comm *c = nccl_of(base);
    const struct pp_rendezvous_watcher watcher = {check_links, abort_links, c};
    struct pp_nccl_id *ids = calloc(c->n_channels + 1, sizeof *ids);
    void *room = q->alloc(d, TRIAL_BYTES);
    int rc = ids && room ? 0 : pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    c->base.device = d;
    c->streams = q;
    pp_rendezvous_watch(c->join, &watcher);
    if (rc == 0)
        rc = count_processors(c, err) || exchange_ids(c, ids, err) ? -1 : 0;
    for (size_t i = 0; i < c->n_links && rc == 0; i++) {
        rc = connect_link(c, &c->links[i], ids, err);
        if (rc == 0)
            rc = try_first_message(c, &c->links[i], room, err);
    }
    free(ids);
    q->free(d, room);
    return rc;
}

static void nccl_detach(struct pp_comm *base)
{
    struct nccl_comm *c = nccl_of(base);
    struct pp_err ignored = {0};
    if (!c->streams)
        return;
    /* A message of a failed job may still be on its way to its stream. */
    if (pp_rendezvous_aborted(c->join))
        abort_links(c);
    for (size_t i = 0; i < c->n_links; i++) {
        struct nccl_link *l = &c->links[i];
        pthread_mutex_lock(&c->lock);
        int rc = c->aborted || !l->comm ? 0 : c->lib.finalize(l->comm);
        pthread_mutex_unlock(&c->lock);
        rc = await_link(c, l, rc, &ignored);
        (void)rc; /* the run is over or has failed */
    }
    pp_rendezvous_watch(c->join, NULL);
    if (pp_rendezvous_aborted(c->join))
        abort_links(c);
    await_aborts(c);
    for (size_t i = 0; i < c->n_links; i++) {
        struct nccl_link *l = &c->links[i];
        if (l->comm && !c->aborted)
            c->lib.destroy(l->comm);
        l->comm = NULL;
        if (l->stream)
            c->streams->close(c->base.device, l->stream);
        c->streams->event_close(l->ready);
        for (size_t k = 0; k < l->n_done; k++)
            c->streams->event_close(l->done[k]);
    }
    c->streams = NULL;
}

static void nccl_close(struct pp_comm *base)
{
    struct nccl_comm *c = nccl_of(base);
    if (!c)
        return;
    nccl_detach(base);
    for (size_t i = 0; i < c->n_links; i++)
        free(c->links[i].done);
    free(c->links);
    pp_nccl_close(&c->lib);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

static const struct pp_transport nccl_transport = {
    .name = "nccl",
    .attach = nccl_attach,
    .detach = nccl_detach,
    .send = nccl_send,
    .send_wait = nccl_send_wait,
    .recv = nccl_recv,
    .recv_wait = nccl_recv_wait,
    .allgather = nccl_allgather,
    .barrier = nccl_barrier,
    .abort = nccl_abort,
    .close = nccl_close,
};

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Lists the channels of this rank, in the order of the options. n_links
 * (ranks): those of each rank. */
static int list_links(struct nccl_comm *c, const struct pp_nccl_options *o,
                      const size_t *n_links, struct pp_err *err)
{
    int rank = c->base.rank;
    c->links = calloc(o->n_channels + 1, sizeof *c->links);
    if (!c->links)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    for (size_t i = 0; i < o->n_channels; i++) {
        const struct pp_comm_channel *of = &o->channels[i];
        assert(of->direction != PP_DIRECTION_HOST && of->from != of->to);
        if (of->from != rank && of->to != rank)
            continue;
        int at_a_time = of->to == rank ? o->room.receives : o->room.depth;
        struct nccl_link *l = &c->links[c->n_links++];
        *l = (struct nccl_link){.lib = &c->lib,
                                .of = *of,
                                .peer = of->from == rank ? of->to : of->from,
                                .id = i,
                                .n_shared =
                                    larger(n_links[of->from], n_links[of->to]),
                                .n_done = (size_t)at_a_time + 2};
        l->done = calloc(l->n_done, sizeof *l->done);
        if (!l->done)
            return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    }
    return 0;
}

static int open_links(struct nccl_comm *c, const struct pp_nccl_options *o,
                      struct pp_err *err)
{
    size_t *n_links = calloc((size_t)c->base.size, sizeof *n_links);
    if (!n_links)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    for (size_t i = 0; i < o->n_channels; i++) {
        n_links[o->channels[i].from]++;
        n_links[o->channels[i].to]++;
    }
    int rc = list_links(c, o, n_links, err);
    free(n_links);
    return rc;
}

int pp_comm_nccl_open(struct pp_rendezvous *join,
                      const struct pp_nccl_options *o, struct pp_comm **out,
                      struct pp_err *err)
{
    struct nccl_comm *c = calloc(1, sizeof *c);
    if (!c)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    c->base = (struct pp_comm){.ops = &nccl_transport,
                               .rank = pp_rendezvous_rank(join),
                               .size = pp_rendezvous_size(join),
                               .local = pp_rendezvous_local(join)};
    c->join = join;
    c->room = o->room;
    c->n_channels = o->n_channels;
    pthread_mutex_init(&c->lock, NULL);
    if (pp_nccl_open(o->library, &c->lib, err) || open_links(c, o, err)) {
        nccl_close(&c->base);
        return -1;
    }
    *out = &c->base;
    return 0;
}
