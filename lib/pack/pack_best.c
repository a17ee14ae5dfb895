/* SPDX-License-Identifier: MIT */
/* pack_best - the fewest bins of all rules, and of a search that ends where
 * the lower bound is met. */
#include "pack/pack_rule.h"

/* Up to FEW sequences the rules that look for a number of parts take part. Up
 * to SOME differencing is tried with two numbers only: that of the bound, which
 * it meets where bins hold many sequences, and one less than there are. Above
 * MANY only rules of one pass race with the first two: the others pack so many
 * sequences as bfd does, or worse, and each takes as long as all the rest. */
enum { FEW = 4096, SOME = 1 << 17, MANY = 1 << 21 };

/* Keeps the bins that are fewer. */
static void keep_fewer(struct pp_bins *best, struct pp_bins *b)
{
    if (b->first && b->n_bins < best->n_bins) {
        pp_bins_finish(best);
        *best = *b;
    } else
        pp_bins_finish(b);
}

static int try_rule(pp_pack_fn *pack, const uint32_t *lengths, size_t n,
                    uint32_t capacity, struct pp_bins *best, struct pp_err *err)
{
    struct pp_bins b;
    if (pack(lengths, n, capacity, &b, err) != 0)
        return -1;
    keep_fewer(best, &b);
    return 0;
}

/* Runs rules until the bound is met, each until what it leaves empty shows that
 * it will not have fewer bins. */
static int try_fast_rules(const uint32_t *lengths, size_t n, uint32_t capacity,
                          size_t bound, struct pp_bins *best,
                          struct pp_err *err)
{
    static pp_try_fn *const rules[] = {
        pp_try_next_fit, pp_try_megatron_rl, pp_try_ffd,      pp_try_mffd,
        pp_try_wfd,      pp_try_axolotl,     pp_try_first_fit};
    enum { N_RULES = sizeof rules / sizeof *rules, N_ONE_PASS = 2 };
    int n_rules = n > MANY ? N_ONE_PASS : N_RULES;
    uint64_t total = 0;
    uint32_t shortest = UINT32_MAX;
    for (size_t i = 0; i < n; i++) {
        total += lengths[i];
        shortest = lengths[i] < shortest ? lengths[i] : shortest;
    }
    for (int r = 0; r < n_rules && best->n_bins > bound; r++) {
        struct pp_bins b;
        struct pp_waste_budget budget = {
            (uint64_t)(best->n_bins - 1) * capacity - total, shortest};
        if (shortest == 0 && rules[r] == pp_try_mffd)
            continue;
        if (rules[r](lengths, n, capacity, &budget, &b, err) != 0)
            return -1;
        keep_fewer(best, &b);
    }
    return 0;
}

static int try_rules(const uint32_t *lengths, size_t n, uint32_t capacity,
                     size_t bound, struct pp_bins *best, struct pp_err *err)
{
    static pp_pack_fn *const slow[] = {pp_pack_first_fit_shuffle, pp_pack_lpt,
                                       pp_pack_kk};
    static const size_t most[] = {MANY, FEW, FEW};
    enum { N_SLOW = sizeof slow / sizeof *slow };
    if (best->n_bins > bound &&
        try_rule(pp_pack_fill, lengths, n, capacity, best, err) != 0)
        return -1;
    if (try_fast_rules(lengths, n, capacity, bound, best, err) != 0)
        return -1;
    for (int r = 0; r < N_SLOW && best->n_bins > bound; r++)
        if (n <= most[r] &&
            try_rule(slow[r], lengths, n, capacity, best, err) != 0)
            return -1;
    return 0;
}

static int try_n_parts_kk(const uint32_t *lengths, size_t n, uint32_t capacity,
                          size_t n_parts, struct pp_bins *best,
                          struct pp_err *err)
{
    struct pp_bins b;
    if (n_parts == 0 || n_parts >= best->n_bins)
        return 0;
    if (pp_parts_kk(lengths, n, n_parts, &b, err) != 0)
        return -1;
    if (pp_bins_largest(&b, lengths) <= capacity) {
        pp_bins_finish(best);
        *best = b;
    } else
        pp_bins_finish(&b);
    return 0;
}

static int try_differencing(const uint32_t *lengths, size_t n,
                            uint32_t capacity, size_t bound,
                            struct pp_bins *best, struct pp_err *err)
{
    if (n <= FEW || n > SOME)
        return 0;
    if (try_n_parts_kk(lengths, n, capacity, bound, best, err) != 0)
        return -1;
    return try_n_parts_kk(lengths, n, capacity, best->n_bins - 1, best, err);
}

/* One bin fewer as long as that is found. */
static int search_fewer(const uint32_t *lengths, size_t n, uint32_t capacity,
                        size_t bound, struct pp_bins *best, struct pp_err *err)
{
    enum pp_pack_answer answer = PP_PACK_FOUND;
    while (answer == PP_PACK_FOUND && best->n_bins > bound) {
        struct pp_bins b;
        if (pp_pack_search(lengths, n, capacity, best->n_bins - 1, &answer, &b,
                           err) != 0)
            return -1;
        if (answer == PP_PACK_FOUND) {
            pp_bins_finish(best);
            *best = b;
        }
    }
    return 0;
}

int pp_pack_best(const uint32_t *lengths, size_t n, uint32_t capacity,
                 struct pp_bins *out, struct pp_err *err)
{
    size_t bound;
    if (pp_pack_lower_bound(lengths, n, capacity, &bound, err) != 0 ||
        pp_pack_bfd(lengths, n, capacity, out, err) != 0)
        return -1;
    if (try_rules(lengths, n, capacity, bound, out, err) == 0 &&
        try_differencing(lengths, n, capacity, bound, out, err) == 0 &&
        search_fewer(lengths, n, capacity, bound, out, err) == 0)
        return 0;
    pp_bins_finish(out);
    return -1;
}

int pp_pack_certify(const uint32_t *lengths, size_t n, uint32_t capacity,
                    size_t n_bins, size_t *bound, struct pp_err *err)
{
    enum pp_pack_answer answer = PP_PACK_IMPOSSIBLE;
    if (pp_pack_lower_bound(lengths, n, capacity, bound, err) != 0)
        return -1;
    while (answer == PP_PACK_IMPOSSIBLE && *bound < n_bins) {
        if (pp_pack_search(lengths, n, capacity, *bound, &answer, NULL, err) !=
            0)
            return -1;
        *bound += answer == PP_PACK_IMPOSSIBLE;
    }
    return 0;
}
