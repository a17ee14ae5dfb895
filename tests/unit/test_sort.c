/* SPDX-License-Identifier: MIT */
/* test_sort - sorted keys against their ranks: how many keys come before. */
#include "base/sort.h"

#include <stdbool.h>

#include "base/rng.h"
#include "tap.h"

enum { MOST = 300 };

static bool is_before(const struct pp_sort_key *a, const struct pp_sort_key *b)
{
    return a->high < b->high || (a->high == b->high && a->low < b->low) ||
           (a->high == b->high && a->low == b->low && a->item < b->item);
}

/* Returns the keys that are not where their ranks say, of n keys with so many
 * random bits at `shift` of a word. */
static size_t misplaced(size_t n, int bits, int shift, uint64_t key)
{
    static struct pp_sort_key keys[MOST], was[MOST], spare[MOST];
    size_t wrong = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t mask = ((uint64_t)1 << bits) - 1;
        uint64_t a = pp_rng_bits(key, 2 * i), b = pp_rng_bits(key, 2 * i + 1);
        was[i] = keys[i] =
            (struct pp_sort_key){(a & mask) << shift, (b & mask) << shift, i};
    }
    pp_sort_keys(keys, spare, n);
    for (size_t i = 0; i < n; i++) {
        size_t rank = 0;
        for (size_t k = 0; k < n; k++)
            rank += is_before(&was[k], &was[i]);
        wrong += keys[rank].item != i;
    }
    return wrong;
}

int main(void)
{
    size_t wrong = 0;
    for (uint64_t key = 0; key < 60; key++)
        wrong += misplaced(key % 3 ? MOST - key : key, (int)(key % 12) + 1,
                           (int)(key * 7 % 52), key);
    ok(wrong == 0, "every key is where its rank says");
    return done();
}
