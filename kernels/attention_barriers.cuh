/* SPDX-License-Identifier: MIT */
/* attention_barriers - barriers between warpgroups of a block that do different
 * work, on GPUs of compute capability 9.0, and the registers that they give
 * each other. */
#ifndef PP_KERNELS_ATTENTION_BARRIERS_CUH
#define PP_KERNELS_ATTENTION_BARRIERS_CUH

#include "attention_wgmma.cuh"

#ifdef PP_EMULATED
#include "emulated_barriers.h"
#elif defined(PP_HAS_WGMMA)
/* A barrier in shared memory. A phase ends when `count` threads have arrived,
 * and the next begins. */
static __device__ inline void phase_init(uint64_t *barrier, unsigned count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(
                     shared_address(barrier)),
                 "r"(count)
                 : "memory");
}

static __device__ inline void phase_arrive(uint64_t *barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(
                     shared_address(barrier))
                 : "memory");
}

/* Waits for the end of phase `parity` modulo 2, if the barrier is in that phase
 * or, after its end, in the next one. */
static __device__ inline void phase_wait(uint64_t *barrier, unsigned parity)
{
    uint32_t at = shared_address(barrier), ended;
    do {
        asm volatile("{.reg .pred p;"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;"
                     "selp.u32 %0, 1, 0, p;}"
                     : "=r"(ended)
                     : "r"(at), "r"(parity)
                     : "memory");
    } while (!ended);
}

/* Barrier 1 to 15 of a block, at which whole warps meet, `threads` in all.
 * turn_pass does not wait for the others. */
static __device__ inline void turn_wait(int id, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

static __device__ inline void turn_pass(int id, int threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/* Takes or gives registers, so that each thread of a warpgroup has N. */
template <int N> static __device__ inline void grow_registers(void)
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

template <int N> static __device__ inline void shrink_registers(void)
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}
#endif

#ifdef PP_HAS_WGMMA
/* Arrives for a warp that has waited for a phase and has read what it guards.
 * Before the arrival all lanes meet: a lane that still waited would otherwise
 * miss the phase if two others began meanwhile.
 *
 * One arrival is enough, although racecheck reports the reads of the other
 * lanes: it does not see that they come before it. __syncwarp orders memory
 * among the lanes, phase_arrive releases what comes before it at the scope of
 * the block, and phase_wait of a thread that copies acquires it (PTX ISA,
 * bar.warp.sync and mbarrier). These orders are transitive, and the thread
 * begins its next copies after them. In the other direction no thread stands
 * for others: each one that copies waits for its own copies and arrives, and
 * each one that reads waits. */
static __device__ inline void warp_arrive(uint64_t *barrier)
{
    __syncwarp();
    if (threadIdx.x % PP_WARP == 0)
        phase_arrive(barrier);
}
#endif

#endif
