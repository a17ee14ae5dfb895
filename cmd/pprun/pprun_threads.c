/* SPDX-License-Identifier: MIT */
/* pprun_threads - runs all ranks of a job as threads of this process. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "pprun.h"

struct rank_thread {
    const struct pp_job *job;
    struct pp_comm *comm;
    pthread_t thread;
    enum pp_exit status;
    struct pp_err err;
};

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

int pprun_threads(struct pprun *p, enum pp_exit *status)
{
    struct pp_err *err = &p->tool->err;
    const struct pp_layout layout = pp_job_layout(&p->job);
    int n = pp_layout_ranks(&layout), started = 0;
    struct pp_comm_world *world = NULL;
    struct pp_comm_room room;
    struct rank_thread *ranks = calloc((size_t)n, sizeof *ranks);
    if (!ranks)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    if (pp_job_channel_room(&p->job, &room, err) ||
        pp_comm_world_create(n, room, &world, err))
        goto out;
    for (int r = 0; r < n; r++) {
        ranks[r].job = &p->job;
        if (pp_comm_threads_open(world, r, &ranks[r].comm, err))
            goto out;
    }
    for (; started < n; started++) {
        int rc = pthread_create(&ranks[started].thread, NULL, run_rank,
                                &ranks[started]);
        if (rc) {
            pp_fail(err, PP_EXIT_SYSTEM, "rank %d: cannot start a thread: %s",
                    started, strerror(rc));
            ranks[started].comm->ops->abort(ranks[started].comm, err->text);
            break;
        }
    }
out:
    for (int r = 0; ranks && r < started; r++)
        pthread_join(ranks[r].thread, NULL);
    take_error(ranks, n, err);
    *status = ranks[0].status;
    for (int r = 0; r < n; r++)
        if (ranks[r].comm)
            ranks[r].comm->ops->close(ranks[r].comm);
    pp_comm_world_destroy(world);
    free(ranks);
    return err->code == PP_EXIT_OK ? 0 : -1;
}
