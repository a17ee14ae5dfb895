/* SPDX-License-Identifier: MIT */
/* test_comm_nccl - collectives and host messages of processes with an emulated
 * GPU each, and emulated NCCL between them. */
#include "free_port.h"
#include "tap.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "collective_contract.h"
#include "comm/rendezvous.h"
#include "comm/sets.h"
#include "comm/tree.h"
#include "comm_contract.h"
#include "cuda_stream.h"

enum { N_TRIES = 24, MANY_GATHERS = 20 };

/* State that the processes share. */
struct shared {
    struct contract collectives, gathers, records, beside;
    int turned[MAX_RANKS]; /* exchange_in_turn: 1: done, -1: failed */
    int heard[MAX_RANKS];  /* messages of the tree */
    atomic_bool opened[MAX_RANKS];
};

/* --- messages of the tree --- */

/* A transport that counts what a rank hears on its host. */
struct counter {
    struct pp_transport ops;
    const struct pp_transport *inner;
    int heard;
};

static int count_recv(struct pp_comm *c, int from, enum pp_direction direction,
                      void *buf, size_t bytes, struct pp_err *err)
{
    struct counter *x = (struct counter *)c->ops;
    x->heard += direction == PP_DIRECTION_HOST;
    return x->inner->recv(c, from, direction, buf, bytes, err);
}

static void take(void *ctx, size_t first, size_t n)
{
    struct contract *t = ((void **)ctx)[0];
    const int *ranks = ((void **)ctx)[1];
    for (size_t i = first; i < first + n; i++)
        expect(t, ranks[i] == t->sent++);
}

/* Every rank has one record, its number. */
static void collect(struct shared *s, struct pp_comm *c)
{
    struct counter x = {*c->ops, c->ops, 0};
    struct pp_err err = {0};
    int ranks[MAX_RANKS] = {c->rank};
    const struct pp_records r = {
        .n = 1, .part = MAX_RANKS, .columns = {{ranks, sizeof *ranks}}};
    void *to[] = {&s->records, ranks};
    x.ops.recv = count_recv;
    c->ops = &x.ops;
    expect(&s->records, !pp_tree_collect(c, &r, take, to, &err));
    c->ops = x.inner;
    s->heard[c->rank] = x.heard;
}

/* --- computation beside messages that wait --- */

enum { BYTES = 64 };

/* Posts a receive from every other rank, runs a kernel, and lets the others
 * send when all ranks have. The GPU has fewer processors than NCCL's kernels
 * have blocks by default. */
static void compute_beside(struct contract *t, struct pp_comm *c)
{
    struct pp_err err = {0};
    struct pp_device *d = c->device;
    unsigned char *room = d->ops->alloc(d, (MAX_RANKS + 1) * BYTES);
    unsigned char *own = room + MAX_RANKS * BYTES;
    for (int k = 0; k < MAX_RANKS; k++)
        expect(t, k == c->rank || !c->ops->recv(c, k, PP_DIRECTION_FORWARD,
                                                room + k * BYTES, BYTES, &err));
    usleep(50000); /* the receives begin */
    expect(t, !pp_kernels_cuda_f32.add(own, own, own, BYTES / sizeof(float),
                                       d->stream));
    expect(t, !d->ops->wait(d, &err) && !c->ops->barrier(c, &err));
    for (int k = 0; k < MAX_RANKS; k++)
        expect(t, k == c->rank || !c->ops->send(c, k, PP_DIRECTION_FORWARD, own,
                                                BYTES, &err));
    for (int k = 0; k < MAX_RANKS; k++)
        expect(t,
               k == c->rank ||
                   (!c->ops->send_wait(c, k, PP_DIRECTION_FORWARD, 0, &err) &&
                    !c->ops->recv_wait(c, k, PP_DIRECTION_FORWARD, 0, &err)));
    expect(t, !d->ops->wait(d, &err));
    d->ops->free(d, room);
}

/* --- the order of exchanges --- */

enum { ROUNDS = 6 };

/* Adds a number of each rank over two sets in turn, with the sum of one in the
 * next, and hands a message on beside them. A rank that swaps the sets waits
 * for ever. */
static void exchange_in_turn(struct shared *s, struct pp_comm *c, bool swaps)
{
    const enum pp_direction of[] = {PP_DIRECTION_DATA, PP_DIRECTION_WEIGHTS};
    struct pp_err err = {0};
    struct pp_device *d = c->device;
    float *x = d->ops->alloc(d, 4 * sizeof *x + MAX_RANKS * sizeof *x);
    float value = 1;
    struct pp_collective by = {.comm = c,
                               .value_bytes = sizeof *x,
                               .group =
                                   group_of(c->rank, MAX_RANKS, MAX_RANKS, 1),
                               .sum = pp_kernels_cuda_f32.add_gradient,
                               .stream = d->stream,
                               .room = x + 4,
                               .room_values = MAX_RANKS};
    int to = (c->rank + 1) % MAX_RANKS, bad = 0;
    int from = (c->rank + MAX_RANKS - 1) % MAX_RANKS;
    bad += d->ops->put(d, x, &value, sizeof value, &err);
    for (int k = 0; k < ROUNDS && !bad; k++) {
        bad += c->ops->recv(c, from, PP_DIRECTION_FORWARD, x + 2, 4, &err) ||
               c->ops->send(c, to, PP_DIRECTION_FORWARD, x + 1, 4, &err);
        for (int i = 0; i < 2; i++) {
            by.direction = of[i != swaps];
            bad += pp_all_reduce(&by, x, 1, &err);
        }
        bad += c->ops->send_wait(c, to, PP_DIRECTION_FORWARD, 0, &err) ||
               c->ops->recv_wait(c, from, PP_DIRECTION_FORWARD, 0, &err);
    }
    float sum = 1;
    for (int k = 0; k < 2 * ROUNDS; k++)
        sum *= MAX_RANKS;
    bad += d->ops->get(d, &value, x, sizeof value, &err) || value != sum;
    s->turned[c->rank] = bad ? -1 : 1;
    d->ops->free(d, x);
}

/* --- ranks --- */

static int open_rank(int rank, int port, struct pp_device **d,
                     struct pp_rendezvous **join, struct pp_comm **comm,
                     struct pp_err *err)
{
    const struct pp_rendezvous_place place = {.rank = rank,
                                              .size = MAX_RANKS,
                                              .local = -1,
                                              .address = "127.0.0.1",
                                              .port = port,
                                              .version = "1",
                                              .seconds = 60};
    struct pp_comm_sets sets = {0};
    const struct pp_nccl_options o = {
        .library = getenv("PPRUN_NCCL"), .capacity = {1, ROOM}, .sets = &sets};
    const struct pp_group all = group_of(0, MAX_RANKS, MAX_RANKS, 1);
    pp_comm_sets_add_group(&sets, &all, PP_DIRECTION_DATA);
    pp_comm_sets_add_group(&sets, &all, PP_DIRECTION_WEIGHTS);
    for (int k = 0; k < MAX_RANKS * MAX_RANKS; k++)
        if (k / MAX_RANKS != k % MAX_RANKS)
            pp_comm_sets_add_pair(&sets, k / MAX_RANKS, k % MAX_RANKS,
                                  PP_DIRECTION_FORWARD);
    pp_comm_sets_order(&sets, MAX_RANKS);
    int rc = pp_device_cuda.open(rank, d, err) ||
                     pp_rendezvous_open(&place, join, err) ||
                     pp_comm_nccl_open(*join, &o, comm, err) ||
                     (*comm)->ops->attach(*comm, *d, (*d)->ops->streams, err)
                 ? -1
                 : 0;
    pp_comm_sets_finish(&sets);
    return rc;
}

/* The work of the processes: all that is promised, or exchanges in turn that
 * one rank may swap. */
enum task { PROMISES, IN_TURN, SWAPPED };

static int be_rank(struct shared *s, int rank, int port, enum task task)
{
    struct pp_device *d = NULL;
    struct pp_rendezvous *join = NULL;
    struct pp_comm *c = NULL;
    struct pp_err err = {0};
    alarm(100);
    if (open_rank(rank, port, &d, &join, &c, &err)) {
        printf("# rank %d: %s\n", rank, err.text);
        return 1;
    }
    s->opened[rank] = true;
    if (task == PROMISES) {
        collectives_with(&s->collectives, c, pp_kernels_cuda_f32.add, N_TRIES);
        gather_body(&s->gathers, c);
        collect(s, c);
        compute_beside(&s->beside, c);
    } else {
        exchange_in_turn(s, c, task == SWAPPED && rank == 2);
    }
    c->ops->detach(c);
    c->ops->close(c);
    pp_rendezvous_close(join);
    d->ops->close(d);
    return 0;
}

static void start_ranks(struct shared *s, enum task task, pid_t *ranks)
{
    int port = free_port();
    fflush(stdout);
    for (int r = 0; r < MAX_RANKS; r++) {
        ranks[r] = fork();
        if (ranks[r] > 0)
            continue;
        int rc = be_rank(s, r, port, task);
        fflush(stdout);
        _exit(rc);
    }
}

static int wait_for_ranks(void)
{
    int bad = 0;
    for (int status; wait(&status) > 0;)
        bad += status != 0;
    return bad;
}

/* Streams are late at random. */
static void try_orders(struct shared *s)
{
    pid_t ranks[MAX_RANKS];
    int done = 0, bad = 0;
    for (int k = 0; k < 3; k++) {
        char seed[8];
        snprintf(seed, sizeof seed, "%d", k);
        setenv("PP_EMULATED_JITTER", seed, 1);
        memset(s->turned, 0, sizeof s->turned);
        start_ranks(s, IN_TURN, ranks);
        bad += wait_for_ranks();
        for (int r = 0; r < MAX_RANKS; r++)
            done += s->turned[r] == 1;
    }
    is_int(bad == 0 ? done : -1, 3 * MAX_RANKS,
           "exchanges of two sets in one order end at every rank");
    for (int r = 0; r < MAX_RANKS; r++)
        s->opened[r] = false;
    memset(s->turned, 0, sizeof s->turned);
    start_ranks(s, SWAPPED, ranks);
    for (int r = 0; r < MAX_RANKS; r++)
        while (!s->opened[r])
            usleep(1000);
    usleep(500000);
    done = 0;
    for (int r = 0; r < MAX_RANKS; r++) {
        done += s->turned[r] != 0;
        kill(ranks[r], SIGKILL);
    }
    wait_for_ranks();
    is_int(done, 0, "they end at none if one rank swaps the sets");
}

int main(void)
{
    char library[4096];
    pid_t ranks[MAX_RANKS];
    struct shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    snprintf(library, sizeof library, "%s/tests/emulator/libemulated_nccl.so",
             getenv("BUILDDIR"));
    setenv("PPRUN_NCCL", library, 1);
    setenv("PP_EMULATED_PROCESSORS", "13", 1);
    s->collectives.size = s->gathers.size = MAX_RANKS;
    s->gathers.n_gathers = MANY_GATHERS;
    start_ranks(s, PROMISES, ranks);
    is_int(wait_for_ranks(), 0, "four processes open NCCL, and end");
    is_int(s->collectives.bad, 0, COLLECTIVE_PROMISE);
    is_int(s->gathers.bad, 0, GATHER_PROMISE);
    is_int(s->beside.bad, 0, "kernels run beside receives on 13 processors");
    is_int(s->records.bad, 0, "rank 0 takes the records in order");
    is_int(s->records.sent, MAX_RANKS, "of all ranks");
    is_int(s->heard[0], 2 * 2, "it hears ranks 1 and 2");
    is_int(s->heard[2], 1 * 2, "rank 2 hears rank 3");
    is_int(s->heard[1] + s->heard[3], 0, "the others hear nobody");
    try_orders(s);
    return done();
}
