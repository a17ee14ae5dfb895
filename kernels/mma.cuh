/* SPDX-License-Identifier: MIT */
/* mma - a warp's matrix instructions for bfloat16, sm_80 and later.
 *
 * Fragments of m16n8k16, with g = lane / 4 and i = 2 (lane % 4):
 *   a[0..3]  A (16, 16) at (g, i) (g + 8, i) (g, i + 8) (g + 8, i + 8)
 *   b[0..1]  B (16, 8)  at (i, g) (i + 8, g)
 *   c[0..3]  C (16, 8)  at (g, i) (g, i + 1) (g + 8, i) (g + 8, i + 1)
 * A word of a and b holds two neighbours in the row of A, the column of B. */
#ifndef PP_KERNELS_MMA_CUH
#define PP_KERNELS_MMA_CUH

#include "device.cuh"

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

/* Four 8 x 8 matrices: lane l gives the address of row l % 8 of matrix l / 8,
 * and gets of matrix j, in r[j], row l / 4 at columns 2 (l % 4) and the next;
 * transposed, column l / 4 at those rows. */
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

/* Begins to copy 16 bytes to shared memory; when there is no source, zeros, and
 * nothing is read. */
static __device__ inline void copy_begin(void *shared, const void *from,
                                         bool there)
{
    uint32_t at = (uint32_t)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(at), "l"(from), "r"(there ? 16 : 0)
                 : "memory");
}

/* The same of 4 bytes. */
static __device__ inline void copy_word_begin(void *shared, const void *from,
                                              bool there)
{
    uint32_t at = (uint32_t)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 :
                 : "r"(at), "l"(from), "r"(there ? 4 : 0)
                 : "memory");
}

/* Closes a group of copies; waits until at most KEEP groups are under way. */
static __device__ inline void copy_commit(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int KEEP> static __device__ inline void copy_wait(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(KEEP) : "memory");
}
#endif

/* Where element (row, column) of a tile of D columns lies in shared memory:
 * pieces of 8 elements are exchanged within a row so that ldmatrix reads 8
 * rows from 8 different banks. column is a multiple of 8. */
template <int D> static __device__ inline int tile_at(int row, int column)
{
    return row * D + ((column / 8 ^ (row & 7)) * 8);
}

/* Fragments are loaded from rows that begin at a multiple of 8 in a tile, and
 * columns from a multiple of 16 on: so the column is one more exclusive or,
 * and no lane keeps the places of all fragments in registers.
 *
 * A (16, 16) of the rows at `rows`. */
template <int D>
static __device__ inline void load_a(uint32_t a[4], const elem *rows,
                                     int column)
{
    int lane = (int)threadIdx.x % PP_WARP;
    load_matrices(a, rows + (tile_at<D>(lane % 16, lane / 16 * 8) ^ column));
}

/* Two B (16, 8), of a tile that holds B transposed: b[0..1] has the 8 rows at
 * `rows` as columns, b[2..3] the next 8. */
template <int D>
static __device__ inline void load_b(uint32_t b[4], const elem *rows,
                                     int column)
{
    int lane = (int)threadIdx.x % PP_WARP;
    load_matrices(
        b, rows + (tile_at<D>(lane % 8 + lane / 16 * 8, lane / 8 % 2 * 8) ^
                   column));
}

/* Two B (16, 8) of a tile that holds B: the 16 rows at `rows`, b[0..1] columns
 * column..column + 7, b[2..3] the next 8. */
template <int D>
static __device__ inline void load_b_rows(uint32_t b[4], const elem *rows,
                                          int column)
{
    int lane = (int)threadIdx.x % PP_WARP;
    load_transposed(b, rows + (tile_at<D>(lane % 16, lane / 16 * 8) ^ column));
}

#endif
