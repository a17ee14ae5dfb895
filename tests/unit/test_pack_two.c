/* SPDX-License-Identifier: MIT */
/* test_pack_two - packs items with two sizes: both capacities hold, and there
 * are as few bins as an exhaustive search finds, or one more. */
#include "pack_fixture.h"

#include "pack/pack_rule.h"

enum { MOST = 9 };

/* Returns the fewest bins for both sizes, by exhaustive search. */
static size_t fewest_of_two(const struct pp_two_sizes s[2], size_t n, size_t at,
                            uint64_t load[2][MOST], size_t n_bins, size_t best)
{
    if (n_bins >= best)
        return best;
    if (at == n)
        return n_bins;
    for (size_t b = 0; b <= n_bins; b++) {
        const uint64_t before[] = {load[0][b], load[1][b]};
        bool room = true;
        for (int k = 0; k < 2; k++) {
            load[k][b] = (b < n_bins ? before[k] : 0) + s[k].sizes[at];
            room &= load[k][b] <= s[k].capacity;
        }
        if (room)
            best =
                fewest_of_two(s, n, at + 1, load, n_bins + (b == n_bins), best);
        for (int k = 0; k < 2; k++)
            load[k][b] = before[k];
    }
    return best;
}

static void test_small(void)
{
    size_t worse = 0, wrong = 0;
    for (uint64_t seed = 0; seed < 300; seed++) {
        uint32_t a[MOST], b[MOST];
        uint64_t load[2][MOST] = {{0}};
        size_t n = 1 + seed % (MOST - 1);
        struct pp_err err = {0};
        struct pp_bins bins;
        for (size_t i = 0; i < n; i++) {
            a[i] = 1 + (uint32_t)(pp_rng_uniform(seed, 2 * i) * 60);
            /* Half of the items have no second size. */
            double u = pp_rng_uniform(seed, 2 * i + 1);
            b[i] = u < .5 ? 0 : (uint32_t)(2000 * (u - .5));
        }
        const struct pp_two_sizes s[] = {{a, 100}, {b, 1000}};
        if (pp_pack_two(s, n, &bins, &err) != 0) {
            wrong++;
            continue;
        }
        wrong += !is_valid(&bins, a, n, 100) || !is_valid(&bins, b, n, 1000);
        size_t least = fewest_of_two(s, n, 0, load, 0, n + 1);
        wrong += bins.n_bins < least || bins.n_bins > least + 1;
        worse += bins.n_bins > least;
        pp_bins_finish(&bins);
    }
    is_int((long long)wrong, 0, "300 small packings are right");
    ok(worse <= 15, "%zu of them have one bin too many", worse);
}

/* Without a second size the bins are those of first-fit decreasing. */
static void test_one_size(void)
{
    enum { N = 3000, CAPACITY = 4096 };
    uint32_t *lengths = draw_lengths(N, CAPACITY);
    uint32_t *nothing = calloc(N, sizeof *nothing);
    const struct pp_two_sizes s[] = {{lengths, CAPACITY}, {nothing, 1}};
    const struct pp_two_sizes t[] = {{nothing, 1}, {lengths, CAPACITY}};
    struct pp_bins one, two, other;
    struct pp_err err = {0};
    if (ok(pp_pack_ffd(lengths, N, CAPACITY, &one, &err) == 0 &&
               pp_pack_two(s, N, &two, &err) == 0 &&
               pp_pack_two(t, N, &other, &err) == 0,
           "packed %s", err.text)) {
        is_int((long long)two.n_bins, (long long)one.n_bins,
               "as many bins as first-fit decreasing makes");
        ok(hash_bins(&two) == hash_bins(&other),
           "the same bins, whichever size it is");
        pp_bins_finish(&one);
        pp_bins_finish(&two);
        pp_bins_finish(&other);
    }
    free(lengths);
    free(nothing);
}

static void test_nothing(void)
{
    const struct pp_two_sizes s[] = {{NULL, 8}, {NULL, 8}};
    struct pp_bins bins;
    struct pp_err err = {0};
    ok(pp_pack_two(s, 0, &bins, &err) == 0 && bins.n_bins == 0, "no items");
    pp_bins_finish(&bins);
}

int main(void)
{
    test_small();
    test_one_size();
    test_nothing();
    return done();
}
