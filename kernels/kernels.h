/* SPDX-License-Identifier: MIT */
/* kernels - the table of compute kernels, and the rules for all of them.
 *
 * Shapes: N rows (tokens), C and OC widths, V vocabulary, NH query heads, NKV
 * key and value heads, HD head width, G groups of a row. Tensors are row-major;
 * ld is the distance between rows in elements if it may differ from the width.
 *
 * Backward is two functions, so that a schedule may run them apart: bwd_input
 * writes (=), bwd_weight accumulates (+=). Forward writes.
 *
 * Elements have the type of the table: float or double on the CPU
 * (pp_kernels_f32, pp_kernels_f64), float or bfloat16 on a GPU (cuda_stream.h).
 * Accumulated values have the type of the elements on the CPU and are float on
 * a GPU: gradients of parameters, moments, master weights, statistics (rstd,
 * lse, log-probabilities) and the rotary tables.
 *
 * Pointers do not alias unless a kernel says so. N = 0 is legal. No kernel
 * allocates memory. A result depends only on the values and shapes of the
 * arguments, never on threads, addresses or earlier calls; bit-for-bit parity
 * needs this.
 *
 * Functions return 0 or the backend's code. stream is the backend's, NULL on
 * the CPU. The contract of each kernel is in its own header. */
#ifndef PP_KERNELS_KERNELS_H
#define PP_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "adamw.h"
#include "attention.h"
#include "cross_entropy.h"
#include "elementwise.h"
#include "embedding.h"
#include "linear.h"
#include "rmsnorm.h"
#include "rope.h"
#include "swiglu.h"

/* All kernels of a table, as K(name, type). */
#define PP_ALL_KERNELS(K)                               \
    K(linear_fwd, pp_linear_fwd_fn)                     \
    K(linear_bwd_input, pp_linear_bwd_input_fn)         \
    K(linear_bwd_weight, pp_linear_bwd_weight_fn)       \
    K(rmsnorm_fwd, pp_rmsnorm_fwd_fn)                   \
    K(rmsnorm_bwd_input, pp_rmsnorm_bwd_input_fn)       \
    K(rmsnorm_bwd_weight, pp_rmsnorm_bwd_weight_fn)     \
    K(rope, pp_rope_fn)                                 \
    K(attention_scratch, pp_attention_scratch_fn)       \
    K(attention_fwd, pp_attention_fwd_fn)               \
    K(attention_bwd, pp_attention_bwd_fn)               \
    K(swiglu_fwd, pp_swiglu_fwd_fn)                     \
    K(swiglu_bwd, pp_swiglu_bwd_fn)                     \
    K(embedding_fwd, pp_embedding_fwd_fn)               \
    K(embedding_bwd_weight, pp_embedding_bwd_weight_fn) \
    K(scatter, pp_scatter_fn)                           \
    K(cross_entropy_fwd, pp_cross_entropy_fwd_fn)       \
    K(cross_entropy_bwd, pp_cross_entropy_bwd_fn)       \
    K(add, pp_add_fn)                                   \
    K(add_gradient, pp_add_fn)                          \
    K(copy, pp_copy_fn)                                 \
    K(zero, pp_zero_fn)                                 \
    K(sum_squares, pp_sum_squares_fn)                   \
    K(adamw, pp_adamw_fn)                               \
    K(sgd, pp_sgd_fn)

struct pp_kernels {
    const char *name; /* "cpu-f32" */
    size_t element_bytes;
    size_t accumulator_bytes;
    /* Most logits, and most rows of them, that the head computes at a time:
     * enough for fast products, and few enough for a cache or a GPU's
     * memory. */
    size_t head_logits, head_rows;

#define PP_MEMBER(name, type) type *name;
    PP_ALL_KERNELS(PP_MEMBER)
#undef PP_MEMBER
};

extern const struct pp_kernels pp_kernels_f32;
extern const struct pp_kernels pp_kernels_f64;

/* Sets the number of threads of the BLAS for the whole process. n > 0. Call
 * this once, before the first product. Ranks that are threads of one process
 * use one thread each, because some kernels of OpenBLAS give other bits with
 * more. */
void pp_blas_set_threads(int n);

/* Returns whether the process can map the memory that n threads need for their
 * products, and how much that is. OpenBLAS retries for ever if a mapping
 * fails. */
bool pp_blas_has_memory(int n, size_t *bytes);

#endif
