/* SPDX-License-Identifier: MIT */
/* emulated_wgmma - the products of a warpgroup (attention_wgmma.cuh) on the
 * emulated device.
 *
 * Operands are read when a product begins, from the addresses that its
 * descriptors give, and must be the same when its group is waited for. The sums
 * are NaN until then. The device also refuses products that it has no fence
 * for: of registers since the last wait, or after a change, and of shared
 * memory since a copy. Shared memory that no copy wrote cannot be an operand.
 */
#ifndef PP_TESTS_EMULATED_WGMMA_H
#define PP_TESTS_EMULATED_WGMMA_H

#include <stddef.h>
#include <stdint.h>

/* Compute capability of the GPU, as 90 for 9.0 (README.md). */
int pp_emulated_capability(void);

uint32_t shared_address(const void *at);
void proxy_fence(void);
void wgmma_fence(void);
void wgmma_commit(void);
void pp_emulate_wgmma_wait(unsigned keep);

/* A product of n columns, with 16 terms: the left operand from registers, or
 * NULL and a descriptor. by_rows: the right operand has the terms as rows. */
struct pp_emulated_product {
    int n;
    const uint32_t *registers;
    uint64_t a, b;
    bool by_rows, add;
};
void pp_emulate_wgmma(float *c, const struct pp_emulated_product *p);

template <int KEEP> static inline void wgmma_wait(void)
{
    pp_emulate_wgmma_wait(KEEP);
}

template <int N>
static inline void wgmma_shared(float c[N / 8][4], uint64_t a, uint64_t b,
                                bool add)
{
    const struct pp_emulated_product p = {N, NULL, a, b, false, add};
    pp_emulate_wgmma(c[0], &p);
}

template <int N>
static inline void wgmma_registers(float c[N / 8][4], const uint32_t a[4],
                                   uint64_t b)
{
    const struct pp_emulated_product p = {N, a, 0, b, true, true};
    pp_emulate_wgmma(c[0], &p);
}

#endif
