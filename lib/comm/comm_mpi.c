/* SPDX-License-Identifier: MIT */
/* comm_mpi - no call of MPI's waits: what is to happen is asked for, and then
 * looked at again and again, together with whether the job still goes on.
 * Looking is also what makes MPI move other messages on. */
#include "comm/comm_mpi.h"

#include <assert.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/num.h"
#include "comm/mpi_process.h"

/* The lane of gathers, beside those of the contract. */
enum { LANE_GATHER = PP_N_LANES, N_LANES };

/* A channel to another rank: its sends that have not been received. */
struct outgoing {
    uintptr_t *requests; /* ring */
    size_t sent, received, ring;
    bool rendezvous;
};

/* A channel from another rank: the message that was found and not yet asked
 * for. */
struct incoming {
    bool found;
    size_t bytes;
    uintptr_t message;
};

struct mpi_comm {
    struct pp_comm base;
    struct pp_join *join;
    const struct pp_mpi *mpi;
    struct pp_mpi_process *process;
    size_t most;
    size_t n_sending; /* messages that have not been received */

    struct outgoing *outgoing; /* (size, lane) */
    struct incoming *incoming; /* (size, lane) */
    uintptr_t *requests;       /* of all channels */
};

static const char *const lane_names[N_LANES] = {
    [PP_LANE_FORWARD] = "forward", [PP_LANE_BACKWARD] = "backward",
    [PP_LANE_SYNC] = "sync",       [PP_LANE_HOST] = "host",
    [LANE_GATHER] = "gather",
};

static size_t place_of(int peer, int lane)
{
    return (size_t)peer * N_LANES + (size_t)lane;
}

/* What MPI says is wrong. It may be another rank's end, and who that was is
 * known a moment later. */
static int fail_mpi(struct mpi_comm *c, int peer, int code, struct pp_err *err)
{
    char text[240];
    if (pp_join_await_abort(c->join))
        return pp_join_fail(c->join, err);
    c->mpi->error_text(code, text, sizeof text);
    return pp_fail(err, PP_EXIT_SYSTEM,
                   "MPI: messages between rank %d and rank %d on %s: %s",
                   c->base.rank, peer, pp_join_host(c->join, peer), text);
}

/* --- looking --- */

/* How long a rank looks without a pause, and how long pauses are: short beside
 * what it has waited for already. There may be more ranks than cores. */
enum { EAGER_US = 1000, PAUSE_US = 50 };

/* Between two looks. Fails when the job has ended. */
static int look_again(struct mpi_comm *c, double *since, struct pp_err *err)
{
    static const struct timespec pause = {.tv_nsec = PAUSE_US * 1000};
    if (pp_join_aborted(c->join))
        return pp_join_fail(c->join, err);
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
        if (look_again(c, &since, err))
            return -1;
    }
}

/* Waits until at most n messages to the peer have not been received. */
static int wait_received(struct mpi_comm *c, int peer, struct outgoing *o,
                         size_t n, struct pp_err *err)
{
    for (; o->sent - o->received > n; o->received++, c->n_sending--)
        if (finish_request(c, peer, &o->requests[o->received % o->ring], err))
            return -1;
    return 0;
}

/* Waits for the channel's next message, and keeps it in mind. */
static int find_message(struct mpi_comm *c, int from, int lane,
                        struct incoming *in, struct pp_err *err)
{
    double since = 0;
    if (pp_join_aborted(c->join))
        return pp_join_fail(c->join, err);
    while (!in->found) {
        int code =
            c->mpi->probe(from, lane, &in->found, &in->bytes, &in->message);
        if (code)
            return fail_mpi(c, from, code, err);
        if (!in->found && look_again(c, &since, err))
            return -1;
    }
    return 0;
}

/* --- messages --- */

static int send(struct mpi_comm *c, int to, int lane, const void *buf,
                size_t bytes, struct pp_err *err)
{
    struct outgoing *o = &c->outgoing[place_of(to, lane)];
    if (pp_join_aborted(c->join))
        return pp_join_fail(c->join, err);
    if (wait_received(c, to, o, o->ring - 1, err))
        return -1;
    int code = c->mpi->send(buf, bytes, c->most, to, lane,
                            &o->requests[o->sent % o->ring]);
    if (code)
        return fail_mpi(c, to, code, err);
    o->sent++;
    c->n_sending++;
    return o->rendezvous ? wait_received(c, to, o, 0, err) : 0;
}

static int send_wait(struct mpi_comm *c, int to, int lane, size_t keep,
                     struct pp_err *err)
{
    if (pp_join_aborted(c->join))
        return pp_join_fail(c->join, err);
    return wait_received(c, to, &c->outgoing[place_of(to, lane)], keep, err);
}

static int fail_size(struct mpi_comm *c, int from, int lane, size_t got,
                     size_t expected, struct pp_err *err)
{
    char why[160];
    snprintf(why, sizeof why,
             "message from rank %d on the %s lane has %zu bytes, expected %zu",
             from, lane_names[lane], got, expected);
    pp_join_abort(c->join, why);
    return pp_join_fail(c->join, err);
}

static int receive(struct mpi_comm *c, int from, int lane, void *buf,
                   size_t bytes, struct pp_err *err)
{
    struct incoming *in = &c->incoming[place_of(from, lane)];
    uintptr_t request;
    if (find_message(c, from, lane, in, err))
        return -1;
    if (in->bytes != bytes)
        return fail_size(c, from, lane, in->bytes, bytes, err);
    in->found = false;
    int code = c->mpi->recv(buf, bytes, c->most, &in->message, &request);
    return code ? fail_mpi(c, from, code, err)
                : finish_request(c, from, &request, err);
}

/* Rank 0's part of a gather: all is collected, and handed on. */
static int hand_on(struct mpi_comm *c, char *all, size_t bytes,
                   struct pp_err *err)
{
    size_t total = (size_t)c->base.size * bytes;
    for (int r = 1; r < c->base.size; r++)
        if (receive(c, r, LANE_GATHER, all + (size_t)r * bytes, bytes, err))
            return -1;
    for (int r = 1; r < c->base.size; r++)
        if (send(c, r, LANE_GATHER, all, total, err))
            return -1;
    for (int r = 1; r < c->base.size; r++)
        if (send_wait(c, r, LANE_GATHER, 0, err))
            return -1;
    return 0;
}

static int gather(struct mpi_comm *c, const void *mine, void *all, size_t bytes,
                  struct pp_err *err)
{
    if (c->base.rank == 0) {
        if (bytes > 0)
            memcpy(all, mine, bytes);
        return hand_on(c, all, bytes, err);
    }
    if (send(c, 0, LANE_GATHER, mine, bytes, err) ||
        receive(c, 0, LANE_GATHER, all, (size_t)c->base.size * bytes, err))
        return -1;
    return send_wait(c, 0, LANE_GATHER, 0, err);
}

/* --- the transport --- */

static int mpi_attach(struct pp_comm *c, struct pp_device *d,
                      const struct pp_queues *q, struct pp_err *err)
{
    (void)c, (void)d, (void)q;
    return pp_fail(err, PP_EXIT_SYSTEM,
                   "MPI: messages are in the host's memory, not in a device's");
}

static void mpi_detach(struct pp_comm *c)
{
    (void)c;
}

static struct mpi_comm *enter(struct pp_comm *base)
{
    struct mpi_comm *c = (struct mpi_comm *)base;
    pp_mpi_process_enter(c->process);
    return c;
}

/* After a failure nobody touches the buffers of what was being sent. */
static int leave(struct mpi_comm *c, int rc)
{
    pp_mpi_process_leave(c->process, rc == 0 && c->n_sending > 0);
    return rc;
}

static int mpi_send(struct pp_comm *base, int to, enum pp_lane lane,
                    const void *buf, size_t bytes, struct pp_err *err)
{
    struct mpi_comm *c = enter(base);
    return leave(c, send(c, to, (int)lane, buf, bytes, err));
}

static int mpi_send_wait(struct pp_comm *base, int to, enum pp_lane lane,
                         int keep, struct pp_err *err)
{
    assert(keep >= 0);
    struct mpi_comm *c = enter(base);
    return leave(c, send_wait(c, to, (int)lane, (size_t)keep, err));
}

static int mpi_recv(struct pp_comm *base, int from, enum pp_lane lane,
                    void *buf, size_t bytes, struct pp_err *err)
{
    struct mpi_comm *c = enter(base);
    return leave(c, receive(c, from, (int)lane, buf, bytes, err));
}

static int mpi_probe(struct pp_comm *base, int from, enum pp_lane lane,
                     size_t *bytes, struct pp_err *err)
{
    struct mpi_comm *c = enter(base);
    struct incoming *in = &c->incoming[place_of(from, (int)lane)];
    int rc = find_message(c, from, (int)lane, in, err);
    *bytes = in->bytes;
    return leave(c, rc);
}

static int mpi_allgather(struct pp_comm *base, const void *mine, void *all,
                         size_t bytes, struct pp_err *err)
{
    struct mpi_comm *c = enter(base);
    return leave(c, gather(c, mine, all, bytes, err));
}

static int mpi_barrier(struct pp_comm *base, struct pp_err *err)
{
    char none = 0;
    return mpi_allgather(base, &none, &none, 0, err);
}

static void mpi_abort(struct pp_comm *c, const char *why)
{
    pp_join_abort(((struct mpi_comm *)c)->join, why);
}

static void mpi_close(struct pp_comm *base)
{
    struct mpi_comm *c = (struct mpi_comm *)base;
    if (!c)
        return;
    pp_mpi_process_close(c->process);
    free(c->outgoing);
    free(c->incoming);
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
    .allgather = mpi_allgather,
    .barrier = mpi_barrier,
    .abort = mpi_abort,
    .close = mpi_close,
    .probe = mpi_probe,
};

static int make_channels(struct mpi_comm *c, size_t depth, struct pp_err *err)
{
    size_t n = (size_t)c->base.size * N_LANES, ring = depth > 0 ? depth : 1;
    size_t n_requests;
    if (pp_mul(n, ring, &n_requests, err))
        return -1;
    c->outgoing = calloc(n, sizeof *c->outgoing);
    c->incoming = calloc(n, sizeof *c->incoming);
    c->requests = calloc(n_requests, sizeof *c->requests);
    if (!c->outgoing || !c->incoming || !c->requests)
        return pp_fail(err, PP_EXIT_SYSTEM,
                       "out of memory: channels of %d ranks", c->base.size);
    for (size_t i = 0; i < n; i++)
        c->outgoing[i] = (struct outgoing){
            .requests = c->requests + i * ring,
            .ring = ring,
            .rendezvous = depth == 0 && i % N_LANES < PP_LANE_SYNC};
    return 0;
}

int pp_comm_mpi_open(struct pp_join *join, const struct pp_mpi_options *o,
                     struct pp_comm **out, struct pp_err *err)
{
    struct mpi_comm *c = calloc(1, sizeof *c);
    if (!c) {
        pp_join_abort(join, "out of memory");
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    }
    c->base = (struct pp_comm){.ops = &mpi_transport,
                               .rank = pp_join_rank(join),
                               .size = pp_join_size(join),
                               .local = pp_join_local(join)};
    c->join = join;
    c->mpi = o->mpi;
    c->most = o->most ? o->most : PP_MPI_MOST;
    if (make_channels(c, (size_t)o->depth, err)) {
        pp_join_abort(join, err->text); /* they would wait inside MPI */
        mpi_close(&c->base);
        return -1;
    }
    if (pp_mpi_process_open(join, o->mpi, &c->process, err)) {
        mpi_close(&c->base);
        return -1;
    }
    *out = &c->base;
    return 0;
}
