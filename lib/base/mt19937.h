/* SPDX-License-Identifier: MIT */
/* mt19937 - the Mersenne Twister as CPython seeds and uses it.
 *
 * It reproduces the orders of programs that call Python's random. Everything
 * else uses base/rng.h. Matsumoto and Nishimura, ACM Transactions on Modeling
 * and Computer Simulation 8, 1998. */
#ifndef PP_BASE_MT19937_H
#define PP_BASE_MT19937_H

#include <stddef.h>
#include <stdint.h>

enum { PP_MT19937_WORDS = 624 };

struct pp_mt19937 {
    uint32_t word[PP_MT19937_WORDS];
    size_t at;
};

/* Seeds g as random.seed(seed) does for an integer. */
void pp_mt19937_seed(struct pp_mt19937 *g, uint64_t seed);

/* Shuffles the list as random.shuffle does. */
void pp_mt19937_shuffle(struct pp_mt19937 *g, uint32_t *list, size_t n);

#endif
