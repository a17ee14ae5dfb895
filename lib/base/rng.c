/* SPDX-License-Identifier: MIT */
#include "base/rng.h"

#include <math.h>
#include <string.h>

#include "base/hash.h"

static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

uint64_t pp_rng_key(uint64_t seed, const char *name)
{
    return mix(pp_fnv(PP_FNV_START, name, strlen(name)) ^ mix(seed + 1));
}

uint64_t pp_rng_bits(uint64_t key, uint64_t index)
{
    return mix(key + (index + 1) * UINT64_C(0x9e3779b97f4a7c15));
}

double pp_rng_uniform(uint64_t key, uint64_t index)
{
    return (double)(pp_rng_bits(key, index) >> 11) * 0x1p-53;
}

double pp_rng_normal(uint64_t key, uint64_t index)
{
    double u = 1 - pp_rng_uniform(key, 2 * index); /* in (0, 1] */
    double v = pp_rng_uniform(key, 2 * index + 1);
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}
