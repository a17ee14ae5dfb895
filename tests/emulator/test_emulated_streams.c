/* SPDX-License-Identifier: MIT */
/* test_emulated_streams - what waits on the emulated GPU, as on a GPU, and what
 * goes on. Each case is a process of its own, because what waits may never
 * end. */
#include "tap.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/nccl.h"
#include "cuda_runtime_api.h"
#include "cuda_stream.h"
#include "emulated_gate.h"
#include "emulated_gpus.h"
#include "emulated_streams.h"

enum { WAITS, RETURNS };

static atomic_bool opened; /* lets messages end */
static atomic_int n_done;

static void run_message(void *arg)
{
    while (!opened)
        usleep(1000);
    (void)arg;
}

static void run_kernel(void *arg)
{
    (void)arg;
    n_done++;
}

static cudaStream_t open_stream(void)
{
    cudaStream_t s;
    if (cudaStreamCreateWithPriority(&s, cudaStreamNonBlocking, -1) !=
        cudaSuccess)
        abort();
    return s;
}

static void give_message(cudaStream_t s, int blocks)
{
    pp_emulated_give(s, PP_TASK_MESSAGE, blocks, run_message, NULL);
}

static void launch(cudaStream_t s)
{
    static const int code;
    struct pp_cuda_stream of = {.stream = s};
    pp_emulated_queue(&of, &code, run_kernel, NULL);
}

/* Returns whether so many kernels are done within a fifth of a second, or less
 * if they are. */
static int outcome(int n)
{
    for (double end = pp_clock() + 0.2; n_done < n && pp_clock() < end;)
        usleep(1000);
    return n_done >= n ? RETURNS : WAITS;
}

/* Calls f(arg) on a thread of its own, and returns whether it returns. */
struct call {
    void (*f)(void *arg);
    void *arg;
};

static void *run_call(void *arg)
{
    const struct call *c = arg;
    cudaSetDevice(0);
    c->f(c->arg);
    n_done++;
    return NULL;
}

static int call(void (*f)(void *arg), void *arg)
{
    pthread_t thread;
    static struct call c;
    n_done = 0;
    c = (struct call){f, arg};
    if (pthread_create(&thread, NULL, run_call, &c) != 0)
        abort();
    int rc = outcome(1);
    if (rc == RETURNS)
        pthread_join(thread, NULL);
    return rc;
}

/* --- processors and hardware queues --- */

/* A kernel beside messages that wait, on so many streams with so many blocks.
 */
static int kernel_beside(int n, int blocks)
{
    for (int i = 0; i < n; i++)
        give_message(open_stream(), blocks);
    usleep(20000); /* the messages begin */
    launch(open_stream());
    return outcome(1);
}

static int few_blocks(void)
{
    return kernel_beside(4, 32);
}

static int all_processors(void)
{
    return kernel_beside(5, 32);
}

static int smaller_gpu(void)
{
    setenv("PP_EMULATED_PROCESSORS", "108", 1);
    return kernel_beside(4, 32);
}

static int messages_end(void)
{
    int rc = kernel_beside(5, 32);
    opened = true;
    return rc == WAITS ? outcome(1) : WAITS;
}

/* A kernel of a stream that shares a hardware queue, or not, with a stream
 * whose second message waits for the first. */
static int kernel_behind(int n_queues)
{
    char text[8];
    snprintf(text, sizeof text, "%d", n_queues);
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", text, 1);
    cudaStream_t s = open_stream(), other = NULL;
    give_message(s, 1);
    give_message(s, 1);
    for (int i = 0; i < 8; i++)
        other = open_stream();
    launch(other);
    return outcome(1);
}

static int shared_queue(void)
{
    return kernel_behind(8);
}

static int own_queue(void)
{
    return kernel_behind(32);
}

/* --- the host --- */

static void free_memory(void *p)
{
    cudaFree(p);
}

static int free_beside_message(void)
{
    void *p;
    if (cudaMalloc(&p, 64) != cudaSuccess)
        abort();
    give_message(open_stream(), 1);
    return call(free_memory, p);
}

static int free_alone(void)
{
    void *p;
    if (cudaMalloc(&p, 64) != cudaSuccess)
        abort();
    return call(free_memory, p);
}

static void launch_first(void *s)
{
    launch(s);
}

static int first_use(void)
{
    unsetenv("CUDA_MODULE_LOADING");
    give_message(open_stream(), 1);
    return call(launch_first, open_stream());
}

static int second_use(void)
{
    unsetenv("CUDA_MODULE_LOADING");
    launch(open_stream());
    give_message(open_stream(), 1);
    return call(launch_first, open_stream());
}

static int loaded_before(void)
{
    give_message(open_stream(), 1);
    return call(launch_first, open_stream());
}

static void launch_many(void *s)
{
    for (int i = 0; i < 10; i++)
        launch(s);
}

static int full_queue(void)
{
    cudaStream_t s = open_stream();
    give_message(s, 1);
    setenv("PP_EMULATED_LAUNCHES", "8", 1);
    return call(launch_many, s);
}

static int queue_with_room(void)
{
    cudaStream_t s = open_stream();
    give_message(s, 1);
    return call(launch_many, s);
}

/* --- NCCL --- */

static struct pp_nccl lib;
static void *ends[2][2]; /* of two communicators */

/* Rank r of each is on GPU r of n_gpus. */
static void open_communicators(int blocks, int n_gpus)
{
    struct pp_err err = {0};
    if (pp_nccl_open(getenv("PPRUN_NCCL"), &lib, &err))
        abort();
    for (int i = 0; i < 2; i++) {
        struct pp_nccl_id id;
        struct pp_nccl_config config = {.size = sizeof config,
                                        .magic = PP_NCCL_MAGIC,
                                        .version = PP_NCCL_OLDEST,
                                        .max_ctas = blocks};
        lib.get_unique_id(&id);
        for (int r = 0; r < 2; r++) {
            cudaSetDevice(r % n_gpus);
            lib.init(&ends[i][r], 2, id, r, &config);
        }
    }
    for (int state = PP_NCCL_IN_PROGRESS, i = 0; i < 4; i++, state = 7)
        while (state == PP_NCCL_IN_PROGRESS)
            lib.async_error(ends[i / 2][i % 2], &state);
}

/* Posts a receive that nobody sends to. */
static void receive(void *comm, void *to)
{
    int state = lib.recv(to, 8, PP_NCCL_INT8, 0, comm, open_stream());
    while (state == PP_NCCL_IN_PROGRESS)
        lib.async_error(comm, &state);
}

static void abort_one(void *comm)
{
    lib.abort(comm);
}

static void *abort_other(void *comm)
{
    lib.abort(comm);
    return NULL;
}

static int abort_receives(bool both)
{
    pthread_t thread;
    void *to;
    open_communicators(1, 1);
    if (cudaMalloc(&to, 64) != cudaSuccess)
        abort();
    receive(ends[0][1], to);
    receive(ends[1][1], to);
    if (both && pthread_create(&thread, NULL, abort_other, ends[1][1]) != 0)
        abort();
    return call(abort_one, ends[0][1]);
}

static int abort_first(void)
{
    return abort_receives(false);
}

static int abort_both(void)
{
    return abort_receives(true);
}

/* Queues an exchange of a communicator at both ranks' ends, on a stream of its
 * own, and lets it begin. */
static void exchange(int i, int r)
{
    char *room;
    void *comm = ends[i][r];
    cudaSetDevice(r);
    cudaStream_t s = open_stream();
    if (cudaMalloc((void **)&room, 64) != cudaSuccess)
        abort();
    lib.group_start();
    lib.send(room, 8, PP_NCCL_INT8, 1 - r, comm, s);
    lib.recv(room + 8, 8, PP_NCCL_INT8, 1 - r, comm, s);
    for (int state = lib.group_end(); state == PP_NCCL_IN_PROGRESS;)
        lib.async_error(comm, &state);
    cudaLaunchHostFunc(s, run_kernel, NULL);
    usleep(20000);
}

/* Both communicators at both GPUs, which have 8 processors; the second GPU
 * begins with one or the other. */
static int exchange_both(int blocks, int first)
{
    setenv("PP_EMULATED_PROCESSORS", "8", 1);
    setenv("PP_EMULATED_GPUS", "2", 1);
    open_communicators(blocks, 2);
    exchange(0, 0);
    exchange(1, 0);
    exchange(first, 1);
    exchange(1 - first, 1);
    return outcome(4);
}

static int one_order(void)
{
    return exchange_both(8, 0);
}

static int two_orders(void)
{
    return exchange_both(8, 1);
}

static int two_orders_with_room(void)
{
    return exchange_both(4, 1);
}

/* --- costs --- */

static int launches_in_time(void)
{
    double begun = pp_clock();
    cudaStream_t s = open_stream();
    launch_many(s);
    return pp_clock() - begun < 0.1 ? RETURNS : WAITS;
}

static int costly_launches(void)
{
    setenv("PP_EMULATED_COSTS", "messages=5,kernels=20000", 1);
    return launches_in_time();
}

static int other_costs(void)
{
    setenv("PP_EMULATED_COSTS", "messages=20000", 1);
    return launches_in_time();
}

int main(void)
{
    static const struct {
        const char *what;
        int (*run)(void);
        int want;
    } cases[] = {
        {"a kernel beside 128 blocks of messages", few_blocks, RETURNS},
        {"a kernel beside 160 blocks", all_processors, WAITS},
        {"a kernel beside 128 blocks on 108 processors", smaller_gpu, WAITS},
        {"it runs when the messages end", messages_end, RETURNS},
        {"a kernel in the hardware queue of a message", shared_queue, WAITS},
        {"a kernel in another hardware queue", own_queue, RETURNS},
        {"cudaFree beside a message", free_beside_message, WAITS},
        {"cudaFree alone", free_alone, RETURNS},
        {"the first use of a kernel beside a message", first_use, WAITS},
        {"its second use", second_use, RETURNS},
        {"its first use, loaded before", loaded_before, RETURNS},
        {"a launch in a full queue", full_queue, WAITS},
        {"a launch in a queue with room", queue_with_room, RETURNS},
        {"an abort of one communicator of two", abort_first, WAITS},
        {"an abort of both at a time", abort_both, RETURNS},
        {"exchanges that each need a GPU, in one order", one_order, RETURNS},
        {"the same in two orders", two_orders, WAITS},
        {"in two orders with room for both", two_orders_with_room, RETURNS},
        {"ten launches without a cost", launches_in_time, RETURNS},
        {"ten launches that cost 20 ms each", costly_launches, WAITS},
        {"ten launches if only messages cost", other_costs, RETURNS},
    };
    char library[4096];
    snprintf(library, sizeof library, "%s/tests/emulator/libemulated_nccl.so",
             getenv("BUILDDIR"));
    setenv("PPRUN_NCCL", library, 1);
    setenv("CUDA_MODULE_LOADING", "EAGER", 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int status = -1;
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            alarm(60);
            cudaSetDevice(0);
            _exit(cases[i].run());
        }
        waitpid(child, &status, 0);
        ok(WIFEXITED(status) && WEXITSTATUS(status) == cases[i].want, "%s %s",
           cases[i].what, cases[i].want == WAITS ? "waits" : "goes on");
    }
    return done();
}
