/* SPDX-License-Identifier: MIT */
/* cuda - the table of the GPU kernels of one element type. */
#include "device.cuh"

#ifdef PP_ELEMENT_F32
#define TYPE_NAME "cuda-f32"
#else
#define TYPE_NAME "cuda-bf16"
#endif

static const struct pp_expert_kernels expert_kernels = {
#define PP_ENTRY(name, type) .name = PP_CUDA(name),
    PP_EXPERT_KERNELS(PP_ENTRY)
#undef PP_ENTRY
};

extern "C" const struct pp_kernels PP_CUDA(kernels) = {
    .name = TYPE_NAME,
    .element_bytes = sizeof(elem),
    .accumulator_bytes = sizeof(float),
    .head_logits = PP_CUDA_HEAD_LOGITS,
    .head_rows = PP_CUDA_HEAD_ROWS,
    .experts = &expert_kernels,
    .delta = &PP_CUDA(delta_kernels),
#define PP_ENTRY(name, type) .name = PP_CUDA(name),
    PP_ALL_KERNELS(PP_ENTRY)
#undef PP_ENTRY
};
