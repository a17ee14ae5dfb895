/* SPDX-License-Identifier: MIT */
/* test_agree - all ranks fail with one error, which travels through a tree. */
#include "tap.h"

#include <pthread.h>
#include <unistd.h>

#include "run/checkpoint/agree.h"

enum { N_RANKS = 6 };

struct rank {
    struct pp_comm_world *world;
    int number;
    unsigned failing; /* bit k: rank k fails */
    int rc;
    struct pp_err err;
    pthread_t id;
};

static int refuse(struct pp_comm *c, const void *mine, void *all, size_t bytes,
                  struct pp_err *err)
{
    (void)c, (void)mine, (void)all, (void)bytes;
    return pp_fail(err, PP_EXIT_SYSTEM, "every rank gets every error");
}

static void *enter(void *arg)
{
    struct rank *r = arg;
    struct pp_comm *c;
    c = pp_comm_threads_open(r->world, r->number);
    const struct pp_transport *ops = c->ops;
    struct pp_transport without = *ops;
    without.allgather = refuse;
    c->ops = &without;
    int rc = 0;
    if (r->failing >> r->number & 1)
        rc = pp_fail(&r->err, PP_EXIT_INPUT, "fault %d", r->number);
    r->rc = pp_agree(c, rc, &r->err);
    c->ops = ops;
    ops->close(c);
    return NULL;
}

/* Lets the ranks agree; first is the lowest that fails, or -1. */
static void agree(unsigned failing, int first)
{
    struct rank ranks[N_RANKS] = {0};
    struct pp_err err = {0};
    struct pp_comm_world *world;
    int bad = 0;
    if (pp_comm_world_create(N_RANKS, (struct pp_comm_capacity){1, 8}, NULL, 0,
                             &world, &err)) {
        ok(false, "%s", err.text);
        return;
    }
    for (int k = 0; k < N_RANKS; k++) {
        ranks[k].world = world;
        ranks[k].number = k;
        ranks[k].failing = failing;
        ranks[k].rc = 1;
        pthread_create(&ranks[k].id, NULL, enter, &ranks[k]);
    }
    for (int k = 0; k < N_RANKS; k++) {
        const struct rank *r = &ranks[k];
        bool own = failing >> k & 1;
        char want[32] = "";
        pthread_join(r->id, NULL);
        if (first >= 0)
            snprintf(want, sizeof want, "fault %d", own ? k : first);
        bool same = r->rc == (first < 0 ? 0 : -1) && !strcmp(r->err.text, want);
        bool of_first = !own || k == first;
        unsigned known =
            PP_ORIGIN_AGREED | (of_first ? (unsigned)PP_ORIGIN_RANK : 0);
        if (first >= 0)
            same = same && r->err.code == PP_EXIT_INPUT &&
                   r->err.origin.known == known;
        if (first >= 0 && of_first)
            same = same && r->err.origin.rank == first;
        if (!same)
            printf("# rank %d: %d '%s', not '%s'\n", k, r->rc, r->err.text,
                   want);
        bad += !same;
    }
    is_int(bad, 0, "every rank has its own error or that of the first");
    pp_comm_world_destroy(world);
}

int main(void)
{
    alarm(60); /* makes a deadlock a failure */
    agree(0, -1);
    agree(1u << 0, 0);
    agree(1u << 5, 5);
    agree(1u << 3 | 1u << 4, 3);
    agree(1u << 1 | 1u << 3, 1);
    agree((1u << N_RANKS) - 1, 0);
    return done();
}
