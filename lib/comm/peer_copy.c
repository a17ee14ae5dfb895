/* SPDX-License-Identifier: MIT */
/* peer_copy - the events and the copy of a message between two devices. */
#include "comm/peer_copy.h"

static int record_event(void **m, const struct pp_peer_copy_end *e,
                        void *stream, struct pp_err *err)
{
    if (!*m && e->streams->event_open(e->device, m, err))
        return -1;
    return e->streams->event_record(e->device, *m, stream, err);
}

int pp_peer_copy_post(struct pp_peer_copy *h, const struct pp_peer_copy_end *e,
                      struct pp_err *err)
{
    return record_event(&h->ready, e, NULL, err);
}

int pp_peer_copy_receive(struct pp_peer_copy *h, struct pp_peer_copy_end *e,
                         void *to, const void *from, size_t bytes,
                         struct pp_err *err)
{
    const struct pp_stream_ops *q = e->streams;
    if (!e->copy_stream && q->open(e->device, &e->copy_stream, err))
        return -1;
    if (record_event(&e->writable, e, NULL, err) ||
        q->wait_event(e->device, e->copy_stream, e->writable, err) ||
        q->wait_event(e->device, e->copy_stream, h->ready, err))
        return -1;
    if (bytes > 0 && q->copy(e->device, e->copy_stream, to, from, bytes, err))
        return -1;
    if (record_event(&h->copied, e, e->copy_stream, err))
        return -1;
    return q->wait_event(e->device, NULL, h->copied, err);
}

int pp_peer_copy_wait(const struct pp_peer_copy *h,
                      const struct pp_peer_copy_end *e, struct pp_err *err)
{
    return e->streams->wait_event(e->device, NULL, h->copied, err);
}

void pp_peer_copy_end_close(struct pp_peer_copy_end *e)
{
    if (!e->streams)
        return;
    e->streams->event_close(e->writable);
    if (e->copy_stream)
        e->streams->close(e->device, e->copy_stream);
    *e = (struct pp_peer_copy_end){0};
}
