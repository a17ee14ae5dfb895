/* SPDX-License-Identifier: MIT */
#include "comm/handover.h"

static int mark(void **m, const struct pp_handover_end *e, void *queue,
                struct pp_err *err)
{
    if (!*m && e->queues->mark_open(e->device, m, err))
        return -1;
    return e->queues->record(e->device, *m, queue, err);
}

int pp_handover_give(struct pp_handover *h, const struct pp_handover_end *e,
                     struct pp_err *err)
{
    return mark(&h->ready, e, NULL, err);
}

int pp_handover_take(struct pp_handover *h, struct pp_handover_end *e, void *to,
                     const void *from, size_t bytes, struct pp_err *err)
{
    const struct pp_queues *q = e->queues;
    if (!e->queue && q->open(e->device, &e->queue, err))
        return -1;
    if (mark(&e->free, e, NULL, err) ||
        q->follow(e->device, e->queue, e->free, err) ||
        q->follow(e->device, e->queue, h->ready, err))
        return -1;
    if (bytes > 0 && q->copy(e->device, e->queue, to, from, bytes, err))
        return -1;
    if (mark(&h->taken, e, e->queue, err))
        return -1;
    return q->follow(e->device, NULL, h->taken, err);
}

int pp_handover_release(const struct pp_handover *h,
                        const struct pp_handover_end *e, struct pp_err *err)
{
    return e->queues->follow(e->device, NULL, h->taken, err);
}

void pp_handover_end_close(struct pp_handover_end *e)
{
    if (!e->queues)
        return;
    e->queues->mark_close(e->free);
    if (e->queue)
        e->queues->close(e->device, e->queue);
    *e = (struct pp_handover_end){0};
}
