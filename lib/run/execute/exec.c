/* SPDX-License-Identifier: MIT */
/* exec - plays the row of a rank: exec_compute.c computes its actions, and
 * exec_messages.c sends and receives. */
#include "run/execute/exec.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/num.h"
#include "run/execute/exec_impl.h"
#include "run/execute/sync.h"
#include "run/parameters/gradients.h"
#include "schedule/ir/deps.h"

static int make_inboxes(struct pp_exec *e, struct pp_err *err)
{
    size_t n = 2 * (size_t)e->schedule->graph->n_rows, total;
    int receives;
    if (pp_job_receives(e->schedule, &receives, err) ||
        pp_mul(n, (size_t)receives, &total, err))
        return -1;
    e->n_posted = (size_t)receives;
    e->inboxes = calloc(n, sizeof *e->inboxes);
    e->posted = calloc(total, sizeof *e->posted);
    if (!e->inboxes || !e->posted)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    for (size_t i = 0; i < n; i++)
        e->inboxes[i].at = e->posted + i * e->n_posted;
    return 0;
}

int pp_exec_init(struct pp_exec *e, struct pp_worker *w,
                 const struct pp_schedule *s,
                 const struct pp_stage_bytes *sizes, size_t room,
                 struct pp_err *err)
{
    memset(e, 0, sizeof *e);
    e->worker = w;
    e->env = w->env;
    e->schedule = s;
    e->room = room;
    if (pp_memory_plan(s, e->env->place.row, sizes, &e->memory, err))
        return -1;
    const struct pp_row *row = &s->rows[e->env->place.row];
    for (size_t i = 0; i < row->n; i++)
        e->trains |= pp_is_compute(row->actions[i].op) &&
                     pp_ends_backward(s->graph, row->actions[i]);
    e->sent = calloc(2 * (size_t)s->graph->n_rows, sizeof *e->sent);
    e->bounds =
        calloc((size_t)pp_layout_ranks(&e->env->layout) + 1, sizeof *e->bounds);
    e->before = calloc((size_t)s->graph->slices.n, sizeof *e->before);
    e->at_once = calloc(row->n + 1, sizeof *e->at_once);
    if (!e->sent || !e->before || !e->bounds || !e->at_once)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    pp_at_once(s, e->env->place.row, e->at_once);
    return make_inboxes(e, err) || pp_host_copies_open(e, err) ? -1 : 0;
}

void pp_exec_finish(struct pp_exec *e)
{
    pp_host_copies_close(e->copies);
    pp_memory_finish(&e->memory);
    free(e->sent);
    free(e->before);
    free(e->at_once);
    free(e->bounds);
    free(e->inboxes);
    free(e->posted);
    memset(e, 0, sizeof *e);
}

const struct pp_buffer *pp_exec_find(const struct pp_exec *e,
                                     enum pp_buffer_kind kind, int stage,
                                     struct pp_action a, int peer)
{
    return pp_memory_find(&e->memory, kind, stage, a.microbatch, a.slice, peer);
}

void *pp_exec_buffer(const struct pp_exec *e, enum pp_buffer_kind kind,
                     int stage, struct pp_action a, int peer)
{
    const struct pp_buffer *b = pp_exec_find(e, kind, stage, a, peer);
    return b ? e->arena + b->offset : NULL;
}

int pp_exec_fail_at(const struct pp_exec *e, struct pp_action a,
                    struct pp_err *err)
{
    pp_err_set_origin(err, PP_ORIGIN_RANK, e->env->comm->rank);
    pp_err_set_origin(err, PP_ORIGIN_STAGE, a.stage);
    pp_err_set_origin(err, PP_ORIGIN_MICROBATCH, a.microbatch);
    return pp_fail_at(err, "microbatch %d: rank %d: ", (int)a.microbatch,
                      e->env->comm->rank);
}

/* Weights are gathered and given up beside a REDUCE_GRAD; the other sums need
 * its own. */
static int sync_now(struct pp_exec *e, struct pp_action a, struct pp_err *err)
{
    struct pp_tied *tied = e->worker->tied;
    if (a.op == PP_UNSHARD || a.op == PP_RESHARD)
        return pp_sync_weights(e, a, err);
    if (!e->pass->sync)
        return 0;
    if (pp_gradients_settle(e->env->params,
                            a.op == PP_REDUCE_GRAD ? a.stage : PP_ALL, PP_ALL,
                            err))
        return -1;
    if (a.op == PP_REDUCE_GRAD)
        return pp_sync_replicas(e->worker, a.stage, err);
    if (pp_sync_join(e->worker, err))
        return -1;
    if (a.op == PP_SYNC_COPIES)
        return pp_sync_copies(e->worker, err);
    for (int k = 0; a.op == PP_SYNC_TIED && k < PP_MAX_COPIES; k++)
        if (tied[k].used && pp_sync_tied(e->worker, &tied[k], err))
            return -1;
    return 0;
}

int pp_exec_sync(void *ctx, struct pp_action a, struct pp_err *err)
{
    struct pp_exec *e = ctx;
    struct pp_device *beside = e->worker->reducer.device;
    struct pp_device *on =
        a.op == PP_REDUCE_GRAD && beside ? beside : e->env->device;
    pp_progress_action(e->worker->progress, e->pc);
    if (pp_is_copy(a.op))
        return pp_exec_copy(e, a, err);
    if (e->recorder)
        pp_recorder_begin(e->recorder, e->pc, on);
    int rc = sync_now(e, a, err);
    if (e->recorder)
        pp_recorder_end(e->recorder, e->pc, on);
    return rc;
}

/* Plays the row, through the recorder if there is one. */
static int play(struct pp_exec *e, struct pp_err *err)
{
    const struct pp_player *player = &pp_exec_ops.player;
    struct pp_recorder *r = e->recorder;
    e->pc = 0;
    int row = e->env->place.row;
    if (!r)
        return pp_play(e->schedule, row, &e->pc, player, e, err);
    pp_recorder_pass(r, e->pass->number, player, e, &e->pc);
    int rc = pp_play(e->schedule, row, &e->pc, &pp_recording_player, r, err);
    pp_recorder_passed(r);
    return rc;
}

int pp_exec_run(struct pp_exec *e, const struct pp_pass *pass,
                struct pp_err *err)
{
    double start = pp_clock();
    const struct pp_env *overlap = e->worker->overlap.env;
    e->pass = pass;
    e->slots = 0;
    pp_host_copies_pass(e);
    e->n_early = 0;
    e->has_paired = false;
    /* Returns at once: the results of the previous step have been read. */
    if (overlap && pass->number == 0 &&
        overlap->device->ops->wait(overlap->device, err))
        return -1;
    if (e->scoring)
        e->scoring->n_held = 0;
    /* The previous pass emptied the rings (below). A row with fewer messages
     * than the channel depth has a ring of that many places. */
    int n_rows = e->schedule->graph->n_rows;
    memset(e->sent, 0, 2 * (size_t)n_rows * sizeof *e->sent);
    if (play(e, err) || pp_sync_join(e->worker, err))
        return -1;
    for (int row = 0; row < n_rows; row++)
        for (int direction = PP_DIRECTION_FORWARD;
             direction <= PP_DIRECTION_BACKWARD; direction++)
            if (e->sent[2 * row + direction] &&
                pp_exec_wait_sent(e, row, (enum pp_direction)direction, 0, err))
                return -1;
    e->seconds += pp_clock() - start;
    return 0;
}
