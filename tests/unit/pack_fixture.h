/* SPDX-License-Identifier: MIT */
/* pack_fixture - inputs and checks for the tests of packing rules. */
#ifndef PP_TESTS_UNIT_PACK_FIXTURE_H
#define PP_TESTS_UNIT_PACK_FIXTURE_H

#include <math.h>

#include "base/hash.h"
#include "base/rng.h"
#include "pack/pack.h"
#include "tap.h"

static const uint32_t small[] = {10, 20, 30, 40, 50, 60, 70, 80, 90};
static const uint32_t medium[] = {25, 35, 45, 55, 65, 75, 85, 95, 15,
                                  25, 35, 45, 55, 65, 75, 85, 95};
static const uint32_t large[] = {
    24, 13, 45, 41, 38, 27, 23, 79, 21, 85, 64, 14, 13, 21, 37, 39, 74,
    87, 13, 81, 35, 79, 63, 38, 67, 85, 45, 10, 30, 64, 53, 45, 29, 37,
    53, 23, 21, 58, 22, 55, 54, 87, 43, 15, 68, 78, 25, 58, 20, 80, 47,
    90, 89, 56, 83, 34, 18, 15, 39, 47, 20, 39, 22, 58, 45, 68, 56, 30,
    57, 55, 36, 44, 19, 87, 31, 78, 41, 30, 69, 58, 44, 81, 38, 51, 17,
    39, 14, 50, 61, 44, 18, 37, 82, 50, 37, 73, 60, 68, 28, 43};
static const uint32_t same[] = {30, 30, 30, 30, 30};
static const uint32_t single[] = {50};
static const uint32_t full[] = {100, 100, 100};
static const uint32_t mixed[] = {10, 50, 100, 20, 80, 30, 70, 40, 60, 90};
static const uint32_t zero[] = {3, 0, 2};

/* Packs by a rule, with the usual seed. */
static inline void pack_by(pp_pack_fn *rule, const uint32_t *lengths, size_t n,
                           uint32_t capacity, struct pp_bins *out)
{
    const struct pp_pack_input in = {lengths, n, capacity,
                                     .seed = PP_PACK_SEED};
    rule(&in, out);
}

/* Prints bins as "[[0,1],[2]]" into a buffer of the caller. */
static inline void print(const struct pp_bins *b, char *buf, size_t size)
{
    size_t at = (size_t)snprintf(buf, size, "[");
    for (size_t k = 0; k < b->n_bins; k++) {
        at += (size_t)snprintf(buf + at, size - at, k ? ",[" : "[");
        for (size_t i = b->first[k]; i < b->first[k + 1]; i++)
            at += (size_t)snprintf(buf + at, size - at, "%s%u",
                                   i > b->first[k] ? "," : "", b->items[i]);
        at += (size_t)snprintf(buf + at, size - at, "]");
    }
    snprintf(buf + at, size - at, "]");
}

/* Draws the lognormal lengths of the packing benchmarks. */
static inline uint32_t *draw_lengths(size_t n, uint32_t capacity)
{
    uint32_t *lengths = malloc(n * sizeof *lengths);
    uint64_t s = 20260824;
    for (size_t i = 0; i < n; i += 2) {
        double u[2];
        for (int k = 0; k < 2; k++) {
            s = s * UINT64_C(6364136223846793005) +
                UINT64_C(1442695040888963407);
            u[k] = ((double)(s >> 11) + 0.5) / 9007199254740992.0;
        }
        double r = sqrt(-2 * log(u[0])), t = 2 * 3.14159265358979323846 * u[1];
        const double z[2] = {r * cos(t), r * sin(t)};
        for (int k = 0; k < 2; k++) {
            double v = floor(exp(6 + z[k]) + 0.5);
            v = v < 1 ? 1 : v > capacity ? capacity : v;
            lengths[i + (size_t)k] = (uint32_t)v;
        }
    }
    return lengths;
}

static inline uint64_t hash_bins(const struct pp_bins *b)
{
    uint32_t *bin_of = calloc(b->n_items, sizeof *bin_of);
    for (size_t k = 0; k < b->n_bins; k++)
        for (size_t i = b->first[k]; i < b->first[k + 1]; i++)
            bin_of[b->items[i]] = (uint32_t)k;
    uint64_t h = pp_fnv(PP_FNV_START, bin_of, b->n_items * sizeof *bin_of);
    free(bin_of);
    return h;
}

/* Returns whether each item is there once, and no bin is empty or too full. */
static inline bool is_valid(const struct pp_bins *b, const uint32_t *lengths,
                            size_t n, uint64_t capacity)
{
    bool good = b->n_items == n && b->first[b->n_bins] == n && !b->first[0];
    char *seen = calloc(n + 1, 1);
    for (size_t k = 0; k < b->n_bins; k++) {
        uint64_t load = 0;
        for (size_t i = b->first[k]; i < b->first[k + 1]; i++) {
            load += lengths[b->items[i]];
            good = good && !seen[b->items[i]];
            seen[b->items[i]] = 1;
        }
        good = good && load <= capacity && b->first[k + 1] > b->first[k];
    }
    free(seen);
    return good;
}

/* Returns the fewest bins, by exhaustive search. load has room for n bins. */
static inline size_t fewest_bins(const uint32_t *lengths, size_t n, size_t at,
                                 uint32_t capacity, uint32_t *load,
                                 size_t n_bins, size_t best)
{
    if (n_bins >= best)
        return best;
    if (at == n)
        return n_bins;
    for (size_t b = 0; b <= n_bins; b++) {
        if (b < n_bins && load[b] + lengths[at] > capacity)
            continue;
        uint32_t before = b < n_bins ? load[b] : 0;
        load[b] = before + lengths[at];
        best = fewest_bins(lengths, n, at + 1, capacity, load,
                           n_bins + (b == n_bins), best);
        load[b] = before;
    }
    return best;
}

static inline void is_packed(const char *rule, const uint32_t *lengths,
                             size_t n, uint32_t capacity, const char *want,
                             const char *what)
{
    struct pp_bins b;
    char got[4096], name[64];
    snprintf(name, sizeof name, "%s: %s", rule, what);
    pack_by(pp_packer_find(rule)->pack, lengths, n, capacity, &b);
    print(&b, got, sizeof got);
    is_str(got, want, name);
    pp_bins_finish(&b);
}

#define IS_PACKED(rule, lengths, want)                                       \
    is_packed(rule, lengths, sizeof(lengths) / sizeof *(lengths), 100, want, \
              #lengths)

/* The bins of n drawn lengths that the system's own code made. */
struct pinned {
    const char *rule;
    size_t n;
    uint32_t capacity;
    uint64_t hash;
    size_t n_bins;
};

static inline void is_pinned(const struct pinned *c)
{
    uint32_t *lengths = draw_lengths(c->n, c->capacity);
    struct pp_bins b;
    pack_by(pp_packer_find(c->rule)->pack, lengths, c->n, c->capacity, &b);
    ok(hash_bins(&b) == c->hash && b.n_bins == c->n_bins,
       "%s of %zu sequences, capacity %u: upstream's assignment", c->rule, c->n,
       c->capacity);
    pp_bins_finish(&b);
    free(lengths);
}

#endif
