/* SPDX-License-Identifier: MIT */
/* rank_others - the envs of a rank for the units of encoders and of a
 * generator.
 */
#include "run/train/rank.h"

#include "model/vision.h"

/* Makes room for the inputs of encoders on their way to a GPU. A row of audio
 * has the inputs of two windows. */
static int make_room(struct pp_rank *r, struct pp_err *err)
{
    size_t width = 0;
    for (size_t k = 0; k < pp_model_n_encoders(r->job->model); k++)
        width = pp_most(width, r->job->model->encoders[k].patch_inputs);
    if (!width || pp_env_is_host(&r->env))
        return 0;
    size_t bytes =
        pp_most(PP_PIXEL_ROOM, 2 * width * r->env.kernels->element_bytes);
    r->env.pixel_room = pp_device_alloc(NULL, 1, bytes, "pixels", err);
    return r->env.pixel_room ? 0 : -1;
}

/* Fills the envs of the encoders. No other rank shares their attention, and
 * ranks that divide their tensors share their products. */
static void make_encoders(struct pp_rank *r)
{
    static const struct pp_mesh alone = {1, 1, 1, 1, 1};
    const struct pp_collective none = {.group.n = 1};
    const struct pp_model *m = r->job->model;
    for (size_t k = 0; k < pp_model_n_encoders(m); k++) {
        struct pp_env *x = &r->others[0][PP_ROWS_FEATURES + k];
        *x = r->env;
        x->shard.whole_rows = true;
        x->context = x->experts = x->routers = none;
        x->tensor = pp_rank_collective(&r->env, PP_GROUP_ENCODER_TP);
        x->exchange = pp_attention_exchange(1, &alone);
        struct pp_env *layers = &r->others[0][k];
        *layers = *x;
        r->tower[k] = pp_vision_tower(m, k);
        layers->shard = pp_vision_shard(&r->env.shard, &r->tower[k], k);
    }
}

/* Fills the env of the generator, if its units are here. */
static void make_generator(struct pp_rank *r)
{
    const struct pp_model *g = r->job->model->generator;
    struct pp_env *x = &r->others[0][PP_ROWS_GENERATED];
    if (!g || !pp_job_has_units(r->job, r->env.place.row, true))
        return;
    r->env.generates = !pp_job_has_units(r->job, r->env.place.row, false);
    *x = r->env;
    x->shard = pp_shard_of(g, pp_env_mesh(x));
    pp_rank_find_words(x, g);
}

int pp_rank_make_others(struct pp_rank *r, struct pp_err *err)
{
    if (make_room(r, err))
        return -1;
    r->env.others = r->others[0];
    make_generator(r);
    make_encoders(r);
    return 0;
}

void pp_rank_others_beside(struct pp_rank *r)
{
    r->beside.others = r->others[1];
    for (size_t k = 0; k < PP_N_ROWS; k++) {
        struct pp_env *x = &r->others[1][k];
        *x = r->others[0][k];
        x->device = r->beside.device;
        x->stream = r->beside.stream;
        x->others = r->beside.others;
    }
}
