/* SPDX-License-Identifier: MIT */
/* cpu - the table of CPU kernels of one element type. */
#include "kernels.h"
#include "real.h"

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
#define PP_ENTRY(name, type) .name = PP_KERNEL(name),
    PP_ALL_KERNELS(PP_ENTRY)
#undef PP_ENTRY
};
