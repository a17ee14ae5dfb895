/* SPDX-License-Identifier: MIT */
/* pack_bins - what is done to bins after a rule made them: more of them, so
 * that every rank gets as many, and another order. */
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "plan/pack_rule.h"

/* Bins as a heap by load. */
struct heap {
    uint64_t *load; /* by bin */
    uint32_t *bin;  /* bin[0] is the least, or the greatest with sign -1 */
    size_t n;
    int sign;
};

/* Ties go to the lower bin number. */
static bool before(const struct heap *h, uint32_t a, uint32_t b)
{
    if (h->load[a] != h->load[b])
        return (h->load[a] < h->load[b]) == (h->sign > 0);
    return a < b;
}

static void sift_down(struct heap *h, size_t i)
{
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= h->n)
            return;
        if (child + 1 < h->n && before(h, h->bin[child + 1], h->bin[child]))
            child++;
        if (!before(h, h->bin[child], h->bin[i]))
            return;
        uint32_t t = h->bin[i];
        h->bin[i] = h->bin[child];
        h->bin[child] = t;
        i = child;
    }
}

static void push(struct heap *h, uint32_t bin)
{
    size_t i = h->n++;
    h->bin[i] = bin;
    while (i > 0 && before(h, h->bin[i], h->bin[(i - 1) / 2])) {
        uint32_t t = h->bin[i];
        h->bin[i] = h->bin[(i - 1) / 2];
        h->bin[(i - 1) / 2] = t;
        i = (i - 1) / 2;
    }
}

static uint32_t pop(struct heap *h)
{
    uint32_t top = h->bin[0];
    h->bin[0] = h->bin[--h->n];
    sift_down(h, 0);
    return top;
}

/* Longest first, each to the least loaded of n_bins bins: balanced, but with
 * no regard to capacity. Returns the largest load. */
static uint64_t spread(const uint32_t *lengths, const uint32_t *order, size_t n,
                       size_t n_bins, struct heap *h, uint32_t *bin_of)
{
    uint64_t most = 0;
    h->n = 0;
    h->sign = 1;
    for (size_t b = 0; b < n_bins; b++) {
        h->load[b] = 0;
        push(h, (uint32_t)b);
    }
    for (size_t k = 0; k < n; k++) {
        /* One for each bin first, so that none stays empty. */
        uint32_t i = order[k], b = h->bin[0];
        if (k < n_bins)
            b = (uint32_t)k;
        bin_of[i] = b;
        h->load[b] += lengths[i];
        most = h->load[b] > most ? h->load[b] : most;
        if (k + 1 == n_bins)
            for (size_t j = n_bins; j-- > 0;)
                sift_down(h, j);
        else if (k >= n_bins)
            sift_down(h, 0);
    }
    return most;
}

/* Splits the fullest bin of several items in two of about equal load until
 * there are enough. Bin b's items are linked from head[b] through next, longest
 * first; the numbers are item plus one, 0 ends a list. */
static void split(const uint32_t *lengths, size_t n_bins, size_t target,
                  struct heap *h, uint32_t *head, uint32_t *next,
                  uint32_t *bin_of)
{
    h->n = 0;
    h->sign = -1;
    for (size_t b = 0; b < n_bins; b++)
        if (next[head[b] - 1])
            push(h, (uint32_t)b);
    while (n_bins < target) {
        uint32_t part[2] = {pop(h), (uint32_t)n_bins++};
        uint32_t i = head[part[0]], *end[2] = {&head[part[0]], &head[part[1]]};
        h->load[part[0]] = h->load[part[1]] = 0;
        for (uint32_t following; i; i = following) {
            following = next[i - 1];
            int k = h->load[part[1]] < h->load[part[0]];
            *end[k] = i;
            end[k] = &next[i - 1];
            h->load[part[k]] += lengths[i - 1];
            bin_of[i - 1] = part[k];
        }
        *end[0] = *end[1] = 0;
        for (int k = 0; k < 2; k++)
            if (next[head[part[k]] - 1])
                push(h, part[k]);
    }
}

/* Links every bin's items, longest first, and adds up loads. */
static void link_items(const uint32_t *lengths, const uint32_t *order, size_t n,
                       const uint32_t *bin_of, uint32_t *head, uint32_t *next,
                       uint64_t *load)
{
    for (size_t k = n; k-- > 0;) {
        uint32_t i = order[k], b = bin_of[i];
        next[i] = head[b];
        head[b] = i + 1;
        load[b] += lengths[i];
    }
}

static int raise_bins(struct pp_bins *b, const uint32_t *lengths,
                      uint32_t capacity, size_t target, struct pp_err *err)
{
    int rc = -1;
    size_t n = b->n_items;
    struct heap h = {
        .load = pp_pack_alloc(target, sizeof *h.load, err),
        .bin = pp_pack_alloc(target, sizeof *h.bin, err),
    };
    uint32_t *order = pp_pack_order(lengths, n, false, err);
    uint32_t *bin_of = pp_pack_alloc(n, sizeof *bin_of, err);
    uint32_t *next = pp_pack_alloc(n, sizeof *next, err);
    uint32_t *head = pp_pack_alloc(target, sizeof *head, err);
    if (!h.load || !h.bin || !order || !bin_of || !next || !head)
        goto out;
    if (spread(lengths, order, n, target, &h, bin_of) > capacity) {
        for (size_t k = 0; k < b->n_bins; k++)
            for (size_t i = b->first[k]; i < b->first[k + 1]; i++)
                bin_of[b->items[i]] = (uint32_t)k;
        memset(h.load, 0, target * sizeof *h.load);
        link_items(lengths, order, n, bin_of, head, next, h.load);
        split(lengths, b->n_bins, target, &h, head, next, bin_of);
    }
    struct pp_bins raised;
    rc = pp_bins_make(&raised, order, bin_of, n, target, err);
    if (rc == 0) {
        pp_bins_finish(b);
        *b = raised;
    }
out:
    free(h.load);
    free(h.bin);
    free(order);
    free(bin_of);
    free(next);
    free(head);
    return rc;
}

int pp_bins_multiple(struct pp_bins *b, const uint32_t *lengths,
                     uint32_t capacity, size_t multiple, struct pp_err *err)
{
    size_t over = b->n_bins % multiple;
    if (over == 0)
        return 0;
    size_t more = multiple - over;
    if (more > b->n_items || b->n_bins > b->n_items - more)
        return pp_fail(err, PP_EXIT_INPUT,
                       "a multiple of '%zu' bins needs %zu sequences, there "
                       "are %zu",
                       multiple, b->n_bins + more, b->n_items);
    return raise_bins(b, lengths, capacity, b->n_bins + more, err);
}

int pp_bins_shuffle(struct pp_bins *b, uint64_t seed, struct pp_err *err)
{
    uint64_t key = pp_rng_key(seed, "bins");
    uint32_t *place = pp_pack_alloc(b->n_bins, sizeof *place, err);
    uint32_t *bin_of = pp_pack_alloc(b->n_items, sizeof *bin_of, err);
    struct pp_bins shuffled;
    int rc = -1;
    if (!place || !bin_of)
        goto out;
    for (size_t i = 0; i < b->n_bins; i++) {
        size_t j = (size_t)(pp_rng_uniform(key, i) * (double)(i + 1));
        place[i] = place[j];
        place[j] = (uint32_t)i;
    }
    for (size_t k = 0; k < b->n_bins; k++)
        for (size_t i = b->first[k]; i < b->first[k + 1]; i++)
            bin_of[b->items[i]] = place[k];
    rc = pp_bins_make(&shuffled, b->items, bin_of, b->n_items, b->n_bins, err);
    if (rc == 0) {
        pp_bins_finish(b);
        *b = shuffled;
    }
out:
    free(place);
    free(bin_of);
    return rc;
}
