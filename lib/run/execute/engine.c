/* SPDX-License-Identifier: MIT */
/* engine - binds the stages of a rank to a queue of its device. */
#include "run/execute/engine.h"

#include <stdlib.h>

#include "run/execute/job.h"

static int bind_stages(struct pp_engine *e, const struct pp_job *j, int row,
                       struct pp_stage_env env, struct pp_err *err)
{
    const struct pp_graph *g = j->schedule->graph;
    e->stages = calloc((size_t)g->n_stages, sizeof *e->stages);
    if (!e->stages)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    e->n_stages = g->n_stages;
    for (int s = 0; s < g->n_stages; s++) {
        const struct pp_unit_range *u = &j->stages[s];
        if (g->stages[s].row != row)
            continue;
        env.copy = u->copy;
        env.recompute = pp_job_recompute(j, s);
        env.exchange = pp_attention_exchange(g->n_slices, &j->mesh);
        if (pp_stage_init(&e->stages[s], &env, u->first, u->n,
                          g->stages[s].input_grad, err))
            return -1;
    }
    return 0;
}

int pp_engine_init(struct pp_engine *e, const struct pp_job *j, int row,
                   const struct pp_stage_env *env, size_t tokens,
                   struct pp_err *err)
{
    struct pp_device *d = env->device;
    *e = (struct pp_engine){.device = d, .stream = env->stream};
    if (bind_stages(e, j, row, *env, err) ||
        pp_batch_init(&e->batch, d, tokens, j->model->vocab, err))
        return -1;
    return d->ops->streams ? d->ops->streams->event_open(d, &e->event, err) : 0;
}

void pp_engine_finish(struct pp_engine *e)
{
    for (int s = 0; e->stages && s < e->n_stages; s++)
        pp_stage_finish(&e->stages[s]);
    free(e->stages);
    pp_batch_finish(&e->batch);
    if (e->event)
        e->device->ops->streams->event_close(e->event);
    *e = (struct pp_engine){0};
}

int pp_engine_wait_for(struct pp_engine *e, struct pp_engine *other,
                       struct pp_err *err)
{
    const struct pp_stream_ops *q = e->device->ops->streams;
    return q->event_record(other->device, other->event, NULL, err) ||
                   q->wait_event(e->device, NULL, other->event, err)
               ? -1
               : 0;
}
