/* SPDX-License-Identifier: MIT */
/* mffd - modified first-fit decreasing. The bins and their numbers are as
 * in NeMo-RL. Johnson and Garey, "A 71/60 theorem for bin packing",
 * Journal of Complexity 1, 1985, except for the last step, which is worst-fit.
 *
 * Each step walks over the sequences by descending length, skips placed ones
 * with path compression, and finds the first that is short enough: O(log n) per
 * step. */
#include <stdlib.h>

#include "base/alloc.h"
#include "pack/rule.h"

/* A position is a place in the order by descending length, equal lengths in
 * input order. Large sequences are at [0, medium), then medium, small and tiny
 * ones follow. */
struct mffd {
    const uint32_t *lengths, *order;
    size_t n;
    uint32_t capacity;
    size_t medium, small, tiny; /* first position of each class */
    uint32_t *skip;             /* by position: none is free in [k, skip[k]) */
    uint32_t *left;             /* by bin: space */
    uint32_t *bin_of;           /* by sequence */
    uint32_t *placed;           /* sequences in the order of placing */
    size_t n_placed, n_bins;
    bool *paired; /* by bin: it has a medium sequence */
    struct pp_waste_budget *budget;
    bool gives_up;
};

static uint32_t length_at(const struct mffd *m, size_t k)
{
    return m->lengths[m->order[k]];
}

/* Returns the first position from k on that is not placed, or n. */
static size_t next_free(struct mffd *m, size_t pos)
{
    size_t end = pos;
    while (m->skip[end] != end)
        end = m->skip[end];
    while (m->skip[pos] != end) {
        size_t following = m->skip[pos];
        m->skip[pos] = (uint32_t)end;
        pos = following;
    }
    return end;
}

/* Returns the first position in [from, to) whose length is at most space, or
 * to. */
static size_t first_within(const struct mffd *m, size_t from, size_t to,
                           uint32_t space)
{
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (length_at(m, middle) <= space)
            to = middle;
        else
            from = middle + 1;
    }
    return to;
}

static void place_at(struct mffd *m, size_t pos, size_t bin)
{
    uint32_t i = m->order[pos];
    m->skip[pos] = (uint32_t)pos + 1;
    m->bin_of[i] = (uint32_t)bin;
    m->placed[m->n_placed++] = i;
    m->left[bin] -= m->lengths[i];
}

static void open_large(struct mffd *m)
{
    for (size_t pos = 0; pos < m->medium; pos++) {
        m->left[pos] = m->capacity;
        place_at(m, pos, pos);
    }
    m->n_bins = m->medium;
}

static void add_medium(struct mffd *m)
{
    for (size_t b = 0; b < m->n_bins; b++) {
        size_t pos =
            next_free(m, first_within(m, m->medium, m->small, m->left[b]));
        m->paired[b] = pos < m->small;
        if (m->paired[b])
            place_at(m, pos, b);
    }
}

/* The small sequences in NeMo-RL's order: by ascending length, equal ones in
 * input order. up[k] is the position of the kth. */
struct ascending {
    uint32_t *up;
    uint32_t *back; /* by k + 1: none is free in places [back, k] */
    size_t n;
};

static void sort_ascending(const struct mffd *m, struct ascending *a)
{
    a->n = m->tiny - m->small;
    size_t k = 0, end = m->tiny;
    while (end > m->small) {
        size_t begin = end - 1;
        while (begin > m->small &&
               length_at(m, begin - 1) == length_at(m, begin))
            begin--;
        for (size_t pos = begin; pos < end; pos++)
            a->up[k++] = (uint32_t)pos;
        end = begin;
    }
    for (k = 0; k <= a->n; k++)
        a->back[k] = (uint32_t)k;
}

/* Returns one more than the last free place before end, or 0. */
static size_t last_free(struct ascending *a, size_t end)
{
    size_t k = end;
    while (a->back[k] != k)
        k = a->back[k];
    while (a->back[end] != k) {
        size_t following = a->back[end];
        a->back[end] = (uint32_t)k;
        end = following;
    }
    return k;
}

static void put_small(struct mffd *m, struct ascending *a, size_t place,
                      size_t bin)
{
    a->back[place + 1] = (uint32_t)place;
    place_at(m, a->up[place], bin);
}

/* Returns how many places hold lengths of at most space. */
static size_t n_within(const struct mffd *m, const struct ascending *a,
                       uint32_t space)
{
    return a->n - (first_within(m, m->small, m->tiny, space) - m->small);
}

/* Adds, from the last bin back, the shortest small sequence and the longest
 * that then fits, if the two shortest would fit. The placed shortest ones are a
 * run at the front, unless the longest was taken from just behind it. */
static void add_small_pairs(struct mffd *m, struct ascending *a)
{
    size_t first = 0, left = a->n;
    for (size_t b = m->n_bins; b-- > 0 && left >= 2;) {
        if (m->paired[b])
            continue;
        while (a->back[first + 1] != first + 1)
            first++;
        uint32_t shortest = length_at(m, a->up[first]);
        if (shortest > m->left[b])
            continue;
        size_t last = last_free(a, n_within(m, a, m->left[b] - shortest));
        /* If only the first fits, the second shortest does not. */
        if (last <= first + 1)
            continue;
        put_small(m, a, first, b);
        put_small(m, a, last - 1, b);
        left -= 2;
    }
}

static void pair_small(struct mffd *m)
{
    size_t n = m->tiny - m->small;
    struct ascending a = {
        .up = pp_calloc(n, sizeof *a.up),
        .back = pp_calloc(n + 1, sizeof *a.back),
    };
    sort_ascending(m, &a);
    add_small_pairs(m, &a);
    free(a.up);
    free(a.back);
}

static void fill_up(struct mffd *m)
{
    for (size_t b = 0; b < m->n_bins; b++)
        for (;;) {
            size_t pos =
                next_free(m, first_within(m, m->medium, m->n, m->left[b]));
            if (pos == m->n)
                break;
            place_at(m, pos, b);
        }
    for (size_t b = 0; b < m->n_bins && !m->gives_up; b++)
        m->gives_up = pp_waste_budget_spend_if_full(m->budget, m->left[b]);
}

/* Bins opened for the rest: a heap by load, then by the time at which the load
 * was reached. The key holds both. */
struct rest_bins {
    struct rest_bin {
        uint64_t key;
        uint32_t bin;
    } * heap;
    size_t n;
};

static void sift_first_down(struct rest_bins *r)
{
    for (size_t i = 0;;) {
        size_t child = 2 * i + 1;
        if (child >= r->n)
            return;
        child +=
            child + 1 < r->n && r->heap[child + 1].key < r->heap[child].key;
        if (r->heap[i].key <= r->heap[child].key)
            return;
        struct rest_bin t = r->heap[i];
        r->heap[i] = r->heap[child];
        r->heap[child] = t;
        i = child;
    }
}

static void push_rest(struct rest_bins *r, struct rest_bin e)
{
    size_t i = r->n++;
    for (; i > 0 && e.key < r->heap[(i - 1) / 2].key; i = (i - 1) / 2)
        r->heap[i] = r->heap[(i - 1) / 2];
    r->heap[i] = e;
}

/* Places the rest, longest first, into the emptiest bin opened here, or into a
 * new one. Then numbers these bins by ascending load. */
static void place_rest(struct mffd *m)
{
    size_t first_bin = m->n_bins, n_before = m->n_placed;
    struct rest_bins r = {.heap = pp_calloc(m->n + 1, sizeof *r.heap)};
    uint32_t *number = pp_calloc(m->n + 1, sizeof *number);
    size_t pos = next_free(m, m->medium);
    for (; pos < m->n && !m->gives_up; pos = next_free(m, pos)) {
        bool opens = r.n == 0 || length_at(m, pos) > m->left[r.heap[0].bin];
        uint32_t bin = opens ? (uint32_t)m->n_bins++ : r.heap[0].bin;
        if (opens)
            m->left[bin] = m->capacity;
        place_at(m, pos, bin);
        m->gives_up = pp_waste_budget_spend_if_full(m->budget, m->left[bin]);
        uint64_t load = m->capacity - m->left[bin];
        struct rest_bin e = {load << 32 | m->n_placed, bin};
        if (opens)
            push_rest(&r, e);
        else {
            r.heap[0] = e;
            sift_first_down(&r);
        }
    }
    for (uint32_t k = (uint32_t)first_bin; r.n; k++) {
        number[r.heap[0].bin - first_bin] = k;
        r.heap[0] = r.heap[--r.n];
        sift_first_down(&r);
    }
    for (size_t k = n_before; k < m->n_placed; k++) {
        uint32_t *bin = &m->bin_of[m->placed[k]];
        *bin = number[*bin - first_bin];
    }
    free(r.heap);
    free(number);
}

/* Finds the classes. The thresholds are exact: lengths above C/2, C/3, C/6. */
static void classify(struct mffd *m)
{
    size_t *const end[] = {&m->medium, &m->small, &m->tiny};
    static const uint64_t part[] = {2, 3, 6};
    size_t pos = 0;
    for (int c = 0; c < 3; c++) {
        while (pos < m->n && part[c] * length_at(m, pos) > m->capacity)
            pos++;
        *end[c] = pos;
    }
    for (size_t k = 0; k <= m->n; k++)
        m->skip[k] = (uint32_t)k;
}

void pp_pack_mffd(const struct pp_pack_input *in, struct pp_bins *out)
{
    size_t n = in->n;
    *out = (struct pp_bins){0};
    uint32_t *order = pp_pack_order(in->lengths, n, false);
    struct mffd m = {
        .lengths = in->lengths,
        .order = order,
        .n = n,
        .capacity = in->capacity,
        .budget = in->budget,
        .skip = pp_calloc(n + 1, sizeof *m.skip),
        .left = pp_calloc(n, sizeof *m.left),
        .bin_of = pp_calloc(n, sizeof *m.bin_of),
        .placed = pp_calloc(n, sizeof *m.placed),
        .paired = pp_calloc(n, sizeof *m.paired),
    };
    classify(&m);
    open_large(&m);
    add_medium(&m);
    pair_small(&m);
    fill_up(&m);
    place_rest(&m);
    if (!m.gives_up)
        pp_bins_make(out, m.placed, m.bin_of, n, m.n_bins);
    free(order);
    free(m.skip);
    free(m.left);
    free(m.bin_of);
    free(m.placed);
    free(m.paired);
}
