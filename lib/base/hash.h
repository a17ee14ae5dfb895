/* SPDX-License-Identifier: MIT */
/* hash - FNV-1a with 64 bits (Fowler, Noll and Vo), for names and metadata.
 * It does not protect against data that somebody altered on purpose. */
#ifndef PP_BASE_HASH_H
#define PP_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#define PP_FNV_START UINT64_C(0xcbf29ce484222325)

/* Returns the hash of n bytes that follow the bytes hashed to h. The first call
 * passes PP_FNV_START. */
static inline uint64_t pp_fnv(uint64_t h, const void *data, size_t n)
{
    const unsigned char *p = data;
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * UINT64_C(0x100000001b3);
    return h;
}

#endif
