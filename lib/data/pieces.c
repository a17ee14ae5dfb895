/* SPDX-License-Identifier: MIT */
/* pieces - cuts documents into pieces, and counts what it leaves out. */
#include "data/pieces.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
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

static uint32_t combine_pad_to(uint64_t parts, uint32_t pad_to)
{
    uint64_t align = parts > INT32_MAX ? 0 : lcm(parts, pad_to);
    return align > INT32_MAX ? 0 : (uint32_t)align;
}

uint32_t pp_pieces_align(uint32_t pad_to, uint32_t cp, uint32_t tp)
{
    uint64_t parts =
        lcm(cp > 1 ? 2 * (uint64_t)cp : 1, tp > 1 ? (uint64_t)cp * tp : 1);
    return combine_pad_to(parts, pad_to);
}

uint32_t pp_pieces_align_product(uint32_t pad_to, uint32_t cp, uint32_t tp)
{
    return combine_pad_to((cp > 1 ? 2 * (uint64_t)cp : 1) * tp, pad_to);
}

static size_t document_length(const struct pp_documents *d, size_t i)
{
    return d->first[pp_documents_sequence(d, i + 1)] -
           d->first[pp_documents_sequence(d, i)];
}

/* Sequences that share a bin: all of a document, or a response. */
struct unit {
    size_t first, end;
};

/* Returns the unit of a document that begins with sequence `first`. */
static struct unit unit_at(const struct pp_documents *d, size_t i, size_t first)
{
    return (struct unit){first, d->kind == PP_DATA_ROLLOUTS
                                    ? first + 1
                                    : pp_documents_sequence(d, i + 1)};
}

static struct unit whole_document(const struct pp_documents *d, size_t i)
{
    return (struct unit){pp_documents_sequence(d, i),
                         pp_documents_sequence(d, i + 1)};
}

static size_t unit_length(const struct pp_documents *d, struct unit u)
{
    return d->first[u.end] - d->first[u.first];
}

static size_t padded_length(const struct pp_documents *d, struct unit u,
                            uint32_t align)
{
    size_t padded = 0;
    for (size_t s = u.first; s < u.end; s++)
        padded += pp_round_up(d->first[s + 1] - d->first[s], align);
    return padded;
}

/* Returns the rows of all items that a unit has of a modality. */
static uint64_t n_rows(const struct pp_documents *d, enum pp_modality m,
                       struct unit u)
{
    const struct pp_items *items = &d->items[m];
    uint64_t sum = 0;
    const struct pp_item *at;
    for (size_t s = u.first; items->n && s < u.end; s++)
        for (size_t n = pp_items_of(items, s, &at); n > 0; n--)
            sum += at++->rows;
    return sum;
}

/* Returns whether a document is not of plain sequences. */
static bool is_group(const struct pp_documents *d, size_t i)
{
    struct unit all = whole_document(d, i);
    return d->kind != PP_DATA_DOCUMENTS || all.end - all.first > 1;
}

static bool has_items(const struct pp_documents *d, size_t i)
{
    for (int m = 0; m < PP_N_MODALITIES; m++)
        if (n_rows(d, (enum pp_modality)m, whole_document(d, i)) > 0)
            return true;
    return false;
}

/* Returns whether a document is never cut into pieces. */
static bool stays_whole(const struct pp_documents *d, size_t i)
{
    return is_group(d, i) || has_items(d, i);
}

/* Returns whether a document may be truncated. */
static bool may_be_cut(const struct pp_documents *d, size_t i)
{
    return !has_items(d, i) &&
           (d->kind != PP_DATA_DOCUMENTS || !is_group(d, i));
}

/* Returns the first modality of which a unit has more rows than a bin holds, or
 * PP_N_MODALITIES. */
static enum pp_modality overfull(const struct pp_documents *d, struct unit u,
                                 const struct pp_piece_options *o)
{
    int m = 0;
    while (m < PP_N_MODALITIES &&
           n_rows(d, (enum pp_modality)m, u) <= o->rows[m])
        m++;
    return (enum pp_modality)m;
}

/* Returns the first unit of a document that does not fit into a bin, or the
 * empty one behind the last. */
static struct unit find_oversize(const struct pp_documents *d, size_t i,
                                 const struct pp_piece_options *o)
{
    const struct unit all = whole_document(d, i);
    struct unit u = {all.end, all.end};
    for (size_t s = all.first; s < all.end; s = u.end) {
        u = unit_at(d, i, s);
        if (padded_length(d, u, o->align) > o->capacity ||
            overfull(d, u, o) < PP_N_MODALITIES)
            return u;
    }
    return (struct unit){all.end, all.end};
}

static bool has_room(const struct pp_documents *d, size_t i,
                     const struct pp_piece_options *o)
{
    struct unit u = find_oversize(d, i, o);
    return u.first == u.end;
}

/* Returns how many units of a document have tokens. */
static size_t n_units(const struct pp_documents *d, size_t i)
{
    const struct unit all = whole_document(d, i);
    struct unit u;
    size_t n = 0;
    for (size_t s = all.first; s < all.end; s = u.end) {
        u = unit_at(d, i, s);
        n += unit_length(d, u) > 0;
    }
    return n;
}

/* Returns how many pieces a document makes. */
static size_t n_pieces(const struct pp_documents *d, size_t i,
                       const struct pp_piece_options *o)
{
    size_t length = document_length(d, i), limit = o->capacity;
    if (length == 0)
        return !o->drop_empty;
    if (stays_whole(d, i))
        return has_room(d, i, o) ? n_units(d, i) : 0;
    if (length <= limit || o->oversize == PP_OVERSIZE_TRUNCATE)
        return 1;
    return o->oversize == PP_OVERSIZE_SPLIT ? (length + limit - 1) / limit : 0;
}

/* Returns what a unit has beside tokens, for messages. */
static const char *items_of(const struct pp_documents *d, struct unit u)
{
    return pp_modality_words(n_rows(d, PP_MODALITY_IMAGES, u)
                                 ? PP_MODALITY_IMAGES
                                 : PP_MODALITY_AUDIO)
        .items;
}

/* Fails since a unit of document i is too long. */
static int fail_oversize(const struct pp_documents *d, size_t i,
                         const struct pp_piece_options *o, struct pp_err *err)
{
    static const char *const nouns[PP_DATA_N_KINDS][2] = {
        [PP_DATA_DOCUMENTS] = {"group", "groups"},
        [PP_DATA_PAIRS] = {"pair", "pairs"},
        [PP_DATA_ROLLOUTS] = {"a response of group", "responses"}};
    const char *what = is_group(d, i) ? nouns[d->kind][0] : "sequence";
    bool cut = o->oversize != PP_OVERSIZE_ERROR, may = may_be_cut(d, i);
    struct unit u = is_group(d, i) ? find_oversize(d, i, o)
                                   : unit_at(d, i, pp_documents_sequence(d, i));
    size_t length =
        is_group(d, i) ? padded_length(d, u, o->align) : unit_length(d, u);
    enum pp_modality m = overfull(d, u, o);
    if (m < PP_N_MODALITIES)
        return pp_fail_setting(err, PP_EXIT_INPUT, "oversize", "drop",
                               "%s %zu has '%" PRIu64
                               "' %s, more than the %" PRIu32 " of a bin",
                               what, i - o->first, n_rows(d, m, u),
                               pp_modality_words(m).rows, o->rows[m]);
    if (cut)
        return pp_fail_setting(
            err, PP_EXIT_INPUT, "oversize", may ? "truncate" : "drop",
            "%s %zu has '%zu' tokens, more than a bin, and %s cannot be %s",
            what, i - o->first, length,
            may || !has_items(d, i) ? nouns[d->kind][1] : items_of(d, u),
            may ? "split" : "cut");
    return pp_fail_setting(err, PP_EXIT_INPUT, "oversize", NULL,
                           "%s %zu has '%zu' tokens, more than the %" PRIu32
                           " of a bin",
                           what, i - o->first, length, o->capacity);
}

/* Counts document i, which is too long, or fails. */
static int count_oversize(const struct pp_documents *d, size_t i,
                          const struct pp_piece_options *o,
                          struct pp_pieces *out, struct pp_err *err)
{
    struct pp_input_counts *c = &out->counts;
    size_t length = document_length(d, i);
    bool whole = stays_whole(d, i);
    if (o->oversize == PP_OVERSIZE_ERROR ||
        (o->oversize == PP_OVERSIZE_SPLIT && whole) ||
        (o->oversize == PP_OVERSIZE_TRUNCATE && !may_be_cut(d, i)))
        return fail_oversize(d, i, o, err);
    if (o->oversize == PP_OVERSIZE_DROP || whole) {
        if (!c->n_dropped++)
            out->first_dropped = i - o->first;
        c->dropped_tokens += length;
    } else if (o->oversize == PP_OVERSIZE_TRUNCATE) {
        c->n_truncated++;
        c->truncated_tokens += length - o->capacity;
    } else {
        c->n_split++;
    }
    return 0;
}

/* Reports whether every document is one sequence of tokens alone. */
static bool is_plain(const struct pp_documents *d)
{
    return !d->member && !pp_documents_have_items(d);
}

/* Counts the pieces, and the documents by what is done to them. */
static int count_pieces(const struct pp_documents *d,
                        const struct pp_piece_options *o, size_t *n,
                        struct pp_pieces *out, struct pp_err *err)
{
    uint32_t limit = o->capacity;
    bool plain = is_plain(d);
    for (size_t i = o->first; i < o->end; i++) {
        size_t length = document_length(d, i);
        if (plain && length > 0 && length <= limit) {
            ++*n;
            continue;
        }
        *n += n_pieces(d, i, o);
        out->counts.n_empty += length == 0;
        if ((stays_whole(d, i) ? !has_room(d, i, o) : length > limit) &&
            count_oversize(d, i, o, out, err) != 0)
            return -1;
    }
    if (*n > UINT32_MAX)
        return pp_fail(err, PP_EXIT_INPUT,
                       "'%zu' sequences are too many to pack", *n);
    return 0;
}

/* Makes room for n pieces, with the rows of the documents' items. */
static void alloc_pieces(struct pp_pieces *p, size_t n,
                         const struct pp_documents *d)
{
    p->piece = pp_calloc(n + 1, sizeof *p->piece);
    p->padded = pp_calloc(n + 1, sizeof *p->padded);
    for (int m = 0; m < PP_N_MODALITIES; m++)
        if (d->items[m].n)
            p->rows[m] = pp_calloc(n + 1, sizeof *p->rows[m]);
}

/* Adds a document that is one sequence and fits. Most do, and this needs no
 * division. */
static bool add_whole(const struct pp_documents *d, size_t i,
                      const struct pp_piece_options *o, struct pp_pieces *out)
{
    size_t at = d->first[i], length = d->first[i + 1] - at;
    if (length == 0 || length > o->capacity)
        return false;
    size_t padded = o->align == 1 ? length : pp_round_up(length, o->align);
    out->padded[out->n] = (uint32_t)padded;
    out->n_tokens += length;
    out->piece[out->n++] = (struct pp_piece){.at = at,
                                             .source = (uint32_t)(i - o->first),
                                             .length = (uint32_t)length,
                                             .padded = (uint32_t)padded};
    return true;
}

/* Adds a piece of document i: `length` tokens from token `start` on, of a
 * unit. */
static void add_piece(const struct pp_documents *d, size_t i, struct unit u,
                      size_t start, size_t length, size_t padded,
                      const struct pp_piece_options *o, struct pp_pieces *out)
{
    size_t base = d->first[pp_documents_sequence(d, i)];
    out->padded[out->n] = (uint32_t)padded;
    for (int m = 0; m < PP_N_MODALITIES; m++)
        if (out->rows[m])
            out->rows[m][out->n] = (uint32_t)n_rows(d, (enum pp_modality)m, u);
    out->n_tokens += length;
    out->piece[out->n++] = (struct pp_piece){.at = base + start,
                                             .source = (uint32_t)(i - o->first),
                                             .start = (uint32_t)start,
                                             .length = (uint32_t)length,
                                             .padded = (uint32_t)padded};
}

/* Adds the pieces of a document that is never cut, one for each unit. */
static void add_units(const struct pp_documents *d, size_t i,
                      const struct pp_piece_options *o, struct pp_pieces *out)
{
    const struct unit all = whole_document(d, i);
    struct unit u;
    for (size_t s = all.first; s < all.end; s = u.end) {
        u = unit_at(d, i, s);
        if (unit_length(d, u) > 0)
            add_piece(d, i, u, d->first[s] - d->first[all.first],
                      unit_length(d, u), padded_length(d, u, o->align), o, out);
    }
}

static void add_pieces(const struct pp_documents *d, size_t i,
                       const struct pp_piece_options *o, struct pp_pieces *out)
{
    uint32_t limit = o->capacity;
    if (is_plain(d) && add_whole(d, i, o, out))
        return;
    size_t n = n_pieces(d, i, o);
    if (n && stays_whole(d, i)) {
        add_units(d, i, o, out);
        return;
    }
    for (size_t k = 0; k < n; k++) {
        size_t start = k * limit, left = document_length(d, i) - start;
        size_t length = left > limit ? limit : left;
        add_piece(d, i, whole_document(d, i), start, length,
                  pp_round_up(length, o->align), o, out);
    }
}

/* Counts what was left out as cut off. */
static void count_omissions(const struct pp_documents *d,
                            const struct pp_piece_options *o,
                            struct pp_input_counts *c)
{
    size_t limit = o->capacity / o->align * o->align;
    for (size_t k = 0; k < d->n_omissions; k++) {
        const struct pp_omission *l = &d->omissions[k];
        if (l->document < o->first || l->document >= o->end)
            continue;
        bool counts_later = o->oversize == PP_OVERSIZE_TRUNCATE &&
                            !stays_whole(d, l->document) &&
                            document_length(d, l->document) > limit;
        c->n_truncated += !counts_later;
        c->truncated_tokens += l->n_tokens;
        c->tokens += l->n_tokens;
        c->other_modes += l->n_sequences;
    }
}

/* Returns the options with end filled in, and counts the input. */
static struct pp_piece_options init_pieces(const struct pp_documents *d,
                                           const struct pp_piece_options *o,
                                           struct pp_pieces *out)
{
    struct pp_piece_options all = *o;
    if (!all.end)
        all.end = d->n;
    size_t first = pp_documents_sequence(d, all.first);
    size_t end = pp_documents_sequence(d, all.end);
    *out = (struct pp_pieces){0};
    out->counts.sequences = end - first;
    out->counts.tokens = d->first ? d->first[end] - d->first[first] : 0;
    out->counts.n_skipped = d->n_skipped;
    count_omissions(d, &all, &out->counts);
    return all;
}

int pp_pieces_make(const struct pp_documents *d,
                   const struct pp_piece_options *options,
                   struct pp_pieces *out, struct pp_err *err)
{
    struct pp_piece_options o = init_pieces(d, options, out);
    size_t n = 0;
    o.capacity = o.capacity / o.align *
                 o.align; /* padded lengths are multiples of align */
    for (int m = 0; m < PP_N_MODALITIES; m++)
        if (!o.rows[m])
            o.rows[m] = INT32_MAX; /* the sums of the index are of this type */
    if (count_pieces(d, &o, &n, out, err) != 0)
        return -1;
    alloc_pieces(out, n, d);
    for (size_t i = o.first; i < o.end; i++)
        add_pieces(d, i, &o, out);
    return 0;
}

/* Adds the pieces of a document. base is the first token of all documents. */
static void wrap_document(const struct pp_documents *d, size_t i,
                          const struct pp_piece_options *o, size_t base,
                          struct pp_pieces *out)
{
    size_t at = d->first[i] - base, end = d->first[i + 1] - base;
    size_t before = out->n, start = at;
    out->counts.n_empty += at == end;
    while (at < end) {
        size_t full = (at / o->capacity + 1) * o->capacity;
        uint32_t length = (uint32_t)((full < end ? full : end) - at);
        out->padded[out->n] = length;
        out->piece[out->n++] =
            (struct pp_piece){.at = base + at,
                              .source = (uint32_t)(i - o->first),
                              .start = (uint32_t)(at - start),
                              .length = length,
                              .padded = length};
        at += length;
    }
    out->counts.n_split += out->n > before + 1;
}

int pp_pieces_wrap(const struct pp_documents *d,
                   const struct pp_piece_options *options,
                   struct pp_pieces *out, struct pp_err *err)
{
    struct pp_piece_options o = init_pieces(d, options, out);
    size_t total = (size_t)(out->counts.tokens - out->counts.truncated_tokens);
    size_t n = o.end - o.first + total / o.capacity + 1;
    if (d->member || d->kind != PP_DATA_DOCUMENTS)
        return pp_fail(err, PP_EXIT_INPUT,
                       "pairs and rollouts cannot be cut to fill bins");
    if (pp_documents_have_items(d))
        return pp_fail(
            err, PP_EXIT_INPUT,
            "documents with images or audio cannot be cut to fill bins");
    if (n > UINT32_MAX)
        return pp_fail(err, PP_EXIT_INPUT,
                       "'%zu' sequences are too many to pack", n);
    alloc_pieces(out, n, d);
    for (size_t i = o.first; i < o.end; i++)
        wrap_document(d, i, &o, d->first[o.first], out);
    out->n_tokens = total;
    return 0;
}

size_t pp_piece_sequences(const struct pp_documents *d, size_t first_document,
                          const struct pp_piece *q, size_t *first)
{
    size_t document = first_document + q->source;
    size_t end = pp_documents_sequence(d, document + 1);
    *first = pp_documents_sequence(d, document);
    if (d->kind != PP_DATA_ROLLOUTS)
        return end - *first;
    /* The last sequence that begins there: others are empty. */
    while (end - *first > 1) {
        size_t middle = *first + (end - *first) / 2;
        if (d->first[middle] <= q->at)
            *first = middle;
        else
            end = middle;
    }
    return 1;
}

void pp_pieces_pad_evenly(struct pp_pieces *p, const uint32_t *members,
                          size_t n)
{
    uint32_t longest = 0;
    for (size_t i = 0; i < n; i++)
        if (p->padded[members[i]] > longest)
            longest = p->padded[members[i]];
    for (size_t i = 0; i < n; i++)
        p->padded[members[i]] = p->piece[members[i]].padded = longest;
}

void pp_pieces_pad_bin(struct pp_pieces *p, const uint32_t *members, size_t n,
                       uint32_t row)
{
    uint64_t total = 0;
    uint32_t shortest = members[0];
    for (size_t i = 0; i < n; i++) {
        total += p->padded[members[i]];
        if (p->padded[members[i]] < p->padded[shortest])
            shortest = members[i];
    }
    if (total % row == 0)
        return;
    p->padded[shortest] += row - (uint32_t)(total % row);
    p->piece[shortest].padded = p->padded[shortest];
}

void pp_pieces_finish(struct pp_pieces *p)
{
    free(p->piece);
    free(p->padded);
    for (int m = 0; m < PP_N_MODALITIES; m++)
        free(p->rows[m]);
    memset(p, 0, sizeof *p);
}
