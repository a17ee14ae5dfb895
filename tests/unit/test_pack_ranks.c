/* SPDX-License-Identifier: MIT */
/* test_pack_ranks - sequences of a bin on context-parallel ranks: nobody
 * exceeds its capacity, costs are even, and few sequences are cut. */
#include <math.h>

#include "base/rng.h"
#include "pack/pack.h"
#include "tap.h"

enum { MOST = 400 };

struct trial {
    uint32_t tokens[MOST];
    uint64_t cost[MOST];
    struct pp_rank_range ranks[MOST];
    size_t n, whole;
    uint32_t cp, capacity, fullest;
    uint64_t costliest, total;
};

/* Draws a bin whose sequences have quadratic costs. A bin is tight if the
 * capacity has no room for more. */
static void draw(struct trial *t, uint64_t key, uint64_t round, bool tight)
{
    static const uint32_t sizes[] = {2, 3, 4, 6, 8, 16};
    uint64_t tokens = 0;
    *t = (struct trial){.cp = sizes[round % 6]};
    t->n = 1 + pp_rng_bits(key, round << 10) % MOST;
    for (size_t i = 0; i < t->n; i++) {
        double x = exp(2 * pp_rng_normal(key, round << 10 | (i + 1)));
        uint32_t units = x < 1 ? 1 : x > 300 ? 300 : (uint32_t)x;
        t->tokens[i] = 2 * t->cp * units;
        t->cost[i] = (uint64_t)t->tokens[i] * (4096 + t->tokens[i]) << 20;
        t->total += t->cost[i];
        tokens += t->tokens[i];
    }
    t->capacity = (uint32_t)(tokens / t->cp) * (tight ? 1 : 2);
}

/* Returns whether all ranges are right, and finds the loads. */
static bool measure(struct trial *t)
{
    uint64_t cost[16] = {0}, tokens[16] = {0};
    t->whole = t->fullest = 0;
    t->costliest = 0;
    for (size_t i = 0; i < t->n; i++) {
        struct pp_rank_range r = t->ranks[i];
        if (!r.n || t->cp % r.n || r.first % r.n || r.first >= t->cp)
            return false;
        t->whole += r.n == 1;
        for (int k = r.first; k < r.first + r.n; k++) {
            cost[k] += t->cost[i] / r.n;
            tokens[k] += t->tokens[i] / r.n;
        }
    }
    for (uint32_t k = 0; k < t->cp; k++) {
        t->costliest = cost[k] > t->costliest ? cost[k] : t->costliest;
        t->fullest = tokens[k] > t->fullest ? (uint32_t)tokens[k] : t->fullest;
    }
    return true;
}

static void place(struct trial *t)
{
    const struct pp_bin_sequences s = {t->tokens, t->cost, t->n, t->cp,
                                       t->capacity};
    pp_bin_place(&s, t->ranks);
}

static void test_random(bool tight)
{
    static struct trial t;
    size_t failed = 0, wrong = 0, over = 0, uneven = 0, whole = 0, n = 0;
    for (uint64_t round = 0; round < 600; round++) {
        draw(&t, 7, round, tight);
        place(&t);
        wrong += !measure(&t);
        over += t.fullest > t.capacity;
        uneven += (double)t.costliest * t.cp > 1.004 * (double)t.total;
        whole += t.whole;
        n += t.n;
    }
    is_int((long long)(failed + wrong), 0, "600 bins are placed");
    is_int((long long)over, 0, "no rank exceeds its capacity");
    is_int((long long)uneven, 0, "no rank costs 0.4 %% more than the mean");
    double least = tight ? .3 : .8;
    ok((double)whole > least * (double)n, "%zu of %zu sequences are whole",
       whole, n);
}

static void test_known(void)
{
    static struct trial t;
    /* One long sequence and 64 equal short ones on four ranks. */
    t = (struct trial){.n = 65, .cp = 4, .capacity = 1000};
    for (size_t i = 0; i < t.n; i++) {
        t.tokens[i] = i ? 8 : 1024;
        t.cost[i] = (uint64_t)t.tokens[i] * t.tokens[i];
    }
    place(&t);
    ok(measure(&t), "a long sequence and short ones");
    ok(t.ranks[0].n == 4, "the long one is on all ranks");
    is_int((long long)t.whole, 64, "the others are whole");
    is_int(t.fullest, 256 + 128, "on as many ranks each");
    /* A sequence that no rank has room for. */
    t.capacity = 300;
    t.n = 2;
    t.tokens[1] = 16;
    t.cost[1] = 2000000000;
    place(&t);
    ok(measure(&t) && t.fullest <= 300,
       "room counts, whatever a sequence costs");
    /* A single one. */
    t.n = 1;
    place(&t);
    ok(t.ranks[0].first == 0 && t.ranks[0].n == 4,
       "a single sequence is cut over all");
}

int main(void)
{
    test_random(false);
    test_random(true);
    test_known();
    return done();
}
