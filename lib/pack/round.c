/* SPDX-License-Identifier: MIT */
/* round - bounds and packings from the linear program of patterns.
 *
 * Rounding is a dive. The whole bins of a solution are kept, or else one bin of
 * the pattern with the largest amount, and the program is solved anew for the
 * sequences that are left. A search packs the last ones. If a dive fails, its
 * last bins are undone, more each time, and the amounts get noise, so that
 * other patterns are kept.
 *
 * With too many lengths the program is about lengths in units: rounded down for
 * a bound, and rounded up for a packing. Either holds for the true lengths. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "pack/patterns.h"

/* MANY: above it the program runs only if it may save one bin in SAVED.
 * MOST_SEQUENCES: above it the program does not run. FEW_LEFT: up to
 * so many sequences are left to the search, which may take STEPS. WORK: of one
 * program, half a second. MOST_CLASSES, MOST_UNIT_CLASSES: of true lengths,
 * and of lengths in units. MOST_CELLS: classes times capacity. LEAST_UNITS: the
 * least capacity in units. UNDONE: bins that are undone first. */
enum {
    MANY = 1 << 17,
    SAVED = 64,
    MOST_SEQUENCES = 1 << 21,
    FEW_LEFT = 36,
    STEPS = 100000,
    WORK = 1 << 29,
    MOST_CLASSES = 320,
    MOST_UNIT_CLASSES = 192,
    MOST_CELLS = 1 << 20,
    LEAST_UNITS = 256,
    UNDONE = 4
};

/* NEAR: an amount that counts as a whole bin. NOISE: added to amounts after the
 * first dive. */
#define NEAR 0.9
#define NOISE 0.2

struct pattern_dive {
    struct pp_classes classes;
    struct pp_pattern_program program;
    uint32_t capacity;
    uint32_t *left; /* by class: scratch of the search */
    struct pp_bin_choice *chosen;
    size_t n, n_chosen, n_bins;
    uint64_t key, draws;
};

/* Proves a bound with the duals as weights. */
static void prove_bound(const struct pattern_dive *d, size_t *bound)
{
    size_t proved;
    uint64_t *weight = pp_calloc(d->classes.n, sizeof *weight);
    for (size_t c = 0; c < d->classes.n; c++) {
        double dual = d->program.dual[c];
        dual = dual < 0 ? 0 : dual > 1 ? 1 : dual;
        weight[c] = (uint64_t)(dual * (1 << 30));
    }
    pp_pack_weighted_bound(&d->classes, d->capacity, weight, &proved);
    if (proved > *bound)
        *bound = proved;
    free(weight);
}

/* Raises the bound while the program excludes it. */
static void raise_bound(struct pattern_dive *d, size_t n_bins, size_t *bound)
{
    enum pp_pack_answer answer;
    size_t before = SIZE_MAX;
    pp_pattern_program_begin(&d->program);
    while (*bound < n_bins && *bound != before) {
        before = *bound;
        pp_pattern_program_solve(&d->program, *bound, &answer);
        if (answer == PP_PACK_IMPOSSIBLE)
            prove_bound(d, bound);
    }
}

/* Packs a bin with a pattern. Returns false if the sequences do not suffice. */
static bool keep_bin(struct pattern_dive *d, size_t pattern)
{
    struct pp_pattern_program *p = &d->program;
    size_t first = p->first[pattern], end = p->first[pattern + 1];
    bool opens = true;
    for (size_t k = first; k < end; k++)
        if (p->parts[k].count > p->demand[p->parts[k].class])
            return false;
    for (size_t k = first; k < end; k++) {
        struct pp_pattern_part part = p->parts[k];
        p->demand[part.class] -= part.count;
        for (uint32_t i = 0; i < part.count; i++, opens = false)
            d->chosen[d->n_chosen++] =
                (struct pp_bin_choice){part.class, opens};
    }
    d->n_bins++;
    return true;
}

/* Keeps the whole bins of the solution, or else the bin with the largest
 * amount. */
static void keep_bins(struct pattern_dive *d, double noise)
{
    const struct pp_pattern_program *p = &d->program;
    size_t before = d->n_bins, best = SIZE_MAX;
    double most = 0;
    for (size_t r = 0; r < p->n_rows; r++) {
        size_t pattern = p->basis[r];
        if (pattern >= p->n_patterns || p->amount[r] <= PP_PATTERN_SLACK)
            continue;
        for (double left = p->amount[r]; left > NEAR; left--)
            if (!keep_bin(d, pattern))
                break;
        double amount =
            p->amount[r] + noise * pp_rng_uniform(d->key, d->draws++);
        if (amount > most) {
            most = amount;
            best = pattern;
        }
    }
    if (d->n_bins == before)
        keep_bin(d, best);
}

/* Undoes the last n bins, or all. */
static void undo_bins(struct pattern_dive *d, size_t n)
{
    for (; n && d->n_bins; n--, d->n_bins--) {
        struct pp_bin_choice last;
        do {
            last = d->chosen[--d->n_chosen];
            d->program.demand[last.class]++;
        } while (!last.opens);
    }
}

/* Packs all sequences that are left so that there are n_bins bins, or
 * fails. */
static void dive(struct pattern_dive *d, size_t n_bins, double noise,
                 enum pp_pack_answer *answer)
{
    *answer = PP_PACK_FOUND;
    while (d->n_chosen < d->n) {
        if (d->n - d->n_chosen <= FEW_LEFT) {
            memcpy(d->left, d->program.demand, d->classes.n * sizeof *d->left);
            *answer = pp_pack_complete(&d->classes, d->left, d->capacity,
                                       n_bins - d->n_bins, STEPS,
                                       d->chosen + d->n_chosen);
            if (*answer != PP_PACK_UNKNOWN)
                return;
        }
        pp_pattern_program_begin(&d->program);
        pp_pattern_program_solve(&d->program, n_bins - d->n_bins, answer);
        if (*answer != PP_PACK_FOUND)
            return;
        keep_bins(d, noise);
    }
}

/* Dives until a packing into n_bins bins is found, or proved impossible, or the
 * work is done. */
static void dive_repeatedly(struct pattern_dive *d, size_t n_bins,
                            struct pp_bins *best)
{
    enum pp_pack_answer answer = PP_PACK_UNKNOWN;
    double noise = 0;
    for (size_t undone = UNDONE; d->program.work; undone += undone / 4) {
        dive(d, n_bins, noise, &answer);
        if (answer == PP_PACK_FOUND) {
            struct pp_bins found;
            pp_bins_of_choices(&d->classes, d->chosen, d->n, &found);
            pp_bins_finish(best);
            *best = found;
            return;
        }
        if (d->n_bins == 0 && answer == PP_PACK_IMPOSSIBLE)
            return;
        undone = undone > 4 * n_bins ? UNDONE : undone;
        undo_bins(d, undone);
        noise = NOISE;
    }
}

/* Looks for a packing into the least number of bins, then into more. A goal
 * gets half of the work that is left, and the last one all. */
static void find_fewer(struct pattern_dive *d, size_t least,
                       struct pp_bins *best)
{
    uint64_t work = d->program.work;
    for (size_t goal = least; goal < best->n_bins; goal++) {
        uint64_t share = goal + 1 < best->n_bins ? work / 2 : work;
        d->program.work = share;
        undo_bins(d, d->n_bins);
        dive_repeatedly(d, goal, best);
        work -= share - d->program.work;
    }
}

/* Runs the program for n lengths. *bound becomes the bound for these
 * lengths. */
static void run_program(const uint32_t *lengths, size_t n, uint32_t capacity,
                        size_t n_bins, size_t *bound, struct pp_bins *best)
{
    struct pattern_dive d = {
        .n = n, .capacity = capacity, .key = pp_rng_key(1, "dive")};
    pp_classes_init(&d.classes, lengths, n);
    d.left = pp_calloc(d.classes.n, sizeof *d.left);
    d.chosen = pp_calloc(n, sizeof *d.chosen);
    pp_pattern_program_init(&d.program, &d.classes, capacity, WORK);
    raise_bound(&d, n_bins, bound);
    if (best)
        find_fewer(&d, *bound, best);
    pp_pattern_program_finish(&d.program);
    pp_classes_finish(&d.classes);
    free(d.left);
    free(d.chosen);
}

/* Divides the lengths by the unit, rounded down, without lengths that become 0,
 * or rounded up. Returns how many there are. */
static size_t divide_lengths(const uint32_t *lengths, size_t n, uint32_t unit,
                             bool up, uint32_t *divided)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t length = lengths[i] / unit;
        length += up && lengths[i] % unit;
        divided[count] = length;
        count += length > 0;
    }
    return count;
}

static uint32_t common_divisor(const uint32_t *lengths, size_t n)
{
    uint32_t a = 0;
    for (size_t i = 0; i < n && a != 1; i++)
        for (uint32_t b = lengths[i]; b;) {
            uint32_t rest = a % b;
            a = b;
            b = rest;
        }
    return a;
}

/* Returns whether the program of lengths in units is small. seen has room for
 * a capacity of MOST_CELLS. */
static bool is_small(const uint32_t *lengths, size_t n, uint32_t capacity,
                     uint32_t unit, size_t most_classes, bool *seen)
{
    size_t classes = 0, width = (size_t)(capacity / unit) + 2;
    if (width > MOST_CELLS)
        return false;
    memset(seen, 0, width * sizeof *seen);
    for (size_t i = 0; i < n; i++) {
        bool *at = &seen[lengths[i] / unit + (lengths[i] % unit != 0)];
        classes += !*at;
        *at = true;
    }
    return classes <= most_classes && classes * width <= MOST_CELLS;
}

/* Finds the least unit for which the program is small; 0 means none. A divisor
 * of all lengths may have more classes, since it loses nothing. */
static void choose_unit(const uint32_t *lengths, size_t n, uint32_t capacity,
                        uint32_t divisor, uint32_t *unit)
{
    bool *seen = pp_calloc(MOST_CELLS, sizeof *seen);
    *unit = 0;
    if (is_small(lengths, n, capacity, divisor, MOST_CLASSES, seen))
        *unit = divisor;
    for (uint32_t u = divisor + 1; !*unit && capacity / u >= LEAST_UNITS;
         u += u / 4 + 1)
        if (is_small(lengths, n, capacity, u, MOST_UNIT_CLASSES, seen))
            *unit = u;
    free(seen);
}

static bool is_worthwhile(size_t n, size_t n_bins, size_t bound)
{
    if (n > MOST_SEQUENCES || bound >= n_bins)
        return false;
    return n <= MANY || n_bins - bound >= n_bins / SAVED;
}

void pp_pack_by_patterns(const uint32_t *lengths, size_t n, uint32_t capacity,
                         size_t n_bins, size_t *bound, struct pp_bins *best)
{
    uint32_t unit, divisor = common_divisor(lengths, n);
    if (!is_worthwhile(n, n_bins, *bound) || divisor == 0)
        return;
    choose_unit(lengths, n, capacity, divisor, &unit);
    if (!unit)
        return;
    uint32_t *divided = pp_calloc(n, sizeof *divided);
    bool exact = unit == divisor;
    size_t count = divide_lengths(lengths, n, unit, false, divided);
    run_program(divided, count, capacity / unit, n_bins, bound,
                exact && count == n ? best : NULL);
    if (best && !exact && *bound < n_bins) {
        size_t least = *bound;
        count = divide_lengths(lengths, n, unit, true, divided);
        if (count == n) {
            run_program(divided, n, capacity / unit, n_bins, &least, best);
        }
    }
    free(divided);
}
