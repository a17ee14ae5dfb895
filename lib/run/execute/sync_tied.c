/* SPDX-License-Identifier: MIT */
#include "run/execute/sync_tied.h"

int pp_sync_tied(const struct pp_worker *w, const struct pp_tied *t,
                 struct pp_err *err)
{
    struct pp_comm *c = w->comm;
    const struct pp_kernels *k = w->kernels;
    void *mine = t->embed ? t->embed : t->head;
    struct pp_device *d = w->engine.device;
    size_t bytes = t->n * k->accumulator_bytes;
    if (t->peer < 0) {
        int failed = k->add_gradient(t->embed, t->embed, t->head, t->n,
                                     w->engine.stream);
        return failed ? pp_fail(err, PP_EXIT_SYSTEM, "add failed: %d", failed)
                      : d->ops->copy(d, t->head, t->embed, bytes, err);
    }
    if (c->ops->send(c, t->peer, PP_DIRECTION_SYNC, mine, bytes, err) ||
        c->ops->recv(c, t->peer, PP_DIRECTION_SYNC, t->received, bytes, err) ||
        c->ops->send_wait(c, t->peer, PP_DIRECTION_SYNC, 0, err))
        return -1;
    const void *embed = t->embed ? t->embed : t->received;
    const void *head = t->embed ? t->received : t->head;
    int failed = k->add_gradient(mine, embed, head, t->n, w->engine.stream);
    return failed ? pp_fail(err, PP_EXIT_SYSTEM, "add failed: %d", failed) : 0;
}
