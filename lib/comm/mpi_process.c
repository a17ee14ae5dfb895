/* SPDX-License-Identifier: MIT */
/* mpi_process - opens the module, starts and ends MPI on a thread of its own,
 * and advances messages while the rank computes. */
#include "comm/mpi.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "comm/rendezvous.h"

int pp_mpi_open(const char *module, const struct pp_mpi **out,
                struct pp_err *err)
{
    /* Open MPI's plugins look for its symbols in the program. It stays loaded,
     * because its threads may still run. */
    void *library = dlopen(module, RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
    if (!library)
        return pp_fail(err, PP_EXIT_SYSTEM, "MPI: %s", dlerror());
    const struct pp_mpi *m = dlsym(library, PP_MPI_SYMBOL);
    int abi = m ? m->abi : 0;
    dlclose(library);
    if (!m)
        return pp_fail(err, PP_EXIT_SYSTEM,
                       "MPI: '%s' is not an MPI module of pprun", module);
    if (abi != PP_MPI_ABI)
        return pp_fail(err, PP_EXIT_SYSTEM,
                       "MPI: '%s' has version '%d', but %d is needed: "
                       "rebuild it",
                       module, abi, PP_MPI_ABI);
    *out = m;
    return 0;
}

/* Pauses of the progress thread: a share of the time that the rank has been
 * away, within these bounds. */
enum { LEAST_US = 50, MOST_US = 1000, SHARE = 16 };

struct pp_mpi_process {
    const struct pp_mpi *mpi;
    struct pp_rendezvous *join;
    struct pp_mpi_world world;

    /* A function that waits for all ranks inside MPI, on its own thread. */
    int (*collective)(struct pp_mpi_process *p);
    int failure;
    atomic_bool done;
    bool started, stuck; /* stuck: that thread waits for ever */

    /* The thread that advances messages. */
    pthread_t progress_thread;
    bool progressing; /* the thread runs */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    void (*advance)(void *ctx);
    void *ctx;
    bool away, ending; /* away: the rank computes and passes messages */
    double left;       /* when the rank left MPI */
};

static int call_start(struct pp_mpi_process *p)
{
    return p->mpi->start(&p->world);
}

static int call_finish(struct pp_mpi_process *p)
{
    return p->mpi->finish();
}

static void *collective_thread(void *arg)
{
    struct pp_mpi_process *p = arg;
    p->failure = p->collective(p);
    p->done = true;
    return NULL;
}

/* Runs a collective function on a thread. If the job ends before all ranks call
 * it, fails and leaves the thread and *p behind. */
static int run_collective(struct pp_mpi_process *p,
                          int (*what)(struct pp_mpi_process *p),
                          struct pp_err *err)
{
    static const struct timespec pause = {.tv_nsec = 1000000};
    pthread_t thread;
    p->collective = what;
    p->done = false;
    int rc = pthread_create(&thread, NULL, collective_thread, p);
    if (rc)
        return pp_fail(err, PP_EXIT_SYSTEM, "cannot start a thread: %s",
                       strerror(rc));
    while (!p->done && !pp_rendezvous_aborted(p->join))
        nanosleep(&pause, NULL);
    p->stuck = !p->done;
    if (p->stuck) {
        pthread_detach(thread);
        return pp_rendezvous_fail(p->join, err);
    }
    pthread_join(thread, NULL);
    return 0;
}

static int start_mpi(struct pp_mpi_process *p, struct pp_err *err)
{
    char text[240];
    if (run_collective(p, call_start, err))
        return -1;
    p->started = p->failure == 0;
    if (p->started)
        return 0;
    p->mpi->error_text(p->failure, text, sizeof text);
    return pp_fail(err, PP_EXIT_SYSTEM, "MPI cannot start: %s", text);
}

/* Checks that MPI has the same ranks as the job. All ranks reach the same
 * verdict. */
static int check_worlds(struct pp_mpi_process *p, struct pp_err *err)
{
    int size = pp_rendezvous_size(p->join), rc;
    struct pp_mpi_world *all = calloc((size_t)size, sizeof *all);
    if (!all) {
        pp_rendezvous_abort(p->join, "out of memory");
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    }
    rc = pp_rendezvous_allgather(p->join, &p->world, all, sizeof *all, err);
    for (int r = 0; r < size && rc == 0; r++) {
        const struct pp_mpi_world *w = &all[r];
        if (w->rank != r || w->size != size)
            rc = pp_fail(err, PP_EXIT_INPUT,
                         "rank %d of %d is rank %d of %d in MPI: start the "
                         "ranks with this MPI's mpirun, or with the MPI plugin "
                         "of srun",
                         r, size, w->rank, w->size);
        else if (!w->threads)
            rc = pp_fail(err, PP_EXIT_SYSTEM,
                         "this MPI does not support MPI_THREAD_SERIALIZED");
    }
    free(all);
    return rc;
}

/* --- progress of messages --- */

static void pause_between_calls(double away)
{
    double us = away * 1e6 / SHARE;
    us = us < LEAST_US ? LEAST_US : us > MOST_US ? MOST_US : us;
    const struct timespec pause = {.tv_nsec = (long)(us * 1000)};
    nanosleep(&pause, NULL);
}

static void *run_progress(void *arg)
{
    struct pp_mpi_process *p = arg;
    pthread_mutex_lock(&p->lock);
    while (!p->ending) {
        if (!p->away) {
            pthread_cond_wait(&p->changed, &p->lock);
            continue;
        }
        /* The rank gets errors from its own calls. */
        p->mpi->progress();
        p->advance(p->ctx);
        double away = pp_clock() - p->left;
        pthread_mutex_unlock(&p->lock);
        pause_between_calls(away);
        pthread_mutex_lock(&p->lock);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

static int start_progress(struct pp_mpi_process *p, struct pp_err *err)
{
    int rc = pthread_create(&p->progress_thread, NULL, run_progress, p);
    p->progressing = rc == 0;
    return rc ? pp_fail(err, PP_EXIT_SYSTEM, "cannot start a thread: %s",
                        strerror(rc))
              : 0;
}

static void end_progress(struct pp_mpi_process *p)
{
    if (!p->progressing)
        return;
    pthread_mutex_lock(&p->lock);
    p->ending = true;
    pthread_cond_signal(&p->changed);
    pthread_mutex_unlock(&p->lock);
    pthread_join(p->progress_thread, NULL);
    p->progressing = false;
}

void pp_mpi_process_enter(struct pp_mpi_process *p)
{
    pthread_mutex_lock(&p->lock);
    p->away = false;
    pthread_mutex_unlock(&p->lock);
}

void pp_mpi_process_leave(struct pp_mpi_process *p, bool passing)
{
    if (!passing)
        return;
    pthread_mutex_lock(&p->lock);
    p->away = true;
    p->left = pp_clock();
    pthread_cond_signal(&p->changed);
    pthread_mutex_unlock(&p->lock);
}

/* --- beginning and end --- */

void pp_mpi_process_close(struct pp_mpi_process *p)
{
    struct pp_err ignored = {0}; /* the run is over or has failed */
    int rc = 0;
    if (!p)
        return;
    end_progress(p);
    if (p->started && !pp_rendezvous_aborted(p->join))
        rc = run_collective(p, call_finish, &ignored);
    (void)rc;
    if (p->stuck)
        return;
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

int pp_mpi_process_open(struct pp_rendezvous *join, const struct pp_mpi *mpi,
                        void (*advance)(void *ctx), void *ctx,
                        struct pp_mpi_process **out, struct pp_err *err)
{
    struct pp_mpi_process *p = calloc(1, sizeof *p);
    if (!p) {
        pp_rendezvous_abort(join, "out of memory");
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    }
    p->join = join;
    p->mpi = mpi;
    p->advance = advance;
    p->ctx = ctx;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
    /* The other ranks may wait inside MPI. */
    if (start_progress(p, err) || start_mpi(p, err))
        pp_rendezvous_abort(join, err->text);
    else if (check_worlds(p, err) == 0) {
        *out = p;
        return 0;
    }
    pp_mpi_process_close(p);
    return -1;
}
