/* SPDX-License-Identifier: MIT */
/* test_mpi_process - tests an MPI that does not start, does not end, or has
 * other ranks than the job, and wrong modules. MPI is a mock: two ranks are
 * threads, and each has its own. */
#include "free_port.h"
#include "tap.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "comm/mpi.h"
#include "comm/rendezvous.h"

enum { SIZE = 2 };

/* --- MPIs --- */

static int start_0(struct pp_mpi_world *w)
{
    *w = (struct pp_mpi_world){0, SIZE, true};
    return 0;
}

static int start_1(struct pp_mpi_world *w)
{
    *w = (struct pp_mpi_world){1, SIZE, true};
    return 0;
}

static int start_alone(struct pp_mpi_world *w)
{
    *w = (struct pp_mpi_world){0, 1, true};
    return 0;
}

static int start_without_threads(struct pp_mpi_world *w)
{
    start_1(w);
    w->threads = false;
    return 0;
}

static int start_never(struct pp_mpi_world *w)
{
    (void)w;
    while (true)
        pause();
    return 0;
}

static int start_badly(struct pp_mpi_world *w)
{
    (void)w;
    return 17;
}

static int finish(void)
{
    return 0;
}

static int finish_never(void)
{
    while (true)
        pause();
    return 0;
}

static int progress(void)
{
    return 0;
}

static void advance(void *ctx)
{
    (void)ctx;
}

static void error_text(int code, char *text, size_t room)
{
    snprintf(text, room, "error %d", code);
}

static struct pp_mpi make_mpi(int (*start)(struct pp_mpi_world *w))
{
    return (struct pp_mpi){.abi = PP_MPI_ABI,
                           .start = start,
                           .finish = finish,
                           .progress = progress,
                           .error_text = error_text};
}

/* --- ranks --- */

struct rank {
    struct pp_rendezvous_place place;
    struct pp_mpi mpi;
    const char *aborts; /* reason of its abort, soon after it opens */
    int rc;
    struct pp_err err;
    pthread_t thread;
};

static void *be_rank(void *arg)
{
    struct rank *r = arg;
    struct pp_rendezvous *j;
    struct pp_mpi_process *p = NULL;
    if (pp_rendezvous_open(&r->place, &j, &r->err))
        return NULL;
    r->rc = pp_mpi_process_open(j, &r->mpi, advance, NULL, &p, &r->err);
    if (r->aborts) {
        usleep(20000);
        pp_rendezvous_abort(j, r->aborts);
    }
    pp_mpi_process_close(p);
    pp_rendezvous_close(j);
    return NULL;
}

/* Runs both ranks. Each test also checks that it returns. */
static void run_ranks(struct rank ranks[SIZE])
{
    int port = free_port();
    for (int r = 0; r < SIZE; r++) {
        ranks[r].place = (struct pp_rendezvous_place){.rank = r,
                                                      .size = SIZE,
                                                      .local = -1,
                                                      .address = "127.0.0.1",
                                                      .port = port,
                                                      .version = "1",
                                                      .seconds = 20};
        pthread_create(&ranks[r].thread, NULL, be_rank, &ranks[r]);
    }
    for (int r = 0; r < SIZE; r++)
        pthread_join(ranks[r].thread, NULL);
}

static void try(struct rank ranks[SIZE], const char *first, const char *second,
                const char *what)
{
    const char *want[SIZE] = {first, second};
    run_ranks(ranks);
    for (int r = 0; r < SIZE; r++) {
        is_str(ranks[r].err.text, want[r], what);
        is_int(ranks[r].rc, want[r][0] ? -1 : 0,
               "the call succeeds or fails as expected");
    }
}

static void test_start(void)
{
    struct rank good[SIZE] = {{.mpi = make_mpi(start_0)},
                              {.mpi = make_mpi(start_1)}};
    try(good, "", "", "two ranks start and end");

    struct rank bad[SIZE] = {{.mpi = make_mpi(start_never)},
                             {.mpi = make_mpi(start_badly)}};
    try(bad, "rank 1: MPI cannot start: error 17", "MPI cannot start: error 17",
        "a rank that waits in MPI returns when the other cannot start");
}

static void test_world(void)
{
    const char *other = "rank 0 of 2 is rank 0 of 1 in MPI: start the ranks "
                        "with this MPI's mpirun, or with the MPI plugin of "
                        "srun";
    struct rank alone[SIZE] = {{.mpi = make_mpi(start_alone)},
                               {.mpi = make_mpi(start_alone)}};
    try(alone, other, other, "MPI does not connect the processes");

    /* Rank 0 has the right MPI, and must not wait for the other rank. */
    other = "rank 1 of 2 is rank 0 of 1 in MPI: start the ranks with this "
            "MPI's mpirun, or with the MPI plugin of srun";
    struct rank half[SIZE] = {{.mpi = make_mpi(start_0)},
                              {.mpi = make_mpi(start_alone)}};
    try(half, other, other, "both ranks have the same error");

    other = "this MPI does not support MPI_THREAD_SERIALIZED";
    struct rank single[SIZE] = {{.mpi = make_mpi(start_0)},
                                {.mpi = make_mpi(start_without_threads)}};
    try(single, other, other, "an MPI for one thread");
}

/* Tests that a rank ends although the other aborts while it ends MPI. */
static void test_finish(void)
{
    struct rank ranks[SIZE] = {{.mpi = make_mpi(start_0)},
                               {.mpi = make_mpi(start_1), .aborts = "tea"}};
    ranks[0].mpi.finish = finish_never;
    try(ranks, "", "", "a rank does not wait for ever in MPI's finish");
}

static void test_module(void)
{
    const struct pp_mpi *mpi = NULL;
    struct pp_err err = {0};
    is_int(pp_mpi_open("./nosuch.so", &mpi, &err), -1, "no file");
    is_str(err.text,
           "MPI: ./nosuch.so: cannot open shared object file: No such file or "
           "directory",
           "the message names the file");
    err = (struct pp_err){0};
    is_int(pp_mpi_open("libm.so.6", &mpi, &err), -1, "another library");
    is_str(err.text, "MPI: 'libm.so.6' is not an MPI module of pprun",
           "the message names it");
    is_int(err.code, PP_EXIT_SYSTEM, "the status is that of the system");
}

int main(void)
{
    alarm(60); /* makes an endless wait a failure */
    test_start();
    test_world();
    test_finish();
    test_module();
    return done();
}
