/* SPDX-License-Identifier: MIT */
/* cpu - the table of CPU kernels of one element type. */
#include "cpu.h"

#ifdef PP_REAL_F32
#define TYPE_NAME "cpu-f32"
#else
#define TYPE_NAME "cpu-f64"
#endif

const struct pp_kernels PP_KERNEL(kernels) = {
    .name = TYPE_NAME,
    .element_bytes = sizeof(real),
    .accumulator_bytes = sizeof(real),
    .head_logits = (size_t)8 << 20, /* 32 MiB in fp32 */
    .head_rows = 512,
    .linear_fwd = PP_KERNEL(linear_fwd),
    .linear_bwd_input = PP_KERNEL(linear_bwd_input),
    .linear_bwd_weight = PP_KERNEL(linear_bwd_weight),
    .rmsnorm_fwd = PP_KERNEL(rmsnorm_fwd),
    .rmsnorm_bwd_input = PP_KERNEL(rmsnorm_bwd_input),
    .rmsnorm_bwd_weight = PP_KERNEL(rmsnorm_bwd_weight),
    .rope = PP_KERNEL(rope),
    .attention_scratch = PP_KERNEL(attention_scratch),
    .attention_fwd = PP_KERNEL(attention_fwd),
    .attention_bwd = PP_KERNEL(attention_bwd),
    .swiglu_fwd = PP_KERNEL(swiglu_fwd),
    .swiglu_bwd = PP_KERNEL(swiglu_bwd),
    .embedding_fwd = PP_KERNEL(embedding_fwd),
    .embedding_bwd_weight = PP_KERNEL(embedding_bwd_weight),
    .scatter = PP_KERNEL(scatter),
    .cross_entropy_fwd = PP_KERNEL(cross_entropy_fwd),
    .cross_entropy_bwd = PP_KERNEL(cross_entropy_bwd),
    .add = PP_KERNEL(add),
    .add_gradient = PP_KERNEL(add_gradient),
    .copy = PP_KERNEL(copy),
    .zero = PP_KERNEL(zero),
    .sum_squares = PP_KERNEL(sum_squares),
    .adamw = PP_KERNEL(adamw),
    .sgd = PP_KERNEL(sgd),
};
