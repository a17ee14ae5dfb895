/* SPDX-License-Identifier: MIT */
/* columns - adds the sums over many rows to a vector, in one fixed order.
 *
 * The rows are divided into chunks, whose number depends on the shape only.
 * Each block writes the sums of 32 columns over a chunk to the stream's
 * partials; a second kernel adds up the chunks in order. */
#ifndef PP_KERNELS_COLUMNS_CUH
#define PP_KERNELS_COLUMNS_CUH

#include "device.cuh"

#define PP_COLUMN_ROWS 8     /* rows that a block takes at a time */
#define PP_COLUMN_CHUNKS 256 /* most chunks */

/* TERM has a device function `float at(size_t row, size_t column) const`. */
template <class TERM>
static __global__ void column_partials(float *partial, TERM term, size_t rows,
                                       size_t C)
{
    __shared__ float sums[PP_COLUMN_ROWS][PP_WARP];
    size_t lane = threadIdx.x % PP_WARP, thread = threadIdx.x / PP_WARP;
    size_t c = (size_t)blockIdx.x * PP_WARP + lane;
    float sum = 0;
    if (c < C)
        for (size_t i = blockIdx.y * PP_COLUMN_ROWS + thread; i < rows;
             i += (size_t)gridDim.y * PP_COLUMN_ROWS)
            sum += term.at(i, c);
    sums[thread][lane] = sum;
    __syncthreads();
    if (thread || c >= C)
        return;
    for (int i = 1; i < PP_COLUMN_ROWS; i++)
        sum += sums[i][lane];
    partial[(size_t)blockIdx.y * C + c] = sum;
}

static __global__ void column_gather(float *out, const float *partial, size_t C,
                                     unsigned chunks)
{
    size_t c = grid_thread();
    if (c >= C)
        return;
    float sum = 0;
    for (unsigned i = 0; i < chunks; i++)
        sum += partial[i * C + c];
    out[c] += sum;
}

/* out[c] += sum over rows of term.at(row, c). The partials have room for at
 * least C floats. */
template <class TERM>
static int add_columns(float *out, TERM term, size_t rows, size_t C,
                       void *stream)
{
    float *partial = (float *)((struct pp_cuda_stream *)stream)->partials;
    if (!rows || !C)
        return 0;
    size_t chunks = rows / (PP_COLUMN_ROWS * 16) + 1; /* 16 rows a thread */
    size_t most = PP_CUDA_PARTIAL_BYTES / sizeof(float) / C;
    chunks = chunks > PP_COLUMN_CHUNKS ? PP_COLUMN_CHUNKS : chunks;
    chunks = chunks > most ? most : chunks;
    if (!chunks)
        return (int)cudaErrorInvalidValue;
    dim3 grid((unsigned)((C + PP_WARP - 1) / PP_WARP), (unsigned)chunks);
    int rc = PP_LAUNCH((column_partials<TERM>), grid, PP_WARP * PP_COLUMN_ROWS,
                       0, stream, partial, term, rows, C);
    return rc ? rc
              : PP_LAUNCH(column_gather, blocks_for(C, 256), 256, 0, stream,
                          out, (const float *)partial, C, (unsigned)chunks);
}

#endif
