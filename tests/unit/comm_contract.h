/* SPDX-License-Identifier: MIT */
/* comm_contract - tests of the contract in comm.h, as programs of ranks that
 * share memory: threads, or processes of one machine. Sleeps only give a wrong
 * transport time to fail. A correct transport passes with any timing. */
#ifndef PP_TESTS_COMM_CONTRACT_H
#define PP_TESTS_COMM_CONTRACT_H

#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "base/rng.h"
#include "comm/comm.h"

#define MAX_RANKS 4
#define ROOM 3 /* receives of a channel */

/* State that the ranks of one program share. All but the first line is zeroed.
 */
struct contract {
    int size, depth, n_gathers, n_messages;
    atomic_int sent, receiving; /* messages */
    atomic_int bad;             /* failed checks */
    char text[MAX_RANKS][480];  /* first error of each rank */
};

/* Names of the tests. */
#define DEPTH_PROMISE "a channel holds depth messages"
#define POSTED_PROMISE "a posted receive frees the sender at once"
#define ROOM_PROMISE "a receive waits if too many are posted"
#define WAIT_PROMISE "send_wait returns when the buffer is free"
#define DIRECTIONS_PROMISE "messages of two directions do not mix"
#define PROBE_PROMISE "a probe returns the size of the next message"
#define SYNC_PROMISE "the sync direction is never rendezvous"
#define GATHER_PROMISE "gathers in rank order, barriers hold everyone"
#define STRESS_PROMISE "messages of all sizes between four ranks"
#define ABORT_TEXT "rank 3: out of tea"
#define MISMATCH_TEXT \
    "rank 1: backward message from rank 0 has 12 bytes, expected 16"

typedef void contract_body(struct contract *t, struct pp_comm *c);

static void expect(struct contract *t, bool condition)
{
    if (!condition)
        atomic_fetch_add(&t->bad, 1);
}

/* Tests the depth: before send k returns, receive k - depth has begun. */
#define N_DEPTH 8
__attribute__((unused)) static void depth_body(struct contract *t,
                                               struct pp_comm *c)
{
    struct pp_err err = {0};
    int values[N_DEPTH], got = -1;
    for (int k = 1; c->rank == 0 && k <= N_DEPTH; k++) {
        values[k - 1] = 100 + k;
        expect(t, !c->ops->send(c, 1, PP_DIRECTION_FORWARD, &values[k - 1],
                                sizeof(int), &err));
        expect(t, t->receiving >= k - t->depth);
        t->sent = k;
    }
    for (int k = 1; c->rank == 1 && k <= N_DEPTH; k++) {
        /* The loop does not end if a send below the depth blocks. */
        int free_sends = k - 1 + t->depth;
        while (t->sent < (free_sends < N_DEPTH ? free_sends : N_DEPTH))
            sched_yield();
        usleep(2000);
        t->receiving = k;
        expect(t, !pp_comm_receive(c, 0, PP_DIRECTION_FORWARD, &got, sizeof got,
                                   &err));
        expect(t, got == 100 + k);
    }
    if (c->rank == 0)
        expect(t, !c->ops->send_wait(c, 1, PP_DIRECTION_FORWARD, 0, &err));
}

/* Tests posted receives: every send returns, at any depth, although the
 * receiver makes no call. Messages go to the receives in order, in any order of
 * waits. */
__attribute__((unused)) static void posted_body(struct contract *t,
                                                struct pp_comm *c)
{
    struct pp_err err = {0};
    int values[2 * ROOM], got[ROOM] = {0};
    for (int k = 0; c->rank == 0 && k < 2 * ROOM; k++) {
        while (t->receiving <= k)
            sched_yield();
        values[k] = 50 + k;
        expect(t, !c->ops->send(c, 1, PP_DIRECTION_FORWARD, &values[k],
                                sizeof(int), &err));
        expect(t, !c->ops->send_wait(c, 1, PP_DIRECTION_FORWARD, 0, &err));
        t->sent = k + 1;
    }
    for (int round = 0; c->rank == 1 && round < 2; round++) {
        for (int k = 0; k < ROOM; k++)
            expect(t, !c->ops->recv(c, 0, PP_DIRECTION_FORWARD, &got[k],
                                    sizeof(int), &err));
        t->receiving = ROOM * (round + 1);
        while (round == 0 && t->sent < ROOM)
            sched_yield();
        for (int k = 0; k < ROOM; k++) {
            int keep = round == 0 ? k : ROOM - 1 - k;
            expect(t,
                   !c->ops->recv_wait(c, 0, PP_DIRECTION_FORWARD, keep, &err));
            for (int i = 0; i < ROOM - keep; i++)
                expect(t, got[i] == 50 + ROOM * round + i);
        }
    }
}

/* Tests that one receive more than there is room for waits for the oldest. */
__attribute__((unused)) static void room_body(struct contract *t,
                                              struct pp_comm *c)
{
    struct pp_err err = {0};
    int values[ROOM + 1], got[ROOM + 1] = {0};
    for (int k = 0; c->rank == 0 && k <= ROOM; k++) {
        while (t->receiving < ROOM)
            sched_yield();
        usleep(k == 0 ? 2000 : 0);
        t->sent = 1;
        values[k] = 70 + k;
        expect(t, !c->ops->send(c, 1, PP_DIRECTION_BACKWARD, &values[k],
                                sizeof(int), &err));
    }
    for (int k = 0; c->rank == 1 && k <= ROOM; k++) {
        expect(t, !c->ops->recv(c, 0, PP_DIRECTION_BACKWARD, &got[k],
                                sizeof(int), &err));
        expect(t, k < ROOM || (t->sent == 1 && got[0] == 70));
        t->receiving = k + 1;
    }
    if (c->rank == 0)
        expect(t, !c->ops->send_wait(c, 1, PP_DIRECTION_BACKWARD, 0, &err));
    else
        expect(t, !c->ops->recv_wait(c, 0, PP_DIRECTION_BACKWARD, 0, &err));
    expect(t, c->rank == 0 || got[ROOM] == 70 + ROOM);
}

/* Tests send_wait: a buffer is free when its message is received, not earlier.
 */
__attribute__((unused)) static void wait_body(struct contract *t,
                                              struct pp_comm *c)
{
    struct pp_err err = {0};
    int a = 1, b = 2, got = 0;
    if (c->rank == 0) {
        expect(
            t,
            !c->ops->send(c, 1, PP_DIRECTION_BACKWARD, &a, sizeof a, &err) &&
                !c->ops->send(c, 1, PP_DIRECTION_BACKWARD, &b, sizeof b, &err));
        t->sent = 2;
        expect(t, !c->ops->send_wait(c, 1, PP_DIRECTION_BACKWARD, 2, &err));
        expect(t, !c->ops->send_wait(c, 1, PP_DIRECTION_BACKWARD, 1, &err));
        expect(t, t->receiving >= 1);
        a = -1; /* the buffer is free */
        expect(t, !c->ops->send_wait(c, 1, PP_DIRECTION_BACKWARD, 0, &err));
        expect(t, t->receiving >= 2);
        b = -1;
        return;
    }
    while (t->sent < 2)
        sched_yield();
    for (int k = 1; k <= 2; k++) {
        usleep(2000);
        t->receiving = k;
        expect(t, !pp_comm_receive(c, 0, PP_DIRECTION_BACKWARD, &got,
                                   sizeof got, &err));
        expect(t, got == k);
    }
}

/* Tests that directions are independent and that empty messages count. */
__attribute__((unused)) static void directions_body(struct contract *t,
                                                    struct pp_comm *c)
{
    struct pp_err err = {0};
    int peer = 1 - c->rank, forward = 10 + c->rank, sync = 20 + c->rank, got;
    expect(t, !c->ops->send(c, peer, PP_DIRECTION_FORWARD, &forward,
                            sizeof forward, &err));
    expect(t, !c->ops->send(c, peer, PP_DIRECTION_BACKWARD, NULL, 0, &err));
    expect(t,
           !c->ops->send(c, peer, PP_DIRECTION_SYNC, &sync, sizeof sync, &err));
    expect(t, !pp_comm_receive(c, peer, PP_DIRECTION_SYNC, &got, sizeof got,
                               &err) &&
                  got == 20 + peer);
    expect(t, !pp_comm_receive(c, peer, PP_DIRECTION_BACKWARD, NULL, 0, &err));
    expect(t, !pp_comm_receive(c, peer, PP_DIRECTION_FORWARD, &got, sizeof got,
                               &err) &&
                  got == 10 + peer);
    for (int direction = 0; direction < PP_N_DIRECTIONS; direction++)
        expect(t, !c->ops->send_wait(c, peer, direction, 0, &err));
}

/* Tests that repeated probes return the size of the message that recv then
 * receives. */
__attribute__((unused)) static void probe_body(struct contract *t,
                                               struct pp_comm *c)
{
    struct pp_err err = {0};
    char buf[24] = "";
    size_t bytes = 99;
    if (c->rank == 0) {
        usleep(2000);
        expect(t,
               !c->ops->send(c, 1, PP_DIRECTION_FORWARD, "abc", 4, &err) &&
                   !c->ops->send(c, 1, PP_DIRECTION_FORWARD, NULL, 0, &err) &&
                   !c->ops->send_wait(c, 1, PP_DIRECTION_FORWARD, 0, &err));
        return;
    }
    for (int i = 0; i < 2; i++)
        expect(t, !c->ops->probe(c, 0, PP_DIRECTION_FORWARD, &bytes, &err) &&
                      bytes == 4);
    expect(t, !pp_comm_receive(c, 0, PP_DIRECTION_FORWARD, buf, bytes, &err) &&
                  !strcmp(buf, "abc"));
    expect(t, !c->ops->probe(c, 0, PP_DIRECTION_FORWARD, &bytes, &err) &&
                  bytes == 0);
    expect(t, !pp_comm_receive(c, 0, PP_DIRECTION_FORWARD, buf, bytes, &err));
}

/* Tests that the sync direction holds one message also with depth 0. */
__attribute__((unused)) static void sync_body(struct contract *t,
                                              struct pp_comm *c)
{
    struct pp_err err = {0};
    int peer = 1 - c->rank, mine = c->rank, got = -1;
    expect(t,
           !c->ops->send(c, peer, PP_DIRECTION_SYNC, &mine, sizeof mine, &err));
    expect(t, !pp_comm_receive(c, peer, PP_DIRECTION_SYNC, &got, sizeof got,
                               &err) &&
                  got == peer);
    expect(t, !c->ops->send_wait(c, peer, PP_DIRECTION_SYNC, 0, &err));
}

/* Tests many gathers, to which ranks arrive in different orders. */
__attribute__((unused)) static void gather_body(struct contract *t,
                                                struct pp_comm *c)
{
    struct pp_err err = {0};
    for (uint64_t i = 0; i < (uint64_t)t->n_gathers; i++) {
        uint64_t mine[2] = {i, (uint64_t)c->rank}, all[MAX_RANKS][2];
        for (uint64_t y = pp_rng_bits((uint64_t)c->rank, i) % 4; y > 0; y--)
            sched_yield();
        expect(t, !c->ops->allgather(c, mine, all, sizeof mine, &err));
        for (int r = 0; r < t->size; r++)
            expect(t, all[r][0] == i && all[r][1] == (uint64_t)r);
        int before = atomic_fetch_add(&t->sent, 1);
        expect(t, before / t->size == (int)i);
        expect(t, !c->ops->barrier(c, &err));
        expect(t, t->sent >= t->size * ((int)i + 1));
    }
}

/* Every rank processes one list of messages in the same order, so that no depth
 * deadlocks. */
#define STRESS_BYTES 96
#define STRESS_KEEP 2
struct stress_message {
    int from, to;
    enum pp_direction direction;
    size_t bytes;
};

static struct stress_message stress_message(int size, uint64_t i)
{
    uint64_t r = pp_rng_bits(77, i);
    struct stress_message m = {(int)(r % (uint64_t)size), 0,
                               (enum pp_direction)((r >> 8) % PP_N_DIRECTIONS),
                               (r >> 16) % STRESS_BYTES};
    m.to = (m.from + 1 + (int)((r >> 32) % (uint64_t)(size - 1))) % size;
    return m;
}

/* The receives of a channel, and the messages that they expect. */
struct stress_inbox {
    unsigned char at[ROOM][STRESS_BYTES];
    uint64_t message[ROOM];
    size_t posted, checked;
};

/* Waits for all but keep receives and checks their messages. */
static void check_inbox(struct contract *t, struct pp_comm *c,
                        struct stress_inbox *in, struct stress_message m,
                        size_t keep)
{
    struct pp_err err = {0};
    expect(t, !c->ops->recv_wait(c, m.from, m.direction, (int)keep, &err));
    for (; in->posted - in->checked > keep; in->checked++) {
        uint64_t i = in->message[in->checked % ROOM];
        size_t bytes = stress_message(t->size, i).bytes;
        const unsigned char *got = in->at[in->checked % ROOM];
        for (size_t k = 0; k < STRESS_BYTES; k++)
            expect(t, got[k] == (k < bytes ? i % 251 : 255));
    }
}

__attribute__((unused)) static void stress_body(struct contract *t,
                                                struct pp_comm *c)
{
    struct pp_err err = {0};
    unsigned char out[MAX_RANKS][PP_N_DIRECTIONS][STRESS_KEEP + 1]
                     [STRESS_BYTES];
    size_t n[MAX_RANKS][PP_N_DIRECTIONS] = {0};
    struct stress_inbox inboxes[MAX_RANKS][PP_N_DIRECTIONS] = {0};
    for (uint64_t i = 0; i < (uint64_t)t->n_messages; i++) {
        struct stress_message m = stress_message(t->size, i);
        if (c->rank == m.from) {
            size_t k = n[m.to][m.direction]++ % (STRESS_KEEP + 1);
            unsigned char *buf = out[m.to][m.direction][k];
            memset(buf, (int)(i % 251), m.bytes);
            expect(t, !c->ops->send(c, m.to, m.direction, buf, m.bytes, &err));
            expect(t,
                   !c->ops->send_wait(c, m.to, m.direction, STRESS_KEEP, &err));
        } else if (c->rank == m.to) {
            struct stress_inbox *in = &inboxes[m.from][m.direction];
            size_t keep = pp_rng_bits(78, i) % ROOM, at = in->posted % ROOM;
            check_inbox(t, c, in, m, ROOM - 1);
            memset(in->at[at], 255, STRESS_BYTES);
            in->message[at] = i;
            in->posted++;
            expect(t, !c->ops->recv(c, m.from, m.direction, in->at[at], m.bytes,
                                    &err));
            check_inbox(t, c, in, m, keep);
        }
    }
    for (int peer = 0; peer < t->size; peer++)
        for (int direction = 0; direction < PP_N_DIRECTIONS; direction++) {
            struct stress_message m = {peer, c->rank, direction, 0};
            check_inbox(t, c, &inboxes[peer][direction], m, 0);
            expect(t, !c->ops->send_wait(c, peer, direction, 0, &err));
        }
}

/* Tests that every waiting call fails with the reason of the abort. Ranks 0 and
 * 1 exchange large messages. They overwrite and free their buffers at once, and
 * sanitizers would find a copy that continues. */
__attribute__((unused)) static void abort_body(struct contract *t,
                                               struct pp_comm *c)
{
    struct pp_err err = {0};
    size_t bytes = 1 << 20;
    char *buf = calloc(1, bytes), all[MAX_RANKS];
    int rc = 0;
    if (c->rank == 0) {
        while (!rc)
            rc = c->ops->send(c, 1, PP_DIRECTION_FORWARD, buf, bytes, &err);
        memset(buf, 1, bytes);
    } else if (c->rank == 1) {
        while (!rc)
            rc = c->ops->recv(c, 0, PP_DIRECTION_FORWARD, buf, bytes, &err);
        memset(buf, 1, bytes);
        expect(t, c->ops->probe(c, 3, PP_DIRECTION_SYNC, &bytes, &err));
    } else if (c->rank == 2) {
        rc = c->ops->send(c, 1, PP_DIRECTION_SYNC, buf, 1, &err);
        t->sent = 1;
        rc = rc || c->ops->send_wait(c, 1, PP_DIRECTION_SYNC, 0, &err);
    } else {
        while (!t->sent)
            sched_yield();
        usleep(500);
        c->ops->abort(c, "out of tea");
        c->ops->abort(c, "and of biscuits");
        rc = c->ops->barrier(c, &err);
    }
    free(buf);
    expect(t, rc && err.code == PP_EXIT_SYSTEM);
    memcpy(t->text[c->rank], err.text, sizeof err.text);
    expect(t, c->ops->allgather(c, "", all, 1, &err));
    expect(t, c->ops->send(c, 0, PP_DIRECTION_SYNC, NULL, 0, &err));
}

/* Tests the same for ranks that wait for all others. */
__attribute__((unused)) static void abort_meeting_body(struct contract *t,
                                                       struct pp_comm *c)
{
    struct pp_err err = {0};
    char all[MAX_RANKS];
    int rc = 0;
    if (c->rank == 3)
        c->ops->abort(c, "out of tea");
    else
        rc = c->rank == 0 ? c->ops->barrier(c, &err)
                          : c->ops->allgather(c, "", all, 1, &err);
    expect(t, rc == (c->rank == 3 ? 0 : -1));
}

/* Tests that a message of another size fails at the receiver's wait. The sender
 * is freed, so that it cannot hide the error by a deadlock. */
__attribute__((unused)) static void mismatch_body(struct contract *t,
                                                  struct pp_comm *c)
{
    struct pp_err err = {0};
    char buf[16] = "", all[MAX_RANKS];
    if (c->rank == 0)
        expect(t, c->ops->send(c, 1, PP_DIRECTION_BACKWARD, buf, 12, &err) ||
                      c->ops->allgather(c, "", all, 1, &err));
    else if (c->rank == 1) {
        expect(t, !c->ops->recv(c, 0, PP_DIRECTION_BACKWARD, buf, 16, &err));
        expect(t, c->ops->recv_wait(c, 0, PP_DIRECTION_BACKWARD, 0, &err));
    } else
        expect(t, pp_comm_receive(c, 1, PP_DIRECTION_FORWARD, buf, 1, &err));
    memcpy(t->text[c->rank], err.text, sizeof err.text);
}

__attribute__((unused)) static void uneven_gather_body(struct contract *t,
                                                       struct pp_comm *c)
{
    struct pp_err err = {0};
    char buf[64] = "";
    size_t bytes = c->rank == 1 ? 8 : 4;
    expect(t, c->ops->allgather(c, buf, buf + 8, bytes, &err));
    expect(t, strstr(err.text, "gathers") != NULL);
}

#endif
