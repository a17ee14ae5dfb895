/* SPDX-License-Identifier: MIT */
/* threads - runs all ranks of a job as threads of this process, and plans
 * the memory of their channels and stacks. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "comm/comm.h"
#include "runner/runner.h"

struct rank_thread {
    const struct pp_job *job;
    struct pp_comm *comm;
    pthread_t thread;
    enum pp_exit status;
    struct pp_err err;
};

/* The stack of a rank on the CPU. A step uses a fifth of it; other parts of a
 * run, as a teacher's distributions, a third. Libraries of a GPU may want what
 * is usual. */
#ifdef __SANITIZE_THREAD__ /* which has larger frames */
enum { STACK_BYTES = 8 << 20 };
#else
enum { STACK_BYTES = 1 << 20 };
#endif

static size_t stack_bytes(const struct pp_job *j)
{
    return j->device->is_host ? STACK_BYTES : 0;
}

/* Returns the row of a rank. */
static int row_of(const struct pp_layout *l, int rank)
{
    struct pp_place p;
    return pp_layout_find(l, rank, &p) ? p.row : 0;
}

/* Plans what n ranks with n_channels take in the process. */
static int plan_world(int n, struct pp_comm_capacity capacity,
                      size_t n_channels, size_t *bytes, struct pp_err *err)
{
    if (pp_comm_world_bytes(n, capacity, n_channels, bytes, err))
        return -1;
    *bytes += (size_t)n * sizeof(struct rank_thread);
    return 0;
}

int runner_threads_memory(struct runner *p, struct runner_row_memory *rows)
{
    struct pp_err *err = &p->tool->err;
    const struct pp_layout l = pp_job_layout(&p->job);
    int n = pp_layout_ranks(&l), n_rows = p->job.schedule->graph->n_rows;
    struct pp_comm_capacity capacity;
    struct pp_comm_channel *channels = NULL;
    size_t n_channels, all, none, *into;
    into = pp_try_calloc((size_t)n_rows, sizeof *into, err);
    if (!into || pp_job_channel_capacity(&p->job, &capacity, err))
        goto out;
    pp_job_channels(&p->job, -1, &channels, &n_channels);
    if (plan_world(n, capacity, n_channels, &all, err) ||
        plan_world(0, capacity, 0, &none, err))
        goto out;
    for (size_t i = 0; i < n_channels; i++)
        into[row_of(&l, channels[i].to)]++;
    for (int r = 0; r < n; r++)
        rows[row_of(&l, r)].ranks++;
    for (int row = n_rows - 1; row >= 0; row--) {
        struct runner_row_memory *m = &rows[row];
        m->stacks = (size_t)m->ranks * stack_bytes(&p->job);
        /* Row 0 has what the world has once. */
        if (row > 0 &&
            plan_world(m->ranks, capacity, into[row], &m->channels, err))
            goto out;
        m->channels = row > 0 ? m->channels - none : all;
        all -= row > 0 ? m->channels : 0;
    }
out:
    free(channels);
    free(into);
    return err->code == PP_EXIT_OK ? 0 : -1;
}

static void *run_rank(void *arg)
{
    struct rank_thread *t = arg;
    /* The error is in t->err. */
    if (pp_rank_run(t->job, t->comm, &t->status, &t->err))
        t->status = t->err.code;
    return NULL;
}

/* Takes the error of the rank that failed first. The errors of the other ranks
 * only repeat it and name that rank as their origin. */
static void take_error(struct rank_thread *ranks, int n, struct pp_err *err)
{
    for (int told = 0; told < 2; told++)
        for (int r = 0; r < n; r++) {
            const struct pp_err *e = &ranks[r].err;
            if (e->code == PP_EXIT_OK)
                continue;
            bool from_other =
                e->origin.known & PP_ORIGIN_RANK && e->origin.rank != r;
            if (told || !from_other)
                *err = err->code == PP_EXIT_OK ? *e : *err;
        }
}

int runner_threads(struct runner *p, enum pp_exit *status)
{
    struct pp_err *err = &p->tool->err;
    const struct pp_layout layout = pp_job_layout(&p->job);
    int n = pp_layout_ranks(&layout), started = 0;
    struct pp_comm_world *world = NULL;
    struct pp_comm_capacity capacity;
    struct pp_comm_channel *channels = NULL;
    size_t n_channels;
    pthread_attr_t attributes;
    struct rank_thread *ranks = calloc((size_t)n, sizeof *ranks);
    if (!ranks)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    if (pp_job_channel_capacity(&p->job, &capacity, err))
        goto out;
    pp_job_channels(&p->job, -1, &channels, &n_channels);
    if (pp_comm_world_create(n, capacity, channels, n_channels, &world, err))
        goto out;
    free(channels);
    channels = NULL;
    for (int r = 0; r < n; r++) {
        ranks[r].job = &p->job;
        ranks[r].comm = pp_comm_threads_open(world, r);
    }
    pthread_attr_init(&attributes);
    if (stack_bytes(&p->job))
        pthread_attr_setstacksize(&attributes, stack_bytes(&p->job));
    for (; started < n; started++) {
        int rc = pthread_create(&ranks[started].thread, &attributes, run_rank,
                                &ranks[started]);
        if (rc) {
            pp_fail(err, PP_EXIT_SYSTEM, "rank %d: cannot start a thread: %s",
                    started, strerror(rc));
            ranks[started].comm->ops->abort(ranks[started].comm, err->text);
            break;
        }
    }
    pthread_attr_destroy(&attributes);
out:
    for (int r = 0; ranks && r < started; r++)
        pthread_join(ranks[r].thread, NULL);
    take_error(ranks, n, err);
    *status = ranks[0].status;
    for (int r = 0; r < n; r++)
        if (ranks[r].comm)
            ranks[r].comm->ops->close(ranks[r].comm);
    pp_comm_world_destroy(world);
    free(channels);
    free(ranks);
    return err->code == PP_EXIT_OK ? 0 : -1;
}
