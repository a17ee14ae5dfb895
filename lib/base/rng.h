/* SPDX-License-Identifier: MIT */
/* rng - random numbers addressed by (key, index), not by a moving state.
 *
 * The value at an index depends on nothing else, so that a tensor initialised
 * from a seed is the same whatever rank holds it. The mix is SplitMix64
 * (Steele, Lea and Flood, OOPSLA 2014). */
#ifndef PP_BASE_RNG_H
#define PP_BASE_RNG_H

#include <stddef.h>
#include <stdint.h>

/* A key from a seed and a name (pp_fnv of the name, mixed with the seed). */
uint64_t pp_rng_key(uint64_t seed, const char *name);

/* 64 random bits at index. */
uint64_t pp_rng_bits(uint64_t key, uint64_t index);

/* Uniform in [0, 1). */
double pp_rng_uniform(uint64_t key, uint64_t index);

/* Standard normal (Box-Muller on two words). */
double pp_rng_normal(uint64_t key, uint64_t index);

#endif
