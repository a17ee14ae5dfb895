/* SPDX-License-Identifier: MIT */
/* comm_threads - ranks as threads of one process.
 *
 * No message is stored: a send posts its address, and the receiver copies from
 * the sender's buffer. So the sender may write its buffer again when the
 * message has been received, and depth bounds posts, not memory. Ranks wait on
 * condition variables, because there may be more ranks than cores. With
 * devices, a message counts as received when its copy is queued; peer_copy.h
 * orders the copy.
 *
 * After an abort a sender may free its buffers as soon as one of its calls has
 * failed. No copy begins after that, and a failing call waits for copies that
 * had begun.
 *
 * It is one file because all functions share the locks and these rules. */
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
#include "comm/peer_copy.h"

struct posted_message {
    const void *buf;
    size_t bytes;
    struct pp_peer_copy peer_copy;
};

struct thread_channel {
    _Alignas(64) pthread_mutex_t lock;
    pthread_cond_t changed;       /* sent, received, copying, or aborted */
    struct posted_message *posts; /* ring of max(depth, 1) */
    size_t sent, received, depth;
    size_t released; /* messages whose copies the sender's stream waits for */
    bool copying;    /* the receiver reads the oldest post's buffer */
};

struct pp_comm_world {
    int size;
    const struct pp_stream_ops
        *streams; /* every rank's device has these; NULL: host memory */
    struct thread_channel *channels; /* (from, to, direction) */
    struct posted_message *posts;    /* (n_posts) posts of all channels */
    size_t n_posts;

    atomic_bool aborted; /* set once, after why */
    struct pp_err why;

    /* Meetings of all ranks, and the data of each rank. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct posted_message *brought; /* (size) */
    int arrived, departed;
    uint64_t n_meetings, n_departures;
};

struct thread_comm {
    struct pp_comm base;
    struct pp_comm_world *world;
    struct pp_peer_copy_end own; /* used to send; zeroed without a device */
    struct pp_peer_copy_end
        *ends; /* (size, direction) used to receive, or NULL */
};

static const char *const direction_names[PP_N_DIRECTIONS] = {
    [PP_DIRECTION_FORWARD] = "forward",
    [PP_DIRECTION_BACKWARD] = "backward",
    [PP_DIRECTION_SYNC] = "sync",
    [PP_DIRECTION_HOST] = "host",
};

static struct pp_comm_world *world_of(struct pp_comm *c)
{
    return ((struct thread_comm *)c)->world;
}

static struct thread_channel *channel_of(struct pp_comm_world *w, int from,
                                         int to, enum pp_direction direction)
{
    assert(from >= 0 && from < w->size && to >= 0 && to < w->size);
    size_t pair = (size_t)from * (size_t)w->size + (size_t)to;
    return &w->channels[pair * PP_N_DIRECTIONS + direction];
}

static size_t ring_size(size_t depth)
{
    return depth > 0 ? depth : 1;
}

/* Waits until no rank reads this rank's buffers. */
static void wait_for_copies(struct pp_comm *c)
{
    struct pp_comm_world *w = world_of(c);
    for (int to = 0; to < w->size; to++) {
        for (int direction = 0; direction < PP_N_DIRECTIONS; direction++) {
            struct thread_channel *ch = channel_of(w, c->rank, to, direction);
            pthread_mutex_lock(&ch->lock);
            while (ch->copying)
                pthread_cond_wait(&ch->changed, &ch->lock);
            pthread_mutex_unlock(&ch->lock);
        }
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
    size_t n = (size_t)w->size * (size_t)w->size * PP_N_DIRECTIONS;
    pthread_mutex_lock(&w->lock);
    bool first = !w->aborted;
    if (first) {
        pp_fail(&w->why, PP_EXIT_SYSTEM, "rank %d: %s", c->rank, why);
        pp_err_set_origin(&w->why, PP_ORIGIN_RANK, c->rank);
        w->aborted = true;
        pthread_cond_broadcast(&w->changed);
    }
    pthread_mutex_unlock(&w->lock);
    for (size_t i = 0; first && i < n; i++) {
        pthread_mutex_lock(&w->channels[i].lock);
        pthread_cond_broadcast(&w->channels[i].changed);
        pthread_mutex_unlock(&w->channels[i].lock);
    }
}

/* Waits until at most n messages of the channel are not yet received. Returns
 * false if the world is aborted. The caller holds the channel's lock. */
static bool wait_until_received(struct pp_comm_world *w,
                                struct thread_channel *ch, size_t n)
{
    while (ch->sent - ch->received > n && !w->aborted)
        pthread_cond_wait(&ch->changed, &ch->lock);
    return !w->aborted;
}

/* Returns this rank's side as a sender if messages are in device memory, or
 * NULL. */
static const struct pp_peer_copy_end *sender_end(struct pp_comm *c,
                                                 enum pp_direction direction)
{
    struct thread_comm *t = (struct thread_comm *)c;
    return t->own.streams && direction != PP_DIRECTION_HOST ? &t->own : NULL;
}

/* Makes work that the sender queues from now on wait until the first n messages
 * of the channel are copied. They have been received. */
static int release_buffers(struct thread_channel *ch,
                           const struct pp_peer_copy_end *e, size_t n,
                           struct pp_err *err)
{
    for (; e && ch->released < n; ch->released++) {
        struct posted_message *p =
            &ch->posts[ch->released % ring_size(ch->depth)];
        if (pp_peer_copy_wait(&p->peer_copy, e, err))
            return -1;
    }
    return 0;
}

static int threads_send(struct pp_comm *c, int to, enum pp_direction direction,
                        const void *buf, size_t bytes, struct pp_err *err)
{
    struct pp_comm_world *w = world_of(c);
    struct thread_channel *ch = channel_of(w, c->rank, to, direction);
    const struct pp_peer_copy_end *e = sender_end(c, direction);
    size_t ring = ring_size(ch->depth);
    pthread_mutex_lock(&ch->lock);
    bool good = wait_until_received(w, ch, ring - 1);
    pthread_mutex_unlock(&ch->lock);
    if (!good)
        return fail_aborted(c, err);
    /* The free place belongs to the sender, as do the counters that it
     * advances. */
    struct posted_message *post = &ch->posts[ch->sent % ring];
    if (e && (release_buffers(ch, e, ch->sent < ring ? 0 : ch->sent + 1 - ring,
                              err) ||
              pp_peer_copy_post(&post->peer_copy, e, err)))
        return -1;
    post->buf = buf;
    post->bytes = bytes;
    pthread_mutex_lock(&ch->lock);
    ch->sent++;
    pthread_cond_signal(&ch->changed);
    good = wait_until_received(w, ch, ch->depth);
    pthread_mutex_unlock(&ch->lock);
    if (!good)
        return fail_aborted(c, err);
    return ch->depth ? 0 : release_buffers(ch, e, ch->sent, err);
}

static int threads_send_wait(struct pp_comm *c, int to,
                             enum pp_direction direction, int keep,
                             struct pp_err *err)
{
    assert(keep >= 0);
    struct pp_comm_world *w = world_of(c);
    struct thread_channel *ch = channel_of(w, c->rank, to, direction);
    size_t n = (size_t)keep;
    pthread_mutex_lock(&ch->lock);
    bool good = wait_until_received(w, ch, n);
    pthread_mutex_unlock(&ch->lock);
    if (!good)
        return fail_aborted(c, err);
    return release_buffers(ch, sender_end(c, direction),
                           ch->sent > n ? ch->sent - n : 0, err);
}

static int fail_thread_size(struct pp_comm *c, int from,
                            enum pp_direction direction, size_t got,
                            size_t expected, struct pp_err *err)
{
    char why[160];
    snprintf(why, sizeof why,
             "%s message from rank %d has %zu bytes, expected %zu",
             direction_names[direction], from, got, expected);
    threads_abort(c, why);
    return fail_aborted(c, err);
}

/* Waits until the channel holds a message. Returns false if the world is
 * aborted. The caller holds the channel's lock. */
static bool wait_until_sent(struct pp_comm_world *w, struct thread_channel *ch)
{
    while (ch->sent == ch->received && !w->aborted)
        pthread_cond_wait(&ch->changed, &ch->lock);
    return !w->aborted;
}

static int threads_probe(struct pp_comm *c, int from,
                         enum pp_direction direction, size_t *bytes,
                         struct pp_err *err)
{
    struct pp_comm_world *w = world_of(c);
    struct thread_channel *ch = channel_of(w, from, c->rank, direction);
    pthread_mutex_lock(&ch->lock);
    bool good = wait_until_sent(w, ch);
    if (good)
        *bytes = ch->posts[ch->received % ring_size(ch->depth)].bytes;
    pthread_mutex_unlock(&ch->lock);
    return good ? 0 : fail_aborted(c, err);
}

static struct pp_peer_copy_end *receiver_end(struct pp_comm *c, int from,
                                             enum pp_direction direction)
{
    struct thread_comm *t = (struct thread_comm *)c;
    return &t->ends[(size_t)from * PP_N_DIRECTIONS + direction];
}

static int threads_recv(struct pp_comm *c, int from,
                        enum pp_direction direction, void *buf, size_t bytes,
                        struct pp_err *err)
{
    struct pp_comm_world *w = world_of(c);
    struct thread_channel *ch = channel_of(w, from, c->rank, direction);
    struct posted_message *post = NULL;
    pthread_mutex_lock(&ch->lock);
    bool good = wait_until_sent(w, ch);
    if (good) {
        post = &ch->posts[ch->received % ring_size(ch->depth)];
        ch->copying = post->bytes == bytes;
    }
    pthread_mutex_unlock(&ch->lock);
    if (!good)
        return fail_aborted(c, err);
    if (post->bytes != bytes)
        return fail_thread_size(c, from, direction, post->bytes, bytes, err);

    int rc = 0;
    if (sender_end(c, direction))
        rc = pp_peer_copy_receive(&post->peer_copy,
                                  receiver_end(c, from, direction), buf,
                                  post->buf, bytes, err);
    else if (bytes > 0)
        memcpy(buf, post->buf, bytes);
    pthread_mutex_lock(&ch->lock);
    ch->copying = false;
    ch->received++;
    pthread_cond_signal(&ch->changed);
    pthread_mutex_unlock(&ch->lock);
    return rc;
}

/* Waits until all ranks have arrived. If the world is aborted before that,
 * returns false at every rank. */
static bool meet_all(struct pp_comm *c, struct posted_message mine)
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
    if (!meet_all(c, (struct posted_message){mine, bytes}))
        return fail_aborted(c, err);
    for (int rank = 0; rank < w->size; rank++) {
        struct posted_message p = w->brought[rank];
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
    return meet_all(c, (struct posted_message){0}) ? 0 : fail_aborted(c, err);
}

static int threads_attach(struct pp_comm *c, struct pp_device *d,
                          const struct pp_stream_ops *q, struct pp_err *err)
{
    struct thread_comm *t = (struct thread_comm *)c;
    size_t n = (size_t)c->size * PP_N_DIRECTIONS;
    t->ends = calloc(n, sizeof *t->ends);
    if (!t->ends)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    q->enable_peer_access(d, c->size);
    t->own = (struct pp_peer_copy_end){.device = d, .streams = q};
    for (size_t i = 0; i < n; i++)
        t->ends[i] = t->own;
    pthread_mutex_lock(&t->world->lock);
    t->world->streams = q;
    pthread_mutex_unlock(&t->world->lock);
    return 0;
}

static void threads_detach(struct pp_comm *c)
{
    struct thread_comm *t = (struct thread_comm *)c;
    for (size_t i = 0; t->ends && i < (size_t)c->size * PP_N_DIRECTIONS; i++)
        pp_peer_copy_end_close(&t->ends[i]);
    free(t->ends);
    t->ends = NULL;
    t->own = (struct pp_peer_copy_end){0};
}

static void threads_close(struct pp_comm *c)
{
    if (!c)
        return;
    wait_for_copies(c);
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

static void init_channels(struct pp_comm_world *w, size_t depth)
{
    size_t n_pairs = (size_t)w->size * (size_t)w->size;
    struct posted_message *posts = w->posts;
    for (size_t i = 0; i < n_pairs * PP_N_DIRECTIONS; i++) {
        bool sync = i % PP_N_DIRECTIONS >= PP_DIRECTION_SYNC;
        struct thread_channel *ch = &w->channels[i];
        *ch = (struct thread_channel){.depth = sync ? ring_size(depth) : depth,
                                      .posts = posts};
        posts += ring_size(depth);
        pthread_mutex_init(&ch->lock, NULL);
        pthread_cond_init(&ch->changed, NULL);
    }
}

int pp_comm_world_create(int size, int depth, struct pp_comm_world **out,
                         struct pp_err *err)
{
    assert(size > 0 && depth >= 0);
    size_t n, bytes, n_posts;
    if (pp_mul((size_t)size * PP_N_DIRECTIONS, (size_t)size, &n, err) ||
        pp_mul(n, sizeof(struct thread_channel), &bytes, err) ||
        pp_mul(n, ring_size((size_t)depth), &n_posts, err))
        return -1;
    struct pp_comm_world *w = calloc(1, sizeof *w);
    if (!w)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    w->size = size;
    w->n_posts = n_posts;
    w->channels = aligned_alloc(_Alignof(struct thread_channel), bytes);
    w->posts = calloc(n_posts, sizeof *w->posts);
    w->brought = calloc((size_t)size, sizeof *w->brought);
    if (!w->channels || !w->posts || !w->brought) {
        free(w->brought);
        free(w->posts);
        free(w->channels);
        free(w);
        return pp_fail(err, PP_EXIT_SYSTEM,
                       "out of memory: channels of %d ranks", size);
    }
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    init_channels(w, (size_t)depth);
    *out = w;
    return 0;
}

void pp_comm_world_destroy(struct pp_comm_world *w)
{
    if (!w)
        return;
    for (size_t i = 0; i < (size_t)w->size * (size_t)w->size * PP_N_DIRECTIONS;
         i++) {
        pthread_cond_destroy(&w->channels[i].changed);
        pthread_mutex_destroy(&w->channels[i].lock);
    }
    for (size_t i = 0; w->streams && i < w->n_posts; i++) {
        w->streams->event_close(w->posts[i].peer_copy.ready);
        w->streams->event_close(w->posts[i].peer_copy.copied);
    }
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w->brought);
    free(w->posts);
    free(w->channels);
    free(w);
}
