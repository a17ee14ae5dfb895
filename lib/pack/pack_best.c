/* SPDX-License-Identifier: MIT */
/* pack_best - the fewest bins of all rules, and of a search that ends where
 * the lower bound is met. */
#include "plan/pack_rule.h"

/* Up to FEW sequences the rules that look for a number of parts take part. Up
 * to SOME differencing is tried with two numbers only: that of the bound, which
 * it meets where bins hold many sequences, and one less than there are. Above
 * MANY only rules of one pass race with the first two: the others pack so many
 * sequences as bfd does, or worse, and each takes as long as all the rest. */
enum { FEW = 4096, SOME = 1 << 17, MANY = 1 << 21 };

/* Keeps the bins that are fewer. */
static void keep(struct pp_bins *best, struct pp_bins *b)
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
    keep(best, &b);
    return 0;
}

/* Runs rules until the bound is met, each until what it leaves empty shows that
 * it will not have fewer bins. */
static int race(const uint32_t *lengths, size_t n, uint32_t capacity,
                size_t bound, struct pp_bins *best, struct pp_err *err)
{
    static pp_race_fn *const rules[] = {
        pp_race_next_fit, pp_race_megatron_rl, pp_race_ffd,      pp_race_mffd,
        pp_race_wfd,      pp_race_axolotl,     pp_race_first_fit};
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
        struct pp_limit limit = {
            (uint64_t)(best->n_bins - 1) * capacity - total, shortest};
        if (shortest == 0 && rules[r] == pp_race_mffd)
            continue;
        if (rules[r](lengths, n, capacity, &limit, &b, err) != 0)
            return -1;
        keep(best, &b);
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
    if (race(lengths, n, capacity, bound, best, err) != 0)
        return -1;
    for (int r = 0; r < N_SLOW && best->n_bins > bound; r++)
        if (n <= most[r] &&
            try_rule(slow[r], lengths, n, capacity, best, err) != 0)
            return -1;
    return 0;
}

static int try_parts(const uint32_t *lengths, size_t n, uint32_t capacity,
                     size_t n_parts, struct pp_bins *best, struct pp_err *err)
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
    if (try_parts(lengths, n, capacity, bound, best, err) != 0)
        return -1;
    return try_parts(lengths, n, capacity, best->n_bins - 1, best, err);
}

/* One bin fewer as long as that is found. */
static int search(const uint32_t *lengths, size_t n, uint32_t capacity,
                  size_t bound, struct pp_bins *best, struct pp_err *err)
{
    enum pp_search answer = PP_SEARCH_FOUND;
    while (answer == PP_SEARCH_FOUND && best->n_bins > bound) {
        struct pp_bins b;
        if (pp_pack_search(lengths, n, capacity, best->n_bins - 1, &answer, &b,
                           err) != 0)
            return -1;
        if (answer == PP_SEARCH_FOUND) {
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
        search(lengths, n, capacity, bound, out, err) == 0)
        return 0;
    pp_bins_finish(out);
    return -1;
}

int pp_pack_certify(const uint32_t *lengths, size_t n, uint32_t capacity,
                    size_t n_bins, size_t *bound, struct pp_err *err)
{
    enum pp_search answer = PP_SEARCH_NONE;
    if (pp_pack_lower_bound(lengths, n, capacity, bound, err) != 0)
        return -1;
    while (answer == PP_SEARCH_NONE && *bound < n_bins) {
        if (pp_pack_search(lengths, n, capacity, *bound, &answer, NULL, err) !=
            0)
            return -1;
        *bound += answer == PP_SEARCH_NONE;
    }
    return 0;
}
