/* SPDX-License-Identifier: MIT */
/* optim - learning rate, clipping and the update of a step. */
#include "run/parameters/optim.h"

#include <math.h>

/* Returns how far the rate is from its end after a share of the decay: 1 to
 * 0. */
static double left_of(enum pp_lr_schedule schedule, double done)
{
    switch (schedule) {
    case PP_LR_CONSTANT:
        return 1;
    case PP_LR_COSINE:
        return 0.5 * (1 + cos(M_PI * done));
    case PP_LR_LINEAR:
        return 1 - done;
    case PP_LR_1_SQRT:
        break;
    }
    return 1 - sqrt(done);
}

double pp_optim_lr(const struct pp_optim *o, int64_t step)
{
    int64_t before = step - 1;            /* updates done */
    int64_t decay = o->steps - o->warmup; /* steps of it */
    double from = o->decay ? o->min_lr : 0;
    if (before < o->warmup)
        return from + (o->lr - from) * (double)before / (double)o->warmup;
    if (o->decay && o->decay < decay)
        decay = o->decay;
    int64_t fallen = before - (o->steps - decay); /* steps since it began */
    if (o->schedule == PP_LR_CONSTANT || fallen <= 0)
        return o->lr;
    return o->min_lr + (o->lr - o->min_lr) *
                           left_of(o->schedule, (double)fallen / (double)decay);
}

double pp_optim_clip(const struct pp_optim *o, double norm)
{
    double factor = o->clip / (norm + 1e-6);
    return o->clip > 0 && factor < 1 ? factor : 1;
}

/* Updates what the rank holds of the bias of a router, or of its master
 * weights, which ranks may divide more. */
static int follow_load(const struct pp_router_options *o,
                       const struct pp_kernels *k,
                       const struct pp_parameters *p,
                       const struct pp_parameter *t, void *stream)
{
    struct pp_range r = t->master ? t->own : t->held;
    char *w = (char *)t->w + (r.first - t->held.first) * p->element_bytes;
    return k->experts->follow_load(w, t->master, t->load, r.first, r.n, t->n,
                                   o->bias_rate,
                                   o->bias_rule == PP_BIAS_TORCHTITAN, stream);
}

int pp_optim_update(const struct pp_optim *o, const struct pp_kernels *k,
                    struct pp_parameters *p, int64_t step, double g_scale,
                    void *stream, struct pp_err *err)
{
    struct pp_adamw_step s = {
        .lr = pp_optim_lr(o, step),
        .beta1 = o->beta1,
        .beta2 = o->beta2,
        .eps = o->eps,
        .bias1 = 1 - pow(o->beta1, (double)step),
        .bias2 = 1 - pow(o->beta2, (double)step),
        .g_scale = g_scale,
    };
    for (size_t i = 0; i < p->n; i++) {
        struct pp_parameter *a = &p->at[i];
        if (a->load && o->router && o->router->bias_rate > 0 &&
            follow_load(o->router, k, p, a, stream))
            return pp_fail(err, PP_EXIT_SYSTEM, "'%s': update failed",
                           a->info.name);
        if (a->info.frozen)
            continue;
        bool decays = o->decay_all || a->info.n_dims > 1;
        s.weight_decay = decays ? o->weight_decay : 0;
        size_t at = a->own.first - a->held.first;
        void *w = (char *)a->w + at * p->element_bytes;
        void *g = (char *)a->g + a->own.first * p->accumulator_bytes;
        size_t n = a->own.n;
        int rc = o->optimizer == PP_ADAMW_OPTIMIZER
                     ? k->adamw(w, a->master, a->m, a->v, g, n, &s, stream)
                     : k->sgd(w, a->master, g, n, &s, stream);
        if (rc)
            return pp_fail(err, PP_EXIT_SYSTEM, "'%s': update failed: %d",
                           a->info.name, rc);
    }
    return 0;
}
