/* SPDX-License-Identifier: MIT */
/* cpu - the tables of CPU kernels of one element type. */
#include "kernel_sizes.h"
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
    .head_logits = PP_CPU_HEAD_LOGITS, /* kernel_sizes.h */
    .head_rows = PP_CPU_HEAD_ROWS,
    .experts = &PP_KERNEL(expert_kernels),
    .delta = &PP_KERNEL(delta_kernels),
#define PP_ENTRY(name, type) .name = PP_KERNEL(name),
    PP_ALL_KERNELS(PP_ENTRY)};

/* The later initialisers replace the initialisers of the list. */
#if defined(__clang__)
#pragma clang diagnostic ignored "-Winitializer-overrides"
#else
#pragma GCC diagnostic ignored "-Woverride-init"
#endif
const struct pp_kernels PP_KERNEL(kernels_rows) = {
    .name = TYPE_NAME "-rows",
    .element_bytes = sizeof(real),
    .accumulator_bytes = sizeof(real),
    .head_logits = PP_CPU_HEAD_LOGITS, /* kernel_sizes.h */
    .head_rows = PP_CPU_HEAD_ROWS,
    .experts = &PP_KERNEL(expert_kernels_rows),
    .delta = &PP_KERNEL(delta_kernels),
    PP_ALL_KERNELS(PP_ENTRY).linear_fwd = PP_KERNEL(linear_rows_fwd),
    .linear_bwd_input = PP_KERNEL(linear_rows_bwd_input),
};
#undef PP_ENTRY
