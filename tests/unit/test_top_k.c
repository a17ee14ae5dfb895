/* SPDX-License-Identifier: MIT */
/* test_top_k - the largest candidates of several lists are those of all values,
 * however the values are divided. */
#include "run/parts/experts/top_k.h"

#include "base/rng.h"
#include "tap.h"

enum { V = 60, MOST = 8 };

/* Fills the candidates of n_ranks shards of the values, k of each. */
static size_t shards(const double *x, int n_ranks, size_t k,
                     struct pp_candidate *out)
{
    size_t n = 0, each = V / (size_t)n_ranks;
    for (size_t r = 0; r < (size_t)n_ranks; r++, n += k) {
        struct pp_candidate own[V];
        for (size_t i = 0; i < each; i++)
            own[i] =
                (struct pp_candidate){x[r * each + i], (int32_t)(r * each + i)};
        pp_top_k_merge(own, each, k, out + n);
    }
    return n;
}

static void test_division(int n_ranks, size_t k)
{
    double x[V];
    struct pp_candidate found[MOST * MOST], best[MOST];
    bool right = true;
    for (int i = 0; i < V; i++) /* with ties */
        x[i] = (double)(pp_rng_bits(7, (uint64_t)i) % 9);
    pp_top_k_merge(found, shards(x, n_ranks, k, found), k, best);
    for (size_t j = 0; j < k; j++) {
        size_t before = 0;
        int32_t id = best[j].id;
        for (int i = 0; i < V; i++)
            before += x[i] > x[id] || (x[i] == x[id] && i < id);
        right &= before == j && best[j].value == x[id];
    }
    ok(right, "the %zu largest of %d parts", k, n_ranks);
}

int main(void)
{
    struct pp_candidate out[3];
    for (int n = 1; n <= 6; n++)
        for (size_t k = 1; k <= MOST; k += 3)
            test_division(n, k);
    const struct pp_candidate few[] = {{1, 4}, {0, -1}, {2, 9}};
    pp_top_k_merge(few, 3, 3, out);
    ok(out[0].id == 9 && out[1].id == 4 && out[2].id == -1,
       "less than k candidates");
    return done();
}
