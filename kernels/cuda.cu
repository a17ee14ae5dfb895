/* SPDX-License-Identifier: MIT */
/* cuda - the table of the GPU kernels of one element type. */
#include "device.cuh"

#ifdef PP_ELEMENT_F32
#define TYPE_NAME "cuda-f32"
#else
#define TYPE_NAME "cuda-bf16"
#endif

extern "C" const struct pp_kernels PP_CUDA(kernels) = {
    .name = TYPE_NAME,
    .element_bytes = sizeof(elem),
    .accumulator_bytes = sizeof(float),
    /* 512 MiB in bf16. Every block of rows reads the whole weight and updates
     * its fp32 gradient. With a vocabulary of 128256, 2048 rows have enough
     * work for that traffic; 64 rows do not. */
    .head_logits = (size_t)256 << 20,
    .head_rows = 8192,
#define PP_ENTRY(name, type) .name = PP_CUDA(name),
    PP_ALL_KERNELS(PP_ENTRY)
#undef PP_ENTRY
};
