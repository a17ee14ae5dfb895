/* SPDX-License-Identifier: MIT */
/* exec_messages - what SEND and RECV do: from a planned buffer through a ring
 * to the transport, and back. */
#include <stdio.h>
#include <string.h>

#include "run/execute/exec_impl.h"

/* Bytes of a message's rows: the tokens of its slice at the width of the
 * boundary it crosses. */
static size_t row_bytes(const struct pp_exec *e, struct pp_action a)
{
    const struct pp_stage *s = &e->worker->engine.stages[a.stage];
    bool out = a.op == PP_SEND_F || a.op == PP_RECV_B;
    size_t tokens = pp_exec_tokens(e->pass, a);
    int n = e->schedule->graph->n_slices;
    size_t rows = pp_slice_begin(tokens, a.slice + 1, n) -
                  pp_slice_begin(tokens, a.slice, n);
    return rows * (out ? s->out_width : s->in_width) * s->element_bytes;
}

int pp_exec_send(void *ctx, struct pp_action a, int peer, struct pp_err *err)
{
    struct pp_exec *e = ctx;
    struct pp_comm *c = e->worker->comm;
    struct pp_device *d = e->worker->engine.device;
    int direction =
        a.op == PP_SEND_F ? PP_DIRECTION_FORWARD : PP_DIRECTION_BACKWARD;
    int depth = e->schedule->channel_depth;
    const struct pp_buffer *from =
        a.op == PP_SEND_F ? pp_exec_find(e, PP_BUF_OUTPUT, a.stage, a, -1)
                          : pp_exec_find(e, PP_BUF_DINPUT, a.stage, a, a.peer);
    unsigned char *buf = e->arena + from->offset;
    size_t rows = row_bytes(e, a), bytes = rows;
    if (e->shapes == PP_MESSAGE_MAX) {
        bytes = from->bytes;
        if (d->ops->zero(d, buf + rows, bytes - rows, err))
            return -1;
    }
    e->messages++;
    e->message_bytes += bytes;
    if (depth == 0)
        return c->ops->send(c, peer, (enum pp_direction)direction, buf, bytes,
                            err);

    /* The output is free once it is in the ring, whose oldest place is free
     * once fewer than depth messages are under way. */
    size_t *sent = &e->sent[2 * (size_t)peer + (size_t)direction];
    const struct pp_buffer *place =
        pp_memory_find(&e->memory, PP_BUF_RING, peer,
                       (int)(*sent % (size_t)depth), 0, direction);
    if (c->ops->send_wait(c, peer, (enum pp_direction)direction, depth - 1,
                          err))
        return -1;
    void *ring = e->arena + place->offset;
    if (d->ops->copy(d, ring, buf, bytes, err))
        return -1;
    (*sent)++;
    return c->ops->send(c, peer, (enum pp_direction)direction, ring, bytes,
                        err);
}

/* Waits for a message and holds its size against that of the index. */
static int learn_size(const struct pp_exec *e, struct pp_action a, int from,
                      enum pp_direction direction, size_t rows,
                      struct pp_err *err)
{
    struct pp_comm *c = e->worker->comm;
    size_t bytes = 0;
    if (c->ops->probe(c, from, direction, &bytes, err))
        return -1;
    if (bytes == rows)
        return 0;
    return pp_fail(err, PP_EXIT_SYSTEM,
                   "microbatch %d: rank %d: the message from rank %d brings "
                   "%zu bytes, and by the index it has %zu",
                   (int)a.microbatch, e->worker->rank, from, bytes, rows);
}

int pp_exec_receive(void *ctx, struct pp_action a, int peer, struct pp_err *err)
{
    struct pp_exec *e = ctx;
    struct pp_comm *c = e->worker->comm;
    bool is_forward = a.op == PP_RECV_F;
    enum pp_direction direction =
        is_forward ? PP_DIRECTION_FORWARD : PP_DIRECTION_BACKWARD;
    const struct pp_buffer *to = pp_exec_find(
        e, is_forward ? PP_BUF_INPUT : PP_BUF_DOUTPUT, a.stage, a, a.peer);
    size_t bytes = row_bytes(e, a);
    /* A sender with the same index refuses before it sends, and is waited for
     * so that the first rank on the way is the one that speaks. */
    if (!pp_exec_has_room(e, a))
        return c->ops->probe && c->ops->probe(c, peer, direction, &bytes, err)
                   ? -1
                   : pp_exec_fail_room(e, a, err);
    if (e->shapes == PP_MESSAGE_MAX)
        bytes = to->bytes;
    if (e->shapes == PP_MESSAGE_EXCHANGE &&
        learn_size(e, a, peer, direction, bytes, err))
        return -1;
    if (c->ops->recv(c, peer, direction, e->arena + to->offset, bytes, err) ==
        0)
        return 0;
    /* A failure that begins with this rank is its own: a size. */
    char own[32];
    snprintf(own, sizeof own, "rank %d: ", e->worker->rank);
    return strncmp(err->text, own, strlen(own))
               ? -1
               : pp_fail_at(err, "microbatch %d: ", (int)a.microbatch);
}
