/* SPDX-License-Identifier: MIT */
#include "data/pieces.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"

static uint64_t lcm(uint64_t a, uint64_t b)
{
    uint64_t x = a, y = b;
    while (y) {
        uint64_t t = x % y;
        x = y;
        y = t;
    }
    return a / x * b;
}

static uint32_t with_pad_to(uint64_t parts, uint32_t pad_to)
{
    uint64_t align = parts > INT32_MAX ? 0 : lcm(parts, pad_to);
    return align > INT32_MAX ? 0 : (uint32_t)align;
}

uint32_t pp_pieces_align(uint32_t pad_to, uint32_t cp, uint32_t tp)
{
    uint64_t parts =
        lcm(cp > 1 ? 2 * (uint64_t)cp : 1, tp > 1 ? (uint64_t)cp * tp : 1);
    return with_pad_to(parts, pad_to);
}

uint32_t pp_pieces_align_product(uint32_t pad_to, uint32_t cp, uint32_t tp)
{
    return with_pad_to((cp > 1 ? 2 * (uint64_t)cp : 1) * tp, pad_to);
}

static size_t document_length(const struct pp_documents *d, size_t i)
{
    return d->first[i + 1] - d->first[i];
}

/* How many pieces a document makes. */
static size_t n_pieces(size_t length, uint32_t limit, enum pp_oversize oversize,
                       bool drop_empty)
{
    if (length == 0)
        return !drop_empty;
    if (length <= limit || oversize == PP_OVERSIZE_TRUNCATE)
        return 1;
    return oversize == PP_OVERSIZE_SPLIT ? (length + limit - 1) / limit : 0;
}

/* Counts pieces, and documents by what happens to them. */
static int count(const struct pp_documents *d, uint32_t limit,
                 enum pp_oversize oversize, bool drop_empty, size_t *n,
                 struct pp_pieces *out, struct pp_err *err)
{
    for (size_t i = 0; i < d->n; i++) {
        size_t length = document_length(d, i);
        *n += n_pieces(length, limit, oversize, drop_empty);
        out->n_empty += length == 0;
        if (length <= limit)
            continue;
        if (oversize == PP_OVERSIZE_ERROR)
            return pp_fail(err, PP_EXIT_INPUT,
                           "sequence %zu has '%zu' tokens, more than the "
                           "%" PRIu32 " of a bin; see --oversize",
                           i, length, limit);
        out->n_truncated += oversize == PP_OVERSIZE_TRUNCATE;
        out->n_split += oversize == PP_OVERSIZE_SPLIT;
        out->n_dropped += oversize == PP_OVERSIZE_DROP;
    }
    if (*n > UINT32_MAX)
        return pp_fail(err, PP_EXIT_INPUT, "'%zu' sequences are too many", *n);
    return 0;
}

static int make_room(struct pp_pieces *p, size_t n, struct pp_err *err)
{
    p->piece = calloc(n + 1, sizeof *p->piece);
    p->slots = calloc(n + 1, sizeof *p->slots);
    if (p->piece && p->slots)
        return 0;
    pp_pieces_finish(p);
    return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
}

static void add(const struct pp_documents *d, size_t i, size_t n,
                uint32_t limit, uint32_t align, struct pp_pieces *out)
{
    for (size_t k = 0; k < n; k++, out->n++) {
        size_t start = k * limit, left = document_length(d, i) - start;
        uint32_t length = left > limit ? limit : (uint32_t)left;
        uint32_t slot = (uint32_t)pp_round_up(length, align);
        out->slots[out->n] = slot;
        out->n_tokens += length;
        out->piece[out->n] = (struct pp_piece){.at = d->first[i] + start,
                                               .source = (uint32_t)i,
                                               .start = (uint32_t)start,
                                               .length = length,
                                               .slot = slot};
    }
}

int pp_pieces_make(const struct pp_documents *d, uint32_t capacity,
                   uint32_t align, enum pp_oversize oversize, bool drop_empty,
                   struct pp_pieces *out, struct pp_err *err)
{
    uint32_t limit = capacity / align * align;
    size_t n = 0;
    *out = (struct pp_pieces){0};
    if (count(d, limit, oversize, drop_empty, &n, out, err) != 0)
        return -1;
    if (make_room(out, n, err) != 0)
        return -1;
    for (size_t i = 0; i < d->n; i++)
        add(d, i, n_pieces(document_length(d, i), limit, oversize, drop_empty),
            limit, align, out);
    return 0;
}

int pp_pieces_wrap(const struct pp_documents *d, uint32_t capacity,
                   struct pp_pieces *out, struct pp_err *err)
{
    size_t total = d->n ? d->first[d->n] : 0, n = d->n + total / capacity + 1;
    *out = (struct pp_pieces){0};
    if (n > UINT32_MAX)
        return pp_fail(err, PP_EXIT_INPUT, "'%zu' sequences are too many", n);
    if (make_room(out, n, err) != 0)
        return -1;
    for (size_t i = 0; i < d->n; i++) {
        size_t at = d->first[i], end = d->first[i + 1], before = out->n;
        out->n_empty += at == end;
        while (at < end) {
            size_t full = (at / capacity + 1) * capacity;
            uint32_t length = (uint32_t)((full < end ? full : end) - at);
            out->slots[out->n] = length;
            out->piece[out->n++] =
                (struct pp_piece){.at = at,
                                  .source = (uint32_t)i,
                                  .start = (uint32_t)(at - d->first[i]),
                                  .length = length,
                                  .slot = length};
            at += length;
        }
        out->n_split += out->n > before + 1;
    }
    out->n_tokens = total;
    return 0;
}

void pp_pieces_even(struct pp_pieces *p, const uint32_t *members, size_t n)
{
    uint32_t longest = 0;
    for (size_t i = 0; i < n; i++)
        if (p->slots[members[i]] > longest)
            longest = p->slots[members[i]];
    for (size_t i = 0; i < n; i++)
        p->slots[members[i]] = p->piece[members[i]].slot = longest;
}

void pp_pieces_fill_row(struct pp_pieces *p, const uint32_t *members, size_t n,
                        uint32_t row)
{
    uint64_t total = 0;
    uint32_t shortest = members[0];
    for (size_t i = 0; i < n; i++) {
        total += p->slots[members[i]];
        if (p->slots[members[i]] < p->slots[shortest])
            shortest = members[i];
    }
    if (total % row == 0)
        return;
    p->slots[shortest] += row - (uint32_t)(total % row);
    p->piece[shortest].slot = p->slots[shortest];
}

void pp_pieces_finish(struct pp_pieces *p)
{
    free(p->piece);
    free(p->slots);
    memset(p, 0, sizeof *p);
}
