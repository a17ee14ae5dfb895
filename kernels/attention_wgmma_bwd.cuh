/* SPDX-License-Identifier: MIT */
/* attention_wgmma_bwd - code of both kernels of attention backward by products
 * of warpgroups: attention_wgmma_dq.cu has blocks of queries,
 * attention_wgmma_dkv.cu blocks of keys. Both compute the probabilities, so
 * that no sum depends on the order of blocks.
 *
 * Each of the first warpgroups of a block has 64 queries, or keys, and visits
 * 64 of the others in a step. The last warpgroup copies the steps to a ring in
 * shared memory, and the others may be apart from each other by a step or two:
 * one computes exponentials while another multiplies. The last products of a
 * step run on while the next step begins. */
#ifndef PP_KERNELS_ATTENTION_WGMMA_BWD_CUH
#define PP_KERNELS_ATTENTION_WGMMA_BWD_CUH

#include "attention_barriers.cuh"

#define ROWS 64 /* of a warpgroup, and of a step */
#define WARP_ROWS 16
#define STEPS 4 /* of the ring */

/* Threads of a block with GROUPS warpgroups that multiply. */
#define BLOCK(GROUPS) (((GROUPS) + 1) * WARPGROUP)

/* Barriers for each place of the ring: its step has arrived, or the next one
 * may overwrite it. */
struct ring {
    uint64_t full[STEPS], empty[STEPS];
};

#ifdef PP_HAS_WGMMA
/* The threads of a warpgroup that copies need few registers, and the threads of
 * the others get more than a block begins with. */
template <int GROUPS> static __device__ inline void take_registers(void)
{
    if constexpr (GROUPS == 2)
        grow_registers<240>();
    else
        grow_registers<160>();
}

template <int GROUPS> static __device__ inline void leave_registers(void)
{
    if constexpr (GROUPS == 2)
        shrink_registers<24>();
    else
        shrink_registers<32>();
}

/* Every thread of the block calls this first. */
template <int GROUPS> static __device__ inline void ring_init(struct ring *r)
{
    if (threadIdx.x == 0)
        for (int i = 0; i < STEPS; i++) {
            phase_init(&r->full[i], WARPGROUP);
            phase_init(&r->empty[i], GROUPS * WARPGROUP / PP_WARP);
        }
    __syncthreads();
}

/* For the warpgroup that copies: wait for the place of a step, and close its
 * copies, after which the step before it has arrived. ring_end follows the last
 * step. */
static __device__ inline void ring_take(struct ring *r, int step)
{
    if (step >= STEPS)
        phase_wait(&r->empty[step % STEPS], (unsigned)(step / STEPS + 1) % 2);
}

static __device__ inline void ring_close(struct ring *r, int step)
{
    copy_commit();
    copy_wait<1>();
    proxy_fence();
    if (step)
        phase_arrive(&r->full[(step - 1) % STEPS]);
}

static __device__ inline void ring_end(struct ring *r, int n)
{
    copy_wait<0>();
    proxy_fence();
    if (n)
        phase_arrive(&r->full[(n - 1) % STEPS]);
}

/* For the others: wait for a step, and give back the step before it. */
static __device__ inline void ring_wait(struct ring *r, int step)
{
    phase_wait(&r->full[step % STEPS], (unsigned)(step / STEPS) % 2);
}

static __device__ inline void ring_release(struct ring *r, int step)
{
    if (step)
        warp_arrive(&r->empty[(step - 1) % STEPS]);
}

/* Starts the products of a step, p (64, 64) = a x^T and dp = b y^T, for two
 * tiles of HEIGHT rows, of which a warpgroup has 64, and two of a step. The
 * last products of the step before end in between, because their operands and
 * all sums together would need too many registers. */
template <int D, int HEIGHT>
static __device__ inline void
begin_products(float p[ROWS / 8][4], float dp[ROWS / 8][4], const elem *a,
               const elem *x, const elem *b, const elem *y)
{
    pin<ROWS / 8>(p);
    pin<ROWS / 8>(dp);
    wgmma_fence();
    multiply_tiles<D, ROWS, HEIGHT, ROWS>(p, tile_descriptor<HEIGHT>(a),
                                          tile_descriptor<ROWS>(x));
    wgmma_commit();
    wgmma_wait<1>();
    wgmma_fence();
    multiply_tiles<D, ROWS, HEIGHT, ROWS>(dp, tile_descriptor<HEIGHT>(b),
                                          tile_descriptor<ROWS>(y));
    wgmma_commit();
}

/* For each of this lane's two rows: the first and the last column of a step
 * that form a pair. */
struct pair_range {
    int first[2], last[2];
};

/* Sets the probabilities of other columns to 0. The loop counts columns from
 * the first one of the lane, so that all indices are constants. */
static __device__ inline void mask_pairs(float p[ROWS / 8][4],
                                         const struct pair_range *in)
{
    int begin = (int)threadIdx.x % 4 * 2;
    PP_UNROLL
    for (int r = 0; r < 2; r++) {
        int first = in->first[r] - begin, last = in->last[r] - begin;
        PP_UNROLL
        for (int n = 0; n < ROWS / 8; n++)
            PP_UNROLL
        for (int j = 0; j < 2; j++)
            if (n * 8 + j < first || n * 8 + j > last)
                p[n][2 * r + j] = 0;
    }
}

/* A pair with a cap. Returns its probability, and replaces the product x of
 * query and key by the probability times the slope of the cap: the gradient of
 * x is that times the one of the probability. lone: the query has no other key,
 * so that the term p dp of its gradient becomes a factor here. */
static __device__ inline float capped_pair(const struct attention_view *view,
                                           float lse, bool inside, bool lone,
                                           float *x)
{
    float t = score_tanh(view, *x);
    float p = inside ? exp2_approx(t * view->cap - lse) : 0;
    *x = p * (1 - t * t) * (lone ? 1 - p : 1);
    return p;
}

/* Writes this lane's part of 16 rows from row t of a sequence on, times `by`,
 * or adds it if merge. Rows of padding become 0, or stay. */
template <int D>
static __device__ inline void
store_gradients(elem *x, size_t ld, int t, struct packed_sequence sq,
                const float acc[D / 8][4], float by, bool merge)
{
    int lane = (int)threadIdx.x % PP_WARP;
    PP_UNROLL
    for (int r = 0; r < 2; r++) {
        int at = t + lane / 4 + r * 8;
        if (at >= sq.padded || (merge && at >= sq.length))
            continue;
        elem *row = x + (size_t)at * ld + lane % 4 * 2;
        float f = at < sq.length ? by : 0;
        PP_UNROLL
        for (int d = 0; d < D / 8; d++) {
            float low = merge ? to_float(row[d * 8]) : 0;
            float high = merge ? to_float(row[d * 8 + 1]) : 0;
            *(uint32_t *)(row + d * 8) = pack_bf16(
                low + acc[d][2 * r] * f, high + acc[d][2 * r + 1] * f);
        }
    }
}
#endif

#endif
