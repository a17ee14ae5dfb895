/* SPDX-License-Identifier: MIT */
/* test_pack_patterns - compares the bounds and packings of the linear program
 * with exhaustive search, and with instances whose optimum is known. */
#include "pack/patterns.h"

#include "pack_fixture.h"

struct source {
    uint64_t key, at;
};

static uint32_t between(struct source *s, uint32_t low, uint32_t high)
{
    return low + (uint32_t)(pp_rng_bits(s->key, s->at++) % (high - low + 1));
}

/* Returns the heaviest set of sequences that fits, of all sets. */
static uint64_t heaviest_set(const struct pp_classes *classes,
                             const uint64_t *weight, uint32_t capacity)
{
    uint64_t best = 0;
    uint32_t class_of[16];
    size_t n = 0;
    for (size_t c = 0; c < classes->n; c++)
        for (uint32_t k = 0; k < classes->count[c]; k++)
            class_of[n++] = (uint32_t)c;
    for (uint32_t set = 0; set < UINT32_C(1) << n; set++) {
        uint64_t load = 0, sum = 0;
        for (size_t i = 0; i < n; i++)
            if (set >> i & 1) {
                load += classes->length[class_of[i]];
                sum += weight[class_of[i]];
            }
        if (load <= capacity && sum > best)
            best = sum;
    }
    return best;
}

/* Any weights must prove the bound of their definition, and never more than the
 * optimum. */
static void test_weights(void)
{
    struct source s = {pp_rng_key(3, "weights"), 0};
    size_t other = 0, above = 0, met = 0, wrong = 0;
    enum { ROUNDS = 2000 };
    for (int r = 0; r < ROUNDS; r++) {
        uint32_t lengths[8], load[9], capacity = between(&s, 5, 40);
        uint64_t weight[8], total = 0;
        size_t n = between(&s, 1, 8), bound = 0;
        for (size_t i = 0; i < n; i++)
            lengths[i] = between(&s, 1, capacity);
        struct pp_classes classes;
        pp_classes_init(&classes, lengths, n);
        for (size_t c = 0; c < classes.n; c++) {
            /* Weights near the lengths give good bounds. */
            weight[c] = classes.length[c] * 10 + between(&s, 0, 100);
            total += weight[c] * classes.count[c];
        }
        pp_pack_weighted_bound(&classes, capacity, weight, &bound);
        uint64_t heaviest = heaviest_set(&classes, weight, capacity);
        size_t least = fewest_bins(lengths, n, 0, capacity, load, 0, n + 1);
        other += bound != (total + heaviest - 1) / heaviest;
        above += bound > least;
        met += bound == least;
        pp_classes_finish(&classes);
    }
    is_int((long long)other, 0, "the heaviest set is that of all sets");
    is_int((long long)above, 0, "no weights prove more than the optimum");
    ok(!wrong && met > ROUNDS / 2, "weights prove the optimum often (%zu)",
       met);
}

/* Tests bounds and packings. With a large scale the lengths are in units. */
static void test_small(uint32_t scale, size_t rounds)
{
    struct source s = {pp_rng_key(scale, "small"), 0};
    size_t above = 0, met = 0, raised = 0, wrong = 0, fewest = 0;
    for (size_t r = 0; r < rounds; r++) {
        uint32_t lengths[9], load[10], capacity = between(&s, 10, 40) * scale;
        size_t n = between(&s, 1, 9), first = 0;
        for (size_t i = 0; i < n; i++)
            lengths[i] = between(&s, 1, capacity);
        size_t least = fewest_bins(lengths, n, 0, capacity, load, 0, n + 1);
        struct pp_bins b;
        pack_by(pp_pack_none, lengths, n, 1, &b);
        pp_pack_lower_bound(lengths, n, capacity, &first);
        size_t bound = first;
        pp_pack_by_patterns(lengths, n, capacity, n, &bound, &b);
        wrong += !is_valid(&b, lengths, n, capacity) || b.n_bins < least;
        fewest += b.n_bins == least;
        above += bound > least;
        met += bound == least;
        raised += bound > first;
        pp_bins_finish(&b);
    }
    ok(wrong == 0, "scale %u: packings are valid", scale);
    is_int((long long)above, 0, "no bound is above the optimum");
    ok(met > rounds * 99 / 100 && raised > 0,
       "bounds are the optimum nearly always (%zu), some better than those of "
       "sums (%zu)",
       met, raised);
    ok(fewest > rounds * 99 / 100, "and packings too (%zu)", fewest);
}

/* Three sequences of a quarter to a half fill each bin, as in the triplets of
 * Falkenauer. */
static void draw_triples(struct source *s, uint32_t *lengths, size_t n)
{
    for (size_t i = 0; i + 3 <= n; i += 3) {
        uint32_t a = between(s, 380, 490), b = between(s, 250, (1000 - a) / 2);
        lengths[i] = a;
        lengths[i + 1] = b;
        lengths[i + 2] = 1000 - a - b;
    }
    for (size_t i = n; i-- > 1;) {
        size_t k = between(s, 0, (uint32_t)i);
        uint32_t kept = lengths[i];
        lengths[i] = lengths[k];
        lengths[k] = kept;
    }
}

static void test_triples(size_t n, int rounds)
{
    uint32_t *lengths = malloc(n * sizeof *lengths);
    size_t bins = 0, fewest_of_rules = 0, wrong = 0;
    struct source s = {pp_rng_key(n, "triples"), 0};
    for (int r = 0; r < rounds; r++) {
        struct pp_bins b;
        draw_triples(&s, lengths, n);
        pack_by(pp_pack_fill, lengths, n, 1000, &b);
        fewest_of_rules += b.n_bins;
        pp_bins_finish(&b);
        pack_by(pp_pack_best, lengths, n, 1000, &b);
        bins += b.n_bins;
        wrong += !is_valid(&b, lengths, n, 1000);
        pp_bins_finish(&b);
    }
    ok(!wrong && bins == n / 3 * (size_t)rounds && fewest_of_rules > bins,
       "%zu triples: %zu bins, all full; filling alone has %zu", n / 3, bins,
       fewest_of_rules);
    free(lengths);
}

/* Draws uniform lengths. The bins may exceed the bound by `above` in all. */
static void test_uniform(uint32_t low, uint32_t high, uint32_t capacity,
                         size_t n, int rounds, size_t above)
{
    uint32_t *lengths = malloc(n * sizeof *lengths);
    size_t bins = 0, bounds = 0, wrong = 0;
    struct source s = {pp_rng_key(n, "uniform"), 0};
    for (int r = 0; r < rounds; r++) {
        struct pp_bins b;
        size_t bound;
        for (size_t i = 0; i < n; i++)
            lengths[i] = between(&s, low, high);
        pack_by(pp_pack_best, lengths, n, capacity, &b);
        pp_pack_certify(lengths, n, capacity, b.n_bins, &bound);
        bins += b.n_bins;
        bounds += bound;
        wrong += !is_valid(&b, lengths, n, capacity) || bound > b.n_bins;
        pp_bins_finish(&b);
    }
    ok(!wrong && bounds > 0 && bins <= bounds + above,
       "%zu lengths of %u to %u in %u: %zu bins, at least %zu", n, low, high,
       capacity, bins, bounds);
    free(lengths);
}

int main(void)
{
    test_weights();
    test_small(1, 1000);
    test_small(100003, 200);
    test_triples(120, 5);
    test_triples(501, 1);
    test_uniform(20, 100, 150, 1000, 10, 0);
    test_uniform(1638, 4096, 8192, 500, 1, 1);
    return done();
}
