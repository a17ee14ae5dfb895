/* SPDX-License-Identifier: MIT */
/* bench_links - the speed of messages and sums between the GPUs of this
 * machine, by the transports of pprun.
 *
 * usage: bench_links BYTES [RANKS]
 *
 * With RANKS, ranks are threads of this process, rank r on GPU r. Without it
 * the process is one rank of a job over NCCL, and RANK, WORLD_SIZE, LOCAL_RANK,
 * MASTER_ADDR and MASTER_PORT say which. Rank 0 prints a line for each ordered
 * pair of ranks, "message FROM TO US GB/s": the time of a small message, there
 * and back halved, and the rate of messages of BYTES. Then "sum RANKS GB/s" is
 * the rate at which all ranks add BYTES of gradients as pprun does, and over
 * NCCL "nccl-sum RANKS GB/s" that of ncclAllReduce. A rate of sums is that of
 * its messages: it counts 2 (n - 1) / n of the bytes, which each rank must
 * send. */
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "comm/collective.h"
#include "comm/nccl.h"
#include "comm/rendezvous.h"
#include "comm/sets.h"
#include "cuda_stream.h"
#include "model/unit_bytes.h"

enum {
    REPEAT = 10,
    SMALL = 256,
    MOST_RANKS = 64,
    NCCL_FLOAT = 7,
    NCCL_SUM = 0
};

struct links {
    struct pp_comm *comm;
    struct pp_device *device;
    size_t bytes;
    void *out, *in; /* (bytes) on the device */
    void *room;     /* (room_values) floats, for sums */
};

static void require(int rc, const struct pp_err *err)
{
    if (!rc)
        return;
    fprintf(stderr, "bench_links: %s\n", err->text);
    exit(3);
}

static size_t room_values(const struct links *l)
{
    const struct pp_table_counts c = {.sums = (size_t)l->comm->size,
                                      .n_params = SIZE_MAX};
    return pp_sum_values(&c, false);
}

static struct pp_group all_ranks(const struct links *l)
{
    return (struct pp_group){.n = l->comm->size,
                             .index = l->comm->rank,
                             .step = 1,
                             .size = {l->comm->size, 1, 1},
                             .stride = {1}};
}

/* One message to a rank, or from it. */
static void exchange(const struct links *l, int peer, bool sends, size_t bytes)
{
    struct pp_comm *c = l->comm;
    const struct pp_group all = all_ranks(l);
    enum pp_direction d = PP_DIRECTION_DATA;
    struct pp_err err = {0};
    require(pp_comm_begin_batch(c, &all, d, &err) ||
                (sends ? c->ops->send(c, peer, d, l->out, bytes, &err)
                       : c->ops->recv(c, peer, d, l->in, bytes, &err)) ||
                pp_comm_end_batch(c, &err) ||
                pp_comm_await_batches(c, &all, d, 0, &err),
            &err);
}

static void send_to(const struct links *l, int to, size_t bytes)
{
    exchange(l, to, true, bytes);
}

static void receive_from(const struct links *l, int from, size_t bytes)
{
    exchange(l, from, false, bytes);
}

/* Returns when all ranks have done their work. */
static void meet(const struct links *l)
{
    struct pp_err err = {0};
    require(l->device->ops->wait(l->device, &err) ||
                l->comm->ops->barrier(l->comm, &err),
            &err);
}

/* Sends messages of a pair, each of them also back if it is small. Returns the
 * seconds of one. */
static double message_seconds(const struct links *l, int from, int to,
                              size_t bytes)
{
    int me = l->comm->rank;
    bool back = bytes <= SMALL;
    double began = 0;
    for (int i = -1; i < REPEAT; i++) {
        if (i <= 0) {
            meet(l); /* the first message warms up */
            began = pp_clock();
        }
        if (me == from) {
            send_to(l, to, bytes);
            if (back)
                receive_from(l, to, bytes);
        } else if (me == to) {
            receive_from(l, from, bytes);
            if (back)
                send_to(l, from, bytes);
        }
    }
    meet(l);
    return (pp_clock() - began) / REPEAT / (back ? 2 : 1);
}

static void measure_messages(const struct links *l)
{
    int n = l->comm->size;
    for (int from = 0; from < n; from++)
        for (int to = 0; to < n; to++) {
            if (from == to)
                continue;
            double latency = message_seconds(l, from, to, SMALL);
            double s = message_seconds(l, from, to, l->bytes);
            if (l->comm->rank == 0)
                printf("message %d %d %.1f %.3f\n", from, to, latency * 1e6,
                       (double)l->bytes / s / 1e9);
        }
}

/* Adds the ranks' values of l->in. Returns 0, or -1 with *err filled. */
typedef int add_fn(const struct links *l, void *how, size_t values,
                   struct pp_err *err);

static int add_as_pprun(const struct links *l, void *how, size_t values,
                        struct pp_err *err)
{
    (void)how;
    const struct pp_collective c = {
        .comm = l->comm,
        .group = all_ranks(l),
        .direction = PP_DIRECTION_WEIGHTS,
        .value_bytes = sizeof(float),
        .sum = pp_kernels_cuda_f32.add_gradient,
        .stream = l->device->stream,
        .room = l->room,
        .room_values = room_values(l),
    };
    return pp_all_reduce(&c, l->in, values, err);
}

static void measure_sums(const struct links *l, const char *name, add_fn *add,
                         void *how)
{
    struct pp_err err = {0};
    double began = 0;
    for (int i = -1; i < REPEAT; i++) {
        if (i <= 0) {
            meet(l);
            began = pp_clock();
        }
        require(add(l, how, l->bytes / sizeof(float), &err), &err);
    }
    meet(l);
    double s = (pp_clock() - began) / REPEAT;
    int n = l->comm->size;
    if (l->comm->rank == 0)
        printf("%s %d %.3f\n", name, n,
               2.0 * (n - 1) / n * (double)l->bytes / s / 1e9);
}

/* --- NCCL's own sum --- */

struct nccl_sum {
    struct pp_nccl lib;
    void *comm, *stream;
    int (*all_reduce)(const void *from, void *to, size_t n, int type, int op,
                      void *comm, void *stream);
};

static int await_nccl(struct nccl_sum *s, int rc, struct pp_err *err)
{
    while (rc == PP_NCCL_IN_PROGRESS) {
        int state = PP_NCCL_SUCCESS;
        sched_yield();
        rc = s->lib.async_error(s->comm, &state);
        rc = rc ? rc : state;
    }
    return rc ? pp_fail(err, PP_EXIT_SYSTEM, "NCCL: %s", s->lib.error_text(rc))
              : 0;
}

static int open_nccl_sum(const struct links *l, struct nccl_sum *s,
                         struct pp_err *err)
{
    struct pp_nccl_id id = {0}, ids[MOST_RANKS];
    struct pp_nccl_config config = {
        .size = sizeof config,
        .magic = PP_NCCL_MAGIC,
        .version = PP_NCCL_OLDEST,
        .blocking = 0,
        .cga_cluster_size = PP_NCCL_UNDEFINED,
        .min_ctas = PP_NCCL_UNDEFINED,
        .max_ctas = PP_NCCL_UNDEFINED,
        .split_share = PP_NCCL_UNDEFINED,
    };
    *s = (struct nccl_sum){0};
    if (pp_nccl_open(getenv("PPRUN_NCCL"), &s->lib, err))
        return -1;
    *(void **)&s->all_reduce = dlsym(s->lib.library, "ncclAllReduce");
    if (!s->all_reduce)
        return pp_fail(err, PP_EXIT_SYSTEM, "NCCL has no ncclAllReduce");
    if (l->comm->rank == 0 && s->lib.get_unique_id(&id))
        return pp_fail(err, PP_EXIT_SYSTEM, "NCCL has no identifier");
    if (l->comm->ops->allgather(l->comm, &id, ids, sizeof id, err))
        return -1;
    int rc =
        s->lib.init(&s->comm, l->comm->size, ids[0], l->comm->rank, &config);
    return await_nccl(s, rc, err) ||
                   l->device->ops->streams->open(l->device, &s->stream, err)
               ? -1
               : 0;
}

static int add_as_nccl(const struct links *l, void *how, size_t values,
                       struct pp_err *err)
{
    struct nccl_sum *s = how;
    bool done = false;
    if (await_nccl(s,
                   s->all_reduce(l->in, l->in, values, NCCL_FLOAT, NCCL_SUM,
                                 s->comm, s->stream),
                   err))
        return -1;
    while (!done)
        if (l->device->ops->streams->is_done(l->device, s->stream, &done, err))
            return -1;
    return 0;
}

/* Values of the ranks, 1 + rank, must have the sum. */
static void check_sum(const struct links *l, add_fn *add, void *how)
{
    struct pp_err err = {0};
    float mine = (float)(1 + l->comm->rank), sum = 0;
    int n = l->comm->size;
    require(l->device->ops->put(l->device, l->in, &mine, sizeof mine, &err) ||
                l->device->ops->wait(l->device, &err) || add(l, how, 1, &err) ||
                l->device->ops->get(l->device, &sum, l->in, sizeof sum, &err),
            &err);
    if (sum != (float)(n * (n + 1) / 2))
        require(pp_fail(&err, PP_EXIT_SYSTEM, "a sum is %g", sum), &err);
}

static void measure_nccl_sums(const struct links *l)
{
    struct pp_err err = {0};
    struct nccl_sum s;
    require(open_nccl_sum(l, &s, &err), &err);
    check_sum(l, add_as_nccl, &s);
    measure_sums(l, "nccl-sum", add_as_nccl, &s);
    l->device->ops->streams->close(l->device, s.stream);
    int rc = s.lib.finalize(s.comm);
    require(await_nccl(&s, rc, &err), &err);
    s.lib.destroy(s.comm);
}

/* --- ranks --- */

static void run_rank(struct links *l, bool is_nccl)
{
    struct pp_err err = {0};
    struct pp_comm *c = l->comm;
    struct pp_device *d = l->device;
    require(c->ops->attach(c, d, d->ops->streams, &err), &err);
    l->out = pp_device_alloc(d, l->bytes, 1, "a message", &err);
    l->in = pp_device_alloc(d, l->bytes, 1, "a message", &err);
    l->room = pp_device_alloc(d, room_values(l), sizeof(float), "sums", &err);
    require(!l->out || !l->in || !l->room, &err);
    measure_messages(l);
    check_sum(l, add_as_pprun, NULL);
    measure_sums(l, "sum", add_as_pprun, NULL);
    if (is_nccl)
        measure_nccl_sums(l);
    meet(l);
    c->ops->detach(c);
    c->ops->close(c);
    pp_device_free(d, l->room);
    pp_device_free(d, l->in);
    pp_device_free(d, l->out);
    d->ops->close(d);
}

struct thread {
    struct pp_comm_world *world;
    int rank;
    size_t bytes;
    pthread_t id;
};

static void *run_thread(void *arg)
{
    const struct thread *t = arg;
    struct pp_err err = {0};
    struct links l = {.comm = pp_comm_threads_open(t->world, t->rank),
                      .bytes = t->bytes};
    require(pp_device_cuda.open(t->rank, &l.device, &err), &err);
    run_rank(&l, false);
    return NULL;
}

static void run_threads(int n, size_t bytes)
{
    struct pp_err err = {0};
    struct thread threads[MOST_RANKS];
    struct pp_comm_world *world;
    require(pp_device_cuda.check(n, &err) ||
                pp_comm_world_create(n, (struct pp_comm_capacity){1, 1}, NULL,
                                     0, &world, &err),
            &err);
    for (int i = 0; i < n; i++) {
        threads[i] = (struct thread){.world = world, .rank = i, .bytes = bytes};
        if (pthread_create(&threads[i].id, NULL, run_thread, &threads[i]))
            exit(3);
    }
    for (int i = 0; i < n; i++)
        pthread_join(threads[i].id, NULL);
    pp_comm_world_destroy(world);
}

static int variable(const char *name)
{
    const char *text = getenv(name);
    return text ? atoi(text) : 0;
}

static void run_process(size_t bytes)
{
    struct pp_err err = {0};
    struct pp_rendezvous *join = NULL;
    struct links l = {.bytes = bytes};
    const struct pp_rendezvous_place place = {.rank = variable("RANK"),
                                              .size = variable("WORLD_SIZE"),
                                              .local = variable("LOCAL_RANK"),
                                              .address = getenv("MASTER_ADDR"),
                                              .port = variable("MASTER_PORT"),
                                              .version = "1",
                                              .seconds = 60};
    int n = place.size;
    const struct pp_group all = {
        .n = n, .step = 1, .size = {n, 1, 1}, .stride = {1}};
    struct pp_comm_sets sets = {0};
    const struct pp_nccl_options o = {
        .library = getenv("PPRUN_NCCL"), .capacity = {1, 1}, .sets = &sets};
    pp_comm_sets_add_group(&sets, &all, PP_DIRECTION_DATA);
    pp_comm_sets_add_group(&sets, &all, PP_DIRECTION_WEIGHTS);
    pp_comm_sets_order(&sets, n);
    require(pp_device_cuda.open(place.local, &l.device, &err) ||
                pp_rendezvous_open(&place, &join, &err) ||
                pp_comm_nccl_open(join, &o, &l.comm, &err),
            &err);
    run_rank(&l, true);
    pp_rendezvous_close(join);
    pp_comm_sets_finish(&sets);
}

int main(int argc, char **argv)
{
    long bytes = argc > 1 ? atol(argv[1]) : 0;
    int ranks = argc > 2 ? atoi(argv[2]) : variable("WORLD_SIZE");
    if (bytes < SMALL || bytes % (long)sizeof(float) || ranks < 2 ||
        ranks > MOST_RANKS) {
        fprintf(stderr, "usage: bench_links BYTES [RANKS]\n");
        return 2;
    }
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    if (argc > 2)
        run_threads(ranks, (size_t)bytes);
    else
        run_process((size_t)bytes);
    return 0;
}
