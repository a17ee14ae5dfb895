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
#include <sys/resource.h>

#include "comm/nccl.h"
#include "comm/rendezvous.h"
#include "comm/sets.h"
#include "comm/tree.h"

/* A message of a batch at this rank, or with both a sum. */
struct nccl_part {
    void *in;        /* NULL: it is sent */
    const void *out; /* NULL: it is received */
    size_t bytes;
    int peer; /* number of the other rank in its set, or of that of the sum */
};

/* The communicator of a set that this rank is in. */
struct nccl_link {
    const struct pp_nccl *lib;
    enum pp_direction direction;
    int *ranks;  /* (n_ranks) of the set */
    int n_ranks; /* this one is index; of a pair 0 sends */
    int index;
    size_t id;        /* index in the list of all sets */
    void *comm;       /* ncclComm_t */
    void *stream;     /* carries its messages */
    void *ready;      /* event: earlier computation is done */
    void **done;      /* (n_done) events: operation k is done[k % n_done] */
    size_t n_done;    /* two more than operations at a time */
    size_t n;         /* messages or batches so far */
    size_t n_awaited; /* receives that computation waits for */
    struct nccl_part *parts; /* (most_parts) of the batch that has begun */
    size_t n_parts;
    pthread_t aborter; /* with aborts */
    bool aborts;
};

struct nccl_comm {
    struct pp_comm base;
    struct pp_rendezvous *join;
    struct pp_nccl lib;
    const struct pp_stream_ops *streams; /* of base.device */
    struct nccl_link *links;
    size_t n_links, n_sets;
    int most_sets;           /* of a rank */
    bool sums;               /* of pp_nccl_options */
    struct nccl_link *batch; /* has begun, or NULL */
    int processors;          /* fewest of a GPU of the job */
    struct pp_comm_capacity capacity;

    /* Held during every use of a link's communicator, because the watching
     * thread looks for errors and aborts. */
    pthread_mutex_t lock;
    bool aborted;
};

static struct nccl_comm *nccl_of(struct pp_comm *c)
{
    return (struct nccl_comm *)c;
}

/* Finds the link of messages of FORWARD or BACKWARD. */
static struct nccl_link *find_link(struct nccl_comm *c, int from, int to,
                                   enum pp_direction direction)
{
    for (size_t i = 0; i < c->n_links; i++) {
        struct nccl_link *l = &c->links[i];
        if (l->direction == direction && l->ranks[0] == from &&
            l->ranks[1] == to)
            return l;
    }
    return NULL;
}

static int compare_ranks(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

/* Returns the number of a rank in a set that is sorted, or -1. */
static int number_of(const struct nccl_link *l, int rank)
{
    const int *at = bsearch(&rank, l->ranks, (size_t)l->n_ranks, sizeof rank,
                            compare_ranks);
    return at ? (int)(at - l->ranks) : -1;
}

/* Finds the link of a set that has all ranks of a group. */
static struct nccl_link *find_group(struct nccl_comm *c,
                                    const struct pp_group *g,
                                    enum pp_direction direction)
{
    assert(direction >= PP_DIRECTION_SYNC && direction != PP_DIRECTION_HOST);
    for (size_t i = 0; i < c->n_links; i++) {
        struct nccl_link *l = &c->links[i];
        int k = l->direction == direction ? 0 : g->n + 1;
        while (k < g->n && number_of(l, pp_group_rank(g, k)) >= 0)
            k++;
        if (k == g->n)
            return l;
    }
    return NULL;
}

/* Fails with an error of NCCL on a link. */
static int fail_nccl(struct nccl_comm *c, const struct nccl_link *l, int rc,
                     struct pp_err *err)
{
    const char *more =
        rc == PP_NCCL_REMOTE_ERROR ? "" : c->lib.last_error(NULL);
    int peer = l->ranks[l->index == 0];
    char others[32] = "";
    if (l->n_ranks > 2)
        snprintf(others, sizeof others, " and %d other ranks", l->n_ranks - 2);
    return pp_fail(
        err, PP_EXIT_SYSTEM,
        "NCCL: messages between rank %d and rank %d on %s%s: %s%s%.200s",
        c->base.rank, peer, pp_rendezvous_host(c->join, peer), others,
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

static int call_nccl(const struct nccl_link *l, const struct nccl_part *p)
{
    if (p->out && p->in)
        return l->lib->reduce(p->out, p->in, p->bytes / sizeof(float),
                              PP_NCCL_FLOAT, PP_NCCL_SUM, p->peer, l->comm,
                              l->stream);
    return p->out ? l->lib->send(p->out, p->bytes, PP_NCCL_INT8, p->peer,
                                 l->comm, l->stream)
                  : l->lib->recv(p->in, p->bytes, PP_NCCL_INT8, p->peer,
                                 l->comm, l->stream);
}

/* Hands messages to NCCL as one operation. */
static int transfer(struct nccl_comm *c, const struct nccl_link *l,
                    const struct nccl_part *parts, size_t n, struct pp_err *err)
{
    int rc = PP_NCCL_SUCCESS, ended = PP_NCCL_SUCCESS;
    pthread_mutex_lock(&c->lock);
    if (!c->aborted && n == 1) {
        rc = call_nccl(l, parts);
    } else if (!c->aborted) {
        rc = c->lib.group_start();
        for (size_t i = 0; i < n && rc == PP_NCCL_SUCCESS; i++)
            rc = call_nccl(l, &parts[i]);
        ended = c->lib.group_end();
        rc = rc ? rc : ended;
    }
    pthread_mutex_unlock(&c->lock);
    return await_link(c, l, rc, err);
}

/* Queues an operation after all work that the rank has queued. */
static int queue_parts(struct nccl_comm *c, struct nccl_link *l,
                       const struct nccl_part *parts, size_t n,
                       struct pp_err *err)
{
    const struct pp_stream_ops *q = c->streams;
    void *done = l->done[l->n % l->n_done];
    if (q->event_record(c->base.device, l->ready, NULL, err) ||
        q->wait_event(c->base.device, l->stream, l->ready, err) ||
        (n > 0 && transfer(c, l, parts, n, err)))
        return -1;
    l->n++;
    return q->event_record(c->base.device, done, l->stream, err);
}

/* The other ranks may be asked for messages both ways. */
static size_t most_parts(const struct nccl_link *l)
{
    return 2 * (size_t)l->n_ranks * PP_BATCH_MOST;
}

/* Queues one message, or adds it to the batch that has begun. */
static int queue_message(struct nccl_comm *c, struct nccl_link *l,
                         struct nccl_part p, struct pp_err *err)
{
    if (l != c->batch)
        return queue_parts(c, l, &p, p.bytes > 0, err);
    assert(l->n_parts < most_parts(l));
    if (p.bytes > 0)
        l->parts[l->n_parts++] = p;
    return 0;
}

/* Makes later computation wait for the first n operations. */
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
    if (pp_rendezvous_aborted(c->join))
        return pp_rendezvous_fail(c->join, err);
    struct nccl_link *l =
        c->batch ? c->batch : find_link(c, base->rank, to, direction);
    assert(l && l->direction == direction);
    int peer = c->batch ? number_of(l, to) : 1;
    if (queue_message(c, l, (struct nccl_part){NULL, buf, bytes, peer}, err))
        return -1;
    return c->capacity.depth == 0 && direction < PP_DIRECTION_SYNC
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
    if (pp_rendezvous_aborted(c->join))
        return pp_rendezvous_fail(c->join, err);
    struct nccl_link *l =
        c->batch ? c->batch : find_link(c, from, base->rank, direction);
    assert(l && l->direction == direction);
    struct nccl_part p = {buf, NULL, bytes, c->batch ? number_of(l, from) : 0};
    return (!c->batch &&
            follow_receives(c, l, (size_t)c->capacity.receives - 1, err)) ||
                   queue_message(c, l, p, err)
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

static int nccl_begin_batch(struct pp_comm *base, const struct pp_group *g,
                            enum pp_direction direction, struct pp_err *err)
{
    struct nccl_comm *c = nccl_of(base);
    if (pp_rendezvous_aborted(c->join))
        return pp_rendezvous_fail(c->join, err);
    assert(!c->batch);
    c->batch = find_group(c, g, direction);
    assert(c->batch);
    c->batch->n_parts = 0;
    return 0;
}

/* A sum is of all ranks of a communicator. */
static bool nccl_can_sum(struct pp_comm *base, const struct pp_group *g,
                         enum pp_direction direction)
{
    const struct nccl_comm *c = nccl_of(base);
    const struct nccl_link *l = find_group(nccl_of(base), g, direction);
    return c->sums && direction == PP_DIRECTION_WEIGHTS && l &&
           l->n_ranks == g->n;
}

static int nccl_sum(struct pp_comm *base, int rank, void *buf, size_t n,
                    struct pp_err *err)
{
    struct nccl_comm *c = nccl_of(base);
    const struct nccl_part p = {buf, buf, n * sizeof(float),
                                number_of(c->batch, rank)};
    return queue_message(c, c->batch, p, err);
}

static int nccl_end_batch(struct pp_comm *base, struct pp_err *err)
{
    struct nccl_comm *c = nccl_of(base);
    struct nccl_link *l = c->batch;
    c->batch = NULL;
    return queue_parts(c, l, l->parts, l->n_parts, err);
}

static int nccl_await_batches(struct pp_comm *base, const struct pp_group *g,
                              enum pp_direction direction, int keep,
                              struct pp_err *err)
{
    struct nccl_comm *c = nccl_of(base);
    const struct nccl_link *l = find_group(c, g, direction);
    if (pp_rendezvous_aborted(c->join))
        return pp_rendezvous_fail(c->join, err);
    return l && l->n > (size_t)keep
               ? follow_messages(c, l, l->n - (size_t)keep, err)
               : 0;
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

/* Identifiers on their way to rank 0, with the numbers of their sets. */
struct id_list {
    uint64_t *sets;
    struct pp_nccl_id *ids, *all; /* all: (n_sets) */
};

enum { IDS_AT_A_TIME = 128 };

static void take_ids(void *ctx, size_t first, size_t n)
{
    const struct id_list *l = ctx;
    for (size_t i = first; i < first + n; i++)
        l->all[l->sets[i]] = l->ids[i];
}

/* Fills the identifiers of all sets. The first rank of a set makes its
 * identifier. */
static int exchange_ids(struct nccl_comm *c, struct pp_nccl_id *all,
                        struct pp_err *err)
{
    size_t room = c->n_links + IDS_AT_A_TIME;
    struct id_list l = {calloc(room, sizeof *l.sets),
                        calloc(room, sizeof *l.ids), all};
    struct pp_records r = {
        .part = IDS_AT_A_TIME,
        .columns = {{l.sets, sizeof *l.sets}, {l.ids, sizeof *l.ids}}};
    int rc =
        l.sets && l.ids ? 0 : pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    for (size_t i = 0; i < c->n_links && rc == 0; i++) {
        const struct nccl_link *link = &c->links[i];
        if (link->index != 0)
            continue;
        int failed = c->lib.get_unique_id(&l.ids[r.n]);
        l.sets[r.n++] = link->id;
        rc = failed ? fail_nccl(c, link, failed, err) : 0;
    }
    if (rc == 0)
        rc = pp_tree_collect(&c->base, &r, take_ids, &l, err) ||
                     pp_tree_broadcast(&c->base, all, c->n_sets * sizeof *all,
                                       err)
                 ? -1
                 : 0;
    free(l.sets);
    free(l.ids);
    return rc;
}

/* A kernel of NCCL holds its blocks, nearly a processor of the GPU each, until
 * the kernels of the other ranks of its set run. If the processors of every
 * rank waited for ranks whose own processors wait, no rank would go on. So the
 * kernels of all sets of a rank fit in the GPU with the fewest processors, and
 * leave some for computation. */
enum { LEFT_PROCESSORS = PP_COMM_LEFT_PROCESSORS };

static int most_blocks(const struct nccl_comm *c)
{
    int blocks = pp_comm_sets_blocks(c->most_sets, c->processors);
    return blocks == PP_COMM_BLOCKS ? PP_NCCL_UNDEFINED : blocks;
}

/* Finds the GPU with the fewest processors, and checks that a kernel of each
 * set of a rank fits in it. */
static int count_processors(struct nccl_comm *c, struct pp_err *err)
{
    int own = c->streams->processors(c->base.device);
    int *all = calloc((size_t)c->base.size, sizeof *all);
    if (!all)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    int rc = pp_rendezvous_allgather(c->join, &own, all, sizeof own, err);
    c->processors = own;
    for (int r = 0; r < c->base.size && rc == 0; r++)
        if (all[r] < c->processors)
            c->processors = all[r];
    free(all);
    if (rc == 0 && c->most_sets + LEFT_PROCESSORS > c->processors)
        return pp_fail(err, PP_EXIT_SYSTEM,
                       "a rank exchanges messages in %d sets of ranks, and "
                       "each may hold a processor of its GPU, which has %d, of "
                       "which computation needs %d: use fewer stages or a mesh "
                       "with fewer dimensions",
                       c->most_sets, c->processors, LEFT_PROCESSORS);
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
                                    .max_ctas = most_blocks(c),
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
                        : c->lib.init(&l->comm, l->n_ranks, ids[l->id],
                                      l->index, &config);
    pthread_mutex_unlock(&c->lock);
    return await_link(c, l, rc, err);
}

#define TRIAL_BYTES 64

/* Exchanges a first message with every other rank of the set, as later ones go,
 * and waits until they are done. room: for one that is sent and one that is
 * received. */
static int try_first_messages(struct nccl_comm *c, struct nccl_link *l,
                              char *room, struct pp_err *err)
{
    bool is_pair = l->direction < PP_DIRECTION_SYNC, done = false;
    l->n_parts = 0;
    for (int k = 1; k < l->n_ranks; k++) {
        int to = (l->index + k) % l->n_ranks;
        int from = (l->index + l->n_ranks - k) % l->n_ranks;
        if (!is_pair || l->index == 1)
            l->parts[l->n_parts++] =
                (struct nccl_part){room + TRIAL_BYTES, NULL, TRIAL_BYTES, from};
        if (!is_pair || l->index == 0)
            l->parts[l->n_parts++] =
                (struct nccl_part){NULL, room, TRIAL_BYTES, to};
    }
    if (c->sums && l->direction == PP_DIRECTION_WEIGHTS)
        l->parts[l->n_parts++] =
            (struct nccl_part){room, room, sizeof(float), 0};
    if (queue_parts(c, l, l->parts, l->n_parts, err))
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
    struct pp_nccl_id *ids = calloc(c->n_sets + 1, sizeof *ids);
    void *room = q->alloc(d, 2 * (size_t)TRIAL_BYTES);
    int rc = ids && room ? 0 : pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    c->base.device = d;
    c->streams = q;
    pp_rendezvous_watch(c->join, &watcher);
    if (rc == 0)
        rc = count_processors(c, err) || exchange_ids(c, ids, err) ? -1 : 0;
    for (size_t i = 0; i < c->n_links && rc == 0; i++) {
        rc = connect_link(c, &c->links[i], ids, err);
        if (rc == 0)
            rc = try_first_messages(c, &c->links[i], room, err);
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
    for (size_t i = 0; i < c->n_links; i++) {
        free(c->links[i].done);
        free(c->links[i].ranks);
        free(c->links[i].parts);
    }
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
    .begin_batch = nccl_begin_batch,
    .end_batch = nccl_end_batch,
    .await_batches = nccl_await_batches,
    .can_sum = nccl_can_sum,
    .sum = nccl_sum,
    .allgather = nccl_allgather,
    .barrier = nccl_barrier,
    .abort = nccl_abort,
    .close = nccl_close,
};

/* Opens the link of a set, which is number id of the list. */
static int open_link(struct nccl_comm *c, const struct pp_comm_sets *sets,
                     size_t id, struct pp_err *err)
{
    enum { BATCHES = 2 }; /* under way at a time */
    const struct pp_comm_set *set = &sets->items[id];
    const int *ranks = pp_comm_set_ranks(sets, set);
    struct nccl_link l = {.lib = &c->lib,
                          .direction = set->direction,
                          .n_ranks = set->n,
                          .index = set->n,
                          .id = id};
    for (int k = 0; k < set->n; k++)
        if (ranks[k] == c->base.rank)
            l.index = k;
    if (l.index == set->n)
        return 0;
    size_t n = (size_t)set->n;
    int at_a_time = set->direction >= PP_DIRECTION_SYNC ? BATCHES
                    : l.index == 1                      ? c->capacity.receives
                                                        : c->capacity.depth;
    l.n_done = (size_t)at_a_time + 2;
    l.done = calloc(l.n_done, sizeof *l.done);
    l.ranks = calloc(n, sizeof *l.ranks);
    l.parts = calloc(most_parts(&l), sizeof *l.parts);
    c->links[c->n_links++] = l;
    if (!l.done || !l.ranks || !l.parts)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    memcpy(l.ranks, ranks, n * sizeof *ranks);
    return 0;
}

/* Raises the limit of open files as far as it goes: NCCL needs some for each
 * communicator and for each connection. Fails if that is not enough. */
static int make_room_for_files(const struct nccl_comm *c, struct pp_err *err)
{
    enum { OF_PROGRAM = 64, OF_LINK = 16, OF_PEER = 2 };
    struct rlimit limit;
    rlim_t needed = OF_PROGRAM;
    for (size_t i = 0; i < c->n_links; i++)
        needed += OF_LINK + OF_PEER * (rlim_t)(c->links[i].n_ranks - 1);
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return 0;
    limit.rlim_cur = limit.rlim_max;
    if (limit.rlim_max >= needed)
        return setrlimit(RLIMIT_NOFILE, &limit) == 0
                   ? 0
                   : pp_fail_errno(err, "setrlimit");
    return pp_fail(err, PP_EXIT_SYSTEM,
                   "rank %d needs %llu open files for its messages in %zu sets "
                   "of ranks, but the limit is %llu (ulimit -Hn)",
                   c->base.rank, (unsigned long long)needed, c->n_links,
                   (unsigned long long)limit.rlim_max);
}

static int open_links(struct nccl_comm *c, const struct pp_comm_sets *sets,
                      struct pp_err *err)
{
    c->n_sets = sets->n;
    c->most_sets = pp_comm_sets_most(sets, c->base.size);
    c->links = calloc((size_t)c->most_sets + 1, sizeof *c->links);
    if (!c->links)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    for (size_t i = 0; i < sets->n; i++)
        if (open_link(c, sets, i, err))
            return -1;
    return make_room_for_files(c, err);
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
    c->capacity = o->capacity;
    c->sums = o->sums;
    pthread_mutex_init(&c->lock, NULL);
    if (pp_nccl_open(o->library, &c->lib, err) || open_links(c, o->sets, err)) {
        nccl_close(&c->base);
        return -1;
    }
    *out = &c->base;
    return 0;
}
