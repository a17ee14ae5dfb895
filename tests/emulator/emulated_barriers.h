/* SPDX-License-Identifier: MIT */
/* emulated_barriers - barriers between a part of the threads of a block, and
 * registers that warpgroups give each other (attention_barriers.cuh), on the
 * emulated device. */
#ifndef PP_TESTS_EMULATED_BARRIERS_H
#define PP_TESTS_EMULATED_BARRIERS_H

#include <stdint.h>

void phase_init(uint64_t *barrier, unsigned count);
void phase_arrive(uint64_t *barrier);
void phase_wait(uint64_t *barrier, unsigned parity);
void turn_wait(int id, int threads);
void turn_pass(int id, int threads);
void pp_emulate_registers(int n);

template <int N> static inline void grow_registers(void)
{
    pp_emulate_registers(N);
}

template <int N> static inline void shrink_registers(void)
{
    pp_emulate_registers(N);
}

#endif
