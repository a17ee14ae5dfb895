/* SPDX-License-Identifier: MIT */
/* attention_tiles - what attention's forward and backward on tensor cores
 * share: tiles of rows in shared memory, their products, and which of them see
 * each other.
 *
 * A GPU begins blocks in order, x first. Of causal attention the last queries
 * and the first keys have most to do: they go first, of all heads, so that the
 * GPU does not wait for a few long blocks in the end. */
#ifndef PP_KERNELS_ATTENTION_TILES_CUH
#define PP_KERNELS_ATTENTION_TILES_CUH

#include "attention.cuh"
#include "mma.cuh"

#define WARPS 4
#define THREADS (WARPS * PP_WARP)
#define TILES 2 /* of 16 queries, that share what a warp reads of the keys */
#define QUERIES (WARPS * TILES * 16) /* of a block */
#define LN2 0.6931471805599453f

/* Begins to load rows [at, at + HEIGHT) of a sequence into a tile; rows from
 * end on become zeros. x is the sequence's first row. A thread stays in one
 * column of the tile: of its pieces only the first needs a computed place. */
template <int D, int HEIGHT>
static __device__ inline void load_tile(elem *tile, const elem *x, size_t ld,
                                        int at, int end)
{
    const int rows = THREADS / (D / 8); /* that the block takes at once */
    static_assert(rows % 8 == 0 && HEIGHT % rows == 0, "tile_at");
    int row = (int)threadIdx.x / (D / 8), column = (int)threadIdx.x % (D / 8);
    elem *to = tile + tile_at<D>(row, column * 8);
    const elem *from = x + (size_t)(at + row) * ld + column * 8;
    PP_UNROLL
    for (int i = 0; i < HEIGHT; i += rows)
        copy_begin(to + i * D, from + (size_t)i * ld, at + row + i < end);
}

/* c (16 M, 8 N) = 16 M rows of the tile a, from `row` on, times the first 8 N
 * rows of b. */
template <int D, int M, int N>
static __device__ inline void multiply(float c[M][N][4], const elem *a, int row,
                                       const elem *b)
{
    PP_UNROLL
    for (int i = 0; i < M * N * 4; i++)
        c[i / 4 / N][i / 4 % N][i % 4] = 0;
    PP_UNROLL
    for (int k = 0; k < D; k += 16) {
        uint32_t fa[M][4], fb[4];
        PP_UNROLL
        for (int m = 0; m < M; m++)
            load_a<D>(fa[m], a + (row + m * 16) * D, k);
        PP_UNROLL
        for (int n = 0; n < N; n += 2) {
            load_b<D>(fb, b + n * 8 * D, k);
            PP_UNROLL
            for (int m = 0; m < M; m++) {
                mma(c[m][n], fa[m], fb);
                mma(c[m][n + 1], fa[m], fb + 2);
            }
        }
    }
}

/* acc (16 M, D) += p (16 M, 8 N) times the 8 N rows of b. */
template <int D, int M, int N>
static __device__ inline void accumulate(float acc[M][D / 8][4],
                                         const float p[M][N][4], const elem *b)
{
    PP_UNROLL
    for (int n = 0; n < N; n += 2) {
        uint32_t fa[M][4], fb[4];
        PP_UNROLL
        for (int m = 0; m < M; m++)
            PP_UNROLL
        for (int i = 0; i < 4; i++)
            fa[m][i] = pack_bf16(p[m][n + i / 2][i % 2 * 2],
                                 p[m][n + i / 2][i % 2 * 2 + 1]);
        PP_UNROLL
        for (int d = 0; d < D / 8; d += 2) {
            load_b_rows<D>(fb, b + n * 8 * D, d * 8);
            PP_UNROLL
            for (int m = 0; m < M; m++) {
                mma(acc[m][d], fa[m], fb);
                mma(acc[m][d + 1], fa[m], fb + 2);
            }
        }
    }
}

/* Writes this lane's part of 16 rows from row `t` of a sequence on, times by[]
 * of its two rows; rows from length on are padding and become 0. */
template <int D>
static __device__ inline void
put_rows(elem *x, size_t ld, int t, struct sequence sq,
         const float acc[D / 8][4], const float by[2])
{
    int lane = (int)threadIdx.x % PP_WARP;
    PP_UNROLL
    for (int r = 0; r < 2; r++) {
        int at = t + lane / 4 + r * 8;
        float f = at < sq.length ? by[r] : 0;
        if (at >= sq.slots)
            continue;
        elem *row = x + (size_t)at * ld + lane % 4 * 2;
        PP_UNROLL
        for (int d = 0; d < D / 8; d++)
            *(uint32_t *)(row + d * 8) =
                f == 0 ? 0
                       : pack_bf16(acc[d][2 * r] * f, acc[d][2 * r + 1] * f);
    }
}

/* The tiles of keys that the queries at places [t, t + rows) see: [*from, *to).
 */
static __device__ inline void key_tiles(const struct pp_attention_shape *s,
                                        struct sequence keys, int t, int rows,
                                        int height, int *from, int *to)
{
    int end = t + rows < keys.length ? t + rows : keys.length;
    *from = first_key(s, t) / height;
    *to = t < keys.length ? (end + height - 1) / height : *from;
}

/* Whether query and key see each other. */
static __device__ inline bool sees(const struct pp_attention_shape *s,
                                   int query, int key)
{
    return key <= query && key >= first_key(s, query);
}

/* Whether any, or all, of n queries from place `query` on see any, or all, of m
 * keys from `key` on: for most tiles all do, and nobody needs to ask for each
 * pair. */
static __device__ inline bool any_sees(const struct pp_attention_shape *s,
                                       int query, int n, int key, int m)
{
    return key < query + n && key + m > first_key(s, query);
}

static __device__ inline bool all_see(const struct pp_attention_shape *s,
                                      int query, int n, int key, int m)
{
    return key + m <= query + 1 && key >= first_key(s, query + n - 1);
}

/* What forward reads, at a sequence's first row and a head. */
struct inputs {
    const elem *q, *k, *v;
};

static __device__ inline struct inputs
inputs_at(const struct pp_attention_shape *s, struct sequence sq, size_t h,
          const elem *q, const elem *k, const elem *v, size_t width)
{
    size_t kv = h / (s->NH / s->NKV), key = (size_t)keys_of(s, sq).begin;
    struct inputs in = {q + (size_t)sq.begin * s->ldq + h * width,
                        k + key * s->ldkv + kv * width,
                        v + key * s->ldkv + kv * width};
    return in;
}

/* A block for every head and tile. */
static inline dim3 grid_of(const struct pp_attention_shape *s, size_t rows,
                           size_t height, size_t heads)
{
    return dim3((unsigned)heads, (unsigned)n_tiles(s, rows, height));
}

/* Lets a kernel have more shared memory than it may by default. */
template <class KERNEL>
static inline int allow_shared(KERNEL kernel, size_t bytes)
{
    return (int)cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
}

#endif
