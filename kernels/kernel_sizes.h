/* SPDX-License-Identifier: MIT */
/* kernel_sizes - the memory that kernels need besides their operands, and the
 * forms of a kernel that a model chooses.
 *
 * It declares no kernel, so that planning programs can include it without
 * linking one. */
#ifndef PP_KERNELS_KERNEL_SIZES_H
#define PP_KERNELS_KERNEL_SIZES_H

#include <stdbool.h>
#include <stddef.h>

/* Forms of gelu, which kernels.h has. */
enum pp_gelu {
    PP_GELU_TANH,
    PP_GELU_ERF,
    PP_GELU_SIGMOID,
    PP_RELU_SQUARED, /* no GELU, but of this form */
    PP_XIELU         /* a kernel of its own, xielu */
};

/* How a router chooses and weighs experts. */
struct pp_router {
    bool sigmoid;      /* of every logit; else a softmax over them */
    bool norm;         /* the weights of a token add up to scale */
    bool weighs_input; /* of experts, not their output; with sigmoids alone */
    bool two_best;   /* a group counts for the sum of its two best experts, not
                        for the best one */
    size_t n_groups; /* equal parts of the experts, at most
                        PP_MOST_EXPERT_GROUPS; 0: one */
    size_t kept_groups; /* the best groups, which may be chosen from */
    double scale;       /* of the weights; 0: 1 */
};
#define PP_MOST_EXPERT_GROUPS 64

/* Most logits, and most of their rows, that the head computes at a time. */
/* 128 MiB in fp32. A block reads the whole weight, which a product packs and
 * which may have to be widened: with a vocabulary of 151936, 128 rows are worth
 * that, 48 are not. */
#define PP_CPU_HEAD_LOGITS ((size_t)32 << 20)
#define PP_CPU_HEAD_ROWS 512
/* 512 MiB in bf16. Every block of rows reads the whole weight and updates its
 * fp32 gradient. With a vocabulary of 128256, 2048 rows have enough work for
 * that traffic; 64 rows do not. */
#define PP_CUDA_HEAD_LOGITS ((size_t)256 << 20)
#define PP_CUDA_HEAD_ROWS 8192

/* Size of a stream's cuBLAS workspace, as NVIDIA recommends for Hopper. With a
 * workspace of ours cuBLAS allocates nothing and gives the same bits every
 * run. */
#define PP_CUDA_WORKSPACE_BYTES ((size_t)32 << 20)

/* Size of a stream's buffer of partial sums, for reductions over rows. */
#define PP_CUDA_PARTIAL_BYTES ((size_t)8 << 20)

/* Elements whose squares are one sum. */
#define PP_SQUARES_BLOCK ((size_t)1 << 16)

/* Returns the number of these sums of n elements. */
static inline size_t pp_squares_blocks(size_t n)
{
    return n / PP_SQUARES_BLOCK + (n % PP_SQUARES_BLOCK > 0);
}

/* Returns the rows that a saved tensor is allocated for. On a GPU it is rounded
 * up, so that the next tensor has the alignment that kernels need. The choice
 * of kernels, and so the bits, would otherwise depend on the split. */
static inline size_t pp_saved_rows(bool is_host, size_t rows)
{
    return is_host ? rows : (rows + 15) / 16 * 16;
}

/* Most positions of a token, and most elements of a head that several rotate.
 */
enum { PP_ROPE_AXES = 3, PP_MOST_AXES_HEAD = 4096 };

/* Sizes of attention on the CPU (attention_block.h). */
#define PP_CPU_BLOCK_QUERIES 256 /* queries of a block */
#define PP_CPU_BLOCK_ROWS 512    /* rows of a block: queries times heads */
#define PP_CPU_TILE_KEYS 128     /* keys */
#define PP_CPU_STRIP_ROWS 96
#define PP_CPU_BLOCK_HEADS 16
/* Rows in scratch are longer by this, so that they do not all map to a few sets
 * of the cache. */
#define PP_CPU_ROWS_APART 16

/* Returns the query heads of a block. They share a key head. */
static inline size_t pp_attention_heads(size_t NH, size_t NKV)
{
    size_t heads = NH / NKV;
    return heads < PP_CPU_BLOCK_HEADS ? heads : PP_CPU_BLOCK_HEADS;
}

/* Returns the queries of a block: fewer if it has many heads. */
static inline size_t pp_attention_queries(size_t heads)
{
    size_t n = PP_CPU_BLOCK_ROWS / heads / 16 * 16;
    return n < PP_CPU_BLOCK_QUERIES ? n : PP_CPU_BLOCK_QUERIES;
}

/* Returns the elements of scratch of attention on the CPU: a block of queries,
 * outputs and their gradients, a tile of keys and values as they are and
 * transposed, and two strips of scores. */
static inline size_t pp_attention_cpu_scratch(size_t NH, size_t NKV,
                                              size_t HDQK, size_t HDV)
{
    size_t heads = pp_attention_heads(NH, NKV);
    size_t rows = heads * pp_attention_queries(heads);
    size_t q = HDQK + PP_CPU_ROWS_APART, o = HDV + PP_CPU_ROWS_APART;
    size_t tile = PP_CPU_TILE_KEYS + PP_CPU_ROWS_APART;
    return rows * (2 * q + o) + PP_CPU_TILE_KEYS * (q + o) +
           (HDQK + HDV + 2 * PP_CPU_STRIP_ROWS) * tile;
}

/* Rows between two states that the delta rule keeps in scratch (delta.h). */
#define PP_DELTA_ROWS ((size_t)64)

/* Returns the elements of its scratch: once, and for every row. */
static inline size_t pp_delta_scratch(size_t DK, size_t DV)
{
    return (PP_DELTA_ROWS + 3) * DK * DV + 16 * (DK + DV);
}

/* Return the same on a GPU, in floats: all value heads share key heads in
 * parallel. */
static inline size_t pp_delta_cuda_scratch(size_t NK, size_t NV, size_t DK,
                                           size_t DV)
{
    return ((PP_DELTA_ROWS + 2) * NK + NV) * DK * DV + 4;
}

static inline double pp_delta_cuda_row_scratch(size_t NK, size_t NV, size_t DK,
                                               size_t DV)
{
    size_t CH = 2 * NK * DK + NV * DV;
    return (double)(2 * CH + 2 * NK + 2 * NV + NV * DV + DV) +
           (double)(NK * DK * DV) / (double)PP_DELTA_ROWS;
}

/* Returns the elements of what a part of a sequence passes to the next. */
static inline size_t pp_delta_passes(size_t NK, size_t NV, size_t DK, size_t DV,
                                     size_t taps)
{
    return NV * DK * DV + 2 * (taps - 1) * (2 * NK * DK + NV * DV);
}

static inline double pp_delta_row_scratch(size_t DK, size_t DV)
{
    return (double)(DK * DV) / (double)PP_DELTA_ROWS;
}

/* Returns the bytes of scratch of attention on a GPU for N rows: a float for
 * each row and head, and their alignment. */
static inline size_t pp_attention_cuda_scratch(size_t N, size_t NH)
{
    return (N * NH * sizeof(float) / 16 + 2) * 16;
}

#endif
