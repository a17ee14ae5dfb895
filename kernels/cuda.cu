/* SPDX-License-Identifier: MIT */
/* cuda - the table of GPU kernels of one element type. */
#include "cuda.cuh"

#ifdef PP_ELEMENT_F32
#define TYPE_NAME "cuda-f32"
#else
#define TYPE_NAME "cuda-bf16"
#endif

extern "C" const struct pp_kernels PP_CUDA(kernels) = {
    .name = TYPE_NAME,
    .element_bytes = sizeof(elem),
    .accumulator_bytes = sizeof(float),
    /* 512 MiB in bf16. Every block reads the whole weight, and reads and
     * writes its fp32 gradient: 2048 rows of a vocabulary of 128256 outweigh
     * that, 64 do not. */
    .head_logits = (size_t)256 << 20,
    .head_rows = 8192,
    .linear_fwd = PP_CUDA(linear_fwd),
    .linear_bwd_input = PP_CUDA(linear_bwd_input),
    .linear_bwd_weight = PP_CUDA(linear_bwd_weight),
    .rmsnorm_fwd = PP_CUDA(rmsnorm_fwd),
    .rmsnorm_bwd_input = PP_CUDA(rmsnorm_bwd_input),
    .rmsnorm_bwd_weight = PP_CUDA(rmsnorm_bwd_weight),
    .rope = PP_CUDA(rope),
    .attention_scratch = PP_CUDA(attention_scratch),
    .attention_fwd = PP_CUDA(attention_fwd),
    .attention_bwd = PP_CUDA(attention_bwd),
    .swiglu_fwd = PP_CUDA(swiglu_fwd),
    .swiglu_bwd = PP_CUDA(swiglu_bwd),
    .embedding_fwd = PP_CUDA(embedding_fwd),
    .embedding_bwd_weight = PP_CUDA(embedding_bwd_weight),
    .scatter = PP_CUDA(scatter),
    .cross_entropy_fwd = PP_CUDA(cross_entropy_fwd),
    .cross_entropy_bwd = PP_CUDA(cross_entropy_bwd),
    .add = PP_CUDA(add),
    .add_gradient = PP_CUDA(add_gradient),
    .copy = PP_CUDA(copy),
    .zero = PP_CUDA(zero),
    .sum_squares = PP_CUDA(sum_squares),
    .adamw = PP_CUDA(adamw),
    .sgd = PP_CUDA(sgd),
};
