/* SPDX-License-Identifier: MIT */
/* comm_threads - ranks as threads of one process: the world that they share,
 * and meetings of all ranks. thread_channel.h passes the messages.
 *
 * After an abort a rank may free its buffers as soon as one of its calls has
 * failed. No copy begins after that, and a failing call waits for copies that
 * had begun. */
#include "comm/comm.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "comm/thread_channel.h"

/* The data that a rank brings to a meeting. */
struct brought {
    const void *buf;
    size_t bytes;
};

struct pp_comm_world {
    int size;
    const struct pp_stream_ops
        *streams; /* every rank's device has these; NULL: host memory */
    struct pp_thread_channel *channels; /* (from, to, direction) */
    struct pp_thread_send *sends;       /* (n_sends) of all channels */
    struct pp_thread_receive *receives; /* (n_receives) of all channels */
    size_t n_channels, n_sends, n_receives;

    atomic_bool aborted; /* set once, after why */
    struct pp_err why;

    /* Meetings of all ranks, and the data of each rank. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct brought *brought; /* (size) */
    int arrived, departed;
    uint64_t n_meetings, n_departures;
};

struct thread_comm {
    struct pp_comm base;
    struct pp_comm_world *world;
    struct pp_peer_copy_end own; /* zeroed without a device */
};

static const char *const direction_names[PP_N_DIRECTIONS] = {
    [PP_DIRECTION_FORWARD] = "forward", [PP_DIRECTION_BACKWARD] = "backward",
    [PP_DIRECTION_SYNC] = "sync",       [PP_DIRECTION_DATA] = "data",
    [PP_DIRECTION_WEIGHTS] = "weights", [PP_DIRECTION_HOST] = "host",
};

static struct pp_comm_world *world_of(struct pp_comm *c)
{
    return ((struct thread_comm *)c)->world;
}

static struct pp_thread_channel *channel_of(struct pp_comm_world *w, int from,
                                            int to, enum pp_direction direction)
{
    assert(from >= 0 && from < w->size && to >= 0 && to < w->size);
    size_t pair = (size_t)from * (size_t)w->size + (size_t)to;
    return &w->channels[pair * PP_N_DIRECTIONS + direction];
}

/* Waits until no rank reads or writes this rank's buffers. */
static void wait_for_copies(struct pp_comm *c)
{
    struct pp_comm_world *w = world_of(c);
    for (int peer = 0; peer < w->size; peer++)
        for (int i = 0; i < PP_N_DIRECTIONS; i++) {
            enum pp_direction direction = (enum pp_direction)i;
            pp_thread_channel_wait_for_copy(
                channel_of(w, c->rank, peer, direction));
            pp_thread_channel_wait_for_copy(
                channel_of(w, peer, c->rank, direction));
        }
}

/* Ends a call after an abort. The caller holds no lock. */
static int fail_aborted(struct pp_comm *c, struct pp_err *err)
{
    wait_for_copies(c);
    if (err->code == PP_EXIT_OK)
        *err = world_of(c)->why;
    return -1;
}

static void threads_abort(struct pp_comm *c, const char *why)
{
    struct pp_comm_world *w = world_of(c);
    pthread_mutex_lock(&w->lock);
    bool first = !w->aborted;
    if (first) {
        pp_fail(&w->why, PP_EXIT_SYSTEM, "rank %d: %s", c->rank, why);
        pp_err_set_origin(&w->why, PP_ORIGIN_RANK, c->rank);
        w->aborted = true;
        pthread_cond_broadcast(&w->changed);
    }
    pthread_mutex_unlock(&w->lock);
    for (size_t i = 0; first && i < w->n_channels; i++)
        pp_thread_channel_wake(&w->channels[i]);
    wait_for_copies(c);
}

/* --- messages --- */

/* Returns this rank's device if messages are in its memory, or NULL. */
static const struct pp_peer_copy_end *end_of(struct pp_comm *c,
                                             enum pp_direction direction)
{
    struct thread_comm *t = (struct thread_comm *)c;
    t->own.device = c->device;
    return t->own.streams && direction != PP_DIRECTION_HOST ? &t->own : NULL;
}

/* Fails with the size of the message that the rank has waited for. */
static int fail_thread_size(struct pp_comm *c, int from,
                            enum pp_direction direction, struct pp_err *err)
{
    const struct pp_thread_channel *ch =
        channel_of(world_of(c), from, c->rank, direction);
    const struct pp_thread_receive *r =
        &ch->receives[ch->awaited % ch->n_receives];
    char why[160];
    snprintf(why, sizeof why,
             "%s message from rank %d has %zu bytes, expected %zu",
             direction_names[direction], from, r->sent_bytes, r->bytes);
    threads_abort(c, why);
    return fail_aborted(c, err);
}

/* Ends a call of this rank with the result of its channel. */
static int end_call(struct pp_comm *c, int from, enum pp_direction direction,
                    int rc, struct pp_err *err)
{
    return rc == PP_CHANNEL_ABORTED ? fail_aborted(c, err)
           : rc == PP_CHANNEL_WRONG_SIZE
               ? fail_thread_size(c, from, direction, err)
               : rc;
}

static int threads_send(struct pp_comm *c, int to, enum pp_direction direction,
                        const void *buf, size_t bytes, struct pp_err *err)
{
    struct pp_thread_channel *ch =
        channel_of(world_of(c), c->rank, to, direction);
    int rc = pp_thread_channel_send(ch, end_of(c, direction), buf, bytes, err);
    return end_call(c, c->rank, direction, rc, err);
}

static int threads_send_wait(struct pp_comm *c, int to,
                             enum pp_direction direction, int keep,
                             struct pp_err *err)
{
    assert(keep >= 0);
    struct pp_thread_channel *ch =
        channel_of(world_of(c), c->rank, to, direction);
    int rc = pp_thread_channel_send_wait(ch, end_of(c, direction), (size_t)keep,
                                         err);
    return end_call(c, c->rank, direction, rc, err);
}

static int threads_recv(struct pp_comm *c, int from,
                        enum pp_direction direction, void *buf, size_t bytes,
                        struct pp_err *err)
{
    struct pp_thread_channel *ch =
        channel_of(world_of(c), from, c->rank, direction);
    int rc = pp_thread_channel_recv(ch, end_of(c, direction), buf, bytes, err);
    return end_call(c, from, direction, rc, err);
}

static int threads_recv_wait(struct pp_comm *c, int from,
                             enum pp_direction direction, int keep,
                             struct pp_err *err)
{
    assert(keep >= 0);
    struct pp_thread_channel *ch =
        channel_of(world_of(c), from, c->rank, direction);
    int rc = pp_thread_channel_recv_wait(ch, end_of(c, direction), (size_t)keep,
                                         err);
    return end_call(c, from, direction, rc, err);
}

static int threads_probe(struct pp_comm *c, int from,
                         enum pp_direction direction, size_t *bytes,
                         struct pp_err *err)
{
    struct pp_thread_channel *ch =
        channel_of(world_of(c), from, c->rank, direction);
    return end_call(c, from, direction, pp_thread_channel_probe(ch, bytes),
                    err);
}

/* --- meetings --- */

/* Waits until all ranks have arrived. If the world is aborted before that,
 * returns false at every rank. */
static bool meet_all(struct pp_comm *c, struct brought mine)
{
    struct pp_comm_world *w = world_of(c);
    pthread_mutex_lock(&w->lock);
    uint64_t meeting = w->n_meetings;
    if (!w->aborted) {
        w->brought[c->rank] = mine;
        if (++w->arrived == w->size) {
            w->arrived = 0;
            w->n_meetings++;
            pthread_cond_broadcast(&w->changed);
        }
    }
    while (w->n_meetings == meeting && !w->aborted)
        pthread_cond_wait(&w->changed, &w->lock);
    bool met = w->n_meetings != meeting;
    pthread_mutex_unlock(&w->lock);
    return met;
}

/* Waits until no rank needs the data of the others. It ignores aborts, because
 * every rank that has met the others calls it. */
static void depart_all(struct pp_comm_world *w)
{
    pthread_mutex_lock(&w->lock);
    uint64_t departure = w->n_departures;
    if (++w->departed == w->size) {
        w->departed = 0;
        w->n_departures++;
        pthread_cond_broadcast(&w->changed);
    }
    while (w->n_departures == departure)
        pthread_cond_wait(&w->changed, &w->lock);
    pthread_mutex_unlock(&w->lock);
}

static int threads_allgather(struct pp_comm *c, const void *mine, void *all,
                             size_t bytes, struct pp_err *err)
{
    struct pp_comm_world *w = world_of(c);
    char why[160] = "";
    if (!meet_all(c, (struct brought){mine, bytes}))
        return fail_aborted(c, err);
    for (int rank = 0; rank < w->size; rank++) {
        struct brought p = w->brought[rank];
        if (p.bytes != bytes)
            snprintf(why, sizeof why,
                     "rank %d gathers %zu bytes, but this rank gathers %zu",
                     rank, p.bytes, bytes);
        else if (bytes > 0)
            memcpy((char *)all + (size_t)rank * bytes, p.buf, bytes);
    }
    depart_all(w);
    if (!why[0])
        return 0;
    threads_abort(c, why);
    return fail_aborted(c, err);
}

static int threads_barrier(struct pp_comm *c, struct pp_err *err)
{
    return meet_all(c, (struct brought){0}) ? 0 : fail_aborted(c, err);
}

static int threads_attach(struct pp_comm *c, struct pp_device *d,
                          const struct pp_stream_ops *q, struct pp_err *err)
{
    struct thread_comm *t = (struct thread_comm *)c;
    (void)err;
    q->enable_peer_access(d, c->size);
    c->device = d;
    t->own = (struct pp_peer_copy_end){.device = d, .streams = q};
    pthread_mutex_lock(&t->world->lock);
    t->world->streams = q;
    pthread_mutex_unlock(&t->world->lock);
    return 0;
}

static void threads_detach(struct pp_comm *c)
{
    struct thread_comm *t = (struct thread_comm *)c;
    for (int from = 0; from < c->size; from++)
        for (int i = 0; i < PP_N_DIRECTIONS; i++)
            pp_peer_copy_end_close(
                &channel_of(t->world, from, c->rank, (enum pp_direction)i)
                     ->receiver);
    t->own = (struct pp_peer_copy_end){0};
}

static void threads_close(struct pp_comm *c)
{
    if (!c)
        return;
    wait_for_copies(c);
    for (int from = 0; from < c->size; from++)
        for (int i = 0; i < PP_N_DIRECTIONS; i++)
            pp_thread_channel_drop(
                channel_of(world_of(c), from, c->rank, (enum pp_direction)i));
    threads_detach(c);
    free(c);
}

static const struct pp_transport threads_transport = {
    .name = "threads",
    .attach = threads_attach,
    .detach = threads_detach,
    .send = threads_send,
    .send_wait = threads_send_wait,
    .recv = threads_recv,
    .recv_wait = threads_recv_wait,
    .allgather = threads_allgather,
    .barrier = threads_barrier,
    .abort = threads_abort,
    .close = threads_close,
    .probe = threads_probe,
};

int pp_comm_threads_open(struct pp_comm_world *w, int rank,
                         struct pp_comm **out, struct pp_err *err)
{
    assert(rank >= 0 && rank < w->size);
    struct thread_comm *c = malloc(sizeof *c);
    if (!c)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    *c = (struct thread_comm){.base = {.ops = &threads_transport,
                                       .rank = rank,
                                       .size = w->size,
                                       .local = rank},
                              .world = w};
    *out = &c->base;
    return 0;
}

static size_t at_least_one(int n)
{
    return n > 0 ? (size_t)n : 1;
}

static void init_channels(struct pp_comm_world *w, struct pp_comm_room room)
{
    for (size_t i = 0; i < w->n_channels; i++) {
        bool scheduled = i % PP_N_DIRECTIONS < PP_DIRECTION_SYNC;
        struct pp_thread_channel *ch = &w->channels[i];
        *ch = (struct pp_thread_channel){
            .aborted = &w->aborted,
            .depth = scheduled ? (size_t)room.depth : at_least_one(room.depth),
            .n_receives = at_least_one(room.receives),
            .sends = w->sends + i * at_least_one(room.depth),
            .receives = w->receives + i * at_least_one(room.receives)};
        pp_thread_channel_init(ch);
    }
}

int pp_comm_world_create(int size, struct pp_comm_room room,
                         struct pp_comm_world **out, struct pp_err *err)
{
    assert(size > 0 && room.depth >= 0 && room.receives > 0);
    size_t n, bytes, n_sends, n_receives;
    if (pp_mul((size_t)size * PP_N_DIRECTIONS, (size_t)size, &n, err) ||
        pp_mul(n, sizeof(struct pp_thread_channel), &bytes, err) ||
        pp_mul(n, at_least_one(room.depth), &n_sends, err) ||
        pp_mul(n, at_least_one(room.receives), &n_receives, err))
        return -1;
    struct pp_comm_world *w = calloc(1, sizeof *w);
    if (!w)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    w->size = size;
    w->n_sends = n_sends;
    w->n_receives = n_receives;
    w->channels = aligned_alloc(_Alignof(struct pp_thread_channel), bytes);
    w->sends = calloc(n_sends, sizeof *w->sends);
    w->receives = calloc(n_receives, sizeof *w->receives);
    w->brought = calloc((size_t)size, sizeof *w->brought);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    if (!w->channels || !w->sends || !w->receives || !w->brought) {
        pp_comm_world_destroy(w);
        return pp_fail(err, PP_EXIT_SYSTEM,
                       "out of memory: channels of %d ranks", size);
    }
    w->n_channels = n;
    init_channels(w, room);
    *out = w;
    return 0;
}

void pp_comm_world_destroy(struct pp_comm_world *w)
{
    if (!w)
        return;
    for (size_t i = 0; i < w->n_channels; i++)
        pp_thread_channel_finish(&w->channels[i]);
    for (size_t i = 0; w->streams && i < w->n_sends; i++) {
        w->streams->event_close(w->sends[i].peer_copy.ready);
        w->streams->event_close(w->sends[i].peer_copy.copied);
    }
    for (size_t i = 0; w->streams && i < w->n_receives; i++) {
        w->streams->event_close(w->receives[i].peer_copy.writable);
        w->streams->event_close(w->receives[i].peer_copy.arrived);
    }
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w->brought);
    free(w->receives);
    free(w->sends);
    free(w->channels);
    free(w);
}
