/* SPDX-License-Identifier: MIT */
/* pack - the table of packing rules, what they share, and the simple ones. */
#include "pack/pack.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "pack/pack_rule.h"

void *pp_pack_alloc(size_t n, size_t size, struct pp_err *err)
{
    void *p = calloc(n ? n : 1, size);
    if (!p)
        pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    return p;
}

/* One stable pass of a radix sort by the bits of mask, at shift, in to out (in
 * NULL: 0, 1, ...). The key is the length, complemented where descend is all
 * ones. */
static void sort_pass(const uint32_t *lengths, size_t n, uint32_t descend,
                      unsigned shift, uint32_t mask, uint32_t *count,
                      const uint32_t *in, uint32_t *out)
{
    memset(count, 0, ((size_t)mask + 1) * sizeof *count);
    for (size_t i = 0; i < n; i++)
        count[((lengths[i] ^ descend) >> shift) & mask]++;
    for (uint32_t k = 0, at = 0; k <= mask; k++) {
        uint32_t here = count[k];
        count[k] = at;
        at += here;
    }
    for (size_t k = 0; k < n; k++) {
        uint32_t i = in ? in[k] : (uint32_t)k;
        out[count[((lengths[i] ^ descend) >> shift) & mask]++] = i;
    }
}

static void reverse_order(uint32_t *a, size_t n)
{
    for (size_t i = 0; i < n / 2; i++) {
        uint32_t t = a[i];
        a[i] = a[n - 1 - i];
        a[n - 1 - i] = t;
    }
}

uint32_t *pp_pack_order(const uint32_t *lengths, size_t n, bool higher_first,
                        struct pp_err *err)
{
    enum { BITS = 16 };
    /* Descending and stable; or ascending and stable, read backwards. */
    uint32_t descend = higher_first ? 0 : UINT32_MAX, all = 1;
    for (size_t i = 0; i < n; i++)
        all |= lengths[i];
    /* No more bits than there are: counts of few stay in the cache. */
    unsigned bits = 32 - (unsigned)__builtin_clz(all);
    uint32_t mask = (UINT32_C(1) << (bits < BITS ? bits : BITS)) - 1;
    uint32_t *order = pp_pack_alloc(n, sizeof *order, err);
    uint32_t *count = pp_pack_alloc((size_t)mask + 1, sizeof *count, err);
    uint32_t *low = NULL;
    if (bits > BITS)
        low = pp_pack_alloc(n, sizeof *low, err);
    if (order && count && (low || bits <= BITS)) {
        sort_pass(lengths, n, descend, 0, mask, count, NULL, low ? low : order);
        if (low)
            sort_pass(lengths, n, descend, BITS, mask, count, low, order);
        if (higher_first)
            reverse_order(order, n);
    } else {
        free(order);
        order = NULL;
    }
    free(low);
    free(count);
    return order;
}

/* With first[b + 1] where bin b's next item goes; it ends at b's end. */
static int begin_bins(struct pp_bins *out, const uint32_t *bins, size_t n,
                      size_t n_bins, struct pp_err *err)
{
    *out = (struct pp_bins){.n_bins = n_bins, .n_items = n};
    out->first = pp_pack_alloc(n_bins + 2, sizeof *out->first, err);
    out->items = pp_pack_alloc(n, sizeof *out->items, err);
    if (!out->first || !out->items) {
        pp_bins_finish(out);
        return -1;
    }
    for (size_t i = 0; i < n; i++)
        out->first[bins[i] + 2]++;
    for (size_t b = 2; b <= n_bins; b++)
        out->first[b] += out->first[b - 1];
    return 0;
}

int pp_bins_make(struct pp_bins *out, const uint32_t *order,
                 const uint32_t *bin_of, size_t n, size_t n_bins,
                 struct pp_err *err)
{
    if (begin_bins(out, bin_of, n, n_bins, err) != 0)
        return -1;
    for (size_t k = 0; k < n; k++) {
        uint32_t i = order ? order[k] : (uint32_t)k;
        out->items[out->first[bin_of[i] + 1]++] = i;
    }
    return 0;
}

int pp_bins_gather(struct pp_bins *out, const uint32_t *order,
                   const uint32_t *bin_at, size_t n, size_t n_bins,
                   struct pp_err *err)
{
    if (begin_bins(out, bin_at, n, n_bins, err) != 0)
        return -1;
    for (size_t k = 0; k < n; k++)
        out->items[out->first[bin_at[k] + 1]++] = order[k];
    return 0;
}

int pp_try_next_fit(const uint32_t *lengths, size_t n, uint32_t capacity,
                    struct pp_waste_budget *budget, struct pp_bins *out,
                    struct pp_err *err)
{
    uint32_t *bin_of = pp_pack_alloc(n, sizeof *bin_of, err);
    size_t n_bins = 0;
    uint64_t load = 0;
    bool gives_up = false;
    *out = (struct pp_bins){0};
    if (!bin_of)
        return -1;
    for (size_t i = 0; i < n && !gives_up; i++) {
        load += lengths[i];
        if (i == 0 || load > capacity) {
            gives_up = i && pp_waste_budget_spend(budget,
                                                  capacity + lengths[i] - load);
            n_bins++;
            load = lengths[i];
        }
        bin_of[i] = (uint32_t)(n_bins - 1);
    }
    int rc = gives_up ? 0 : pp_bins_make(out, NULL, bin_of, n, n_bins, err);
    free(bin_of);
    return rc;
}

int pp_pack_next_fit(const uint32_t *lengths, size_t n, uint32_t capacity,
                     struct pp_bins *out, struct pp_err *err)
{
    return pp_try_next_fit(lengths, n, capacity, NULL, out, err);
}

static int pack_none(const uint32_t *lengths, size_t n, uint32_t capacity,
                     struct pp_bins *out, struct pp_err *err)
{
    (void)lengths;
    uint32_t *bin_of = pp_pack_alloc(n, sizeof *bin_of, err);
    if (!bin_of)
        return -1;
    for (size_t i = 0; i < n; i++)
        bin_of[i] = (uint32_t)(i / capacity);
    size_t n_bins = (n + capacity - 1) / capacity;
    int rc = pp_bins_make(out, NULL, bin_of, n, n_bins, err);
    free(bin_of);
    return rc;
}

const struct pp_packer pp_packers[] = {
    {"best", "the fewest bins of all, and of a search", .pack = pp_pack_best},
    {"bfd", "best-fit decreasing, in TRL's order", .pack = pp_pack_bfd},
    {"ffd", "first-fit decreasing, in NeMo-RL's order", .pack = pp_pack_ffd},
    {"mffd", "modified first-fit decreasing, NeMo-RL's", .pack = pp_pack_mffd},
    {"wfd", "worst-fit decreasing, in Automodel's order", .pack = pp_pack_wfd},
    {"fill", "a bin at a time, by a short search", .pack = pp_pack_fill},
    {"first-fit", "in input order, the first bin with room",
     .pack = pp_pack_first_fit},
    {"first-fit-shuffle", "the same in NeMo-RL's random order (--seed)",
     .pack = pp_pack_first_fit_shuffle, .draw = pp_draw_first_fit_shuffle},
    {"next-fit", "in input order, one open bin", .pack = pp_pack_next_fit},
    {"lpt", "longest first to the emptiest of a number of bins",
     .pack = pp_pack_lpt, .divide = pp_parts_lpt},
    {"karmarkar-karp", "equal bins by differencing", .pack = pp_pack_kk,
     .divide = pp_parts_kk},
    {"none", "in input order, a fixed number a bin (--rows)",
     .pack = pack_none},
    {0},
};

const struct pp_packer *pp_packer_find(const char *name)
{
    for (const struct pp_packer *p = pp_packers; p->name; p++)
        if (!strcmp(p->name, name))
            return p;
    return NULL;
}

void pp_bins_finish(struct pp_bins *b)
{
    free(b->first);
    free(b->items);
    memset(b, 0, sizeof *b);
}

/* pack_parts - a packing from a rule that divides into a given number of
 * parts and knows no capacity: as few parts as keep to it. */
uint64_t pp_bins_largest(const struct pp_bins *b, const uint32_t *lengths)
{
    uint64_t most = 0;
    for (size_t k = 0; k < b->n_bins; k++) {
        uint64_t load = 0;
        for (size_t i = b->first[k]; i < b->first[k + 1]; i++)
            load += lengths[b->items[i]];
        most = load > most ? load : most;
    }
    return most;
}

/* Divides into n_parts. Keeps them in *out, in place of what was there, when
 * none exceeds capacity: *fits. */
static int try_n_parts(pp_parts_fn *divide, const uint32_t *lengths, size_t n,
                       uint32_t capacity, size_t n_parts, struct pp_bins *out,
                       bool *fits, struct pp_err *err)
{
    struct pp_bins b;
    if (divide(lengths, n, n_parts, &b, err) != 0)
        return -1;
    *fits = pp_bins_largest(&b, lengths) <= capacity;
    if (*fits) {
        pp_bins_finish(out);
        *out = b;
    } else
        pp_bins_finish(&b);
    return 0;
}

/* From the lower bound up in growing steps, then between the last number that
 * failed and the first that did not. Every sequence a part of its own fits. */
int pp_parts_fewest(pp_parts_fn *divide, const uint32_t *lengths, size_t n,
                    uint32_t capacity, struct pp_bins *out, struct pp_err *err)
{
    *out = (struct pp_bins){0};
    size_t low, high, step = 1;
    bool fits = false;
    if (n == 0)
        return pp_bins_make(out, NULL, NULL, 0, 0, err);
    if (pp_pack_lower_bound(lengths, n, capacity, &high, err) != 0)
        return -1;
    low = high;
    for (;; step *= 2) {
        if (try_n_parts(divide, lengths, n, capacity, high, out, &fits, err) !=
            0)
            goto fail;
        if (fits)
            break;
        low = high + 1;
        high = step < n - high ? high + step : n;
    }
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (try_n_parts(divide, lengths, n, capacity, middle, out, &fits,
                        err) != 0)
            goto fail;
        if (fits)
            high = middle;
        else
            low = middle + 1;
    }
    return 0;
fail:
    pp_bins_finish(out);
    return -1;
}
