/* SPDX-License-Identifier: MIT */
/* cpu - the CPU's functions of one element type, for cpu.c's table. */
#ifndef PP_KERNELS_CPU_H
#define PP_KERNELS_CPU_H

#include "kernels.h"
#include "real.h"

pp_linear_fwd_fn PP_KERNEL(linear_fwd);
pp_linear_bwd_input_fn PP_KERNEL(linear_bwd_input);
pp_linear_bwd_weight_fn PP_KERNEL(linear_bwd_weight);
pp_rmsnorm_fwd_fn PP_KERNEL(rmsnorm_fwd);
pp_rmsnorm_bwd_input_fn PP_KERNEL(rmsnorm_bwd_input);
pp_rmsnorm_bwd_weight_fn PP_KERNEL(rmsnorm_bwd_weight);
pp_rope_fn PP_KERNEL(rope);
pp_attention_scratch_fn PP_KERNEL(attention_scratch);
pp_attention_fwd_fn PP_KERNEL(attention_fwd);
pp_attention_bwd_fn PP_KERNEL(attention_bwd);
pp_swiglu_fwd_fn PP_KERNEL(swiglu_fwd);
pp_swiglu_bwd_fn PP_KERNEL(swiglu_bwd);
pp_embedding_fwd_fn PP_KERNEL(embedding_fwd);
pp_embedding_bwd_weight_fn PP_KERNEL(embedding_bwd_weight);
pp_scatter_fn PP_KERNEL(scatter);
pp_cross_entropy_fwd_fn PP_KERNEL(cross_entropy_fwd);
pp_cross_entropy_bwd_fn PP_KERNEL(cross_entropy_bwd);
pp_add_fn PP_KERNEL(add);
pp_add_fn PP_KERNEL(add_gradient);
pp_copy_fn PP_KERNEL(copy);
pp_zero_fn PP_KERNEL(zero);
pp_sum_squares_fn PP_KERNEL(sum_squares);
pp_adamw_fn PP_KERNEL(adamw);
pp_sgd_fn PP_KERNEL(sgd);

#endif
