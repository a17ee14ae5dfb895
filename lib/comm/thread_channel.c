/* SPDX-License-Identifier: MIT */
/* thread_channel - the counters of a channel and the copies. */
#include "comm/thread_channel.h"

#include <string.h>

void pp_thread_channel_init(struct pp_thread_channel *ch)
{
    pthread_mutex_init(&ch->lock, NULL);
    pthread_cond_init(&ch->changed, NULL);
}

void pp_thread_channel_finish(struct pp_thread_channel *ch)
{
    pthread_cond_destroy(&ch->changed);
    pthread_mutex_destroy(&ch->lock);
}

static size_t n_sends(const struct pp_thread_channel *ch)
{
    return ch->depth > 0 ? ch->depth : 1;
}

/* Waits until at most n of the first *total messages are not yet received.
 * *total is sent at the sender, posted at the receiver. The caller holds the
 * lock. */
static int wait_until_received(struct pp_thread_channel *ch,
                               const size_t *total, size_t n)
{
    while (*total - ch->received > n && !*ch->aborted)
        pthread_cond_wait(&ch->changed, &ch->lock);
    return *ch->aborted ? PP_CHANNEL_ABORTED : 0;
}

static int wait_for_received(struct pp_thread_channel *ch, const size_t *total,
                             size_t n)
{
    pthread_mutex_lock(&ch->lock);
    int rc = wait_until_received(ch, total, n);
    pthread_mutex_unlock(&ch->lock);
    return rc;
}

static int copy_message(const struct pp_thread_channel *ch,
                        const struct pp_thread_send *s,
                        const struct pp_thread_receive *r, struct pp_err *err)
{
    if (r->sent_bytes != r->bytes)
        return 0;
    if (ch->receiver.streams)
        return pp_peer_copy_run(&s->peer_copy, &r->peer_copy, &ch->receiver,
                                r->buf, s->buf, r->bytes, err);
    if (r->bytes > 0)
        memcpy(r->buf, s->buf, r->bytes);
    return 0;
}

/* Receives the next message if it is sent and its receive is posted. The caller
 * holds the lock. No message stays behind: while one is copied, the rank that
 * copies it sends or posts no other. */
static int receive_next(struct pp_thread_channel *ch, struct pp_err *err)
{
    if (ch->received == ch->sent || ch->received == ch->posted || ch->copying ||
        *ch->aborted)
        return 0;
    struct pp_thread_send *s = &ch->sends[ch->received % n_sends(ch)];
    struct pp_thread_receive *r = &ch->receives[ch->received % ch->n_receives];
    r->sent_bytes = s->bytes;
    ch->copying = true;
    pthread_mutex_unlock(&ch->lock);
    int rc = copy_message(ch, s, r, err);
    pthread_mutex_lock(&ch->lock);
    ch->copying = false;
    ch->received++;
    return rc;
}

/* Counts a message that is sent or posted. */
static int add_message(struct pp_thread_channel *ch, size_t *total,
                       struct pp_err *err)
{
    pthread_mutex_lock(&ch->lock);
    ++*total;
    int rc = receive_next(ch, err);
    pthread_cond_broadcast(&ch->changed);
    pthread_mutex_unlock(&ch->lock);
    return rc;
}

/* --- the sender --- */

/* Makes work that the sender queues from now on wait until the first n messages
 * are copied. They have been received. */
static int release_buffers(struct pp_thread_channel *ch,
                           const struct pp_peer_copy_end *e, size_t n,
                           struct pp_err *err)
{
    for (; e && ch->released < n; ch->released++) {
        struct pp_thread_send *s = &ch->sends[ch->released % n_sends(ch)];
        if (pp_peer_copy_wait(s->peer_copy.copied, e, err))
            return -1;
    }
    return 0;
}

int pp_thread_channel_send_wait(struct pp_thread_channel *ch,
                                const struct pp_peer_copy_end *e, size_t keep,
                                struct pp_err *err)
{
    int rc = wait_for_received(ch, &ch->sent, keep);
    return rc ? rc
              : release_buffers(ch, e, ch->sent > keep ? ch->sent - keep : 0,
                                err);
}

int pp_thread_channel_send(struct pp_thread_channel *ch,
                           const struct pp_peer_copy_end *e, const void *buf,
                           size_t bytes, struct pp_err *err)
{
    int rc = pp_thread_channel_send_wait(ch, e, n_sends(ch) - 1, err);
    if (rc)
        return rc;
    /* The free place belongs to the sender. */
    struct pp_thread_send *s = &ch->sends[ch->sent % n_sends(ch)];
    s->buf = buf;
    s->bytes = bytes;
    if ((e && pp_peer_copy_send(&s->peer_copy, e, err)) ||
        add_message(ch, &ch->sent, err))
        return -1;
    if (ch->depth > 0)
        return *ch->aborted ? PP_CHANNEL_ABORTED : 0;
    return pp_thread_channel_send_wait(ch, e, 0, err);
}

/* --- the receiver --- */

int pp_thread_channel_recv_wait(struct pp_thread_channel *ch,
                                const struct pp_peer_copy_end *e, size_t keep,
                                struct pp_err *err)
{
    int rc = wait_for_received(ch, &ch->posted, keep);
    for (; !rc && ch->posted - ch->awaited > keep; ch->awaited++) {
        struct pp_thread_receive *r =
            &ch->receives[ch->awaited % ch->n_receives];
        if (r->sent_bytes != r->bytes)
            return PP_CHANNEL_WRONG_SIZE;
        rc = e ? pp_peer_copy_wait(r->peer_copy.arrived, e, err) : 0;
    }
    return rc;
}

int pp_thread_channel_recv(struct pp_thread_channel *ch,
                           const struct pp_peer_copy_end *e, void *buf,
                           size_t bytes, struct pp_err *err)
{
    int rc = pp_thread_channel_recv_wait(ch, e, ch->n_receives - 1, err);
    if (rc)
        return rc;
    /* The free place belongs to the receiver. */
    struct pp_thread_receive *r = &ch->receives[ch->posted % ch->n_receives];
    struct pp_thread_send *s = &ch->sends[ch->posted % n_sends(ch)];
    r->buf = buf;
    r->bytes = bytes;
    if (e && !ch->receiver.streams)
        ch->receiver = *e;
    if ((e && pp_peer_copy_post(&r->peer_copy, &s->peer_copy, &ch->receiver,
                                e->device, err)) ||
        add_message(ch, &ch->posted, err))
        return -1;
    return *ch->aborted ? PP_CHANNEL_ABORTED : 0;
}

int pp_thread_channel_probe(struct pp_thread_channel *ch, size_t *bytes)
{
    pthread_mutex_lock(&ch->lock);
    while (ch->sent <= ch->posted && !*ch->aborted)
        pthread_cond_wait(&ch->changed, &ch->lock);
    bool good = !*ch->aborted;
    if (good)
        *bytes = ch->sends[ch->posted % n_sends(ch)].bytes;
    pthread_mutex_unlock(&ch->lock);
    return good ? 0 : PP_CHANNEL_ABORTED;
}

/* --- the end --- */

void pp_thread_channel_wake(struct pp_thread_channel *ch)
{
    pthread_mutex_lock(&ch->lock);
    pthread_cond_broadcast(&ch->changed);
    pthread_mutex_unlock(&ch->lock);
}

void pp_thread_channel_wait_for_copy(struct pp_thread_channel *ch)
{
    pthread_mutex_lock(&ch->lock);
    while (ch->copying)
        pthread_cond_wait(&ch->changed, &ch->lock);
    pthread_mutex_unlock(&ch->lock);
}

void pp_thread_channel_drop(struct pp_thread_channel *ch)
{
    pthread_mutex_lock(&ch->lock);
    while (ch->copying)
        pthread_cond_wait(&ch->changed, &ch->lock);
    ch->posted = ch->received;
    pthread_mutex_unlock(&ch->lock);
}
