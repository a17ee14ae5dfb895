/* SPDX-License-Identifier: MIT */
/* realign - writes a packed directory anew with other padding: the same
 * sequences in the same bins, for a mesh that the directory was not padded for.
 * A run on it goes on from a checkpoint's place, since its origin stays. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/num.h"
#include "data/packed/packed.h"
#include "data/packed/format.h"
#include "data/readers.h"

/* The content that is written, and what it points to. */
struct realigned {
    struct pp_documents docs;
    uint32_t *inputs; /* of each document: ascending */
    size_t n_inputs;
    struct pp_pieces pieces; /* in packed order */
    size_t *first;
    uint32_t *items;
};

static int compare_sources(const void *va, const void *vb)
{
    const uint32_t *a = va, *b = vb;
    return (*a > *b) - (*a < *b);
}

/* Lists the inputs that are packed, each once. */
static void list_inputs(const struct pp_packed *p, struct realigned *r)
{
    size_t n = p->n_sequences;
    memcpy(r->inputs, p->sections[PP_SECTION_SOURCE], n * sizeof *r->inputs);
    qsort(r->inputs, n, sizeof *r->inputs, compare_sources);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || r->inputs[i] != r->inputs[i - 1])
            r->inputs[r->n_inputs++] = r->inputs[i];
}

/* Makes the piece of sequences [s, end) of a bin. */
static struct pp_piece make_piece(const struct realigned *r,
                                  const struct pp_bin *bin, uint32_t s,
                                  uint32_t end, uint32_t align, size_t *padded)
{
    const uint32_t *input = bsearch(&bin->source[s], r->inputs, r->n_inputs,
                                    sizeof *input, compare_sources);
    size_t document = (size_t)(input - r->inputs);
    size_t sequence = pp_documents_sequence(&r->docs, document);
    struct pp_piece q = {.at = r->docs.first[sequence] + bin->start[s],
                         .source = (uint32_t)document,
                         .start = bin->start[s]};
    *padded = 0;
    for (; s < end; s++) {
        uint32_t n = (uint32_t)(bin->cu_seqlens[s + 1] - bin->cu_seqlens[s]);
        q.length += n;
        *padded += pp_round_up(n, align);
    }
    q.padded = (uint32_t)*padded;
    return q;
}

static int fail_large(size_t b, struct pp_err *err)
{
    return pp_fail(err, PP_EXIT_INPUT,
                   "bin %zu would be longer than '%" PRId32
                   "' tokens with this padding",
                   b, INT32_MAX);
}

/* Makes the pieces of bin b. */
static int make_bin(const struct pp_packed *p, size_t b,
                    const struct pp_realignment *o, struct realigned *r,
                    struct pp_err *err)
{
    struct pp_bin bin;
    size_t first = r->pieces.n, total = 0, padded;
    pp_packed_bin(p, b, &bin);
    /* Responses are pieces of their own. */
    if (p->kind == PP_DATA_ROLLOUTS)
        bin.cu_groups = NULL;
    for (uint32_t s = 0, g = 0, end; s < bin.n_sequences; s = end) {
        end = bin.cu_groups ? bin.cu_groups[++g] : s + 1;
        size_t k = r->pieces.n++;
        r->pieces.piece[k] = make_piece(r, &bin, s, end, o->align, &padded);
        r->pieces.padded[k] = r->pieces.piece[k].padded;
        r->items[k] = (uint32_t)k;
        total += padded;
        if (total > INT32_MAX)
            return fail_large(b, err);
    }
    total = pp_round_up(total, o->row);
    if (total > INT32_MAX)
        return fail_large(b, err);
    if (o->row > o->align)
        pp_pieces_pad_bin(&r->pieces, r->items + first, r->pieces.n - first,
                          o->row);
    r->first[b + 1] = r->pieces.n;
    return 0;
}

static int make_realigned(const struct pp_packed *p,
                          const struct pp_realignment *o, struct realigned *r,
                          struct pp_err *err)
{
    size_t n = p->n_sequences;
    r->inputs = pp_calloc(n, sizeof *r->inputs);
    r->items = pp_calloc(n, sizeof *r->items);
    r->first = pp_calloc(p->n_bins + 1, sizeof *r->first);
    r->pieces.piece = pp_calloc(n, sizeof *r->pieces.piece);
    r->pieces.padded = pp_calloc(n, sizeof *r->pieces.padded);
    if (pp_packed_documents(p, &r->docs, err) != 0)
        return -1;
    list_inputs(p, r);
    for (size_t b = 0; b < p->n_bins; b++)
        if (make_bin(p, b, o, r, err) != 0)
            return -1;
    return 0;
}

static int write_realigned(const struct pp_packed *p,
                           const struct pp_realignment *o,
                           const struct realigned *r, const char *dir,
                           struct pp_err *err)
{
    const struct pp_packed_header *old = p->map[PP_PACKED_INDEX];
    struct pp_packed_content c = {
        .ids = r->docs.ids,
        .labels = r->docs.labels,
        .pieces = r->pieces.piece,
        .n_bins = p->n_bins,
        .first = r->first,
        .items = r->items,
        .n_inputs = p->n_inputs,
        .capacity = old->capacity,
        .align = o->align,
        .row_capacity = {p->streams[0].capacity, p->streams[1].capacity},
        .epoch = p->epoch,
        .docs = &r->docs,
        .inputs = r->inputs,
        .origin = p->origin,
        .counts = p->input,
    };
    return pp_packed_write(dir, &c, err);
}

int pp_packed_realign(const struct pp_packed *p, const struct pp_realignment *o,
                      const char *dir, struct pp_err *err)
{
    struct realigned r = {
        .docs = {.spill = o->spill, .spill_bytes = o->spill_bytes}};
    if (p->cp)
        return pp_fail(err, PP_EXIT_INPUT,
                       "its sequences are on '%" PRIu32
                       "' context-parallel ranks of their own; pack it anew",
                       p->cp);
    int rc = make_realigned(p, o, &r, err);
    if (rc == 0)
        rc = write_realigned(p, o, &r, dir, err);
    pp_documents_finish(&r.docs);
    pp_pieces_finish(&r.pieces);
    free(r.inputs);
    free(r.first);
    free(r.items);
    return rc;
}
