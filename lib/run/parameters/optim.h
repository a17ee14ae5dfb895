/* SPDX-License-Identifier: MIT */
/* optim - the optimizer's settings, the learning rate, clipping, the update. */
#ifndef PP_RUN_PARAMETERS_OPTIM_H
#define PP_RUN_PARAMETERS_OPTIM_H

#include <stdint.h>

#include "kernels.h"
#include "run/parameters/parameters.h"

enum pp_optimizer { PP_ADAMW_OPTIMIZER, PP_SGD_OPTIMIZER };
enum pp_lr_schedule { PP_LR_CONSTANT, PP_LR_COSINE };

struct pp_optim {
    enum pp_optimizer optimizer;
    double lr, beta1, beta2, eps;
    double weight_decay; /* decoupled; of every parameter, as torch's AdamW */
    double clip;         /* largest global norm; 0: none */
    int64_t warmup;      /* steps of linear warm-up */
    enum pp_lr_schedule schedule;
    double min_lr; /* what cosine ends at */
    int64_t steps; /* total, where cosine ends */
};

/* The learning rate of a step, the first being 1: lr step / warmup up to
 * warmup, then constant, or cosine from lr to min_lr at the last step. */
double pp_optim_lr(const struct pp_optim *o, int64_t step);

/* Factor for the gradients: clip / (norm + 1e-6) where that is below 1, as
 * torch.nn.utils.clip_grad_norm_. */
double pp_optim_clip(const struct pp_optim *o, double norm);

/* Updates every parameter of the rank for that step. */
int pp_optim_update(const struct pp_optim *o, const struct pp_kernels *k,
                    struct pp_parameters *p, int64_t step, double g_scale,
                    void *stream, struct pp_err *err) PP_MUST_USE;

#endif
