/* SPDX-License-Identifier: MIT */
/* packed_order - the order of the bins over the epochs.
 *
 * The permutation of an epoch is computed bin by bin and is not stored, so a
 * resumed run needs no state but its place. It is the swap-or-not shuffle of
 * Hoang, Morris and Rogaway, "An Enciphering Scheme Based on a Card Shuffle",
 * 2012: each round pairs x with key - x, and swaps the two at random. */
#include "base/rng.h"
#include "data/packed.h"

enum { ROUNDS = 96 };

/* Returns the place of x in a permutation of [0, n). */
static uint64_t permute(uint64_t key, uint64_t x, uint64_t n)
{
    for (uint64_t round = 0; round < ROUNDS; round++) {
        uint64_t pivot = pp_rng_bits(key, round) % n;
        uint64_t partner = pivot >= x ? pivot - x : pivot + n - x;
        uint64_t larger = x > partner ? x : partner;
        if (pp_rng_bits(key ^ larger, ROUNDS + round) & 1)
            x = partner;
    }
    return x;
}

size_t pp_packed_place(const struct pp_packed *p, uint64_t at)
{
    uint64_t length = pp_packed_epoch(p);
    uint64_t epoch = at / length, place = at % length;
    uint64_t n = p->epoch.block ? p->n_bins / p->epoch.block : 0;
    if (place >= p->n_bins)
        return PP_NO_BIN;
    uint64_t block = n ? place / p->epoch.block : 0;
    if (epoch == 0 || block >= n)
        return (size_t)place;
    uint64_t key = pp_rng_key(p->epoch.seed + epoch, "epoch");
    return (size_t)(permute(key, block, n) * p->epoch.block +
                    place % p->epoch.block);
}
