/* SPDX-License-Identifier: MIT */
/* exec_messages - SEND and RECV: from a planned buffer through a ring to the
 * transport, and back. The receive of a RECV is posted before the compute
 * action in front of it; the compute action that needs the message waits for
 * it.
 *
 * Over a bridge, between components with meshes of their own, a SEND is a
 * message to every rank of the other row, and a RECV one from each, in the
 * order of the ranks. Each is what the receiver needs, perhaps nothing:
 * gradients go to every rank of the encoder that has the feature, but one of
 * them sends it. */
#include "run/execute/exec_impl.h"

#include "schedule/ir/deps.h"

/* Returns the bytes of the rows of a message: the rows of this rank that the
 * stage before the boundary passes on. */
static size_t row_bytes(const struct pp_exec *e, struct pp_action a)
{
    bool out = a.op == PP_SEND_F || a.op == PP_RECV_B;
    return pp_exec_passed(e, a, out ? a.stage : a.peer) *
           e->env->kernels->element_bytes;
}

/* The ranks of another row that a rank exchanges messages with, and the part
 * that each has of a buffer. */
struct partners {
    struct pp_group group;
    const size_t *bounds;        /* rows; NULL: the one has all */
    size_t bytes;                /* of a row, or of all */
    bool forward;                /* features, and not their gradients */
    struct pp_image_work images; /* without an encoder: one copy of a maker */
};

static struct partners partners_of(const struct pp_exec *e, int row)
{
    const struct pp_env *env = e->env;
    return (struct partners){
        .group = pp_layout_partners(&env->layout, &env->place, row)};
}

static bool is_bridge(const struct pp_exec *e, int row)
{
    return pp_layout_component(&e->env->layout, row) != e->env->place.component;
}

/* Returns the encoder at one end of the bridge to a row. */
static size_t encoder_of(const struct pp_exec *e, int row)
{
    return (size_t)(pp_env_has_tokens(e->env)
                        ? pp_layout_component(&e->env->layout, row)
                        : e->env->place.component);
}

/* Divides the message of an action, which has so many bytes in all. */
static struct partners divide(const struct pp_exec *e, struct pp_action a,
                              int row, size_t bytes)
{
    struct partners p = partners_of(e, row);
    p.bytes = bytes;
    if (!is_bridge(e, row))
        return p;
    p.bounds = e->bounds;
    p.bytes = e->env->shard.model->hidden * e->env->kernels->element_bytes;
    const struct pp_layout *l = &e->env->layout;
    if (pp_layout_generates(l, e->env->place.component) ||
        pp_layout_generates(l, pp_layout_component(l, row))) {
        const struct pp_bridge b = pp_exec_bridge(e, a);
        p.images.copies = 1;
        pp_bridge_bounds(&b, e->bounds);
        return p;
    }
    p.images = pp_exec_images(e, a, encoder_of(e, row));
    p.forward = a.op == PP_SEND_F || a.op == PP_RECV_F;
    pp_image_bounds(&p.images, e->env->shard.model, e->bounds);
    return p;
}

struct message_part {
    size_t offset, bytes;
};

static struct message_part part_of(const struct partners *p, int partner)
{
    size_t k = (size_t)partner;
    if (!p->bounds)
        return (struct message_part){0, p->bytes};
    if (p->forward && !pp_image_passes(&p->images, k))
        return (struct message_part){0, 0};
    const size_t *at = p->bounds + pp_image_part(&p->images, k);
    return (struct message_part){at[0] * p->bytes, (at[1] - at[0]) * p->bytes};
}

int pp_exec_wait_sent(const struct pp_exec *e, int row,
                      enum pp_direction direction, int keep, struct pp_err *err)
{
    const struct partners to = partners_of(e, row);
    struct pp_comm *c = e->env->comm;
    for (int k = 0; k < to.group.n; k++)
        if (c->ops->send_wait(c, pp_group_rank(&to.group, k), direction, keep,
                              err))
            return -1;
    return 0;
}

static int send_parts(struct pp_exec *e, const struct partners *to,
                      enum pp_direction direction, const unsigned char *buf,
                      struct pp_err *err)
{
    struct pp_comm *c = e->env->comm;
    for (int k = 0; k < to->group.n; k++) {
        struct message_part x = part_of(to, k);
        if (c->ops->send(c, pp_group_rank(&to->group, k), direction,
                         buf + x.offset, x.bytes, err))
            return -1;
        e->messages++;
        e->message_bytes += x.bytes;
    }
    return 0;
}

int pp_exec_send(void *ctx, struct pp_action a, int peer, struct pp_err *err)
{
    struct pp_exec *e = ctx;
    struct pp_device *d = e->env->device;
    enum pp_direction direction =
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
    const struct partners to = divide(e, a, peer, bytes);
    if (depth == 0)
        return send_parts(e, &to, direction, buf, err);

    /* The copy to the ring frees the output. The oldest place of the ring is
     * free when fewer than depth messages are in flight. */
    size_t *sent = &e->sent[2 * (size_t)peer + (size_t)direction];
    const struct pp_buffer *place =
        pp_memory_find(&e->memory, PP_BUF_RING, peer,
                       (int)(*sent % (size_t)depth), 0, direction);
    unsigned char *ring = e->arena + place->offset;
    if (pp_exec_wait_sent(e, peer, direction, depth - 1, err) ||
        d->ops->copy(d, ring, buf, bytes, err))
        return -1;
    (*sent)++;
    return send_parts(e, &to, direction, ring, err);
}

static enum pp_direction direction_of(enum pp_op recv)
{
    return recv == PP_RECV_F ? PP_DIRECTION_FORWARD : PP_DIRECTION_BACKWARD;
}

/* Waits for a message and compares its size with that of the index. */
static int check_size(const struct pp_exec *e, struct pp_action a, int from,
                      size_t rows, struct pp_err *err)
{
    struct pp_comm *c = e->env->comm;
    size_t bytes = 0;
    if (c->ops->probe(c, from, direction_of(a.op), &bytes, err))
        return -1;
    if (bytes == rows)
        return 0;
    pp_fail(err, PP_EXIT_SYSTEM,
            "the message from rank %d has %zu bytes, but by the index it has "
            "%zu",
            from, bytes, rows);
    return pp_exec_fail_at(e, a, err);
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
    const struct partners from = partners_of(e, peer);
    int keep = (int)(in->posted - in->awaited);
    for (int k = 0; k < from.group.n; k++)
        if (c->ops->recv_wait(c, pp_group_rank(&from.group, k),
                              direction_of(a.op), keep, err))
            return fail_message(e, a, err);
    return 0;
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

static int post_receive(struct pp_exec *e, size_t place, struct pp_err *err)
{
    struct pp_action a = e->schedule->rows[e->env->place.row].actions[place];
    int peer = e->schedule->graph->stages[a.peer].row;
    const struct pp_buffer *to =
        pp_exec_find(e, a.op == PP_RECV_F ? PP_BUF_INPUT : PP_BUF_DOUTPUT,
                     a.stage, a, a.peer);
    size_t bytes = e->shapes == PP_MESSAGE_MAX ? to->bytes : row_bytes(e, a);
    unsigned char *buf = e->arena + to->offset;
    struct pp_comm *c = e->env->comm;
    struct pp_inbox *in = inbox_of(e, peer, a.op);
    const struct partners from = divide(e, a, peer, bytes);
    in->at[in->posted++ % e->n_posted] = (struct pp_posted){a, place};
    for (int k = 0; k < from.group.n; k++) {
        struct message_part x = part_of(&from, k);
        int rank = pp_group_rank(&from.group, k);
        if (e->shapes == PP_MESSAGE_EXCHANGE &&
            check_size(e, a, rank, x.bytes, err))
            return -1;
        if (c->ops->recv(c, rank, direction_of(a.op), buf + x.offset, x.bytes,
                         err))
            return fail_message(e, a, err);
    }
    return 0;
}

int pp_exec_post(struct pp_exec *e, struct pp_err *err)
{
    const struct pp_row *row = &e->schedule->rows[e->env->place.row];
    size_t i = e->pc + 1 + row->actions[e->pc].overlap;
    for (i = i > e->n_early ? i : e->n_early;
         i < row->n && e->shapes != PP_MESSAGE_EXCHANGE; i++) {
        struct pp_action a = row->actions[i];
        if (!pp_is_send(a.op) && (!pp_is_recv(a.op) || !pp_exec_has_room(e, a)))
            break;
        if (pp_is_recv(a.op) && post_receive(e, i, err))
            return -1;
        e->n_early = i + 1;
    }
    return 0;
}

int pp_exec_receive(void *ctx, struct pp_action a, int peer, struct pp_err *err)
{
    struct pp_exec *e = ctx;
    struct pp_comm *c = e->env->comm;
    size_t bytes;
    pp_progress_action(e->worker->progress, e->pc);
    if (e->pc < e->n_early)
        return 0;
    /* A sender with the same index fails before it sends. Wait for it, so that
     * the first rank of the pipeline reports the error. An encoder with a mesh
     * of its own has no tokens and does not see it. */
    if (!pp_exec_has_room(e, a))
        return c->ops->probe && !is_bridge(e, peer) &&
                       c->ops->probe(c, pp_env_peer(e->env, peer),
                                     direction_of(a.op), &bytes, err)
                   ? -1
                   : pp_exec_fail_room(e, a, err);
    if (e->shapes != PP_MESSAGE_EXCHANGE)
        return post_receive(e, e->pc, err);
    begin_wait(e, e->pc);
    if (post_receive(e, e->pc, err) ||
        await_oldest(e, inbox_of(e, peer, a.op), peer, err))
        return -1;
    end_wait(e, e->pc);
    return 0;
}
