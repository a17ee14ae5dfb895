/* SPDX-License-Identifier: MIT */
/* parts - the rules that divide sequences into a given number of parts and
 * know no capacity: longest processing time first, and differencing. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/heap.h"
#include "pack/rule.h"

/* Divides into n_parts. If no part exceeds the capacity, sets *fits and
 * replaces *out. */
static void try_n_parts(pp_parts_fn *divide, const struct pp_pack_input *in,
                        size_t n_parts, struct pp_bins *out, bool *fits)
{
    struct pp_bins b;
    divide(in->lengths, in->n, n_parts, &b);
    *fits = pp_bins_largest(&b, in->lengths) <= in->capacity;
    if (*fits) {
        pp_bins_finish(out);
        *out = b;
    } else
        pp_bins_finish(&b);
}

/* Divides the items into the fewest parts that stay within the capacity. It
 * goes up from the lower bound in growing steps, then bisects between the last
 * number that failed and the first that did not. It ends, since every sequence
 * fits as a part of its own. */
static void divide_to_fewest(pp_parts_fn *divide,
                             const struct pp_pack_input *in,
                             struct pp_bins *out)
{
    size_t n = in->n;
    *out = (struct pp_bins){0};
    size_t low, high, step = 1;
    bool fits = false;
    if (n == 0) {
        pp_bins_make(out, NULL, NULL, 0, 0);
        return;
    }
    pp_pack_lower_bound(in->lengths, n, in->capacity, &high);
    low = high;
    for (;; step *= 2) {
        try_n_parts(divide, in, high, out, &fits);
        if (fits)
            break;
        low = high + 1;
        high = step < n - high ? high + step : n;
    }
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        try_n_parts(divide, in, middle, out, &fits);
        if (fits)
            high = middle;
        else
            low = middle + 1;
    }
}

void pp_parts_lpt(const uint32_t *lengths, size_t n, size_t n_parts,
                  struct pp_bins *out)
{
    uint64_t *load = pp_calloc(n_parts, sizeof *load);
    uint32_t *items = pp_calloc(n_parts, sizeof *items);
    uint32_t *order = pp_pack_order(lengths, n, false);
    uint32_t *bin_of = pp_calloc(n, sizeof *bin_of);
    pp_pack_spread(lengths, order, n, n_parts, load, items, bin_of);
    pp_bins_make(out, order, bin_of, n, n_parts);
    free(load);
    free(items);
    free(order);
    free(bin_of);
}

void pp_pack_lpt(const struct pp_pack_input *in, struct pp_bins *out)
{
    divide_to_fewest(pp_parts_lpt, in, out);
}

/* Karmarkar and Karp's differencing method, in the order of verl's
 * seqlen_balancing. "The differencing method of set partitioning", UC Berkeley
 * report CSD-82-113, 1982.
 *
 * A state divides some sequences into parts, fullest first. The two states with
 * the largest spread are merged, the fullest part of one with the emptiest of
 * the other, until one state is left. Empty parts are not stored, so a state of
 * one sequence costs one part. States list parts by number. A merge finds the
 * places of the parts that are new or that move, and shifts the numbers in
 * between. */

/* A part: its sequences are linked from head to tail. */
struct kk_part {
    uint64_t sum;
    uint32_t n, head, tail;
};

struct kk_state {
    uint32_t *parts;    /* fullest first, none without sequences */
    size_t n, capacity; /* 0 while the memory is not the state's own */
};

struct kk_division {
    size_t k; /* parts of a state, with the empty ones */
    struct kk_state *heap;
    size_t n;
    struct kk_part *part; /* by number: that of a sequence at the beginning */
    uint32_t *singles;    /* parts of the states at the beginning */
    uint32_t *joined;     /* k: scratch of a merge */
    uint32_t *next;       /* by sequence */
};

/* Returns whether a goes before b: it is fuller, has more sequences, or has the
 * higher first sequence. */
static bool part_above(const struct kk_part *a, const struct kk_part *b)
{
    if (a->sum != b->sum)
        return a->sum > b->sum;
    if (a->n != b->n)
        return a->n > b->n;
    return a->head > b->head;
}

static int compare_parts(const void *a, const void *b, void *parts)
{
    const struct kk_part *part = parts;
    return part_above(&part[*(const uint32_t *)a], &part[*(const uint32_t *)b])
               ? -1
               : 1;
}

static uint64_t state_spread(const struct kk_division *p,
                             const struct kk_state *s)
{
    uint64_t least = s->n == p->k ? p->part[s->parts[p->k - 1]].sum : 0;
    return p->part[s->parts[0]].sum - least;
}

static bool state_before(const struct kk_division *p, size_t i, size_t j)
{
    const struct kk_state *a = &p->heap[i], *b = &p->heap[j];
    uint64_t of_a = state_spread(p, a), of_b = state_spread(p, b);
    return of_a != of_b
               ? of_a > of_b
               : part_above(&p->part[a->parts[0]], &p->part[b->parts[0]]);
}

static void sift_down(struct kk_division *p, size_t i)
{
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= p->n)
            return;
        if (child + 1 < p->n && state_before(p, child + 1, child))
            child++;
        if (!state_before(p, child, i))
            return;
        struct kk_state t = p->heap[i];
        p->heap[i] = p->heap[child];
        p->heap[child] = t;
        i = child;
    }
}

static void grow_state(struct kk_state *s, size_t n, size_t k)
{
    if (n <= s->capacity)
        return;
    size_t capacity = 2 * n < k ? 2 * n : k;
    uint32_t *parts = pp_calloc(capacity, sizeof *parts);
    memcpy(parts, s->parts, s->n * sizeof *parts);
    if (s->capacity)
        free(s->parts);
    s->parts = parts;
    s->capacity = capacity;
}

/* Returns how many of the n parts, fullest first, are above one. */
static size_t n_above(const struct kk_division *p, const uint32_t *parts,
                      size_t n, uint32_t one)
{
    size_t from = 0;
    while (from < n) {
        size_t middle = from + (n - from) / 2;
        if (part_above(&p->part[parts[middle]], &p->part[one]))
            from = middle + 1;
        else
            n = middle;
    }
    return from;
}

/* Joins part i of a with part k - 1 - i of b, if both exist. */
static void join_parts(struct kk_division *p, const struct kk_state *a,
                       const struct kk_state *b, size_t kept, size_t n_joined)
{
    for (size_t j = 0; j < n_joined; j++) {
        uint32_t i = a->parts[kept + j];
        struct kk_part *q = &p->part[i];
        const struct kk_part *other = &p->part[b->parts[p->k - 1 - (kept + j)]];
        p->next[q->tail] = other->head;
        q->tail = other->tail;
        q->sum += other->sum;
        q->n += other->n;
        p->joined[j] = i;
    }
    qsort_r(p->joined, n_joined, sizeof *p->joined, compare_parts, p->part);
}

/* Merges b into a. */
static void merge_states(struct kk_division *p, struct kk_state *a,
                         const struct kk_state *b)
{
    size_t k = p->k, n = a->n + b->n < k ? a->n + b->n : k;
    size_t n_joined = a->n + b->n - n;
    size_t kept = a->n - n_joined, taken = b->n - n_joined;
    grow_state(a, n, k);
    join_parts(p, a, b, kept, n_joined);
    /* Merge three sorted runs from the end. The kept parts of a move in
     * blocks. */
    for (size_t at = n; taken || n_joined;) {
        bool of_b =
            taken && (!n_joined || part_above(&p->part[p->joined[n_joined - 1]],
                                              &p->part[b->parts[taken - 1]]));
        uint32_t least = of_b ? b->parts[--taken] : p->joined[--n_joined];
        size_t stay = n_above(p, a->parts, kept, least), block = kept - stay;
        at -= block;
        memmove(a->parts + at, a->parts + stay, block * sizeof *a->parts);
        kept = stay;
        a->parts[--at] = least;
    }
    a->n = n;
}

static void merge_all_states(struct kk_division *p)
{
    for (size_t i = p->n; i-- > 0;)
        sift_down(p, i);
    while (p->n > 1) {
        struct kk_state top = p->heap[0];
        p->heap[0] = p->heap[--p->n];
        sift_down(p, 0);
        merge_states(p, &top, &p->heap[0]);
        if (p->heap[0].capacity)
            free(p->heap[0].parts);
        p->heap[0] = top;
        sift_down(p, 0);
    }
}

/* Makes the first states: one sequence each. With equal_size: k sequences each,
 * shortest first. */
static void init_states(struct kk_division *p, const uint32_t *lengths,
                        pp_cost_fn *cost, const uint32_t *order, size_t n,
                        bool equal_size)
{
    size_t each = equal_size ? p->k : 1;
    for (size_t i = 0; i < n; i++) {
        uint32_t s = order[i];
        p->part[s] =
            (struct kk_part){cost ? cost(lengths[s]) : lengths[s], 1, s, s};
        p->singles[i] = s;
    }
    for (p->n = 0; p->n < n / each; p->n++)
        p->heap[p->n] = (struct kk_state){p->singles + p->n * each, each, 0};
}

static void make_kk_bins(const struct kk_division *p, size_t n,
                         struct pp_bins *out)
{
    uint32_t *bin_of = pp_calloc(n, sizeof *bin_of);
    for (size_t b = 0; b < p->k; b++) {
        const struct kk_part *q = &p->part[p->heap[0].parts[b]];
        for (uint32_t j = 0, i = q->head; j < q->n; j++, i = p->next[i])
            bin_of[i] = (uint32_t)b;
    }
    pp_bins_make(out, NULL, bin_of, n, p->k);
    free(bin_of);
}

static void divide_kk(const uint32_t *lengths, pp_cost_fn *cost, size_t n,
                      size_t n_parts, bool equal_size, struct pp_bins *out)
{
    uint32_t *order = pp_pack_order(lengths, n, true);
    struct kk_division p = {
        .k = n_parts,
        .heap = pp_calloc(n, sizeof *p.heap),
        .part = pp_calloc(n, sizeof *p.part),
        .singles = pp_calloc(n, sizeof *p.singles),
        .joined = pp_calloc(n_parts, sizeof *p.joined),
        .next = pp_calloc(n, sizeof *p.next),
    };
    init_states(&p, lengths, cost, order, n, equal_size);
    merge_all_states(&p);
    make_kk_bins(&p, n, out);
    for (size_t i = 0; i < p.n; i++)
        if (p.heap[i].capacity)
            free(p.heap[i].parts);
    free(order);
    free(p.heap);
    free(p.part);
    free(p.singles);
    free(p.joined);
    free(p.next);
}

void pp_parts_kk(const uint32_t *lengths, size_t n, size_t n_parts,
                 struct pp_bins *out)
{
    divide_kk(lengths, NULL, n, n_parts, false, out);
}

void pp_parts_kk_by_cost(const uint32_t *lengths, pp_cost_fn *cost, size_t n,
                         size_t n_parts, struct pp_bins *out)
{
    divide_kk(lengths, cost, n, n_parts, false, out);
}

void pp_parts_kk_equal(const uint32_t *lengths, size_t n, size_t n_parts,
                       struct pp_bins *out)
{
    divide_kk(lengths, NULL, n, n_parts, true, out);
}

void pp_pack_kk(const struct pp_pack_input *in, struct pp_bins *out)
{
    divide_to_fewest(pp_parts_kk, in, out);
}
