/* SPDX-License-Identifier: MIT */
/* attention_wgmma - matrix products of a warpgroup, 128 consecutive threads, on
 * GPUs of compute capability 9.0, and the tiles in shared memory that they
 * read.
 *
 * A tile of ROWS rows is in panels of 64 columns, one after the other. A row of
 * a panel has 128 bytes, whose pieces of 16 bytes are permuted as tile_at<64>
 * does. A panel begins at a multiple of 1024 bytes, so that the hardware
 * permutes the same address bits.
 *
 * Products are asynchronous:
 *   - every thread that copied a part of a tile waits for its copies, then
 * calls proxy_fence, and all meet at a barrier before a product reads the tile;
 *   - wgmma_fence follows each change of registers that a product uses;
 *   - the sums, and the shared memory of a product, are in use until
 *     wgmma_wait.
 * All four warps of a warpgroup issue the same products. Their sums are in the
 * fragments of mma: warp w has rows 16 w to 16 w + 15. */
#ifndef PP_KERNELS_ATTENTION_WGMMA_CUH
#define PP_KERNELS_ATTENTION_WGMMA_CUH

#include "attention_tiles.cuh"

#define PANEL 64 /* columns */
#define WARPGROUP 128

/* The code of other GPUs is empty, and the host does not launch it. */
#if defined(PP_EMULATED) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define PP_HAS_WGMMA
#endif

#ifdef PP_EMULATED
#include "emulated_wgmma.h"

static inline bool gpu_has_wgmma(void)
{
    return pp_emulated_capability() == 90;
}

#define PP_TILES_IN_SHARED(name) unsigned char *name = pp_emulated_shared
#else
/* Returns whether the current GPU has these products, and the program their
 * code. Reading an attribute takes less time than a launch by far. */
static inline bool gpu_has_wgmma(void)
{
#ifdef PP_COMPILED_WGMMA
    int device, major = 0;
    return !cudaGetDevice(&device) &&
           !cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor,
                                   device) &&
           major == 9;
#else
    return false;
#endif
}

#define PP_TILES_IN_SHARED(name) \
    extern __shared__ __align__(1024) unsigned char name[]

static __device__ inline uint32_t shared_address(const void *at)
{
    return (uint32_t)__cvta_generic_to_shared(at);
}

#ifdef PP_HAS_WGMMA
/* Products may read what this thread wrote to shared memory before. */
static __device__ inline void proxy_fence(void)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

static __device__ inline void wgmma_fence(void)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

/* Closes a group of products. wgmma_wait waits until at most KEEP groups are
 * unfinished. */
static __device__ inline void wgmma_commit(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int KEEP> static __device__ inline void wgmma_wait(void)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(KEEP) : "memory");
}

/* Names of the registers 10 a to 10 a + 9, and of 32 or 64 registers. */
#define PP_TEN(a)                                                         \
    "%" #a "0,%" #a "1,%" #a "2,%" #a "3,%" #a "4,%" #a "5,%" #a "6,%" #a \
    "7,%" #a "8,%" #a "9,"
#define PP_NAMES_32 \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9," PP_TEN(1) PP_TEN(2) "%30,%31"
#define PP_NAMES_64                                                          \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9," PP_TEN(1) PP_TEN(2) PP_TEN(3) PP_TEN(4) \
        PP_TEN(5) "%60,%61,%62,%63"
#define PP_SUMS(n) "+f"(c[n][0]), "+f"(c[n][1]), "+f"(c[n][2]), "+f"(c[n][3])
#define PP_SUMS_32(n)                                           \
    PP_SUMS(n), PP_SUMS(n + 1), PP_SUMS(n + 2), PP_SUMS(n + 3), \
        PP_SUMS(n + 4), PP_SUMS(n + 5), PP_SUMS(n + 6), PP_SUMS(n + 7)
#define PP_SUMS_64(n) PP_SUMS_32(n), PP_SUMS_32(n + 8)

#define PP_WGMMA_SHARED(n, names, sums, a_name, b_name, add_name)     \
    asm volatile("{.reg .pred p; setp.ne.b32 p, " add_name ", 0;"     \
                 "wgmma.mma_async.sync.aligned.m64n" n                \
                 "k16.f32.bf16.bf16 {" names "}, " a_name ", " b_name \
                 ", p, 1, 1, 0, 0;}"                                  \
                 : sums                                               \
                 : "l"(a), "l"(b), "r"((int)add))

#define PP_WGMMA_REGISTERS(n, names, sums, a_names, b_name)              \
    asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0;"                   \
                 "wgmma.mma_async.sync.aligned.m64n" n                   \
                 "k16.f32.bf16.bf16 {" names "}, {" a_names "}, " b_name \
                 ", p, 1, 1, 1;}"                                        \
                 : sums                                                  \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))

/* c (64, N) = A B^T, plus c if `add`, for 16 columns of tiles A (64 rows) and B
 * (N rows). */
template <int N>
static __device__ inline void wgmma_shared(float c[N / 8][4], uint64_t a,
                                           uint64_t b, bool add)
{
    static_assert(N == 64 || N == 128, "N");
    if constexpr (N == 64)
        PP_WGMMA_SHARED("64", PP_NAMES_32, PP_SUMS_32(0), "%32", "%33", "%34");
    else
        PP_WGMMA_SHARED("128", PP_NAMES_64, PP_SUMS_64(0), "%64", "%65", "%66");
}

/* c (64, N) += A B, for A (64, 16) in registers and 16 rows of tile B, which
 * has N columns. */
template <int N>
static __device__ inline void wgmma_registers(float c[N / 8][4],
                                              const uint32_t a[4], uint64_t b)
{
    static_assert(N == 64 || N == 128, "N");
    if constexpr (N == 64)
        PP_WGMMA_REGISTERS("64", PP_NAMES_32, PP_SUMS_32(0), "%32,%33,%34,%35",
                           "%36");
    else
        PP_WGMMA_REGISTERS("128", PP_NAMES_64, PP_SUMS_64(0), "%64,%65,%66,%67",
                           "%68");
}
#endif
#endif

#ifdef PP_HAS_WGMMA
/* Keeps the compiler from moving uses of registers across this place: it does
 * not know that products are asynchronous. Needed before wgmma_fence and after
 * wgmma_wait. */
template <int N> static __device__ inline void pin(float x[N][4])
{
#ifdef PP_EMULATED
    (void)x;
#else
    PP_UNROLL
    for (int i = 0; i < N * 4; i++)
        asm volatile("" : "+f"(x[i / 4][i % 4])::"memory");
#endif
}

template <int N> static __device__ inline void pin(uint32_t x[N][4])
{
#ifdef PP_EMULATED
    (void)x;
#else
    PP_UNROLL
    for (int i = 0; i < N * 4; i++)
        asm volatile("" : "+r"(x[i / 4][i % 4])::"memory");
#endif
}

/* Describes a tile of ROWS rows, from a row that is a multiple of 8 on: the
 * address, the distances of panels and of 8 rows, and the permutation of 128
 * bytes. Addresses and distances are in units of 16 bytes. */
template <int ROWS>
static __device__ inline uint64_t tile_descriptor(const elem *at)
{
    return (uint64_t)(shared_address(at) >> 4 & 0x3fff) |
           (uint64_t)(ROWS * 8) << 16 | (uint64_t)64 << 32 | (uint64_t)1 << 62;
}

/* c (64, N) = A B^T for 64 rows of tile A and the N rows of tile B, both with D
 * columns. */
template <int D, int N, int A_ROWS, int B_ROWS>
static __device__ inline void multiply_tiles(float c[N / 8][4], uint64_t a,
                                             uint64_t b)
{
    PP_UNROLL
    for (int k = 0; k < D; k += 16)
        wgmma_shared<N>(
            c, a + (uint64_t)(k / PANEL * A_ROWS * 8 + k % PANEL / 8),
            b + (uint64_t)(k / PANEL * B_ROWS * 8 + k % PANEL / 8), k > 0);
}

/* c (64, D) += P B for P (64, N) in registers and N rows of tile B. */
template <int D, int N>
static __device__ inline void
accumulate_tile(float c[D / 8][4], const uint32_t p[N / 16][4], uint64_t b)
{
    PP_UNROLL
    for (int n = 0; n < N; n += 16)
        wgmma_registers<D>(c, p[n / 16], b + (uint64_t)n * 8);
}

/* Rounds sums to bfloat16, in the fragments of a left operand. */
template <int N>
static __device__ inline void pack_sums(uint32_t a[N / 16][4],
                                        const float c[N / 8][4])
{
    PP_UNROLL
    for (int i = 0; i < N / 4; i++)
        a[i / 4][i % 4] = pack_bf16(c[i / 4 * 2 + i % 4 / 2][i % 2 * 2],
                                    c[i / 4 * 2 + i % 4 / 2][i % 2 * 2 + 1]);
}

/* Returns x, which is the same in all lanes of a warp, in a form in which the
 * compiler knows that it is. */
static __device__ inline int uniform(int x)
{
#ifdef PP_EMULATED
    return x;
#else
    return __shfl_sync(PP_ALL_LANES, x, 0);
#endif
}

/* Starts to load rows [at, at + ROWS) of a sequence into a tile of D columns,
 * by COPIERS threads, of which this is `thread`. Rows from end on become
 * zeros. x is the first row of the sequence. */
template <int D, int ROWS, int COPIERS>
static __device__ inline void load_panels(elem *tile, const elem *x, size_t ld,
                                          int at, int end, int thread)
{
    const int rows = COPIERS / (D / 8); /* that the threads load at once */
    static_assert(rows % 8 == 0, "tile_at");
    int row = thread / (D / 8), column = thread % (D / 8) * 8;
    elem *to = tile + column / PANEL * ROWS * PANEL +
               tile_at<PANEL>(row, column % PANEL);
    const elem *from = x + (size_t)(at + row) * ld + column;
    PP_UNROLL
    for (int i = 0; i < ROWS; i += rows)
        if (i + rows <= ROWS || row + i < ROWS)
            copy_begin(to + i * PANEL, from + (size_t)i * ld,
                       at + row + i < end);
}
#endif

#endif
