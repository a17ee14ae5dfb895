/* SPDX-License-Identifier: MIT */
/* test_packed_order - the order of bins over the epochs: every epoch has each
 * bin once, blocks stay together, and the order is spread evenly. */
#include "data/packed/packed.h"
#include "tap.h"

enum { MOST = 64 };

/* Returns whether the epoch has every bin once, and every block whole. */
static bool is_permutation(const struct pp_packed *p, uint64_t epoch)
{
    bool seen[MOST] = {0};
    for (size_t i = 0; i < p->n_bins; i++) {
        size_t b = pp_packed_place(p, epoch * p->n_bins + i);
        if (b >= p->n_bins || seen[b])
            return false;
        seen[b] = true;
        if (p->epoch.block && b % p->epoch.block != i % p->epoch.block)
            return false;
    }
    return true;
}

/* Returns how many places of an epoch have another bin than in the first. */
static size_t count_moved(const struct pp_packed *p, uint64_t epoch)
{
    size_t n = 0;
    for (size_t i = 0; i < p->n_bins; i++)
        n += pp_packed_place(p, epoch * p->n_bins + i) != i;
    return n;
}

static void test_every_size(void)
{
    bool whole = true, first = true;
    for (size_t n = 1; n <= MOST; n++)
        for (uint32_t block = 1; block <= n; block++) {
            const struct pp_packed p = {.n_bins = n, .epoch = {block, 42}};
            for (uint64_t epoch = 0; epoch < 4; epoch++)
                whole &= is_permutation(&p, epoch);
            first &= count_moved(&p, 0) == 0;
        }
    ok(whole, "every epoch has each bin once, in whole blocks");
    ok(first, "the first epoch has the packed order");
}

static void test_kept(void)
{
    const struct pp_packed p = {.n_bins = 50};
    ok(count_moved(&p, 1) == 0 && count_moved(&p, 7) == 0,
       "without blocks every epoch has the packed order");
}

static void test_distinct(void)
{
    const struct pp_packed p = {.n_bins = 50, .epoch = {1, 42}},
                           q = {.n_bins = 50, .epoch = {1, 43}};
    size_t epochs = 0, seeds = 0;
    for (size_t i = 0; i < 50; i++) {
        epochs += pp_packed_place(&p, 50 + i) != pp_packed_place(&p, 100 + i);
        seeds += pp_packed_place(&p, 50 + i) != pp_packed_place(&q, 50 + i);
    }
    ok(count_moved(&p, 1) > 40, "the second epoch has another order");
    ok(epochs > 40, "the third epoch has another one again");
    ok(seeds > 40, "another seed gives another order");
}

/* Counts where each of 8 bins lands in many epochs: chi-squared with 49 degrees
 * of freedom is below 90 but once in thousands. */
static void test_uniform(void)
{
    enum { N = 8, EPOCHS = 8000 };
    double counts[N][N] = {{0}}, chi = 0, mean = EPOCHS / N;
    const struct pp_packed p = {.n_bins = N, .epoch = {1, 7}};
    for (uint64_t e = 1; e <= EPOCHS; e++)
        for (size_t i = 0; i < N; i++)
            counts[i][pp_packed_place(&p, e * N + i)]++;
    for (size_t i = 0; i < N; i++)
        for (size_t b = 0; b < N; b++)
            chi += (counts[i][b] - mean) * (counts[i][b] - mean) / mean;
    ok(chi > 15 && chi < 90, "every place is as likely: chi-squared %g", chi);
}

int main(void)
{
    test_every_size();
    test_kept();
    test_distinct();
    test_uniform();
    return done();
}
