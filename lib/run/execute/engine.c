/* SPDX-License-Identifier: MIT */
/* engine - binds the stages of a rank to a queue of its device. */
#include "run/execute/engine.h"

#include <stdlib.h>

#include "run/execute/job.h"

static int bind_stages(struct pp_engine *e, const struct pp_job *j,
                       struct pp_err *err)
{
    const struct pp_graph *g = j->schedule->graph;
    e->stages = calloc((size_t)g->n_stages, sizeof *e->stages);
    e->passed = calloc((size_t)g->n_stages, sizeof *e->passed);
    if (!e->stages || !e->passed)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    e->n_stages = g->n_stages;
    for (int s = 0; s < g->n_stages; s++) {
        const struct pp_unit_range *u = &j->stages[s];
        const struct pp_stage_units units = {
            .first = u->first,
            .n = u->n,
            .copy = u->copy,
            .recompute = pp_job_recompute(j, s),
            .input_grad = g->stages[s].input_grad,
        };
        e->passed[s] = pp_stage_edges(j->model, u->first, u->n);
        if (g->stages[s].row == e->env->place.row &&
            pp_stage_init(&e->stages[s], e->env, &units, err))
            return -1;
    }
    return 0;
}

int pp_engine_init(struct pp_engine *e, const struct pp_job *j,
                   const struct pp_env *env, const struct pp_table_counts *c,
                   struct pp_err *err)
{
    struct pp_device *d = env->device;
    *e = (struct pp_engine){.env = env};
    if (bind_stages(e, j, err) ||
        pp_batch_init(&e->batch, d, c->tokens, j->model->vocab, c->ahead, err))
        return -1;
    for (size_t k = 0; k < PP_MAX_ENCODERS; k++)
        if (c->images[k].ranks &&
            pp_image_batch_init(&e->images[k], d, c->images[k].rows,
                                &c->images[k], err))
            return -1;
    const struct pp_model *g = j->model->generator;
    if (g && pp_generated_init(&e->generated, d, c, g->vocab, err))
        return -1;
    return d->ops->streams ? d->ops->streams->event_open(d, &e->event, err) : 0;
}

void pp_engine_finish(struct pp_engine *e)
{
    for (int s = 0; e->stages && s < e->n_stages; s++)
        pp_stage_finish(&e->stages[s]);
    free(e->stages);
    free(e->passed);
    pp_batch_finish(&e->batch);
    for (size_t k = 0; k < PP_MAX_ENCODERS; k++)
        pp_image_batch_finish(&e->images[k]);
    pp_generated_finish(&e->generated);
    if (e->event)
        e->env->device->ops->streams->event_close(e->event);
    *e = (struct pp_engine){0};
}

int pp_engine_wait_for(struct pp_engine *e, struct pp_engine *other,
                       struct pp_err *err)
{
    return pp_device_follow(e->env->device, other->env->device, other->event,
                            err);
}
