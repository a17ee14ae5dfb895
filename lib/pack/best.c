/* SPDX-License-Identifier: MIT */
/* best - the rules of pptools itself: "fill", which fills one bin after
 * the other, and "best", the fewest bins of all rules, of a linear program and
 * of a search. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "pack/patterns.h"

/* The rule "fill": the minimum bin slack heuristic. Gupta and Ho, "A new
 * heuristic algorithm for the one-dimensional bin-packing problem", Production
 * Planning & Control 10, 1999. The longest sequence left opens each bin
 * (Fleszar and Hindi, Computers & Operations Research 29, 2002).
 *
 * A bin is completed by descending lengths, the longest that fit first. The
 * last choice is changed first, until nothing is left empty or the bin's share
 * of the work is done. The fullest completion is used for as many bins as it
 * can fill. Equal lengths are one class. */

/* Limits on completions: in all, and the least and the most per bin. */
enum { COMPLETIONS = 1 << 24, LEAST = 8, MOST = 4096 };

/* From HOLD_FROM sequences on, one in HELD of each length is held back until
 * the lengths left are below 1/SHORT of the capacity: the last bins need
 * sequences of all lengths too. */
enum { HOLD_FROM = 1 << 16, HELD = 64, SHORT = 32 };

struct bin_filler {
    struct pp_classes classes;
    uint32_t *left;  /* by class, without sequences held back */
    uint32_t *taken; /* by class */
    uint32_t
        *skip; /* per class c: no class in [c, skip[c]) has a sequence left */
    uint32_t *chosen;  /* classes in the open bin, longest first */
    uint32_t *fullest; /* the best of them */
    size_t n_chosen, n_fullest;
    uint64_t spare; /* space that the best leaves empty */
    uint32_t capacity;
    uint32_t budget;           /* completions left for all bins */
    uint32_t *placed, *bin_at; /* in the order in which they are placed */
    size_t n_placed, n_bins;
};

/* Returns the first class from c on that has sequences left, chosen ones
 * excluded, and is no longer than space. */
static size_t next_fill_class(struct bin_filler *f, size_t c, uint64_t space)
{
    size_t end = f->classes.n;
    if (c < end && f->classes.length[c] > space)
        c = pp_classes_within(&f->classes, c, space);
    for (;;) {
        while (f->skip[c] != c) {
            f->skip[c] = f->skip[f->skip[c]];
            c = f->skip[c];
        }
        if (c == end || f->left[c])
            return c;
        c++;
    }
}

static void add_class(struct bin_filler *f, size_t c, uint64_t *space)
{
    f->chosen[f->n_chosen++] = (uint32_t)c;
    f->left[c]--;
    *space -= f->classes.length[c];
}

/* Undoes the last choice; *c is the class to try next. Returns false if only
 * the first choice is left. */
static bool undo_fill(struct bin_filler *f, size_t *c, uint64_t *space)
{
    if (f->n_chosen == 1)
        return false;
    *c = f->chosen[--f->n_chosen];
    f->left[*c]++;
    *space += f->classes.length[(*c)++];
    return true;
}

/* Completes the bin that holds the one chosen sequence. */
static void complete_bin(struct bin_filler *f, uint64_t space)
{
    size_t c = f->chosen[0];
    uint32_t most = f->budget < LEAST ? LEAST : f->budget, tried = 0;
    most = most > MOST ? MOST : most;
    f->spare = UINT64_MAX;
    for (;;) {
        while ((c = next_fill_class(f, c, space)) < f->classes.n)
            add_class(f, c, &space);
        if (space < f->spare) {
            f->spare = space;
            f->n_fullest = f->n_chosen;
            memcpy(f->fullest, f->chosen, f->n_chosen * sizeof *f->chosen);
        }
        if (space == 0 || ++tried == most || !undo_fill(f, &c, &space))
            break;
    }
    f->budget -= tried < f->budget ? tried : f->budget;
    for (size_t k = 1; k < f->n_chosen; k++)
        f->left[f->chosen[k]]++;
}

/* Returns how many bins the best completion can fill. The open bin already
 * holds one sequence of the first class. */
static uint32_t count_bins(const struct bin_filler *f)
{
    uint32_t least = UINT32_MAX;
    for (size_t k = 0, end; k < f->n_fullest; k = end) {
        uint32_t c = f->fullest[k], left = f->left[c] + (k == 0);
        for (end = k + 1; end < f->n_fullest && f->fullest[end] == c;)
            end++;
        uint32_t bins = left / (uint32_t)(end - k);
        least = bins < least ? bins : least;
    }
    return least;
}

/* Closes as many bins as the best completion can fill: a search would find the
 * same lengths for each of them. */
static void close_bins(struct bin_filler *f)
{
    uint32_t n = count_bins(f);
    f->left[f->fullest[0]]++;
    for (size_t k = 0; k < f->n_fullest; k++)
        f->left[f->fullest[k]] -= n;
    for (uint32_t b = 0; b < n; b++, f->n_bins++)
        for (size_t k = 0; k < f->n_fullest; k++) {
            uint32_t c = f->fullest[k];
            f->placed[f->n_placed] =
                f->classes.order[f->classes.first[c] + f->taken[c]++];
            f->bin_at[f->n_placed++] = (uint32_t)f->n_bins;
        }
    for (size_t k = 0; k < f->n_fullest; k++)
        if (!f->left[f->fullest[k]])
            f->skip[f->fullest[k]] = f->fullest[k] + 1;
}

/* Fills bins while a sequence longer than shortest is left. */
static void fill_bins(struct bin_filler *f, int64_t shortest)
{
    f->skip[f->classes.n] = (uint32_t)f->classes.n;
    for (size_t c = 0; c < f->classes.n; c++)
        f->skip[c] = (uint32_t)c;
    for (size_t c; (c = next_fill_class(f, 0, f->capacity)) < f->classes.n &&
                   f->classes.length[c] > shortest;) {
        uint64_t space = f->capacity;
        f->n_chosen = 0;
        add_class(f, c, &space);
        complete_bin(f, space);
        close_bins(f);
    }
}

static void fill_in_two_rounds(struct bin_filler *f, size_t n)
{
    for (size_t c = 0; n > HOLD_FROM && c < f->classes.n; c++)
        f->left[c] = f->classes.count[c] - f->classes.count[c] / HELD;
    fill_bins(f, f->capacity / SHORT);
    for (size_t c = 0; c < f->classes.n; c++)
        f->left[c] = f->classes.count[c] - f->taken[c];
    fill_bins(f, -1);
}

void pp_pack_fill(const uint32_t *lengths, size_t n, uint32_t capacity,
                  struct pp_bins *out)
{
    struct bin_filler f = {.capacity = capacity, .budget = COMPLETIONS};
    pp_classes_init(&f.classes, lengths, n);
    f.left = pp_calloc(f.classes.n, sizeof *f.left);
    f.taken = pp_calloc(f.classes.n, sizeof *f.taken);
    f.skip = pp_calloc(f.classes.n + 1, sizeof *f.skip);
    f.chosen = pp_calloc(n, sizeof *f.chosen);
    f.fullest = pp_calloc(n, sizeof *f.fullest);
    f.placed = pp_calloc(n, sizeof *f.placed);
    f.bin_at = pp_calloc(n, sizeof *f.bin_at);
    fill_in_two_rounds(&f, n);
    pp_bins_gather(out, f.placed, f.bin_at, n, f.n_bins);
    pp_classes_finish(&f.classes);
    free(f.left);
    free(f.taken);
    free(f.skip);
    free(f.chosen);
    free(f.fullest);
    free(f.placed);
    free(f.bin_at);
}

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

static void try_rule(pp_pack_fn *pack, const uint32_t *lengths, size_t n,
                     uint32_t capacity, struct pp_bins *best)
{
    struct pp_bins b;
    pack(lengths, n, capacity, &b);
    keep_fewer(best, &b);
}

/* Runs rules until the bound is met. A rule stops when its empty space shows
 * that it cannot have fewer bins. */
static void try_fast_rules(const uint32_t *lengths, size_t n, uint32_t capacity,
                           size_t bound, struct pp_bins *best)
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
        rules[r](lengths, n, capacity, &budget, &b);
        keep_fewer(best, &b);
    }
}

static void try_rules(const uint32_t *lengths, size_t n, uint32_t capacity,
                      size_t bound, struct pp_bins *best)
{
    static pp_pack_fn *const slow[] = {pp_pack_first_fit_shuffle, pp_pack_lpt,
                                       pp_pack_kk};
    static const size_t most[] = {MANY, FEW, FEW};
    enum { N_SLOW = sizeof slow / sizeof *slow };
    if (best->n_bins > bound)
        try_rule(pp_pack_fill, lengths, n, capacity, best);
    try_fast_rules(lengths, n, capacity, bound, best);
    for (int r = 0; r < N_SLOW && best->n_bins > bound; r++)
        if (n <= most[r])
            try_rule(slow[r], lengths, n, capacity, best);
}

static void try_n_parts_kk(const uint32_t *lengths, size_t n, uint32_t capacity,
                           size_t n_parts, struct pp_bins *best)
{
    struct pp_bins b;
    if (n_parts == 0 || n_parts >= best->n_bins)
        return;
    pp_parts_kk(lengths, n, n_parts, &b);
    if (pp_bins_largest(&b, lengths) <= capacity) {
        pp_bins_finish(best);
        *best = b;
    } else
        pp_bins_finish(&b);
}

static void try_differencing(const uint32_t *lengths, size_t n,
                             uint32_t capacity, size_t bound,
                             struct pp_bins *best)
{
    if (n <= FEW || n > SOME)
        return;
    try_n_parts_kk(lengths, n, capacity, bound, best);
    try_n_parts_kk(lengths, n, capacity, best->n_bins - 1, best);
}

/* Searches for one bin fewer, and repeats while it finds that. */
static void search_fewer(const uint32_t *lengths, size_t n, uint32_t capacity,
                         size_t bound, struct pp_bins *best)
{
    enum pp_pack_answer answer = PP_PACK_FOUND;
    while (answer == PP_PACK_FOUND && best->n_bins > bound) {
        struct pp_bins b;
        pp_pack_search(lengths, n, capacity, best->n_bins - 1, &answer, &b);
        if (answer == PP_PACK_FOUND) {
            pp_bins_finish(best);
            *best = b;
        }
    }
}

void pp_pack_best(const uint32_t *lengths, size_t n, uint32_t capacity,
                  struct pp_bins *out)
{
    size_t bound;
    pp_pack_lower_bound(lengths, n, capacity, &bound);
    pp_pack_bfd(lengths, n, capacity, out);
    try_rules(lengths, n, capacity, bound, out);
    try_differencing(lengths, n, capacity, bound, out);
    pp_pack_by_patterns(lengths, n, capacity, out->n_bins, &bound, out);
    search_fewer(lengths, n, capacity, bound, out);
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
