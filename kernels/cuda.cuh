/* SPDX-License-Identifier: MIT */
/* cuda - the GPU's functions of one element type, for cuda.cu's
 * table. */
#ifndef PP_KERNELS_CUDA_CUH
#define PP_KERNELS_CUDA_CUH

#include "device.cuh"

extern "C" {
pp_linear_fwd_fn PP_CUDA(linear_fwd);
pp_linear_bwd_input_fn PP_CUDA(linear_bwd_input);
pp_linear_bwd_weight_fn PP_CUDA(linear_bwd_weight);
pp_rmsnorm_fwd_fn PP_CUDA(rmsnorm_fwd);
pp_rmsnorm_bwd_input_fn PP_CUDA(rmsnorm_bwd_input);
pp_rmsnorm_bwd_weight_fn PP_CUDA(rmsnorm_bwd_weight);
pp_rope_fn PP_CUDA(rope);
pp_attention_scratch_fn PP_CUDA(attention_scratch);
pp_attention_fwd_fn PP_CUDA(attention_fwd);
pp_attention_bwd_fn PP_CUDA(attention_bwd);
pp_swiglu_fwd_fn PP_CUDA(swiglu_fwd);
pp_swiglu_bwd_fn PP_CUDA(swiglu_bwd);
pp_embedding_fwd_fn PP_CUDA(embedding_fwd);
pp_embedding_bwd_weight_fn PP_CUDA(embedding_bwd_weight);
pp_scatter_fn PP_CUDA(scatter);
pp_cross_entropy_fwd_fn PP_CUDA(cross_entropy_fwd);
pp_cross_entropy_bwd_fn PP_CUDA(cross_entropy_bwd);
pp_add_fn PP_CUDA(add);
pp_add_fn PP_CUDA(add_gradient);
pp_copy_fn PP_CUDA(copy);
pp_zero_fn PP_CUDA(zero);
pp_sum_squares_fn PP_CUDA(sum_squares);
pp_adamw_fn PP_CUDA(adamw);
pp_sgd_fn PP_CUDA(sgd);
}

#endif
