/* SPDX-License-Identifier: MIT */
/* test_default_microbatch - tokens and pairs of the slices of a default
 * microbatch, against pairs counted one by one. */
#include "model/cost.h"
#include "tap.h"

/* Counts the pairs of the tokens from .. to - 1. */
static double count_pairs(int64_t seq_len, int64_t from, int64_t to)
{
    double n = 0;
    for (int64_t i = from; i < to; i++)
        n += (double)(i % seq_len + 1);
    return n;
}

static void test_slices(int64_t tokens, int64_t seq_len, int64_t n)
{
    const struct pp_default_microbatch mb = {.tokens = tokens,
                                             .seq_len = seq_len};
    double mean = (double)tokens * (double)(seq_len + 1) / 2;
    double scale = mean / count_pairs(seq_len, 0, tokens);
    double all = 0, pairs = 0;
    bool good = true;
    for (int64_t q = 0; q < n; q++) {
        int64_t from = tokens * q / n, to = tokens * (q + 1) / n;
        struct pp_default_microbatch_part part =
            pp_default_microbatch_part(&mb, from, to);
        double want = scale * count_pairs(seq_len, from, to);
        good &= part.tokens == (double)(to - from) &&
                part.pairs >= want * (1 - 1e-12) &&
                part.pairs <= want * (1 + 1e-12);
        all += part.tokens;
        pairs += part.pairs;
    }
    ok(good, "%d tokens in sequences of %d, %d slices", (int)tokens,
       (int)seq_len, (int)n);
    is_near(all, (double)tokens, 0, "all tokens");
    is_near(pairs, mean, 1e-12, "the pairs add up to the mean");
}

int main(void)
{
    const struct pp_default_microbatch one = pp_default_microbatch_of(100);
    ok(one.tokens == 100 && one.seq_len == 100 && !one.items[0].n,
       "one sequence");
    ok(pp_default_microbatch_part(&one, 0, 100).pairs == 5050,
       "its pairs are exact");
    test_slices(128, 32, 1);
    test_slices(128, 32, 3);
    test_slices(100, 32, 4);
    test_slices(20, 32, 3);
    test_slices(3, 1, 5);
    return done();
}
