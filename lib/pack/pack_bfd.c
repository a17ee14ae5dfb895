/* SPDX-License-Identifier: MIT */
/* pack_bfd - best-fit decreasing in the order of TRL's "bfd".
 *
 * Lengths descending, equal ones in input order; each goes to the bin with the
 * smallest space that suffices, among equal spaces to the one that has had it
 * longest. Spaces are numbers up to the capacity, so the open bins are queues
 * by space, and a tree of 64-bit words tells which queues are not empty:
 * O(log64 capacity) a step. */
#include <stdlib.h>
#include <string.h>

#include "pack/pack_lookup.h"
#include "pack/pack_rule.h"

enum { MAX_LEVELS = 6 }; /* 64^6 > 2^32 */

/* Which of the spaces 0..n-1 are there. Bit i of level k + 1 is set when word
 * i of level k is not 0. */
struct spaces {
    uint64_t *level[MAX_LEVELS];
    int n_levels;
};

/* The bins of each space in the order in which they got it; numbers are bin
 * plus one, 0 is none. */
struct queues {
    uint32_t *head, *tail; /* by space */
    uint32_t *next;        /* by bin */
};

static int make_spaces(struct spaces *s, size_t n, struct pp_err *err)
{
    *s = (struct spaces){0};
    do {
        n = (n + 63) / 64;
        s->level[s->n_levels] = pp_pack_alloc(n, sizeof(uint64_t), err);
        if (!s->level[s->n_levels++])
            return -1;
    } while (n > 1);
    return 0;
}

static void free_spaces(struct spaces *s)
{
    for (int k = 0; k < s->n_levels; k++)
        free(s->level[k]);
}

static void set_space(struct spaces *s, size_t i)
{
    for (int k = 0; k < s->n_levels; k++, i /= 64)
        s->level[k][i / 64] |= UINT64_C(1) << i % 64;
}

static void clear_space(struct spaces *s, size_t i)
{
    for (int k = 0; k < s->n_levels; k++, i /= 64)
        if (s->level[k][i / 64] &= ~(UINT64_C(1) << i % 64))
            return;
}

/* The smallest space from i on, or SIZE_MAX. */
static size_t find_space(const struct spaces *s, size_t i, size_t n)
{
    for (int k = 0; k < s->n_levels && i < n; k++) {
        uint64_t word = s->level[k][i / 64] >> i % 64;
        if (word) {
            i += (size_t)__builtin_ctzll(word);
            while (k-- > 0)
                i = i * 64 + (size_t)__builtin_ctzll(s->level[k][i]);
            return i;
        }
        i = i / 64 + 1;
        n = (n + 63) / 64;
    }
    return SIZE_MAX;
}

static void append_bin(struct queues *q, struct spaces *s, size_t space,
                       uint32_t bin)
{
    q->next[bin] = 0;
    if (q->head[space])
        q->next[q->tail[space] - 1] = bin + 1;
    else {
        q->head[space] = bin + 1;
        set_space(s, space);
    }
    q->tail[space] = bin + 1;
}

static uint32_t take_bin(struct queues *q, struct spaces *s, size_t space)
{
    uint32_t bin = q->head[space] - 1;
    q->head[space] = q->next[bin];
    if (!q->head[space])
        clear_space(s, space);
    return bin;
}

static uint32_t gcd(uint32_t a, uint32_t b)
{
    while (b) {
        uint32_t t = a % b;
        a = b;
        b = t;
    }
    return a;
}

/* Places m items of a length, none of which has been placed, and puts their
 * bins into bin_at. A bin that has taken one and has room for another has the
 * smallest sufficient space; the search goes on only where it has none. */
static void place_class(size_t length, size_t m, size_t n_spaces,
                        struct queues *q, struct spaces *s, uint32_t *bin_at,
                        uint32_t *n_bins)
{
    size_t space = find_space(s, length, n_spaces);
    for (size_t k = 0; k < m; k++) {
        bool opens = space == SIZE_MAX;
        if (opens)
            space = n_spaces - 1;
        bin_at[k] = opens ? (*n_bins)++ : take_bin(q, s, space);
        append_bin(q, s, space - length, bin_at[k]);
        if (space - length >= length)
            space -= length;
        else if (opens)
            space = SIZE_MAX;
        else if (!q->head[space])
            space = find_space(s, space + 1, n_spaces);
    }
}

int pp_pack_bfd(const uint32_t *lengths, size_t n, uint32_t capacity,
                struct pp_bins *out, struct pp_err *err)
{
    int rc = -1;
    /* Aligned lengths need few queues: a common divisor is the unit. */
    uint32_t unit = 0;
    for (size_t i = 0; i < n && unit != 1; i++)
        unit = gcd(lengths[i], unit);
    unit = unit ? unit : 1;
    size_t n_spaces = (size_t)capacity / unit + 1;
    struct pp_classes c;
    if (pp_classes_init(&c, lengths, n, err) != 0)
        return -1;
    uint32_t *bin_at = pp_pack_alloc(n, sizeof *bin_at, err);
    struct queues q = {
        .head = pp_pack_alloc(n_spaces, sizeof *q.head, err),
        .tail = pp_pack_alloc(n_spaces, sizeof *q.tail, err),
        .next = pp_pack_alloc(n, sizeof *q.next, err),
    };
    struct spaces s;
    if (make_spaces(&s, n_spaces, err) == 0 && bin_at && q.head && q.tail &&
        q.next) {
        uint32_t n_bins = 0;
        for (size_t k = 0; k < c.n; k++)
            place_class(c.length[k] / unit, c.count[k], n_spaces, &q, &s,
                        bin_at + c.first[k], &n_bins);
        rc = pp_bins_gather(out, c.order, bin_at, n, n_bins, err);
    }
    free_spaces(&s);
    free(q.head);
    free(q.tail);
    free(q.next);
    free(bin_at);
    pp_classes_finish(&c);
    return rc;
}
