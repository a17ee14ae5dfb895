/* SPDX-License-Identifier: MIT */
/* attention_tiles - code of forward and backward of attention on tensor cores:
 * matrix instructions, tiles of rows in shared memory and their
 * products, and which queries of a tile attend to which keys.
 *
 * A GPU starts the blocks of a grid in order, x first. In causal attention the
 * last queries and the first keys have the most work. They are first in the
 * grid, for all heads, so that the GPU does not wait for a few long blocks at
 * the end. */
#ifndef PP_KERNELS_ATTENTION_TILES_CUH
#define PP_KERNELS_ATTENTION_TILES_CUH

#include "attention.cuh"
#include "device.cuh"

/* --- matrix instructions of a warp for bfloat16, sm_80 and later ---
 *
 * Fragments of m16n8k16, with g = lane / 4 and i = 2 (lane % 4):
 *   a[0..3]  A (16, 16) at (g, i) (g + 8, i) (g, i + 8) (g + 8, i + 8)
 *   b[0..1]  B (16, 8)  at (i, g) (i + 8, g)
 *   c[0..3]  C (16, 8)  at (g, i) (g, i + 1) (g + 8, i) (g + 8, i + 1)
 * A word of a holds two neighbours in a row of A, a word of b two neighbours in
 * a column of B. */
#ifndef PP_EMULATED
static __device__ inline uint32_t pack_bf16(float low, float high)
{
    __nv_bfloat162 x = __floats2bfloat162_rn(low, high);
    return *(uint32_t *)&x;
}

/* c += a b */
static __device__ inline void mma(float c[4], const uint32_t a[4],
                                  const uint32_t b[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]),
                   "r"(b[1]));
}

/* Loads four 8 x 8 matrices. Lane l passes the address of row l % 8 of matrix l
 * / 8. For each matrix j it receives, in r[j], row l / 4 at columns 2 (l % 4)
 * and the next. load_transposed gives it column l / 4 at those rows. */
static __device__ inline void load_matrices(uint32_t r[4], const void *row)
{
    uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

static __device__ inline void load_transposed(uint32_t r[4], const void *row)
{
    uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
    asm volatile(
        "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
        : "r"(at)
        : "memory");
}

/* Starts to copy 16 bytes to shared memory. Without `there` it writes zeros and
 * reads nothing. */
static __device__ inline void copy_begin(void *shared, const void *from,
                                         bool there)
{
    uint32_t at = (uint32_t)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(at), "l"(from), "r"(there ? 16 : 0)
                 : "memory");
}

/* The same for 4 bytes. */
static __device__ inline void copy_word_begin(void *shared, const void *from,
                                              bool there)
{
    uint32_t at = (uint32_t)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 :
                 : "r"(at), "l"(from), "r"(there ? 4 : 0)
                 : "memory");
}

/* copy_commit closes a group of copies. copy_wait waits until at most KEEP
 * groups are unfinished. */
static __device__ inline void copy_commit(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int KEEP> static __device__ inline void copy_wait(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(KEEP) : "memory");
}
#endif

/* A tile in shared memory has rows of D columns, D a multiple of 16. Pieces of
 * 8 elements are permuted within groups of 8, 4 or 2 pieces, so that ldmatrix
 * reads 8 rows from 8 different banks. GROUP is the columns of a group: the
 * largest power of 2 that divides D, and at most 64. */
#define GROUP(D) (((D) & -(D)) < 64 ? ((D) & -(D)) : 64)

/* Index of element (row, column) of a tile. column is a multiple of 8. */
template <int D> static __device__ inline int tile_at(int row, int column)
{
    const int pieces = GROUP(D) / 8;
    return row * D + ((column / 8 ^ (row / (8 / pieces) & (pieces - 1))) * 8);
}

/* Fragments begin at a row that is a multiple of 8 and at a column that is a
 * multiple of 16. The column is therefore one more exclusive or, and an offset
 * of whole groups, on an index that all fragments share, and no lane keeps many
 * indices in registers. */
template <int D>
static __device__ inline int fragment_at(int shared, int column)
{
    return (shared ^ column % GROUP(D)) + column / GROUP(D) * GROUP(D);
}

/* Loads A (16, 16) from the rows at `rows`. */
template <int D>
static __device__ inline void load_a(uint32_t a[4], const elem *rows,
                                     int column)
{
    int lane = (int)threadIdx.x % PP_WARP;
    load_matrices(
        a, rows + fragment_at<D>(tile_at<D>(lane % 16, lane / 16 * 8), column));
}

/* Loads two B (16, 8) from a tile that holds B transposed: b[0..1] has the 8
 * rows at `rows` as columns, b[2..3] the next 8. */
template <int D>
static __device__ inline void load_b(uint32_t b[4], const elem *rows,
                                     int column)
{
    int lane = (int)threadIdx.x % PP_WARP;
    int at = tile_at<D>(lane % 8 + lane / 16 * 8, lane / 8 % 2 * 8);
    load_matrices(b, rows + fragment_at<D>(at, column));
}

/* Loads two B (16, 8) from a tile that holds B: the 16 rows at `rows`, b[0..1]
 * with columns column..column + 7, b[2..3] with the next 8. */
template <int D>
static __device__ inline void load_b_rows(uint32_t b[4], const elem *rows,
                                          int column)
{
    int lane = (int)threadIdx.x % PP_WARP;
    load_transposed(
        b, rows + fragment_at<D>(tile_at<D>(lane % 16, lane / 16 * 8), column));
}

#define WARPS 4
#define THREADS (WARPS * PP_WARP)
#define LN2 0.6931471805599453f

/* Starts to load rows [at, at + HEIGHT) of a sequence into a tile. Rows from
 * end on, and columns from width on, become zeros. x is the first row of the
 * sequence. Each thread stays at one place of its groups, so that it computes
 * tile_at only once. */
template <int D, int HEIGHT>
static __device__ inline void load_tile(elem *tile, const elem *x, size_t ld,
                                        int at, int end, size_t width)
{
    const int pieces = GROUP(D) / 8, all = THREADS / pieces;
    const int rows = all < HEIGHT ? all : HEIGHT; /* that are loaded at once, */
    const int groups = all / rows;                /* of as many groups */
    static_assert(rows % 8 == 0 && HEIGHT % rows == 0, "tile_at");
    int thread = (int)threadIdx.x, row = thread / pieces % rows;
    int column = thread / pieces / rows * GROUP(D) + thread % pieces * 8;
    elem *to = tile + tile_at<D>(row, column);
    const elem *from = x + (size_t)(at + row) * ld + column;
    PP_UNROLL
    for (int c = 0; c < D; c += groups * GROUP(D)) {
        if (column + c >= D)
            break;
        bool there = column + c < (int)width;
        PP_UNROLL
        for (int i = 0; i < HEIGHT; i += rows)
            copy_begin(to + i * D + c, from + (size_t)i * ld + c,
                       there && at + row + i < end);
    }
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

/* acc (16 M, D) += p (16 M, 8 N) times the 8 N rows of b */
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

/* Writes this lane's part of 16 rows of `width` columns, from row t of a
 * sequence on, times by[] for its two rows. Rows from length on are padding and
 * become 0. */
template <int D>
static __device__ inline void
store_rows(elem *x, size_t ld, size_t width, int t, struct packed_sequence sq,
           const float acc[D / 8][4], const float by[2])
{
    int lane = (int)threadIdx.x % PP_WARP;
    PP_UNROLL
    for (int r = 0; r < 2; r++) {
        int at = t + lane / 4 + r * 8;
        float f = at < sq.length ? by[r] : 0;
        if (at >= sq.padded)
            continue;
        elem *row = x + (size_t)at * ld + lane % 4 * 2;
        PP_UNROLL
        for (int d = 0; d < D / 8; d++)
            if (d * 8 < (int)width)
                *(uint32_t *)(row + d * 8) =
                    f == 0
                        ? 0
                        : pack_bf16(acc[d][2 * r] * f, acc[d][2 * r + 1] * f);
    }
}

/* Tiles [*from, *to) of keys to which the queries at positions [t, t + rows)
 * attend. A chunk of keys may end before them, or before their window: then
 * there are none, and both numbers are the same. */
static __device__ inline void key_tiles(const struct pp_attention_shape *s,
                                        struct packed_sequence keys, int t,
                                        int rows, int height, int *from,
                                        int *to)
{
    int end = last_key(s, keys.length, t + rows - 1) + 1;
    end = end < keys.length ? end : keys.length;
    *from = pp_attention_first(s, t) / height;
    *to = t < keys.length || s->one_chunk ? (end + height - 1) / height : *from;
    *to = *to > *from ? *to : *from;
}

/* Returns whether the query attends to the key. n_keys: of the sequence. */
static __device__ inline bool attends(const struct pp_attention_shape *s,
                                      int n_keys, int query, int key)
{
    return key <= last_key(s, n_keys, query) &&
           key >= pp_attention_first(s, query);
}

/* Return whether any, or all, of n queries from position `query` on attend to
 * any, or to all, of m keys from `key` on. In most tiles all do, and single
 * pairs need no check. */
static __device__ inline bool any_attends(const struct pp_attention_shape *s,
                                          int n_keys, int query, int n, int key,
                                          int m)
{
    return key <= last_key(s, n_keys, query + n - 1) &&
           key + m > pp_attention_first(s, query);
}

static __device__ inline bool all_attend(const struct pp_attention_shape *s,
                                         int n_keys, int query, int n, int key,
                                         int m)
{
    return key + m <= last_key(s, n_keys, query) + 1 &&
           key >= pp_attention_first(s, query + n - 1);
}

/* Returns the tanh of a score with a cap, which is view->cap times that; x has
 * no scale. This form has an absolute error of 2^-22 or so, tanh.approx one of
 * 2^-11: with Gemma 2's cap of 50 a probability would be wrong by 2 %. */
static __device__ inline float score_tanh(const struct attention_view *view,
                                          float x)
{
    return 1 - divide_approx(2, 1 + exp2_approx(x * view->tanh_scale));
}

/* Inputs of forward for one head, at the first row of a sequence. */
struct head_inputs {
    const elem *q, *k, *v;
};

static __device__ inline struct head_inputs
head_inputs_at(const struct pp_attention_shape *s, struct packed_sequence sq,
               struct packed_sequence keys, size_t h, const elem *q,
               const elem *k, const elem *v)
{
    size_t kv = h / (s->NH / s->NKV), key = (size_t)keys.begin;
    struct head_inputs in = {q + (size_t)sq.begin * s->ldq + h * s->HDQK,
                             k + key * s->ldkv + kv * s->HDQK,
                             v + key * s->ldkv + kv * s->HDV};
    return in;
}

/* One block for each head and tile. */
static inline dim3 tile_grid(const struct pp_attention_shape *s, size_t rows,
                             size_t height, size_t heads)
{
    return dim3((unsigned)heads, (unsigned)n_tiles(s, rows, height));
}

/* Raises the limit of a kernel's shared memory. */
template <class KERNEL>
static inline int allow_shared(KERNEL kernel, size_t bytes)
{
    return (int)cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
}

#endif
