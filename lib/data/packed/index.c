/* SPDX-License-Identifier: MIT */
/* index - builds the index of a packed directory. It has a few bytes per
 * sequence, so it is built as a whole: sizes are counted first, then the
 * sections are filled bin by bin. */
#include "data/packed/format.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/num.h"
#include "data/documents.h"

/* Returns how many sequences a piece has, and the first of them. */
static size_t sequences_of(const struct pp_packed_content *c,
                           const struct pp_piece *q, size_t *first)
{
    *first = c->first_document + q->source;
    return c->docs && c->docs->member
               ? pp_piece_sequences(c->docs, c->first_document, q, first)
               : 1;
}

uint32_t pp_piece_n_parts(const struct pp_packed_content *c,
                          const struct pp_piece *q)
{
    size_t first;
    return (uint32_t)sequences_of(c, q, &first);
}

struct pp_part pp_piece_part(const struct pp_packed_content *c,
                             const struct pp_piece *q, uint32_t k)
{
    struct pp_part p = {q->at, 0, q->start, q->length, q->padded};
    size_t n = sequences_of(c, q, &p.sequence);
    p.sequence += k;
    if (n == 1)
        return p;
    const size_t *first = c->docs->first + p.sequence;
    p.at = first[0];
    p.start = (uint32_t)(first[0] - q->at);
    p.length = (uint32_t)(first[1] - first[0]);
    /* The last sequence has the padding of the bin. */
    if (k + 1 == n)
        for (const size_t *f = first - k; f < first; f++)
            p.padded -= (uint32_t)pp_round_up(f[1] - f[0], c->align);
    else
        p.padded = (uint32_t)pp_round_up(p.length, c->align);
    return p;
}

/* Returns whether any packed sequence has items of a modality. */
static bool has_items(const struct pp_packed_content *c, enum pp_modality m)
{
    const struct pp_item *first;
    size_t s;
    if (!c->docs || !c->docs->items[m].n)
        return false;
    for (size_t i = 0; i < c->first[c->n_bins]; i++) {
        size_t n = sequences_of(c, &c->pieces[c->items[i]], &s);
        for (; n > 0; n--)
            if (pp_items_of(&c->docs->items[m], s++, &first) > 0)
                return true;
    }
    return false;
}

void pp_packed_content_files(const struct pp_packed_content *c,
                             bool has[PP_PACKED_N_FILES])
{
    for (int f = 0; f < PP_PACKED_N_FILES; f++)
        if (f < PP_PACKED_COLUMNS)
            has[f] = true;
        else if (f < PP_PACKED_ROWS)
            has[f] = c->docs && c->docs->columns[f - PP_PACKED_COLUMNS];
        else
            has[f] = has_items(c, (enum pp_modality)(f - PP_PACKED_ROWS));
}

/* Counts the scored labels of a part. Raises *vocab to cover its ids. */
static uint32_t scan_tokens(const int32_t *ids, const int32_t *labels,
                            uint32_t n, uint32_t *vocab)
{
    uint32_t scored = 0;
    int32_t largest = -1;
    for (uint32_t i = 0; i < n; i++) {
        largest = ids[i] > largest ? ids[i] : largest;
        largest = labels[i] > largest ? labels[i] : largest;
        scored += i > 0 && labels[i] != PP_LABEL_IGNORE;
    }
    if (largest >= 0)
        pp_raise(vocab, (uint32_t)largest + 1);
    return scored;
}

/* Counts the generator's scored labels of a part. */
static uint32_t scan_generator(struct pp_packed *p,
                               const struct pp_packed_content *c,
                               const struct pp_part *part)
{
    const void *ids = c->docs->columns[PP_COLUMN_GENERATOR_IDS];
    const void *labels = c->docs->columns[PP_COLUMN_GENERATOR_LABELS];
    return scan_tokens((const int32_t *)ids + part->at,
                       (const int32_t *)labels + part->at, part->length,
                       &p->generator_vocab);
}

/* Adds the items that a sequence has of a modality. Its placeholders must be
 * the placeholders of the items. */
static int add_items(struct pp_packed_fill *f, enum pp_modality m,
                     const struct pp_packed_content *c,
                     const struct pp_part *part, struct pp_err *err)
{
    const struct pp_items *s = &c->docs->items[m];
    const struct pp_item_start *starts =
        f->at[pp_section_of(m, PP_SECTION_ITEM_STARTS)];
    const struct pp_item *at;
    size_t n = pp_items_of(s, part->sequence, &at);
    const struct pp_item_list list = pp_items_list(s, at, n);
    if (starts && pp_items_check_places(&list, c->ids + part->at, part->length,
                                        PP_EXIT_INPUT, err) != 0)
        return pp_fail_at(err, "sequence %zu: ", part->sequence);
    for (size_t i = 0; i < n; i++) {
        uint64_t rows = f->set->streams[m].n_rows + at[i].rows;
        if (starts && rows - starts[f->bin].first_row > INT32_MAX)
            return pp_fail(err, PP_EXIT_INPUT,
                           "bin %zu: cannot have more than '%d' %s", f->bin,
                           INT32_MAX, pp_modality_words(m).rows);
        pp_fill_item(f, m, &at[i].grid);
    }
    return 0;
}

/* Fills what the sequence that was just added has beside its place. */
static void fill_part(struct pp_packed_fill *f,
                      const struct pp_packed_content *c,
                      const struct pp_part *part)
{
    struct pp_rank_range *ranks = f->at[PP_SECTION_RANKS];
    uint32_t *scored = f->at[PP_SECTION_GENERATOR];
    pp_fill_record(f)->scored += scan_tokens(
        c->ids + part->at, (c->labels ? c->labels : c->ids) + part->at,
        part->length, &f->set->vocab);
    if (scored)
        scored[f->bin] += scan_generator(f->set, c, part);
    if (ranks)
        ranks[f->sequence] = c->ranks[f->sequence];
}

static int fill_part_of(struct pp_packed_fill *f,
                        const struct pp_packed_content *c,
                        const struct pp_piece *q, uint32_t k,
                        struct pp_err *err)
{
    const struct pp_part part = pp_piece_part(c, q, k);
    const struct pp_fill_sequence s = {
        .source = c->inputs ? c->inputs[q->source] : q->source,
        .start = part.start,
        .length = part.length,
        .padded = part.padded,
        .is_member = k > 0};
    pp_fill_sequence(f, &s);
    if (f->at[PP_SECTION_BINS])
        fill_part(f, c, &part);
    for (int m = 0; m < PP_N_MODALITIES; m++)
        if (pp_stream_exists(&f->set->streams[m]) &&
            add_items(f, (enum pp_modality)m, c, &part, err) != 0)
            return -1;
    return 0;
}

/* Adds all bins: counts them, or fills them in. */
static int add_bins(struct pp_packed_fill *f, const struct pp_packed_content *c,
                    struct pp_err *err)
{
    bool fills = f->at[PP_SECTION_BINS];
    for (size_t b = 0, reported = 0; b < c->n_bins; b++) {
        pp_fill_bin(f);
        for (size_t i = c->first[b]; i < c->first[b + 1]; i++) {
            const struct pp_piece *q = &c->pieces[c->items[i]];
            uint32_t n = pp_piece_n_parts(c, q);
            for (uint32_t k = 0; k < n; k++)
                if (fill_part_of(f, c, q, k, err) != 0)
                    return -1;
        }
        if (fills && c->progress &&
            c->first[b + 1] - reported >= PP_PROGRESS_PIECES) {
            reported = c->first[b + 1];
            c->progress(c->ctx, b);
        }
    }
    return 0;
}

/* Makes the part of a set that is known before its bins. */
static struct pp_packed make_empty_set(const struct pp_packed_content *c,
                                       const bool has[PP_PACKED_N_FILES])
{
    struct pp_packed p = {
        .n_inputs = c->n_inputs,
        .capacity = c->capacity,
        .align = c->align,
        .kind = c->docs ? c->docs->kind : PP_DATA_DOCUMENTS,
        .top_k = c->docs ? (uint32_t)c->docs->top_k : 0,
        .bytes = c->docs && c->docs->bytes,
        .input = c->counts,
        .origin = c->origin,
        .epoch = c->epoch,
        .cp = c->ranks ? c->cp : 0,
        /* Raised by the ids: it has the section. */
        .generator_vocab = has[PP_PACKED_COLUMNS + PP_COLUMN_GENERATOR_IDS],
    };
    for (int m = 0; m < PP_N_MODALITIES; m++) {
        if (!has[PP_PACKED_ROWS + m])
            continue;
        const struct pp_item_kind *kind = &c->docs->items[m].kind;
        p.streams[m] =
            (struct pp_packed_stream){.modality = (enum pp_modality)m,
                                      .width = kind->width,
                                      .token = kind->token,
                                      .merge = kind->merge,
                                      .capacity = c->row_capacity[m],
                                      .class_out = kind->class_out};
    }
    return p;
}

struct pp_packed_header *
pp_packed_make_index(const struct pp_packed_content *c,
                     const bool has[PP_PACKED_N_FILES],
                     const uint64_t sums[PP_PACKED_N_FILES], struct pp_err *err)
{
    struct pp_packed p = make_empty_set(c, has);
    struct pp_packed_fill f = {.set = &p};
    uint64_t offset[PP_N_SECTIONS + 1];
    int n_files = 0;
    for (int i = PP_PACKED_INDEX + 1; i < PP_PACKED_N_FILES; i++)
        n_files += has[i];
    if (add_bins(&f, c, err) != 0)
        return NULL;
    struct pp_packed_header *h =
        pp_fill_begin(&f, pp_packed_head_bytes(&p, n_files), 0, offset, err);
    if (!h)
        return NULL;
    if (add_bins(&f, c, err) != 0) {
        free(h);
        return NULL;
    }
    if (p.cp)
        p.max_rank_tokens = pp_packed_most_rank_tokens(&p);
    pp_packed_put_header(&p, offset, has, sums, h);
    return h;
}
