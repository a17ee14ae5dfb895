/* SPDX-License-Identifier: MIT */
/* comm_mpi - messages through MPI. No call of MPI blocks: it starts an
 * operation, and then the rank polls the operation and the state of the job.
 * Every poll advances all messages. While the rank computes, the thread of
 * mpi_process.c polls. */
#include "comm/comm.h"

#include <assert.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/num.h"
#include "comm/mpi_receives.h"
#include "comm/rendezvous.h"
#include "comm/tree.h"

/* A direction for gathers, besides the directions of the contract. */
enum { DIRECTION_GATHER = PP_N_DIRECTIONS, N_MPI_DIRECTIONS };

/* A channel to another rank, with its sends that are not yet received. */
struct mpi_send_channel {
    struct pp_mpi_end to; /* first, for bsearch */
    uintptr_t *requests;  /* ring */
    size_t sent, received, ring;
    bool rendezvous;
};

struct mpi_comm {
    struct pp_comm base;
    struct pp_rendezvous *join;
    const struct pp_mpi *mpi;
    struct pp_mpi_process *process;
    size_t most;
    size_t n_sending; /* messages that are not yet received */

    struct mpi_send_channel *outgoing; /* (n_outgoing) by rank and direction */
    size_t n_outgoing;
    uintptr_t *requests; /* requests of all channels */
    struct pp_mpi_receives receives;
};

static const char *const direction_names[N_MPI_DIRECTIONS] = {
    [PP_DIRECTION_FORWARD] = "forward", [PP_DIRECTION_BACKWARD] = "backward",
    [PP_DIRECTION_SYNC] = "sync",       [PP_DIRECTION_DATA] = "data",
    [PP_DIRECTION_WEIGHTS] = "weights", [PP_DIRECTION_HOST] = "host",
    [DIRECTION_GATHER] = "gather",
};

/* Return a channel, or NULL if the transport was opened without it. */
static struct mpi_send_channel *outbox_of(struct mpi_comm *c, int to,
                                          int direction)
{
    const struct pp_mpi_end end = {to, direction};
    return bsearch(&end, c->outgoing, c->n_outgoing, sizeof *c->outgoing,
                   pp_mpi_end_order);
}

static struct pp_mpi_inbox *inbox_of(struct mpi_comm *c, int from,
                                     int direction)
{
    return pp_mpi_receives_inbox(&c->receives,
                                 (struct pp_mpi_end){from, direction});
}

/* Ends the job: there is no such channel. */
static int fail_no_channel(struct mpi_comm *c, int from, int to, int direction,
                           struct pp_err *err)
{
    char why[160];
    snprintf(why, sizeof why,
             "no channel for %s messages from rank %d to rank %d: this is a "
             "defect of the program",
             direction_names[direction], from, to);
    pp_rendezvous_abort(c->join, why);
    return pp_rendezvous_fail(c->join, err);
}

/* Fails with an error of MPI. If the cause is that another rank has ended, an
 * abort names that rank a moment later. */
static int fail_mpi(struct mpi_comm *c, int peer, int code, struct pp_err *err)
{
    char text[240];
    if (pp_rendezvous_await_abort(c->join))
        return pp_rendezvous_fail(c->join, err);
    c->mpi->error_text(code, text, sizeof text);
    return pp_fail(err, PP_EXIT_SYSTEM,
                   "MPI: messages between rank %d and rank %d on %s: %s",
                   c->base.rank, peer, pp_rendezvous_host(c->join, peer), text);
}

/* --- polling --- */

/* How long a rank polls without pauses, and the length of later pauses. There
 * may be more ranks than cores. */
enum { EAGER_US = 1000, PAUSE_US = 50 };

/* Advances other messages and pauses between two polls. Fails if the job has
 * ended. */
static int pause_or_fail(struct mpi_comm *c, double *since, struct pp_err *err)
{
    static const struct timespec pause = {.tv_nsec = PAUSE_US * 1000};
    pp_mpi_receives_advance(&c->receives);
    if (pp_rendezvous_aborted(c->join))
        return pp_rendezvous_fail(c->join, err);
    double now = pp_clock();
    if (*since == 0)
        *since = now;
    if (now - *since < EAGER_US * 1e-6)
        sched_yield();
    else
        nanosleep(&pause, NULL);
    return 0;
}

static int finish_request(struct mpi_comm *c, int peer, uintptr_t *request,
                          struct pp_err *err)
{
    bool done = false;
    double since = 0;
    for (;;) {
        int code = c->mpi->test(request, &done);
        if (code)
            return fail_mpi(c, peer, code, err);
        if (done)
            return 0;
        if (pause_or_fail(c, &since, err))
            return -1;
    }
}

/* Waits until at most n messages of a channel are not yet received. */
static int wait_sends(struct mpi_comm *c, int peer, struct mpi_send_channel *o,
                      size_t n, struct pp_err *err)
{
    for (; o->sent - o->received > n; o->received++, c->n_sending--)
        if (finish_request(c, peer, &o->requests[o->received % o->ring], err))
            return -1;
    return 0;
}

/* --- messages --- */

static int send_message(struct mpi_comm *c, int to, int direction,
                        const void *buf, size_t bytes, struct pp_err *err)
{
    struct mpi_send_channel *o = outbox_of(c, to, direction);
    if (!o)
        return fail_no_channel(c, c->base.rank, to, direction, err);
    if (pp_rendezvous_aborted(c->join))
        return pp_rendezvous_fail(c->join, err);
    if (wait_sends(c, to, o, o->ring - 1, err))
        return -1;
    int code = c->mpi->send(buf, bytes, c->most, to, direction,
                            &o->requests[o->sent % o->ring]);
    if (code)
        return fail_mpi(c, to, code, err);
    o->sent++;
    c->n_sending++;
    return o->rendezvous ? wait_sends(c, to, o, 0, err) : 0;
}

static int wait_channel(struct mpi_comm *c, int to, int direction, size_t keep,
                        struct pp_err *err)
{
    if (pp_rendezvous_aborted(c->join))
        return pp_rendezvous_fail(c->join, err);
    struct mpi_send_channel *o = outbox_of(c, to, direction);
    return o ? wait_sends(c, to, o, keep, err) : 0;
}

static int fail_mpi_size(struct mpi_comm *c, const struct pp_mpi_inbox *in,
                         const struct pp_mpi_receive *r, struct pp_err *err)
{
    char why[160];
    snprintf(
        why, sizeof why, "%s message from rank %d has %zu bytes, expected %zu",
        direction_names[in->from.tag], in->from.rank, r->sent_bytes, r->bytes);
    pp_rendezvous_abort(c->join, why);
    return pp_rendezvous_fail(c->join, err);
}

/* Waits for all but the newest keep receives. */
static int await_receives(struct mpi_comm *c, struct pp_mpi_inbox *in,
                          size_t keep, struct pp_err *err)
{
    double since = 0;
    if (pp_rendezvous_aborted(c->join))
        return pp_rendezvous_fail(c->join, err);
    for (; in->posted - in->awaited > keep; in->awaited++) {
        const struct pp_mpi_receive *r = &in->receives[in->awaited % in->ring];
        for (pp_mpi_receives_advance(&c->receives);
             in->received == in->awaited;)
            if (in->failure)
                return fail_mpi(c, in->from.rank, in->failure, err);
            else if (pause_or_fail(c, &since, err))
                return -1;
        if (r->sent_bytes != r->bytes)
            return fail_mpi_size(c, in, r, err);
    }
    return 0;
}

static int post_receive(struct mpi_comm *c, int from, int direction, void *buf,
                        size_t bytes, struct pp_err *err)
{
    struct pp_mpi_inbox *in = inbox_of(c, from, direction);
    if (!in)
        return fail_no_channel(c, from, c->base.rank, direction, err);
    if (await_receives(c, in, in->ring - 1, err))
        return -1;
    pp_mpi_receives_post(&c->receives, in, buf, bytes);
    return 0;
}

static int receive_message(struct mpi_comm *c, int from, int direction,
                           void *buf, size_t bytes, struct pp_err *err)
{
    return post_receive(c, from, direction, buf, bytes, err) ||
                   await_receives(c, inbox_of(c, from, direction), 0, err)
               ? -1
               : 0;
}

/* Waits for the channel's next message without a receive. */
static int await_message(struct mpi_comm *c, int from, int direction,
                         size_t *bytes, struct pp_err *err)
{
    struct pp_mpi_inbox *in = inbox_of(c, from, direction);
    double since = 0;
    if (!in)
        return fail_no_channel(c, from, c->base.rank, direction, err);
    if (await_receives(c, in, 0, err))
        return -1;
    for (;;) {
        int code = pp_mpi_receives_find(&c->receives, in);
        if (code)
            return fail_mpi(c, from, code, err);
        *bytes = in->bytes;
        if (in->found)
            return 0;
        if (pause_or_fail(c, &since, err))
            return -1;
    }
}

/* --- gathers --- */

static int send_gathered(void *ctx, int to, const void *buf, size_t bytes,
                         struct pp_err *err)
{
    return send_message(ctx, to, DIRECTION_GATHER, buf, bytes, err) ||
                   wait_channel(ctx, to, DIRECTION_GATHER, 0, err)
               ? -1
               : 0;
}

static int receive_gathered(void *ctx, int from, void *buf, size_t bytes,
                            struct pp_err *err)
{
    return receive_message(ctx, from, DIRECTION_GATHER, buf, bytes, err);
}

static int gather_all(struct mpi_comm *c, const void *mine, void *all,
                      size_t bytes, struct pp_err *err)
{
    const struct pp_tree_links l = {c->base.rank, c->base.size, send_gathered,
                                    receive_gathered, c};
    return pp_tree_gather(&l, mine, all, bytes, err);
}

/* --- the transport --- */

static int mpi_attach(struct pp_comm *c, struct pp_device *d,
                      const struct pp_stream_ops *q, struct pp_err *err)
{
    (void)c, (void)d, (void)q;
    return pp_fail(
        err, PP_EXIT_SYSTEM,
        "MPI: messages must be in host memory, not in device memory");
}

static void mpi_detach(struct pp_comm *c)
{
    (void)c;
}

static struct mpi_comm *enter_mpi(struct pp_comm *base)
{
    struct mpi_comm *c = (struct mpi_comm *)base;
    pp_mpi_process_enter(c->process);
    return c;
}

/* After a failure the progress thread must not touch buffers. */
static int leave_mpi(struct mpi_comm *c, int rc)
{
    bool passing = c->n_sending > 0 || c->receives.n_active > 0;
    pp_mpi_process_leave(c->process, rc == 0 && passing);
    return rc;
}

static int mpi_send(struct pp_comm *base, int to, enum pp_direction direction,
                    const void *buf, size_t bytes, struct pp_err *err)
{
    struct mpi_comm *c = enter_mpi(base);
    return leave_mpi(c, send_message(c, to, (int)direction, buf, bytes, err));
}

static int mpi_send_wait(struct pp_comm *base, int to,
                         enum pp_direction direction, int keep,
                         struct pp_err *err)
{
    assert(keep >= 0);
    struct mpi_comm *c = enter_mpi(base);
    return leave_mpi(c, wait_channel(c, to, (int)direction, (size_t)keep, err));
}

static int mpi_recv(struct pp_comm *base, int from, enum pp_direction direction,
                    void *buf, size_t bytes, struct pp_err *err)
{
    struct mpi_comm *c = enter_mpi(base);
    return leave_mpi(c, post_receive(c, from, (int)direction, buf, bytes, err));
}

static int mpi_recv_wait(struct pp_comm *base, int from,
                         enum pp_direction direction, int keep,
                         struct pp_err *err)
{
    assert(keep >= 0);
    struct mpi_comm *c = enter_mpi(base);
    struct pp_mpi_inbox *in = inbox_of(c, from, (int)direction);
    return leave_mpi(c, in ? await_receives(c, in, (size_t)keep, err) : 0);
}

static int mpi_probe(struct pp_comm *base, int from,
                     enum pp_direction direction, size_t *bytes,
                     struct pp_err *err)
{
    struct mpi_comm *c = enter_mpi(base);
    return leave_mpi(c, await_message(c, from, (int)direction, bytes, err));
}

static int mpi_allgather(struct pp_comm *base, const void *mine, void *all,
                         size_t bytes, struct pp_err *err)
{
    struct mpi_comm *c = enter_mpi(base);
    return leave_mpi(c, gather_all(c, mine, all, bytes, err));
}

static int mpi_barrier(struct pp_comm *base, struct pp_err *err)
{
    char none = 0;
    return mpi_allgather(base, &none, &none, 0, err);
}

static void mpi_abort(struct pp_comm *base, const char *why)
{
    struct mpi_comm *c = enter_mpi(base); /* the thread touches no buffer */
    pp_rendezvous_abort(c->join, why);
    leave_mpi(c, -1);
}

static void mpi_close(struct pp_comm *base)
{
    struct mpi_comm *c = (struct mpi_comm *)base;
    if (!c)
        return;
    pp_mpi_process_close(c->process);
    pp_mpi_receives_finish(&c->receives);
    free(c->outgoing);
    free(c->requests);
    free(c);
}

static const struct pp_transport mpi_transport = {
    .name = "mpi",
    .attach = mpi_attach,
    .detach = mpi_detach,
    .send = mpi_send,
    .send_wait = mpi_send_wait,
    .recv = mpi_recv,
    .recv_wait = mpi_recv_wait,
    .allgather = mpi_allgather,
    .barrier = mpi_barrier,
    .abort = mpi_abort,
    .close = mpi_close,
    .probe = mpi_probe,
};

/* The other ends of this rank's channels. */
struct mpi_ends {
    struct pp_mpi_end *at;
    size_t n;
};

static void add_end(struct mpi_ends *e, int rank, int direction)
{
    e->at[e->n++] = (struct pp_mpi_end){rank, direction};
}

/* Lists the channels from this rank (out), or to it. Gathers go along the
 * tree. */
static int list_ends(const struct mpi_comm *c, const struct pp_mpi_options *o,
                     bool out, struct mpi_ends *e, struct pp_err *err)
{
    int rank = c->base.rank, size = c->base.size;
    int n_children = pp_tree_n_children(rank, size);
    size_t n = o->channels ? o->n_channels : (size_t)size * PP_N_DIRECTIONS;
    e->at = pp_try_calloc(n + (size_t)n_children + 1, sizeof *e->at, err);
    if (!e->at)
        return -1;
    for (size_t i = 0; i < o->n_channels; i++) {
        const struct pp_comm_channel *x = &o->channels[i];
        if ((out ? x->from : x->to) == rank)
            add_end(e, out ? x->to : x->from, (int)x->direction);
    }
    for (int peer = 0; !o->channels && peer < size; peer++)
        for (int direction = 0; direction < PP_N_DIRECTIONS; direction++)
            add_end(e, peer, direction);
    if (rank > 0)
        add_end(e, pp_tree_parent(rank), DIRECTION_GATHER);
    for (int k = 0; k < n_children; k++)
        add_end(e, rank + (1 << k), DIRECTION_GATHER);
    qsort(e->at, e->n, sizeof *e->at, pp_mpi_end_order);
    return 0;
}

/* Makes the channels to other ranks. */
static int make_outgoing(struct mpi_comm *c, const struct mpi_ends *e,
                         struct pp_comm_capacity capacity, struct pp_err *err)
{
    size_t ring = capacity.depth > 0 ? (size_t)capacity.depth : 1, n_requests;
    if (pp_mul(e->n, ring, &n_requests, err))
        return -1;
    c->n_outgoing = e->n;
    c->outgoing = pp_try_calloc(e->n, sizeof *c->outgoing, err);
    c->requests = pp_try_calloc(n_requests, sizeof *c->requests, err);
    if (!c->outgoing || !c->requests)
        return -1;
    for (size_t i = 0; i < e->n; i++)
        c->outgoing[i] = (struct mpi_send_channel){
            .to = e->at[i],
            .requests = c->requests + i * ring,
            .ring = ring,
            .rendezvous =
                capacity.depth == 0 && e->at[i].tag < PP_DIRECTION_SYNC};
    return 0;
}

static int make_channels(struct mpi_comm *c, const struct pp_mpi_options *o,
                         struct pp_err *err)
{
    struct mpi_ends out = {0}, in = {0};
    c->receives = (struct pp_mpi_receives){.mpi = c->mpi, .most = c->most};
    int rc = list_ends(c, o, true, &out, err) ||
                     list_ends(c, o, false, &in, err) ||
                     make_outgoing(c, &out, o->capacity, err) ||
                     pp_mpi_receives_init(&c->receives, in.at, in.n,
                                          (size_t)o->capacity.receives, err)
                 ? -1
                 : 0;
    free(out.at);
    free(in.at);
    return rc;
}

int pp_comm_mpi_open(struct pp_rendezvous *join, const struct pp_mpi_options *o,
                     struct pp_comm **out, struct pp_err *err)
{
    struct mpi_comm *c = calloc(1, sizeof *c);
    if (!c) {
        pp_rendezvous_abort(join, "out of memory");
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    }
    c->base = (struct pp_comm){.ops = &mpi_transport,
                               .rank = pp_rendezvous_rank(join),
                               .size = pp_rendezvous_size(join),
                               .local = pp_rendezvous_local(join)};
    c->join = join;
    c->mpi = o->mpi;
    c->most = o->most ? o->most : PP_MPI_MOST;
    if (make_channels(c, o, err)) {
        pp_rendezvous_abort(join, err->text); /* the others would wait in MPI */
        mpi_close(&c->base);
        return -1;
    }
    if (pp_mpi_process_open(join, o->mpi, pp_mpi_receives_advance, &c->receives,
                            &c->process, err)) {
        mpi_close(&c->base);
        return -1;
    }
    *out = &c->base;
    return 0;
}
