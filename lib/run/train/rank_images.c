/* SPDX-License-Identifier: MIT */
/* rank_images - the envs of a rank's encoders. No other rank shares their
 * attention, and those that divide their tensors share their products. */
#include "run/train/rank.h"

#include "model/vision.h"

/* Lets an env find the envs of its encoders. */
static void bind(struct pp_env *env, struct pp_rank_encoders *e)
{
    for (size_t k = 0; k < PP_MAX_ENCODERS; k++) {
        if (!e->projector[k].shard.model)
            continue;
        e->projector[k].images[k] = &e->images[k];
        env->images[k] = &e->images[k];
        env->projector[k] = &e->projector[k];
    }
}

static size_t most_of(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Makes room for the inputs of encoders on their way to a GPU. A row of audio
 * has those of two windows. */
static int make_room(struct pp_rank *r, struct pp_err *err)
{
    size_t width = 0;
    for (size_t k = 0; k < PP_MAX_ENCODERS; k++)
        width = most_of(width, r->job->model->encoders[k].patch_inputs);
    if (!width || pp_env_is_host(&r->env))
        return 0;
    size_t bytes =
        most_of(PP_PIXEL_ROOM, 2 * width * r->env.kernels->element_bytes);
    r->env.pixel_room = pp_device_alloc(NULL, 1, bytes, "pixels", err);
    return r->env.pixel_room ? 0 : -1;
}

int pp_rank_make_images(struct pp_rank *r, struct pp_err *err)
{
    static const struct pp_mesh alone = {1, 1, 1, 1, 1};
    const struct pp_collective none = {.group.n = 1};
    struct pp_rank_encoders *e = &r->encoders;
    const struct pp_model *m = r->job->model;
    if (make_room(r, err))
        return -1;
    for (size_t k = 0; k < PP_MAX_ENCODERS; k++) {
        if (m->encoders[k].kind == PP_VISION_NONE)
            continue;
        struct pp_env *p = &e->projector[k];
        r->tower[k] = pp_vision_tower(m, k);
        const struct pp_shard in =
            pp_vision_shard(&r->env.shard, &r->tower[k], k);
        *p = r->env;
        p->shard.whole_rows = true;
        p->context = p->experts = p->routers = none;
        p->tensor = pp_rank_collective(&r->env, PP_GROUP_ENCODER_TP);
        p->exchange = pp_attention_exchange(1, &alone);
        e->images[k] = *p;
        e->images[k].shard = in;
    }
    bind(&r->env, e);
    return 0;
}

static void take_queue(struct pp_env *to, const struct pp_env *beside)
{
    to->device = beside->device;
    to->stream = beside->stream;
}

void pp_rank_images_beside(struct pp_rank *r)
{
    struct pp_rank_encoders *e = &r->encoders_beside;
    *e = r->encoders;
    for (size_t k = 0; k < PP_MAX_ENCODERS; k++) {
        take_queue(&e->images[k], &r->beside);
        take_queue(&e->projector[k], &r->beside);
    }
    bind(&r->beside, e);
}
