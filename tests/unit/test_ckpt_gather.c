/* SPDX-License-Identifier: MIT */
/* test_ckpt_gather - moments that two ranks own in part come as whole tensors,
 * and a sink that fails ends the gathering on every rank. */
#include "ckpt_job.h"
#include "on_host.h"
#include "tap.h"

#include <unistd.h>

#include "run/checkpoint/gather.h"

enum { OWNERS = 2, ROOM = 1 << 18 };

/* The embedding is so large that both ranks own blocks of it. */
static struct pp_model large_vocabulary(void)
{
    struct pp_model m = tied;
    m.vocab = 20000;
    return m;
}

/* The file, as rank 0 was given it. */
struct taken {
    double values[ROOM];
    size_t n, tensors, limit; /* limit: fails above it */
};

static int begin(void *ctx, const struct pp_tensor_spec *specs, size_t n,
                 struct pp_err *err)
{
    struct taken *t = ctx;
    (void)specs;
    (void)err;
    t->n = 0;
    t->tensors = n;
    return 0;
}

static int put(void *ctx, const void *data, size_t bytes, struct pp_err *err)
{
    struct taken *t = ctx;
    if (t->n + bytes / sizeof(double) > t->limit)
        return pp_fail(err, PP_EXIT_SYSTEM, "full");
    memcpy(t->values + t->n, data, bytes);
    t->n += bytes / sizeof(double);
    return 0;
}

struct owner {
    struct pp_comm_world *world;
    struct taken *taken;
    int rank;
    pthread_t id;
    struct pp_err err;
};

/* A number, exact in fp32, that says where the element is in the model. */
static double numbered(const struct pp_parameter *t, size_t i)
{
    return (double)(i * 64 + t->order);
}

static void *gather(void *arg)
{
    struct owner *o = arg;
    struct pp_comm *comm;
    const struct pp_model m = large_vocabulary();
    struct pp_parameters p;
    const struct pp_unit_range all = {0, 0, 6, 0};
    const struct pp_parameter_memory where = {
        .element_bytes = 4,
        .accumulator_bytes = 4,
        .shares = {.owners = OWNERS, .owner = (size_t)o->rank}};
    comm = pp_comm_threads_open(o->world, o->rank);
    if (!pp_parameters_init(&p, &m, &all, 1, &where,
                            PP_WITH_GRADS | PP_WITH_MOMENTS, &o->err)) {
        for (size_t k = 0; k < p.n; k++)
            for (size_t i = 0; i < p.at[k].own.n; i++)
                ((float *)p.at[k].m)[i] =
                    (float)numbered(&p.at[k], p.at[k].own.first + i);
        const struct pp_gather g = {.comm = comm,
                                    .params = &p,
                                    .block = PP_BLOCK_M,
                                    .element_bytes = sizeof(double),
                                    .sink = {begin, put, o->taken}};
        int rc = pp_ckpt_gather(&g, &o->err);
        (void)rc; /* err says it */
        pp_parameters_finish(&p);
    }
    comm->ops->close(comm);
    return NULL;
}

static void run_owners(struct owner owners[OWNERS], struct taken *taken)
{
    struct pp_err err = {0};
    struct pp_comm_world *world;
    if (pp_comm_world_create(OWNERS, (struct pp_comm_capacity){0, 1}, NULL, 0,
                             &world, &err))
        give_up("%s", err.text);
    for (int r = 0; r < OWNERS; r++) {
        owners[r] = (struct owner){.world = world, .taken = taken, .rank = r};
        pthread_create(&owners[r].id, NULL, gather, &owners[r]);
    }
    for (int r = 0; r < OWNERS; r++)
        pthread_join(owners[r].id, NULL);
    pp_comm_world_destroy(world);
}

/* Counts the values that are not those of a whole model. */
static size_t count_wrong(const struct taken *t)
{
    const struct pp_model m = large_vocabulary();
    struct pp_parameters p;
    const struct pp_unit_range all = {0, 0, 6, 0};
    struct pp_err err = {0};
    size_t wrong = 0, at = 0;
    if (pp_parameters_init(&p, &m, &all, 1, &floats, 0, &err))
        give_up("%s", err.text);
    for (size_t k = 0; k < p.n; k++)
        for (size_t i = 0; !p.at[k].tied_copy && i < p.at[k].n; i++, at++)
            wrong += at >= t->n || t->values[at] != numbered(&p.at[k], i);
    wrong += at != t->n;
    pp_parameters_finish(&p);
    return wrong;
}

int main(void)
{
    static struct taken taken;
    struct owner owners[OWNERS];
    alarm(60);
    taken.limit = ROOM;
    run_owners(owners, &taken);
    is_str(owners[0].err.text, "", "gathers what two ranks own");
    is_int((int)taken.tensors, 35, "every tensor once");
    is_int((int)count_wrong(&taken), 0, "each element at its place");
    taken.limit = 1000;
    run_owners(owners, &taken);
    for (int r = 0; r < OWNERS; r++)
        is_str(owners[r].err.text, "full", "a full sink fails on every rank");
    return done();
}
