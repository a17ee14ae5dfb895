/* SPDX-License-Identifier: MIT */
/* pack - the table of packing rules, and "best": the fewest bins of all rules,
 * of a linear program and of a search. */
#include "pack/pack.h"

#include <string.h>

#include "pack/patterns.h"

/* The rule "best". Up to FEW sequences it also runs the rules that look for a
 * number of parts. Up to SOME it tries differencing with two numbers only: the
 * bound, which differencing meets if bins hold many sequences, and one less
 * than the best so far. Above MANY it adds only one-pass rules to bfd and fill:
 * the other rules find no fewer bins for so many sequences, and each takes as
 * long as all the rest. */
enum { FEW = 4096, SOME = 1 << 17, MANY = 1 << 21 };

/* Keeps the packing with fewer bins, and frees the other. */
static void keep_fewer(struct pp_bins *best, struct pp_bins *b)
{
    if (b->first && b->n_bins < best->n_bins) {
        pp_bins_finish(best);
        *best = *b;
    } else
        pp_bins_finish(b);
}

static void try_rule(pp_pack_fn *pack, const struct pp_pack_input *in,
                     struct pp_bins *best)
{
    struct pp_bins b;
    pack(in, &b);
    keep_fewer(best, &b);
}

/* Runs rules until the bound is met. A rule stops when its empty space shows
 * that it cannot have fewer bins. */
static void try_fast_rules(const struct pp_pack_input *in, size_t bound,
                           struct pp_bins *best)
{
    static pp_pack_fn *const rules[] = {
        pp_pack_next_fit, pp_pack_megatron_rl, pp_pack_ffd,      pp_pack_mffd,
        pp_pack_wfd,      pp_pack_axolotl,     pp_pack_first_fit};
    enum { N_RULES = sizeof rules / sizeof *rules, N_ONE_PASS = 2 };
    int n_rules = in->n > MANY ? N_ONE_PASS : N_RULES;
    uint64_t total = 0;
    uint32_t shortest = UINT32_MAX;
    for (size_t i = 0; i < in->n; i++) {
        total += in->lengths[i];
        shortest = in->lengths[i] < shortest ? in->lengths[i] : shortest;
    }
    for (int r = 0; r < n_rules && best->n_bins > bound; r++) {
        struct pp_waste_budget budget = {
            (uint64_t)(best->n_bins - 1) * in->capacity - total, shortest};
        struct pp_pack_input limited = *in;
        limited.budget = &budget;
        if (shortest > 0 || rules[r] != pp_pack_mffd)
            try_rule(rules[r], &limited, best);
    }
}

static void try_rules(const struct pp_pack_input *in, size_t bound,
                      struct pp_bins *best)
{
    static pp_pack_fn *const slow[] = {pp_pack_first_fit_shuffle, pp_pack_lpt,
                                       pp_pack_kk};
    static const size_t most[] = {MANY, FEW, FEW};
    enum { N_SLOW = sizeof slow / sizeof *slow };
    if (best->n_bins > bound)
        try_rule(pp_pack_fill, in, best);
    try_fast_rules(in, bound, best);
    for (int r = 0; r < N_SLOW && best->n_bins > bound; r++)
        if (in->n <= most[r])
            try_rule(slow[r], in, best);
}

static void try_n_parts_kk(const struct pp_pack_input *in, size_t n_parts,
                           struct pp_bins *best)
{
    struct pp_bins b;
    if (n_parts == 0 || n_parts >= best->n_bins)
        return;
    pp_parts_kk(in->lengths, in->n, n_parts, &b);
    if (pp_bins_largest(&b, in->lengths) <= in->capacity) {
        pp_bins_finish(best);
        *best = b;
    } else
        pp_bins_finish(&b);
}

static void try_differencing(const struct pp_pack_input *in, size_t bound,
                             struct pp_bins *best)
{
    if (in->n <= FEW || in->n > SOME)
        return;
    try_n_parts_kk(in, bound, best);
    try_n_parts_kk(in, best->n_bins - 1, best);
}

/* Searches for one bin fewer, and repeats while it finds that. */
static void search_fewer(const struct pp_pack_input *in, size_t bound,
                         struct pp_bins *best)
{
    enum pp_pack_answer answer = PP_PACK_FOUND;
    while (answer == PP_PACK_FOUND && best->n_bins > bound) {
        struct pp_bins b;
        pp_pack_search(in->lengths, in->n, in->capacity, best->n_bins - 1,
                       &answer, &b);
        if (answer == PP_PACK_FOUND) {
            pp_bins_finish(best);
            *best = b;
        }
    }
}

void pp_pack_best(const struct pp_pack_input *in, struct pp_bins *out)
{
    struct pp_pack_input own = *in; /* the seed is of other rules */
    size_t bound;
    own.seed = PP_PACK_SEED;
    pp_pack_lower_bound(in->lengths, in->n, in->capacity, &bound);
    pp_pack_bfd(in, out);
    try_rules(&own, bound, out);
    try_differencing(in, bound, out);
    pp_pack_by_patterns(in->lengths, in->n, in->capacity, out->n_bins, &bound,
                        out);
    search_fewer(in, bound, out);
}

void pp_pack_certify(const uint32_t *lengths, size_t n, uint32_t capacity,
                     size_t n_bins, size_t *bound)
{
    enum pp_pack_answer answer = PP_PACK_IMPOSSIBLE;
    pp_pack_lower_bound(lengths, n, capacity, bound);
    pp_pack_by_patterns(lengths, n, capacity, n_bins, bound, NULL);
    while (answer == PP_PACK_IMPOSSIBLE && *bound < n_bins) {
        pp_pack_search(lengths, n, capacity, *bound, &answer, NULL);
        *bound += answer == PP_PACK_IMPOSSIBLE;
    }
}

const struct pp_packer pp_packers[] = {
    {"best", "the fewest bins of all rules and searches", .pack = pp_pack_best},
    {"bfd", "best-fit decreasing, in TRL's order", .pack = pp_pack_bfd},
    {"ffd", "first-fit decreasing, in NeMo-RL's order", .pack = pp_pack_ffd},
    {"mffd", "modified first-fit decreasing, NeMo-RL's", .no_empty = true,
     .pack = pp_pack_mffd},
    {"wfd", "worst-fit decreasing, in Automodel's order", .pack = pp_pack_wfd},
    {"fill", "a bin at a time, by a short search", .pack = pp_pack_fill},
    {"first-fit", "in input order, the first bin with room",
     .pack = pp_pack_first_fit},
    {"first-fit-shuffle", "first-fit in NeMo-RL's random order",
     .pack = pp_pack_first_fit_shuffle, .draws = true},
    {"next-fit", "in input order, one open bin", .pack = pp_pack_next_fit},
    {"lpt", "longest first to the emptiest of a number of bins",
     .pack = pp_pack_lpt, .divide = pp_parts_lpt},
    {"karmarkar-karp", "equal bins by differencing", .pack = pp_pack_kk,
     .divide = pp_parts_kk},
    {"none", "in input order, a fixed number per bin", .pack = pp_pack_none},
    {0},
};

const struct pp_packer *pp_packer_find(const char *name)
{
    for (const struct pp_packer *p = pp_packers; p->name; p++)
        if (!strcmp(p->name, name))
            return p;
    return NULL;
}
