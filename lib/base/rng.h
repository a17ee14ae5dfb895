/* SPDX-License-Identifier: MIT */
/* rng - random numbers addressed by (key, index), without a state.
 *
 * A tensor that is initialised from a seed is the same on every rank that holds
 * it, because the value at an index depends on nothing else. The mixing is that
 * of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014). */
#ifndef PP_BASE_RNG_H
#define PP_BASE_RNG_H

#include <stddef.h>
#include <stdint.h>

/* Returns a key made of a seed and a name: pp_fnv of the name, mixed with the
 * seed. */
uint64_t pp_rng_key(uint64_t seed, const char *name);

/* Returns the 64 random bits at index. */
uint64_t pp_rng_bits(uint64_t key, uint64_t index);

/* Returns the number at index, uniform in [0, 1). */
double pp_rng_uniform(uint64_t key, uint64_t index);

/* Returns the number at index of the standard normal distribution (Box-Muller
 * on two words). */
double pp_rng_normal(uint64_t key, uint64_t index);

#endif
