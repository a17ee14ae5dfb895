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

#include "base/alloc.h"
#include "base/num.h"
#include "comm/thread_channel.h"

/* The data that a rank brings to a meeting. */
struct brought {
    const void *buf;
    size_t bytes;
};

struct thread_comm {
    struct pp_comm base;
    struct pp_comm_world *world;
    struct pp_peer_copy_end own; /* zeroed without a device */
};

/* A world and its arrays are one allocation. Channels are in the order of
 * struct pp_comm_channel: channels from one rank lie beside each other. */
struct pp_comm_world {
    int size;
    const struct pp_stream_ops
        *streams; /* every rank's device has these; NULL: host memory */
    struct pp_thread_channel *channels; /* (n_channels) */
    struct pp_thread_send *sends;       /* (n_sends) of all channels */
    struct pp_thread_receive *receives; /* (n_receives) of all channels */
    size_t n_channels, n_sends, n_receives;
    size_t *from;   /* (size + 1) where the channels from a rank begin */
    size_t *to;     /* (size + 1) where channels to a rank begin in into */
    uint32_t *into; /* (n_channels) channels in the order of their receivers */
    uint32_t *keys; /* (n_channels) receiver and direction of a channel */
    struct thread_comm *handles; /* (size) */

    atomic_bool aborted; /* set once, after why */
    struct pp_err why;

    /* Meetings of all ranks, and the data of each rank. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct brought *brought; /* (size) */
    int arrived, departed;
    uint64_t n_meetings, n_departures;
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

static uint32_t key_of(int to, enum pp_direction direction)
{
    return (uint32_t)to * PP_N_DIRECTIONS + (uint32_t)direction;
}

/* Returns a channel, or NULL if the world was not made with it. */
static struct pp_thread_channel *channel_of(struct pp_comm_world *w, int from,
                                            int to, enum pp_direction direction)
{
    assert(from >= 0 && from < w->size && to >= 0 && to < w->size);
    uint32_t key = key_of(to, direction);
    size_t low = w->from[from], end = w->from[from + 1], high = end;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (w->keys[middle] < key)
            low = middle + 1;
        else
            high = middle;
    }
    return low < end && w->keys[low] == key ? &w->channels[low] : NULL;
}

/* Waits until no rank reads or writes this rank's buffers. */
static void wait_for_copies(struct pp_comm *c)
{
    struct pp_comm_world *w = world_of(c);
    for (size_t i = w->from[c->rank]; i < w->from[c->rank + 1]; i++)
        pp_thread_channel_wait_for_copy(&w->channels[i]);
    for (size_t i = w->to[c->rank]; i < w->to[c->rank + 1]; i++)
        pp_thread_channel_wait_for_copy(&w->channels[w->into[i]]);
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

/* Ends the job: the world has no such channel. */
static int fail_no_channel(struct pp_comm *c, int from, int to,
                           enum pp_direction direction, struct pp_err *err)
{
    char why[160];
    snprintf(why, sizeof why,
             "no channel for %s messages from rank %d to rank %d: this is a "
             "defect of the program",
             direction_names[direction], from, to);
    threads_abort(c, why);
    return fail_aborted(c, err);
}

/* Ends a wait for messages of a channel that the world does not have. */
static int wait_for_none(struct pp_comm *c, struct pp_err *err)
{
    return world_of(c)->aborted ? fail_aborted(c, err) : 0;
}

static int threads_send(struct pp_comm *c, int to, enum pp_direction direction,
                        const void *buf, size_t bytes, struct pp_err *err)
{
    struct pp_thread_channel *ch =
        channel_of(world_of(c), c->rank, to, direction);
    if (!ch)
        return fail_no_channel(c, c->rank, to, direction, err);
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
    if (!ch)
        return wait_for_none(c, err);
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
    if (!ch)
        return fail_no_channel(c, from, c->rank, direction, err);
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
    if (!ch)
        return wait_for_none(c, err);
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
    return ch ? end_call(c, from, direction, pp_thread_channel_probe(ch, bytes),
                         err)
              : fail_no_channel(c, from, c->rank, direction, err);
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
    struct pp_comm_world *w = t->world;
    for (size_t i = w->to[c->rank]; i < w->to[c->rank + 1]; i++)
        pp_peer_copy_end_close(&w->channels[w->into[i]].receiver);
    t->own = (struct pp_peer_copy_end){0};
}

static void threads_close(struct pp_comm *c)
{
    if (!c)
        return;
    wait_for_copies(c);
    struct pp_comm_world *w = world_of(c);
    for (size_t i = w->to[c->rank]; i < w->to[c->rank + 1]; i++)
        pp_thread_channel_drop(&w->channels[w->into[i]]);
    threads_detach(c);
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

struct pp_comm *pp_comm_threads_open(struct pp_comm_world *w, int rank)
{
    assert(rank >= 0 && rank < w->size);
    struct thread_comm *c = &w->handles[rank];
    *c = (struct thread_comm){.base = {.ops = &threads_transport,
                                       .rank = rank,
                                       .size = w->size,
                                       .local = rank},
                              .world = w};
    return &c->base;
}

/* --- the world --- */

static size_t at_least_one(int n)
{
    return n > 0 ? (size_t)n : 1;
}

/* The bytes of a world's struct, of a rank and of a channel. */
enum { ALIGNMENT = _Alignof(struct pp_thread_channel) };

static size_t bytes_of_rank(void)
{
    return sizeof(struct thread_comm) + sizeof(struct brought) +
           2 * sizeof(size_t);
}

static size_t bytes_of_channel(struct pp_comm_capacity capacity)
{
    return sizeof(struct pp_thread_channel) +
           at_least_one(capacity.depth) * sizeof(struct pp_thread_send) +
           at_least_one(capacity.receives) * sizeof(struct pp_thread_receive) +
           2 * sizeof(uint32_t);
}

int pp_comm_world_bytes(int size, struct pp_comm_capacity capacity,
                        size_t n_channels, size_t *bytes, struct pp_err *err)
{
    size_t of_channels,
        of_rest = pp_round_up(sizeof(struct pp_comm_world), ALIGNMENT) +
                  (size_t)size * bytes_of_rank() + 2 * sizeof(size_t);
    if (n_channels > UINT32_MAX)
        return pp_fail(err, PP_EXIT_SYSTEM,
                       "out of memory: %zu channels of %d ranks", n_channels,
                       size);
    if (pp_mul(n_channels, bytes_of_channel(capacity), &of_channels, err))
        return -1;
    *bytes = pp_round_up(of_rest + of_channels, ALIGNMENT);
    return 0;
}

/* Takes n bytes at *at, and moves it behind them. */
static void *take(char **at, size_t n)
{
    void *p = *at;
    *at += n;
    return p;
}

/* Gives the world its arrays, which follow it. The largest alignment comes
 * first. */
static void place_arrays(struct pp_comm_world *w,
                         struct pp_comm_capacity capacity)
{
    size_t size = (size_t)w->size, n = w->n_channels;
    char *at = (char *)w + pp_round_up(sizeof *w, ALIGNMENT);
    w->n_sends = n * at_least_one(capacity.depth);
    w->n_receives = n * at_least_one(capacity.receives);
    w->channels = take(&at, n * sizeof *w->channels);
    w->sends = take(&at, w->n_sends * sizeof *w->sends);
    w->receives = take(&at, w->n_receives * sizeof *w->receives);
    w->handles = take(&at, size * sizeof *w->handles);
    w->brought = take(&at, size * sizeof *w->brought);
    w->from = take(&at, (size + 1) * sizeof *w->from);
    w->to = take(&at, (size + 1) * sizeof *w->to);
    w->into = take(&at, n * sizeof *w->into);
    w->keys = take(&at, n * sizeof *w->keys);
}

static void init_channels(struct pp_comm_world *w,
                          struct pp_comm_capacity capacity)
{
    size_t depth = at_least_one(capacity.depth);
    size_t receives = at_least_one(capacity.receives);
    for (size_t i = 0; i < w->n_channels; i++) {
        bool scheduled = w->keys[i] % PP_N_DIRECTIONS < PP_DIRECTION_SYNC;
        struct pp_thread_channel *ch = &w->channels[i];
        *ch = (struct pp_thread_channel){
            .aborted = &w->aborted,
            .depth = scheduled ? (uint32_t)capacity.depth : (uint32_t)depth,
            .n_receives = (uint32_t)receives,
            .sends = w->sends + i * depth,
            .receives = w->receives + i * receives};
        pp_thread_channel_init(ch);
    }
}

/* Lists the channels by sender and by receiver. The list is sorted. */
static void list_channels(struct pp_comm_world *w,
                          const struct pp_comm_channel *list)
{
    for (size_t i = 0; i < w->n_channels; i++) {
        const struct pp_comm_channel *x = &list[i];
        assert(x->from >= 0 && x->from < w->size && x->to >= 0 &&
               x->to < w->size);
        w->keys[i] = key_of(x->to, x->direction);
        assert(i == 0 || x[-1].from < x->from ||
               (x[-1].from == x->from && w->keys[i - 1] < w->keys[i]));
        w->from[x->from + 1]++;
        w->to[x->to + 1]++;
    }
    for (int rank = 0; rank < w->size; rank++) {
        w->from[rank + 1] += w->from[rank];
        w->to[rank + 1] += w->to[rank];
    }
    /* to[] moves to the next rank's begin, and back. */
    for (size_t i = 0; i < w->n_channels; i++)
        w->into[w->to[list[i].to]++] = (uint32_t)i;
    for (int rank = w->size; rank > 0; rank--)
        w->to[rank] = w->to[rank - 1];
    w->to[0] = 0;
}

/* Lists the channels of all directions between any two ranks. */
static struct pp_comm_channel *make_all(int size, size_t *n, struct pp_err *err)
{
    size_t pairs = (size_t)size * (size_t)size;
    struct pp_comm_channel *at =
        pp_try_calloc(pairs, PP_N_DIRECTIONS * sizeof *at, err);
    *n = pairs * PP_N_DIRECTIONS;
    for (size_t i = 0; at && i < *n; i++) {
        int pair = (int)(i / PP_N_DIRECTIONS);
        at[i] = (struct pp_comm_channel){
            pair / size, pair % size, (enum pp_direction)(i % PP_N_DIRECTIONS)};
    }
    return at;
}

int pp_comm_world_create(int size, struct pp_comm_capacity capacity,
                         const struct pp_comm_channel *channels, size_t n,
                         struct pp_comm_world **out, struct pp_err *err)
{
    assert(size > 0 && capacity.depth >= 0 && capacity.receives > 0);
    struct pp_comm_channel *all = NULL;
    struct pp_comm_world *w = NULL;
    size_t bytes;
    if (!channels)
        channels = all = make_all(size, &n, err);
    if (!channels || pp_comm_world_bytes(size, capacity, n, &bytes, err))
        goto out;
    w = aligned_alloc(ALIGNMENT, bytes);
    if (!w) {
        pp_fail(err, PP_EXIT_SYSTEM, "out of memory: channels of %d ranks",
                size);
        goto out;
    }
    memset(w, 0, bytes);
    w->size = size;
    w->n_channels = n;
    place_arrays(w, capacity);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    list_channels(w, channels);
    init_channels(w, capacity);
    *out = w;
out:
    free(all);
    return w ? 0 : -1;
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
    free(w);
}
