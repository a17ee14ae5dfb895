/* SPDX-License-Identifier: MIT */
/* exec_messages - SEND and RECV: from a planned buffer through a ring to the
 * transport, and back. A RECV posts its receive; the compute action that needs
 * the message waits for it. */
#include "run/execute/exec_impl.h"

#include "schedule/ir/deps.h"

/* Returns the bytes of the rows of a message: the rows of this rank times the
 * width of the boundary that it crosses. */
static size_t row_bytes(const struct pp_exec *e, struct pp_action a)
{
    const struct pp_stage *s = &e->worker->engine.stages[a.stage];
    bool out = a.op == PP_SEND_F || a.op == PP_RECV_B;
    return pp_exec_elements(e, a, out ? s->out : s->in) *
           e->env->kernels->element_bytes;
}

int pp_exec_send(void *ctx, struct pp_action a, int peer, struct pp_err *err)
{
    struct pp_exec *e = ctx;
    struct pp_comm *c = e->env->comm;
    struct pp_device *d = e->env->device;
    int to = pp_env_peer(e->env, peer);
    int direction =
        a.op == PP_SEND_F ? PP_DIRECTION_FORWARD : PP_DIRECTION_BACKWARD;
    int depth = e->schedule->channel_depth;
    const struct pp_buffer *from =
        a.op == PP_SEND_F ? pp_exec_find(e, PP_BUF_OUTPUT, a.stage, a, -1)
                          : pp_exec_find(e, PP_BUF_DINPUT, a.stage, a, a.peer);
    unsigned char *buf = e->arena + from->offset;
    size_t rows = row_bytes(e, a), bytes = rows;
    pp_progress_action(e->worker->progress, e->pc);
    if (e->shapes == PP_MESSAGE_MAX) {
        bytes = from->bytes;
        if (d->ops->zero(d, buf + rows, bytes - rows, err))
            return -1;
    }
    e->messages++;
    e->message_bytes += bytes;
    if (depth == 0)
        return c->ops->send(c, to, (enum pp_direction)direction, buf, bytes,
                            err);

    /* The copy to the ring frees the output. The oldest place of the ring is
     * free when fewer than depth messages are in flight. */
    size_t *sent = &e->sent[2 * (size_t)peer + (size_t)direction];
    const struct pp_buffer *place =
        pp_memory_find(&e->memory, PP_BUF_RING, peer,
                       (int)(*sent % (size_t)depth), 0, direction);
    if (c->ops->send_wait(c, to, (enum pp_direction)direction, depth - 1, err))
        return -1;
    void *ring = e->arena + place->offset;
    if (d->ops->copy(d, ring, buf, bytes, err))
        return -1;
    (*sent)++;
    return c->ops->send(c, to, (enum pp_direction)direction, ring, bytes, err);
}

/* Waits for a message and compares its size with that of the index. */
static int check_size(const struct pp_exec *e, struct pp_action a, int from,
                      enum pp_direction direction, size_t rows,
                      struct pp_err *err)
{
    struct pp_comm *c = e->env->comm;
    size_t bytes = 0;
    if (c->ops->probe(c, from, direction, &bytes, err))
        return -1;
    if (bytes == rows)
        return 0;
    pp_fail(err, PP_EXIT_SYSTEM,
            "the message from rank %d has %zu bytes, but by the index it has "
            "%zu",
            from, bytes, rows);
    return pp_exec_fail_at(e, a, err);
}

static enum pp_direction direction_of(enum pp_op recv)
{
    return recv == PP_RECV_F ? PP_DIRECTION_FORWARD : PP_DIRECTION_BACKWARD;
}

static struct pp_inbox *inbox_of(const struct pp_exec *e, int peer,
                                 enum pp_op recv)
{
    return &e->inboxes[2 * (size_t)peer + (size_t)direction_of(recv)];
}

/* An error of this rank is about the message of this RECV; the transport has
 * named the rank already. The errors of other ranks pass unchanged. */
static int fail_message(const struct pp_exec *e, struct pp_action a,
                        struct pp_err *err)
{
    if (!(err->origin.known & PP_ORIGIN_RANK) ||
        err->origin.rank != e->env->comm->rank)
        return -1;
    pp_err_set_origin(err, PP_ORIGIN_STAGE, a.stage);
    pp_err_set_origin(err, PP_ORIGIN_MICROBATCH, a.microbatch);
    return pp_fail_at(err, "microbatch %d: ", (int)a.microbatch);
}

/* Waits for the oldest receive of a channel. */
static int await_oldest(struct pp_exec *e, struct pp_inbox *in, int peer,
                        struct pp_err *err)
{
    struct pp_comm *c = e->env->comm;
    struct pp_action a = in->at[in->awaited++ % e->n_posted].action;
    int keep = (int)(in->posted - in->awaited);
    return c->ops->recv_wait(c, pp_env_peer(e->env, peer), direction_of(a.op),
                             keep, err)
               ? fail_message(e, a, err)
               : 0;
}

/* The recorder takes the time of a wait for the time of the RECV. */
static void begin_wait(const struct pp_exec *e, size_t place)
{
    if (e->recorder)
        pp_recorder_begin(e->recorder, place, e->env->device);
}

static void end_wait(const struct pp_exec *e, size_t place)
{
    if (e->recorder)
        pp_recorder_end(e->recorder, place, e->env->device);
}

static bool is_for(struct pp_action recv, struct pp_action a, struct pp_dep dep)
{
    return recv.stage == a.stage && recv.peer == dep.stage &&
           recv.microbatch == a.microbatch && recv.slice == dep.slice;
}

/* Returns how many receives to wait for until the message of a dependency is
 * there; 0 if it is. */
static size_t place_in_inbox(const struct pp_exec *e, const struct pp_inbox *in,
                             struct pp_action a, struct pp_dep dep)
{
    for (size_t i = in->awaited; i < in->posted; i++)
        if (is_for(in->at[i % e->n_posted].action, a, dep))
            return i + 1 - in->awaited;
    return 0;
}

struct inputs {
    struct pp_exec *exec;
    struct pp_action action;
    struct pp_err *err;
};

static int await_input(void *ctx, struct pp_dep dep)
{
    const struct inputs *w = ctx;
    if (dep.message == PP_N_OPS)
        return 0;
    int peer = w->exec->schedule->graph->stages[dep.stage].row;
    struct pp_inbox *in = inbox_of(w->exec, peer, dep.message);
    size_t n = place_in_inbox(w->exec, in, w->action, dep);
    for (size_t i = 0; i < n; i++) {
        size_t place = in->at[in->awaited % w->exec->n_posted].place;
        begin_wait(w->exec, place);
        if (await_oldest(w->exec, in, peer, w->err))
            return -1;
        end_wait(w->exec, place);
    }
    return 0;
}

int pp_exec_await_inputs(struct pp_exec *e, struct pp_action a,
                         struct pp_err *err)
{
    struct inputs w = {e, a, err};
    return pp_deps(e->schedule->graph, a, await_input, &w);
}

static int post_receive(struct pp_exec *e, struct pp_action a, int peer,
                        void *buf, size_t bytes, struct pp_err *err)
{
    struct pp_comm *c = e->env->comm;
    struct pp_inbox *in = inbox_of(e, peer, a.op);
    in->at[in->posted++ % e->n_posted] = (struct pp_posted){a, e->pc};
    return c->ops->recv(c, pp_env_peer(e->env, peer), direction_of(a.op), buf,
                        bytes, err)
               ? fail_message(e, a, err)
               : 0;
}

int pp_exec_receive(void *ctx, struct pp_action a, int peer, struct pp_err *err)
{
    struct pp_exec *e = ctx;
    struct pp_comm *c = e->env->comm;
    int from = pp_env_peer(e->env, peer);
    enum pp_direction direction = direction_of(a.op);
    const struct pp_buffer *to =
        pp_exec_find(e, a.op == PP_RECV_F ? PP_BUF_INPUT : PP_BUF_DOUTPUT,
                     a.stage, a, a.peer);
    void *buf = e->arena + to->offset;
    size_t bytes = row_bytes(e, a);
    pp_progress_action(e->worker->progress, e->pc);
    /* A sender with the same index fails before it sends. Wait for it, so that
     * the first rank of the pipeline reports the error. */
    if (!pp_exec_has_room(e, a))
        return c->ops->probe && c->ops->probe(c, from, direction, &bytes, err)
                   ? -1
                   : pp_exec_fail_room(e, a, err);
    if (e->shapes != PP_MESSAGE_EXCHANGE)
        return post_receive(e, a, peer, buf,
                            e->shapes == PP_MESSAGE_MAX ? to->bytes : bytes,
                            err);
    begin_wait(e, e->pc);
    if (check_size(e, a, from, direction, bytes, err) ||
        post_receive(e, a, peer, buf, bytes, err) ||
        await_oldest(e, inbox_of(e, peer, a.op), peer, err))
        return -1;
    end_wait(e, e->pc);
    return 0;
}
