/* SPDX-License-Identifier: MIT */
/* peer_copy - the events and the copy of a message between two devices. */
#include "comm/peer_copy.h"

static int open_event(void **event, const struct pp_peer_copy_end *e,
                      struct pp_err *err)
{
    return *event ? 0 : e->streams->event_open(e->device, event, err);
}

int pp_peer_copy_send(struct pp_peer_copy_source *s,
                      const struct pp_peer_copy_end *sender, struct pp_err *err)
{
    return open_event(&s->ready, sender, err) ||
                   sender->streams->event_record(sender->device, s->ready, NULL,
                                                 err)
               ? -1
               : 0;
}

/* Events and streams are created on the receiver's thread, because they belong
 * to the GPU of the calling thread. */
int pp_peer_copy_post(struct pp_peer_copy_target *t,
                      struct pp_peer_copy_source *s,
                      struct pp_peer_copy_end *receiver, struct pp_device *d,
                      struct pp_err *err)
{
    const struct pp_stream_ops *q = receiver->streams;
    if (!receiver->copy_stream &&
        q->open(receiver->device, &receiver->copy_stream, err))
        return -1;
    return open_event(&s->copied, receiver, err) ||
                   open_event(&t->arrived, receiver, err) ||
                   open_event(&t->writable, receiver, err) ||
                   q->event_record(d, t->writable, NULL, err)
               ? -1
               : 0;
}

int pp_peer_copy_run(const struct pp_peer_copy_source *s,
                     const struct pp_peer_copy_target *t,
                     const struct pp_peer_copy_end *receiver, void *to,
                     const void *from, size_t bytes, struct pp_err *err)
{
    const struct pp_stream_ops *q = receiver->streams;
    struct pp_device *d = receiver->device;
    void *stream = receiver->copy_stream;
    if (q->wait_event(d, stream, t->writable, err) ||
        q->wait_event(d, stream, s->ready, err))
        return -1;
    if (bytes > 0 && q->copy(d, stream, to, from, bytes, err))
        return -1;
    return q->event_record(d, s->copied, stream, err) ||
                   q->event_record(d, t->arrived, stream, err)
               ? -1
               : 0;
}

int pp_peer_copy_wait(void *event, const struct pp_peer_copy_end *e,
                      struct pp_err *err)
{
    return e->streams->wait_event(e->device, NULL, event, err);
}

void pp_peer_copy_end_close(struct pp_peer_copy_end *e)
{
    if (e->copy_stream)
        e->streams->close(e->device, e->copy_stream);
    *e = (struct pp_peer_copy_end){0};
}
