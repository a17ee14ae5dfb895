/* SPDX-License-Identifier: MIT */
/* test_tree - the tree of ranks as arithmetic, and the messages and bytes of
 * ranks that are threads. */
#include "tap.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/tree.h"

enum { MOST = 4096, N_RANKS = 13, HEAD = 16 };

static int log2_up(int n)
{
    int k = 0;
    while (1 << k < n)
        k++;
    return k;
}

/* Counts the ranks that are wrong in a tree of so many: their children follow
 * each other, end where the rank does, and know their parent. most: children
 * and depth of a rank. */
static int wrong_ranks(int size, int most)
{
    int depth[MOST] = {0}, bad = 0;
    for (int r = 0; r < size; r++) {
        int n = 0, end = pp_tree_end(r, size), k = r + 1;
        for (; k < end; k = pp_tree_end(k, size), n++) {
            bad += pp_tree_parent(k) != r || k != r + (1 << n);
            depth[k] = depth[r] + 1;
        }
        bad += k != end || n > most || depth[r] > most || end > size;
        bad += n != pp_tree_n_children(r, size);
    }
    return bad;
}

static void test_shape(void)
{
    int bad = 0;
    for (int size = 1; size <= MOST; size += size < 70 ? 1 : size / 7)
        bad += wrong_ranks(size, log2_up(size));
    is_int(bad, 0, "a rank has at most log2 of the ranks as children");
    is_int(wrong_ranks(MOST, 12), 0, "4,096 ranks: 12");
    is_int(pp_tree_n_children(0, 512), 9, "rank 0 of 512 has 9");
}

/* Messages of PP_DIRECTION_HOST that a rank receives, and their bytes. */
struct count {
    long messages, bytes;
};

struct counted {
    struct pp_transport ops; /* with counts */
    const struct pp_transport *inner;
    struct count in;
};

static int count_recv(struct pp_comm *c, int from, enum pp_direction direction,
                      void *buf, size_t bytes, struct pp_err *err)
{
    struct counted *x = (struct counted *)c->ops;
    x->in.messages++;
    x->in.bytes += (long)bytes;
    return x->inner->recv(c, from, direction, buf, bytes, err);
}

static int refuse(struct pp_comm *c, const void *mine, void *all, size_t bytes,
                  struct pp_err *err)
{
    (void)c, (void)mine, (void)all, (void)bytes;
    return pp_fail(err, PP_EXIT_SYSTEM, "every rank gets all data");
}

/* A collection: rank r has counts[r] records, of two columns. */
struct trial {
    size_t n_part;
    int counts[N_RANKS];
    struct pp_comm_world *world;
    struct count in[N_RANKS];
    int bad[N_RANKS];
};

struct rank {
    struct trial *trial;
    int number;
    pthread_t id;
};

/* Checks the records that rank 0 takes. */
struct taken {
    const struct trial *trial;
    const int *first;
    const double *second;
    int rank, at, bad; /* the next record */
};

static double second_of(int rank, int i)
{
    return 1000 * rank + i;
}

static void take(void *ctx, size_t first, size_t n)
{
    struct taken *t = ctx;
    for (size_t i = first; i < first + n; i++) {
        while (t->rank < N_RANKS && t->at == t->trial->counts[t->rank]) {
            t->rank++;
            t->at = 0;
        }
        t->bad += t->rank == N_RANKS || t->first[i] != t->rank ||
                  t->second[i] != second_of(t->rank, t->at);
        t->at++;
    }
}

/* Collects the records, and tells all ranks how many were wrong. */
static int collect(struct pp_comm *c, struct trial *t)
{
    enum { ROOM = 64, GUARD = -7 };
    int first[ROOM + 1], n = t->counts[c->rank];
    double second[ROOM + 1];
    size_t room = (size_t)n > t->n_part ? (size_t)n : t->n_part;
    struct pp_err err = {0};
    struct taken to = {t, first, second, 0, 0, 0};
    const struct pp_records r = {
        .n = (size_t)n,
        .part = t->n_part,
        .columns = {{first, sizeof *first}, {second, sizeof *second}}};
    for (int i = 0; i < n; i++) {
        first[i] = c->rank;
        second[i] = second_of(c->rank, i);
    }
    first[room] = GUARD;
    second[room] = GUARD;
    if (pp_tree_collect(c, &r, take, &to, &err))
        return 1;
    /* Threads that fail end the others. */
    if (first[room] != GUARD || second[room] > GUARD || second[room] < GUARD)
        c->ops->abort(c, "a record lies behind the room");
    t->in[c->rank] = ((struct counted *)c->ops)->in;
    for (; c->rank == 0 && to.rank < N_RANKS; to.rank++, to.at = 0)
        to.bad += to.at < t->counts[to.rank];
    int bad = c->rank == 0 ? to.bad : -1;
    return pp_tree_broadcast(c, &bad, sizeof bad, &err) ? 1 : bad;
}

static void *enter(void *arg)
{
    struct rank *r = arg;
    struct trial *t = r->trial;
    struct pp_comm *c;
    c = pp_comm_threads_open(t->world, r->number);
    struct counted x = {.ops = *c->ops, .inner = c->ops};
    x.ops.recv = count_recv;
    x.ops.allgather = refuse;
    c->ops = &x.ops;
    t->bad[r->number] = collect(c, t);
    c->ops = x.inner;
    c->ops->close(c);
    return NULL;
}

static int run(struct trial *t)
{
    struct rank ranks[N_RANKS];
    struct pp_err err = {0};
    int bad = 0;
    if (pp_comm_world_create(N_RANKS, (struct pp_comm_capacity){1, 1}, NULL, 0,
                             &t->world, &err))
        return -1;
    for (int k = 0; k < N_RANKS; k++) {
        t->bad[k] = 1;
        ranks[k] = (struct rank){t, k, 0};
        pthread_create(&ranks[k].id, NULL, enter, &ranks[k]);
    }
    for (int k = 0; k < N_RANKS; k++)
        pthread_join(ranks[k].id, NULL);
    for (int k = 0; k < N_RANKS; k++)
        bad += t->bad[k];
    pp_comm_world_destroy(t->world);
    return bad;
}

static void test_records(void)
{
    static const struct trial trials[] = {
        {.n_part = 64},
        {.n_part = 64, .counts = {3, 0, 1, 2, 0, 0, 4, 0, 1, 0, 0, 0, 5}},
        {.n_part = 4, .counts = {9, 0, 11, 2, 4, 0, 4, 0, 1, 8, 13, 0, 5}},
    };
    for (size_t i = 0; i < sizeof trials / sizeof *trials; i++) {
        struct trial t = trials[i];
        is_int(run(&t), 0, "rank 0 takes the records of all in order");
    }
}

/* One record on each rank: rank 0 hears its four children, once. */
static void test_messages(void)
{
    struct trial t = {.n_part = 64};
    for (int k = 0; k < N_RANKS; k++)
        t.counts[k] = 1;
    const int record = sizeof(int) + sizeof(double), columns = 2;
    is_int(run(&t), 0, "a record of every rank");
    is_int(t.in[0].messages, 4 * (1 + columns), "rank 0 has 4 children of 12");
    is_int(t.in[0].bytes, 4 * HEAD + 12 * record, "and receives 12 records");
    is_int(t.in[8].messages, 3 * (1 + columns), "rank 8 has 3 children");
    is_int(t.in[8].bytes, 3 * HEAD + 4 * record, "of 4 ranks");
    is_int(t.in[7].messages, 0, "rank 7 is a leaf");
}

int main(void)
{
    alarm(60); /* makes a deadlock a failure */
    test_shape();
    test_records();
    test_messages();
    return done();
}
