/* SPDX-License-Identifier: MIT */
/* kernels - the table of compute kernels, and the rules that all of them keep.
 *
 * Shapes: N rows (tokens), C and OC widths, V vocabulary, NH query heads, NKV
 * key and value heads, HD head width, G groups of a row. Row-major; ld is the
 * distance between rows in elements, where it may differ from the width.
 *
 * Backward is two functions, so that a schedule may run them apart: bwd_input
 * writes (=), bwd_weight accumulates (+=). Forward writes.
 *
 * Elements are the table's type: float or double on the CPU (pp_kernels_f32,
 * pp_kernels_f64), float or bfloat16 on a GPU (cuda_stream.h). What is
 * accumulated has a type of its own, the element's on the CPU and float on a
 * GPU: gradients of parameters, moments, master weights, statistics (rstd, lse,
 * log-probabilities) and the rotary tables. Pointers do not alias unless a
 * kernel says so. N = 0 is legal everywhere. Nothing allocates. A result
 * depends on the arguments' values and shapes alone, never on threads,
 * addresses or earlier calls: parity bit for bit rests on it.
 *
 * Functions return 0 or the backend's code. stream is the backend's, NULL on
 * CPU. Each kernel's contract is in its own header. */
#ifndef PP_KERNELS_KERNELS_H
#define PP_KERNELS_KERNELS_H

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

struct pp_kernels {
    const char *name; /* "cpu-f32" */
    size_t element_bytes;
    size_t accumulator_bytes;
    /* Logits that the head makes at a time, and rows of them at most: so many
     * that its products run at speed, so few that they do not fill a cache or
     * a GPU. */
    size_t head_logits, head_rows;

    pp_linear_fwd_fn *linear_fwd;
    pp_linear_bwd_input_fn *linear_bwd_input;
    pp_linear_bwd_weight_fn *linear_bwd_weight;
    pp_rmsnorm_fwd_fn *rmsnorm_fwd;
    pp_rmsnorm_bwd_input_fn *rmsnorm_bwd_input;
    pp_rmsnorm_bwd_weight_fn *rmsnorm_bwd_weight;
    pp_rope_fn *rope;
    pp_attention_scratch_fn *attention_scratch;
    pp_attention_fwd_fn *attention_fwd;
    pp_attention_bwd_fn *attention_bwd;
    pp_swiglu_fwd_fn *swiglu_fwd;
    pp_swiglu_bwd_fn *swiglu_bwd;
    pp_embedding_fwd_fn *embedding_fwd;
    pp_embedding_bwd_weight_fn *embedding_bwd_weight;
    pp_scatter_fn *scatter;
    pp_cross_entropy_fwd_fn *cross_entropy_fwd;
    pp_cross_entropy_bwd_fn *cross_entropy_bwd;
    pp_add_fn *add;
    pp_add_fn *add_gradient;
    pp_copy_fn *copy;
    pp_zero_fn *zero;
    pp_sum_squares_fn *sum_squares;
    pp_adamw_fn *adamw;
    pp_sgd_fn *sgd;
};

extern const struct pp_kernels pp_kernels_f32;
extern const struct pp_kernels pp_kernels_f64;

#endif
