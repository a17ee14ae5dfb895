/* SPDX-License-Identifier: MIT */
/* test_optim - learning rates and clipping. The tests of the kernels and the
 * goldens check the update itself. */
#include "tap.h"

#include "run/parameters/optim.h"

static void test_lr(void)
{
    struct pp_optim o = {.lr = 1, .warmup = 4, .steps = 12};
    is_near(pp_optim_lr(&o, 1), 0.25, 1e-15, "the first step of a warmup");
    is_near(pp_optim_lr(&o, 4), 1, 1e-15, "the last step of the warmup");
    is_near(pp_optim_lr(&o, 12), 1, 1e-15, "constant after the warmup");
    o.schedule = PP_LR_COSINE;
    o.min_lr = 0.1;
    is_near(pp_optim_lr(&o, 4), 1, 1e-15, "cosine begins at the peak");
    is_near(pp_optim_lr(&o, 8), 0.55, 1e-15, "cosine is halfway in the middle");
    is_near(pp_optim_lr(&o, 12), 0.1, 1e-15, "cosine ends at the minimum");
    o.warmup = 0;
    ok(pp_optim_lr(&o, 1) < 1, "without warmup it falls from the first step");
    o = (struct pp_optim){.lr = 1, .warmup = 9, .steps = 4};
    o.schedule = PP_LR_COSINE;
    is_near(pp_optim_lr(&o, 4), 4. / 9, 1e-15,
            "a warmup may be longer than the run");
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
    test_clip();
    return done();
}
