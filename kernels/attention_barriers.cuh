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

#endif
