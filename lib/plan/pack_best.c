/* SPDX-License-Identifier: MIT */
/* pack_best - the fewest bins of all rules, and of a search that ends where
 * the lower bound is met. */
#include "plan/pack_rule.h"

/* Up to FEW sequences the rules that look for a number of parts take part. Up
 * to SOME differencing is tried with two numbers only: that of the bound, which
 * it meets where bins hold many sequences, and one less than there are. */
enum { FEW = 4096, SOME = 1 << 17 };

/* Runs a rule; its bins take the place of those in *best when they are fewer.
 */
static int try_rule(pp_pack_fn *pack, const uint32_t *lengths, size_t n,
                    uint32_t capacity, struct pp_bins *best, struct pp_err *err)
{
    struct pp_bins b;
    if (pack(lengths, n, capacity, &b, err) != 0)
        return -1;
    if (b.n_bins < best->n_bins) {
        pp_bins_finish(best);
        *best = b;
    } else
        pp_bins_finish(&b);
    return 0;
}

static bool has_empty(const uint32_t *lengths, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (lengths[i] == 0)
            return true;
    return false;
}

static int try_rules(const uint32_t *lengths, size_t n, uint32_t capacity,
                     size_t bound, struct pp_bins *best, struct pp_err *err)
{
    static pp_pack_fn *const rules[] = {
        pp_pack_fill,     pp_pack_ffd,         pp_pack_mffd,
        pp_pack_wfd,      pp_pack_axolotl,     pp_pack_first_fit,
        pp_pack_next_fit, pp_pack_megatron_rl, pp_pack_first_fit_shuffle,
        pp_pack_lpt,      pp_pack_kk};
    enum { N_RULES = sizeof rules / sizeof *rules, N_SLOW = 2 };
    int n_rules = n > FEW ? N_RULES - N_SLOW : N_RULES;
    bool empty = has_empty(lengths, n);
    for (int r = 0; r < n_rules && best->n_bins > bound; r++)
        if (!(empty && rules[r] == pp_pack_mffd) &&
            try_rule(rules[r], lengths, n, capacity, best, err) != 0)
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
