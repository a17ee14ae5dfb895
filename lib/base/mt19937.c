/* SPDX-License-Identifier: MIT */
#include "base/mt19937.h"

enum { WORDS = PP_MT19937_WORDS, AHEAD = 397 };

static void seed_word(struct pp_mt19937 *g, uint32_t seed)
{
    g->word[0] = seed;
    for (uint32_t i = 1; i < WORDS; i++) {
        uint32_t before = g->word[i - 1];
        g->word[i] = UINT32_C(1812433253) * (before ^ before >> 30) + i;
    }
    g->at = WORDS;
}

/* This is CPython's init_by_array. The key has the words of the seed, without
 * an upper word that is 0. */
void pp_mt19937_seed(struct pp_mt19937 *g, uint64_t seed)
{
    const uint32_t key[] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t n = key[1] ? 2 : 1, i = 1, j = 0;
    seed_word(g, 19650218);
    for (int k = 0; k < 2 * WORDS - 1; k++) {
        uint32_t before = g->word[i - 1], mixed = before ^ before >> 30;
        if (k < WORDS) {
            g->word[i] = (g->word[i] ^ mixed * UINT32_C(1664525)) + key[j] + j;
            j = (j + 1) % n;
        } else
            g->word[i] = (g->word[i] ^ mixed * UINT32_C(1566083941)) - i;
        if (++i == WORDS) {
            g->word[0] = g->word[WORDS - 1];
            i = 1;
        }
    }
    g->word[0] = UINT32_C(0x80000000);
}

static void refill(struct pp_mt19937 *g)
{
    for (size_t i = 0; i < WORDS; i++) {
        uint32_t y = (g->word[i] & UINT32_C(0x80000000)) |
                     (g->word[(i + 1) % WORDS] & UINT32_C(0x7fffffff));
        g->word[i] = g->word[(i + AHEAD) % WORDS] ^ y >> 1 ^
                     (y & 1 ? UINT32_C(0x9908b0df) : 0);
    }
    g->at = 0;
}

static uint32_t next_word(struct pp_mt19937 *g)
{
    if (g->at == WORDS)
        refill(g);
    uint32_t y = g->word[g->at++];
    y ^= y >> 11;
    y ^= y << 7 & UINT32_C(0x9d2c5680);
    y ^= y << 15 & UINT32_C(0xefc60000);
    return y ^ y >> 18;
}

/* Returns a number below n, which is at least 1, as random.randrange(n) draws
 * it: as many top bits as n has, again and again until they are below n. */
static uint32_t draw_below(struct pp_mt19937 *g, uint32_t n)
{
    unsigned shift = (unsigned)__builtin_clz(n);
    uint32_t drawn;
    do
        drawn = next_word(g) >> shift;
    while (drawn >= n);
    return drawn;
}

void pp_mt19937_shuffle(struct pp_mt19937 *g, uint32_t *list, size_t n)
{
    for (size_t i = n; i-- > 1;) {
        uint32_t j = draw_below(g, (uint32_t)i + 1), t = list[i];
        list[i] = list[j];
        list[j] = t;
    }
}
