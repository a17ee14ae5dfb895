/* SPDX-License-Identifier: MIT */
/* test_comm_threads - channels, their depth, collectives and aborts between
 * threads. */
#include "tap.h"

#include <malloc.h>
#include <pthread.h>

#include "comm/comm.h"
#include "collective_contract.h"
#include "comm_contract.h"

struct thread {
    struct contract *contract;
    struct pp_comm_world *world;
    contract_body *body;
    int rank;
    pthread_t id;
};

/* Rank 1 closes and frees its buffer, then rank 0 sends. */
static void drop_body(struct contract *t, struct pp_comm *c)
{
    struct pp_err err = {0};
    char *buf = calloc(1, 64);
    if (c->rank == 1) {
        expect(t, !c->ops->recv(c, 0, PP_DIRECTION_FORWARD, buf, 64, &err));
        c->ops->close(c);
        free(buf);
        t->receiving = 1;
        return;
    }
    while (!t->receiving)
        sched_yield();
    expect(t, !c->ops->send(c, 1, PP_DIRECTION_FORWARD, buf, 64, &err));
    c->ops->close(c);
    free(buf);
}

static void *enter(void *arg)
{
    struct thread *self = arg;
    struct pp_comm *c = NULL;
    c = pp_comm_threads_open(self->world, self->rank);
    self->body(self->contract, c);
    if (self->body != drop_body)
        c->ops->close(c);
    return NULL;
}

/* Runs body on every rank of a new world. */
static void run_ranks(struct contract *t, contract_body *body)
{
    struct thread threads[MAX_RANKS];
    struct pp_comm_world *world;
    struct pp_err err = {0};
    if (pp_comm_world_create(t->size, (struct pp_comm_capacity){t->depth, ROOM},
                             NULL, 0, &world, &err)) {
        expect(t, false);
        return;
    }
    for (int r = 0; r < t->size; r++) {
        threads[r] = (struct thread){t, world, body, r, 0};
        pthread_create(&threads[r].id, NULL, enter, &threads[r]);
    }
    for (int r = 0; r < t->size; r++)
        pthread_join(threads[r].id, NULL);
    pp_comm_world_destroy(world);
}

static void try(contract_body *body, int size, int depth, const char *promise)
{
    struct contract t = {
        .size = size, .depth = depth, .n_gathers = 500, .n_messages = 33000};
    run_ranks(&t, body);
    is_int(t.bad, 0, promise);
}

static void test_abort(void)
{
    bool same = true;
    int bad = 0;
    for (int i = 0; i < 20; i++) {
        struct contract t = {.size = 4, .depth = i % 2};
        run_ranks(&t, abort_body);
        bad += t.bad;
        for (int r = 0; r < 4; r++)
            same = same && !strcmp(t.text[r], ABORT_TEXT);
    }
    is_int(bad, 0, "an abort ends every call");
    ok(same, "the error has the first message and its rank");
    try(abort_meeting_body, 4, 0, "an abort ends every gather and barrier");
}

static void test_mismatch(void)
{
    struct contract t = {.size = 3};
    run_ranks(&t, mismatch_body);
    is_int(t.bad, 0, "a message of another size fails everywhere");
    for (int r = 0; r < 3; r++)
        is_str(t.text[r], MISMATCH_TEXT,
               "the error has sizes, ranks and direction");
    try(uneven_gather_body, 3, 0,
        "a gather of different sizes fails everywhere");
}

/* A world of a chain of ranks: no channel but those, one allocation as
 * planned. */
static void test_listed(void)
{
    enum { N = 3000 };
    static struct pp_comm_channel list[2 * N];
    const struct pp_comm_capacity capacity = {2, 3};
    struct pp_comm_world *world = NULL;
    struct pp_err err = {0};
    size_t n = 0, planned = 0;
    for (int r = 0; r < N; r++) {
        if (r > 0)
            list[n++] =
                (struct pp_comm_channel){r, r - 1, PP_DIRECTION_BACKWARD};
        if (r + 1 < N)
            list[n++] =
                (struct pp_comm_channel){r, r + 1, PP_DIRECTION_FORWARD};
    }
    struct mallinfo2 before = mallinfo2();
    bool made = !pp_comm_world_bytes(N, capacity, n, &planned, &err) &&
                !pp_comm_world_create(N, capacity, list, n, &world, &err);
    struct mallinfo2 after = mallinfo2();
    size_t taken =
        after.hblkhd + after.uordblks - before.hblkhd - before.uordblks;
    if (!made)
        exit(3);
    struct pp_comm *c[N];
    for (int r = 0; r < N; r++)
        c[r] = pp_comm_threads_open(world, r);
    struct mallinfo2 opened = mallinfo2();
    bool counted = after.hblkhd + after.uordblks > 0; /* not by a sanitizer */
    ok(!counted || (taken >= planned && taken < planned + 2 * 4096),
       "a world allocates what is planned");
    ok(opened.uordblks == after.uordblks && opened.hblkhd == after.hblkhd,
       "and handles nothing");
    ok(planned < (size_t)N * 2000, "that is as much as its channels need");
    int sent = 5, got = 0;
    is_int(c[7]->ops->send(c[7], 8, PP_DIRECTION_FORWARD, &sent, sizeof sent,
                           &err) ||
               pp_comm_receive(c[8], 7, PP_DIRECTION_FORWARD, &got, sizeof got,
                               &err) ||
               got != 5,
           0, "a listed channel passes messages");
    is_int(c[0]->ops->send_wait(c[0], 9, PP_DIRECTION_FORWARD, 0, &err), 0,
           "none has nothing to wait for");
    is_int(c[0]->ops->send(c[0], 9, PP_DIRECTION_FORWARD, &sent, sizeof sent,
                           &err),
           -1, "and takes no message");
    is_str(err.text,
           "rank 0: no channel for forward messages from rank 0 to rank 9: "
           "this is a defect of the program",
           "it says so");
    for (int r = 0; r < N; r++)
        c[r]->ops->close(c[r]);
    pp_comm_world_destroy(world);
}

int main(void)
{
    alarm(60); /* makes a deadlock a failure */
    test_listed();
    for (int depth = 0; depth <= 3; depth++)
        try(depth_body, 2, depth, DEPTH_PROMISE);
    for (int depth = 0; depth <= 2; depth++)
        try(posted_body, 2, depth, POSTED_PROMISE);
    try(room_body, 2, 1, ROOM_PROMISE);
    try(drop_body, 2, 1, "closing drops receives without a message");
    try(wait_body, 2, 2, WAIT_PROMISE);
    try(directions_body, 2, 1, DIRECTIONS_PROMISE);
    for (int depth = 0; depth <= 2; depth++)
        try(probe_body, 2, depth, PROBE_PROMISE);
    try(sync_body, 2, 0, SYNC_PROMISE);
    for (int size = 1; size <= MAX_RANKS; size++)
        try(gather_body, size, 1, GATHER_PROMISE);
    for (int depth = 0; depth <= 2; depth++)
        try(stress_body, 4, depth, STRESS_PROMISE);
    for (int size = 1; size <= MAX_RANKS; size++)
        for (int depth = 0; depth <= 1; depth++)
            try(collective_body, size, depth, COLLECTIVE_PROMISE);
    test_abort();
    test_mismatch();
    return done();
}
