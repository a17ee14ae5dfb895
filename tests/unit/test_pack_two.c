/* SPDX-License-Identifier: MIT */
/* test_pack_two - packs items with two or three sizes: all capacities hold,
 * also after balancing, and there are as few bins as an exhaustive search
 * finds, or one more. */
#include "pack_fixture.h"

#include "pack/rule.h"

enum { MOST = 9 };

/* Returns the fewest bins for all sizes, by exhaustive search. */
static size_t fewest(const struct pp_pack_size *s, size_t n_sizes, size_t n,
                     size_t at, uint64_t load[PP_MOST_SIZES][MOST],
                     size_t n_bins, size_t best)
{
    if (n_bins >= best)
        return best;
    if (at == n)
        return n_bins;
    for (size_t b = 0; b <= n_bins; b++) {
        uint64_t before[PP_MOST_SIZES];
        bool room = true;
        for (size_t k = 0; k < n_sizes; k++) {
            before[k] = load[k][b];
            load[k][b] = (b < n_bins ? before[k] : 0) + s[k].sizes[at];
            room &= load[k][b] <= s[k].capacity;
        }
        if (room)
            best = fewest(s, n_sizes, n, at + 1, load, n_bins + (b == n_bins),
                          best);
        for (size_t k = 0; k < n_sizes; k++)
            load[k][b] = before[k];
    }
    return best;
}

/* Reports whether the bins keep to all capacities. */
static bool is_valid_in_all(const struct pp_bins *b,
                            const struct pp_pack_size *s, size_t n_sizes,
                            size_t n)
{
    bool valid = true;
    for (size_t k = 0; k < n_sizes; k++)
        valid &= is_valid(b, s[k].sizes, n, s[k].capacity);
    return valid;
}

static void test_small(size_t n_sizes)
{
    size_t worse = 0, wrong = 0;
    for (uint64_t seed = 0; seed < 300; seed++) {
        uint32_t size[PP_MOST_SIZES][MOST];
        uint64_t load[PP_MOST_SIZES][MOST] = {{0}}, cost[MOST];
        size_t n = 1 + seed % (MOST - 1);
        struct pp_bins bins;
        for (size_t i = 0; i < n; i++) {
            size[0][i] = 1 + (uint32_t)(pp_rng_uniform(seed, 3 * i) * 60);
            /* Half of the items have no second or third size. */
            for (size_t k = 1; k < PP_MOST_SIZES; k++) {
                double u = pp_rng_uniform(seed, 3 * i + k);
                size[k][i] = u < .5 ? 0 : (uint32_t)(2000 * (u - .5));
            }
            cost[i] = size[0][i] + size[1][i] + size[2][i];
        }
        const struct pp_pack_size s[] = {
            {size[0], 100}, {size[1], 1000}, {size[2], 1000}};
        pp_pack_sizes(s, n_sizes, n, &bins);
        size_t n_bins = bins.n_bins;
        wrong += !is_valid_in_all(&bins, s, n_sizes, n);
        size_t least = fewest(s, n_sizes, n, 0, load, 0, n + 1);
        wrong += n_bins < least || n_bins > least + 1;
        worse += n_bins > least;
        pp_bins_balance(&bins, size[0], cost, 100, s + 1, n_sizes - 1, 0);
        wrong +=
            bins.n_bins != n_bins || !is_valid_in_all(&bins, s, n_sizes, n);
        pp_bins_finish(&bins);
    }
    ok(wrong == 0, "300 small packings of %zu sizes are right", n_sizes);
    ok(worse <= 15, "%zu of them have one bin too many", worse);
}

/* Without a second size the bins are those of first-fit decreasing. */
static void test_one_size(void)
{
    enum { N = 3000, CAPACITY = 4096 };
    uint32_t *lengths = draw_lengths(N, CAPACITY);
    uint32_t *nothing = calloc(N, sizeof *nothing);
    const struct pp_pack_size s[] = {{lengths, CAPACITY}, {nothing, 1}};
    const struct pp_pack_size t[] = {{nothing, 1}, {lengths, CAPACITY}};
    struct pp_bins one, two, other;
    pack_by(pp_pack_ffd, lengths, N, CAPACITY, &one);
    pp_pack_sizes(s, 2, N, &two);
    pp_pack_sizes(t, 2, N, &other);
    is_int((long long)two.n_bins, (long long)one.n_bins,
           "as many bins as first-fit decreasing makes");
    ok(hash_bins(&two) == hash_bins(&other),
       "the same bins, whichever size it is");
    pp_bins_finish(&one);
    pp_bins_finish(&two);
    pp_bins_finish(&other);
    free(lengths);
    free(nothing);
}

static void test_nothing(void)
{
    const struct pp_pack_size s[] = {{NULL, 8}, {NULL, 8}};
    struct pp_bins bins;
    pp_pack_sizes(s, 2, 0, &bins);
    ok(bins.n_bins == 0, "no items");
    pp_bins_finish(&bins);
}

int main(void)
{
    test_small(2);
    test_small(3);
    test_one_size();
    test_nothing();
    return done();
}
