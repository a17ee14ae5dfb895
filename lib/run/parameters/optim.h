/* SPDX-License-Identifier: MIT */
/* optim - the settings of the optimizer; learning rate, clipping, update. */
#ifndef PP_RUN_PARAMETERS_OPTIM_H
#define PP_RUN_PARAMETERS_OPTIM_H

#include <stdint.h>

#include "kernels.h"
#include "run/parameters/parameters.h"
#include "run/settings/settings.h"

enum pp_optimizer { PP_ADAMW_OPTIMIZER, PP_SGD_OPTIMIZER };

enum pp_lr_schedule {
    PP_LR_CONSTANT,
    PP_LR_COSINE,
    PP_LR_LINEAR,
    PP_LR_1_SQRT
};

struct pp_optim {
    enum pp_optimizer optimizer;
    double lr, beta1, beta2, eps;
    double weight_decay; /* decoupled, like that of torch.optim.AdamW */
    bool decay_all;      /* also parameters of one dimension: norms, biases */
    double clip;         /* largest global norm; 0: no clipping */
    int64_t warmup;      /* steps of linear warmup */
    enum pp_lr_schedule schedule;
    double min_lr; /* the others end at it, after the last step */
    int64_t decay; /* last steps, in which the rate falls; 0: all that
                      follow the warmup */
    int64_t steps; /* total */
    const struct pp_router_options *router; /* of biases; NULL: they stay */
};

/* Returns the learning rate of a step, counted from 1, as the schedules of
 * transformers do: lr (step - 1) / warmup during warmup, then lr, or a cosine,
 * a line or 1 minus a square root from lr at step warmup + 1 to min_lr at step
 * steps + 1. With `decay` it is lr until step steps - decay + 1, and the warmup
 * begins at min_lr instead of 0. */
double pp_optim_lr(const struct pp_optim *o, int64_t step);

/* Returns the factor for the gradients: clip / (norm + 1e-6), at most 1, like
 * torch.nn.utils.clip_grad_norm_. */
double pp_optim_clip(const struct pp_optim *o, double norm);

/* Updates what the rank owns of every parameter. */
int pp_optim_update(const struct pp_optim *o, const struct pp_kernels *k,
                    struct pp_parameters *p, int64_t step, double g_scale,
                    void *stream, struct pp_err *err) PP_MUST_USE;

#endif
