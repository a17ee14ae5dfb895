/* SPDX-License-Identifier: MIT */
/* test_pack_balance - balanced bins must not be costlier than before, must be
 * close to the best on small instances, and must be in the right order for
 * steps and data-parallel ranks. */
#include "pack_fixture.h"

/* Returns the cost of the costliest bin. */
static uint64_t costliest(const struct pp_bins *b, const uint64_t *cost)
{
    uint64_t most = 0;
    for (size_t k = 0; k < b->n_bins; k++) {
        uint64_t here = 0;
        for (size_t i = b->first[k]; i < b->first[k + 1]; i++)
            here += cost[b->items[i]];
        most = here > most ? here : most;
    }
    return most;
}

struct trial {
    uint32_t lengths[10], capacity;
    uint64_t cost[10], load[10];
    uint32_t space[10];
    uint32_t second[10], second_space[10]; /* another size, or zeros */
    size_t n, n_bins;
};

/* Returns the least cost of the costliest bin, by exhaustive search. */
static uint64_t optimum(struct trial *t, size_t at, size_t used, uint64_t most,
                        uint64_t best)
{
    if (most >= best || t->n - at < t->n_bins - used)
        return best;
    if (at == t->n)
        return most;
    for (size_t b = 0; b < t->n_bins && b <= used; b++) {
        if (t->space[b] < t->lengths[at] || t->second_space[b] < t->second[at])
            continue;
        t->second_space[b] -= t->second[at];
        t->space[b] -= t->lengths[at];
        t->load[b] += t->cost[at];
        best = optimum(t, at + 1, used + (b == used),
                       t->load[b] > most ? t->load[b] : most, best);
        t->second_space[b] += t->second[at];
        t->space[b] += t->lengths[at];
        t->load[b] -= t->cost[at];
    }
    return best;
}

static void make_trial(struct trial *t, uint64_t key, uint64_t round)
{
    *t = (struct trial){.capacity = 100};
    t->n = 4 + pp_rng_bits(key, 100 * round) % 6;
    for (size_t i = 0; i < t->n; i++) {
        t->lengths[i] =
            1 + (uint32_t)(pp_rng_bits(key, 100 * round + 1 + i) % 60);
        t->cost[i] = 50 * t->lengths[i] + t->lengths[i] * t->lengths[i];
    }
}

static void test_optimum(void)
{
    uint64_t key = pp_rng_key(12, "balance");
    size_t wrong = 0, met = 0, n = 300;
    double worst = 1;
    for (uint64_t r = 0; r < n; r++) {
        struct trial t;
        struct pp_bins b;
        make_trial(&t, key, r);
        pack_by(pp_packer_find("bfd")->pack, t.lengths, t.n, t.capacity, &b);
        uint64_t before = costliest(&b, t.cost);
        t.n_bins = b.n_bins;
        for (size_t k = 0; k < t.n_bins; k++)
            t.space[k] = t.capacity;
        uint64_t least = optimum(&t, 0, 0, 0, UINT64_MAX);
        pp_bins_balance(&b, t.lengths, t.cost, t.capacity, NULL, 0, 0);
        wrong +=
            !is_valid(&b, t.lengths, t.n, t.capacity) || b.n_bins != t.n_bins;
        uint64_t after = costliest(&b, t.cost);
        wrong += after > before || after < least;
        met += after == least;
        worst = fmax(worst, (double)after / (double)least);
        pp_bins_finish(&b);
    }
    is_int((long long)wrong, 0, "balanced: as many bins, none costlier");
    ok(met > n * 3 / 4 && worst < 1.4,
       "the best of all divisions in %zu of %zu, at worst %.2f of it", met, n,
       worst);
}

static void test_large(void)
{
    uint32_t *lengths = draw_lengths(20000, 4096);
    uint64_t *cost = malloc(20000 * sizeof *cost);
    uint64_t total = 0;
    struct pp_bins b = {0};
    struct pp_err err = {0};
    for (size_t i = 0; i < 20000; i++) {
        cost[i] = 20000 * (uint64_t)lengths[i] +
                  4 * (uint64_t)lengths[i] * lengths[i];
        total += cost[i];
    }
    pack_by(pp_packer_find("best")->pack, lengths, 20000, 16384, &b);
    ok(pp_bins_multiple(&b, lengths, 16384, 0, 64, &err) == 0 &&
           (pp_bins_balance(&b, lengths, cost, 16384, NULL, 0, 0), true) &&
           is_valid(&b, lengths, 20000, 16384),
       "20000 sequences in a multiple of 64 bins");
    double ratio =
        (double)costliest(&b, cost) * (double)b.n_bins / (double)total;
    ok(ratio < 1.001, "the costliest of %zu bins is %.5f of the mean", b.n_bins,
       ratio);
    pp_bins_finish(&b);
    free(cost);
    free(lengths);
}

/* Items with two sizes keep to both capacities, and are balanced as well as an
 * exhaustive search can, or nearly. */
static void test_second_size(void)
{
    enum { N = 400, SECOND = 50 };
    uint64_t key = pp_rng_key(8, "second");
    size_t wrong = 0, met = 0, improved = 0;
    for (size_t r = 0; r < N; r++) {
        struct trial t;
        struct pp_bins b;
        make_trial(&t, key, r);
        for (size_t i = 0; i < t.n; i++) {
            uint32_t x = (uint32_t)(pp_rng_bits(key ^ 1, 10 * r + i) % 60);
            t.second[i] = x < 30 ? 0 : x - 20;
            t.cost[i] = t.lengths[i] + 4 * t.second[i];
        }
        const struct pp_pack_size sizes[] = {{t.lengths, t.capacity},
                                             {t.second, SECOND}};
        pp_pack_sizes(sizes, 2, t.n, &b);
        uint64_t before = costliest(&b, t.cost);
        t.n_bins = b.n_bins;
        for (size_t k = 0; k < t.n_bins; k++) {
            t.space[k] = t.capacity;
            t.second_space[k] = SECOND;
        }
        uint64_t least = optimum(&t, 0, 0, 0, UINT64_MAX);
        pp_bins_balance(&b, t.lengths, t.cost, t.capacity, &sizes[1], 1, 0);
        wrong += !is_valid(&b, t.lengths, t.n, t.capacity) ||
                 !is_valid(&b, t.second, t.n, SECOND) || b.n_bins != t.n_bins;
        uint64_t after = costliest(&b, t.cost);
        wrong += after > before || after < least;
        met += after == least;
        improved += after < before;
        pp_bins_finish(&b);
    }
    is_int((long long)wrong, 0, "both capacities hold, and no bin is costlier");
    ok(met > N * 3 / 4 && improved > N / 4,
       "the best of all divisions in %zu of %d; %zu are better than before",
       met, N, improved);
}

/* Many bins whose second capacity is nearly full exchange items in many
 * rounds. */
static void test_many_of_two(void)
{
    enum { N = 4000, CAPACITY = 4096, SECOND = 1000 };
    uint32_t *lengths = draw_lengths(N, CAPACITY);
    uint32_t *second = calloc(N, sizeof *second);
    uint64_t *cost = calloc(N, sizeof *cost);
    struct pp_bins b = {0};
    for (size_t i = 0; i < N; i++) {
        uint32_t x = (uint32_t)(pp_rng_bits(3, i) % 400);
        second[i] = x < 150 ? 0 : x;
        cost[i] = lengths[i] + 8 * (uint64_t)second[i];
    }
    const struct pp_pack_size sizes[] = {{lengths, CAPACITY}, {second, SECOND}};
    uint64_t before = 0;
    pp_pack_sizes(sizes, 2, N, &b);
    before = costliest(&b, cost);
    pp_bins_balance(&b, lengths, cost, CAPACITY, &sizes[1], 1, 0);
    ok(is_valid(&b, lengths, N, CAPACITY) && is_valid(&b, second, N, SECOND),
       "many rounds keep to both capacities");
    uint64_t total = 0;
    for (size_t i = 0; i < N; i++)
        total += cost[i];
    double mean = (double)total / (double)b.n_bins;
    ok(costliest(&b, cost) < before && (double)costliest(&b, cost) < 1.1 * mean,
       "the costliest of %zu bins was %.3f of the mean, and is %.3f", b.n_bins,
       (double)before / mean, (double)costliest(&b, cost) / mean);
    pp_bins_finish(&b);
    free(lengths);
    free(second);
    free(cost);
}

/* Makes bins of one item each, of costs 1..n. */
static void test_deal(void)
{
    enum { N = 24, LANES = 2, PER_STEP = 8 };
    uint32_t lengths[N];
    uint64_t cost[N];
    struct pp_bins b = {0};
    for (size_t i = 0; i < N; i++) {
        lengths[i] = 100;
        cost[i] = i + 1;
    }
    pack_by(pp_packer_find("bfd")->pack, lengths, N, 100, &b);
    pp_bins_deal(&b, cost, LANES, PER_STEP);
    if (!ok(is_valid(&b, lengths, N, 100), "dealt"))
        return;
    /* Rounds of 24 23, 22 21, ... go to steps 0 1 2 2 1 0 0 1 2 2 1 0. The
     * costliest of a step's four are in the middle. The ranks of a round change
     * sides. */
    static const uint64_t want[N] = {12, 11, 24, 23, 13, 14, 1, 2, //
                                     10, 9,  22, 21, 15, 16, 3, 4, //
                                     8,  7,  20, 19, 17, 18, 5, 6};
    size_t wrong = 0;
    for (size_t k = 0; k < N; k++)
        wrong += cost[b.items[b.first[k]]] != want[k];
    is_int((long long)wrong, 0,
           "alike bins run together, cheap ones at the ends");
    pp_bins_finish(&b);
}

int main(void)
{
    test_optimum();
    test_second_size();
    test_many_of_two();
    test_large();
    test_deal();
    return done();
}
