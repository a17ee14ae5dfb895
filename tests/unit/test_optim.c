/* SPDX-License-Identifier: MIT */
/* test_optim - learning rates and clipping. The tests of the kernels and the
 * goldens check the update itself. */
#include "run/parameters/optim.h"

#include <math.h>

#include "tap.h"

#include "lr_schedules.h"

static void test_lr(void)
{
    struct pp_optim o = {.lr = 1, .warmup = 2, .steps = 8};
    is_near(pp_optim_lr(&o, 1), 0, 0, "a warmup begins at 0");
    is_near(pp_optim_lr(&o, 3), 1, 0, "the peak comes after the warmup");
    is_near(pp_optim_lr(&o, 8), 1, 0, "constant after it");
    o.schedule = PP_LR_COSINE;
    is_near(pp_optim_lr(&o, 6), 0.5, 1e-15, "cosine is halfway in the middle");
    ok(pp_optim_lr(&o, 8) > 0.05, "the last step has not reached the end");
    o.schedule = PP_LR_LINEAR;
    o.min_lr = 0.4;
    is_near(pp_optim_lr(&o, 6), 0.7, 1e-15, "linear goes to the minimum");
    o.decay = 20;
    is_near(pp_optim_lr(&o, 6), 0.7, 1e-15, "a decay begins after the warmup");
    o = (struct pp_optim){.lr = 1, .warmup = 9, .steps = 4};
    o.schedule = PP_LR_COSINE;
    is_near(pp_optim_lr(&o, 4), 3. / 9, 1e-15,
            "a warmup may be longer than the run");
}

static void test_transformers(void)
{
    size_t n = sizeof transformers_lr / sizeof *transformers_lr;
    for (size_t i = 0; i < n; i++) {
        const struct pp_optim o = {.lr = 2,
                                   .schedule = transformers_lr[i].schedule,
                                   .warmup = transformers_lr[i].warmup,
                                   .steps = transformers_lr[i].steps,
                                   .decay = transformers_lr[i].decay,
                                   .min_lr = 2 * transformers_lr[i].floor};
        double worst = 0;
        for (int k = 0; k < o.steps; k++)
            worst = fmax(worst, fabs(pp_optim_lr(&o, k + 1) -
                                     2 * transformers_lr[i].lr[k]));
        ok(worst < 1e-15,
           "schedule %d, %lld and %lld of %lld steps: as transformers",
           (int)o.schedule, (long long)o.warmup, (long long)o.decay,
           (long long)o.steps);
    }
}

static void test_clip(void)
{
    struct pp_optim o = {.clip = 2};
    is_near(pp_optim_clip(&o, 1), 1, 0, "a small norm is not scaled");
    is_near(pp_optim_clip(&o, 8), 2 / (8 + 1e-6), 0, "a large norm is scaled");
    is_near(pp_optim_clip(&o, 0), 1, 0, "a norm of zero is not scaled");
    o.clip = 0;
    is_near(pp_optim_clip(&o, 1e9), 1, 0, "0 disables clipping");
}

int main(void)
{
    test_lr();
    test_transformers();
    test_clip();
    return done();
}
