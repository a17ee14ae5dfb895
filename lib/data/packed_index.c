/* SPDX-License-Identifier: MIT */
/* packed_index - builds the index of a packed directory. It has a few bytes per
 * sequence, so it is built as a whole: sizes are counted first, then the
 * sections are filled bin by bin. */
#include "base/hash.h"
#include "data/packed_format.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "data/documents.h"

static size_t first_sequence(const struct pp_packed_content *c,
                             const struct pp_piece *q)
{
    size_t i = c->first_document + q->source;
    return c->docs ? pp_documents_sequence(c->docs, i) : i;
}

uint32_t pp_piece_n_parts(const struct pp_packed_content *c,
                          const struct pp_piece *q)
{
    if (!c->docs || !c->docs->member)
        return 1;
    const uint32_t *member = c->docs->member + c->first_document + q->source;
    return member[1] - member[0];
}

struct pp_part pp_piece_part(const struct pp_packed_content *c,
                             const struct pp_piece *q, uint32_t k)
{
    struct pp_part p = {q->at, first_sequence(c, q) + k, q->start, q->length,
                        q->padded};
    if (pp_piece_n_parts(c, q) == 1)
        return p;
    const size_t *first = c->docs->first + p.sequence;
    p.at = first[0];
    p.start = (uint32_t)(first[0] - q->at);
    p.length = (uint32_t)(first[1] - first[0]);
    /* The last sequence has the padding of the bin. */
    if (k + 1 == pp_piece_n_parts(c, q))
        for (const size_t *f = first - k; f < first; f++)
            p.padded -= (uint32_t)pp_round_up(f[1] - f[0], c->align);
    else
        p.padded = (uint32_t)pp_round_up(p.length, c->align);
    return p;
}

/* Counts the items of all bins. */
static uint64_t count_items(const struct pp_packed_content *c,
                            enum pp_modality m)
{
    const struct pp_item *first;
    uint64_t n = 0;
    if (!c->docs || !c->docs->items[m].n)
        return 0;
    for (size_t i = 0; i < c->first[c->n_bins]; i++) {
        const struct pp_piece *q = &c->pieces[c->items[i]];
        for (uint32_t k = 0; k < pp_piece_n_parts(c, q); k++)
            n += pp_items_of(&c->docs->items[m], first_sequence(c, q) + k,
                             &first);
    }
    return n;
}

int pp_packed_content_streams(const struct pp_packed_content *c,
                              enum pp_modality of[PP_N_MODALITIES])
{
    int n = 0;
    for (int m = 0; m < PP_N_MODALITIES; m++)
        if (count_items(c, (enum pp_modality)m) > 0)
            of[n++] = (enum pp_modality)m;
    return n;
}

bool pp_packed_content_has(const struct pp_packed_content *c, int file)
{
    enum pp_modality of[PP_N_MODALITIES];
    if (file < PP_PACKED_COLUMNS)
        return true;
    if (file >= PP_PACKED_ROWS)
        return file - PP_PACKED_ROWS < pp_packed_content_streams(c, of);
    return c->docs && c->docs->columns[file - PP_PACKED_COLUMNS];
}

static bool has_generator(const struct pp_packed_content *c)
{
    return pp_packed_content_has(c,
                                 PP_PACKED_COLUMNS + PP_COLUMN_GENERATOR_IDS);
}

/* Counts the sequences of bin b. */
static size_t count_parts(const struct pp_packed_content *c, size_t b)
{
    size_t n = 0;
    for (size_t i = c->first[b]; i < c->first[b + 1]; i++)
        n += pp_piece_n_parts(c, &c->pieces[c->items[i]]);
    return n;
}

/* Sets what is known of the streams, and the version that has them. */
static void add_streams(struct pp_packed_header *h,
                        const struct pp_packed_content *c)
{
    enum pp_modality of[PP_N_MODALITIES];
    int n = pp_packed_content_streams(c, of);
    for (int i = 0; i < n; i++) {
        const struct pp_item_kind *kind = &c->docs->items[of[i]].kind;
        *pp_packed_items(h, i) =
            (struct pp_packed_items){.n_items = count_items(c, of[i]),
                                     .modality = (uint32_t)of[i],
                                     .width = kind->width,
                                     .token = kind->token,
                                     .merge = kind->merge,
                                     .row_capacity = c->row_capacity[of[i]]};
    }
    if (n > 1)
        h->version = PP_PACKED_BOTH;
    else if (n == 1)
        h->version = of[0] == PP_MODALITY_AUDIO             ? PP_PACKED_AUDIO
                     : c->docs->items[of[0]].kind.class_out ? PP_PACKED_CLASS
                                                            : PP_PACKED_IMAGES;
}

/* Makes the header one that has a generator, with the fields of all others. */
static void add_generator(struct pp_packed_header *h)
{
    h->class_out = h->version == PP_PACKED_CLASS;
    h->version = PP_PACKED_GENERATOR;
}

/* Makes the part of the header that is known before the bins are filled in. */
static struct pp_packed_header
make_index_header(const struct pp_packed_content *c)
{
    struct pp_packed_header h = {
        .magic = PP_PACKED_MAGIC,
        .version = 3,
        .n_bins = c->n_bins,
        .n_groups = c->first[c->n_bins],
        .n_inputs = c->n_inputs,
        .capacity = c->capacity,
        .align = c->align,
        .kind = c->docs ? c->docs->kind : PP_DATA_DOCUMENTS,
        .input = {c->counts.sequences, c->counts.tokens, c->counts.n_empty,
                  c->counts.n_dropped, c->counts.dropped_tokens,
                  c->counts.n_truncated, c->counts.truncated_tokens,
                  c->counts.n_split, c->counts.n_skipped},
        .epoch_seed = c->epoch.seed,
        .epoch_block = c->epoch.block,
    };
    if (c->ranks) {
        h.version = 5;
        h.cp = c->cp;
    }
    add_streams(&h, c);
    if (has_generator(c))
        add_generator(&h);
    h.header_bytes = pp_packed_header_bytes(h.version);
    for (size_t b = 0; b < c->n_bins; b++)
        h.n_sequences += count_parts(c, b);
    for (int f = PP_PACKED_INDEX + 1; f < PP_PACKED_N_FILES; f++)
        h.n_columns += pp_packed_content_has(c, f);
    h.n_columns += c->origin != 0;
    return h;
}

/* Takes room for n elements at a multiple of 8. Returns its offset. */
static uint64_t take_section(uint64_t *at, uint64_t n, size_t size)
{
    uint64_t here = *at;
    *at = pp_round_up(here + n * size, 8);
    return here;
}

/* Sets the offsets of all sections after the header. */
static void lay_out_sections(struct pp_packed_header *h)
{
    uint64_t at = h->header_bytes, n_cu = h->n_sequences + h->n_bins;
    h->columns =
        take_section(&at, h->n_columns, sizeof(struct pp_packed_column));
    h->bins = take_section(&at, h->n_bins, sizeof(struct pp_packed_record));
    h->cu_seqlens = take_section(&at, n_cu, 4);
    h->cu_seqlens_padded = take_section(&at, n_cu, 4);
    h->source = take_section(&at, h->n_sequences, 4);
    h->start = take_section(&at, h->n_sequences, 4);
    if (h->n_groups != h->n_sequences) {
        h->first_group = take_section(&at, h->n_bins, 8);
        h->cu_groups = take_section(&at, h->n_groups + h->n_bins, 4);
    }
    for (int i = 0; i < pp_packed_n_streams(h); i++) {
        struct pp_packed_items *s = pp_packed_items(h, i);
        s->bins =
            take_section(&at, h->n_bins, sizeof(struct pp_packed_item_record));
        s->cu_items = take_section(&at, n_cu, 4);
        s->cu_rows = take_section(&at, s->n_items + h->n_bins, 4);
        s->grids = take_section(&at, s->n_items, sizeof(struct pp_grid));
    }
    if (h->cp)
        h->ranks =
            take_section(&at, h->n_sequences, sizeof(struct pp_rank_range));
    if (h->version == PP_PACKED_GENERATOR)
        h->generator_scored = take_section(&at, h->n_bins, sizeof(uint32_t));
    h->index_bytes = at;
}

static void *section_at(struct pp_packed_header *h, uint64_t offset)
{
    return (char *)h + offset;
}

/* The state of filling the bins. */
struct index_cursor {
    struct pp_packed_header *h;
    const struct pp_packed_content *c;
    size_t bin, sequence, group; /* the next ones */
    int n_streams;
    struct pp_item_cursor items[PP_N_MODALITIES];
    struct pp_packed_stream totals[PP_N_MODALITIES]; /* of items so far */
};

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
    if (largest >= 0 && (uint32_t)largest >= *vocab)
        *vocab = (uint32_t)largest + 1;
    return scored;
}

/* Counts the generator's scored labels of a part. */
static void scan_generator(struct index_cursor *k, const struct pp_part *p)
{
    struct pp_packed_header *h = k->h;
    const void *ids = k->c->docs->columns[PP_COLUMN_GENERATOR_IDS];
    const void *labels = k->c->docs->columns[PP_COLUMN_GENERATOR_LABELS];
    uint32_t *scored = section_at(h, h->generator_scored);
    scored[k->bin] += scan_tokens((const int32_t *)ids + p->at,
                                  (const int32_t *)labels + p->at, p->length,
                                  &h->generator_vocab);
}

static int fill_part(struct index_cursor *k, struct pp_packed_record *r,
                     const struct pp_piece *q, const struct pp_part *p,
                     struct pp_err *err)
{
    struct pp_packed_header *h = k->h;
    size_t s = k->sequence, cu = s + k->bin;
    int32_t *sums = (int32_t *)section_at(h, h->cu_seqlens) + cu;
    int32_t *padded = (int32_t *)section_at(h, h->cu_seqlens_padded) + cu;
    const int32_t *ids = k->c->ids + p->at;
    ((uint32_t *)section_at(h, h->source))[s] =
        k->c->inputs ? k->c->inputs[q->source] : q->source;
    ((uint32_t *)section_at(h, h->start))[s] = p->start;
    sums[1] = sums[0] + (int32_t)p->length;
    padded[1] = padded[0] + (int32_t)p->padded;
    r->scored += scan_tokens(ids, k->c->labels ? k->c->labels + p->at : ids,
                             p->length, &h->vocab);
    r->max_seqlen = p->padded > r->max_seqlen ? p->padded : r->max_seqlen;
    r->real += p->length;
    r->tokens += p->padded;
    k->sequence++;
    if (h->version == PP_PACKED_GENERATOR)
        scan_generator(k, p);
    for (int i = 0; i < k->n_streams; i++)
        if (pp_item_add_part(&k->items[i], k->c, p, ids, err) != 0)
            return -1;
    return 0;
}

static int fill_bin(struct index_cursor *k, struct pp_packed_record *r,
                    struct pp_err *err)
{
    struct pp_packed_header *h = k->h;
    uint32_t *cu_groups =
        h->cu_groups ? (uint32_t *)section_at(h, h->cu_groups) : NULL;
    r->first_sequence = k->sequence;
    r->first_position = h->n_positions;
    for (int i = 0; i < k->n_streams; i++)
        pp_item_open_bin(&k->items[i]);
    if (cu_groups)
        ((uint64_t *)section_at(h, h->first_group))[k->bin] = k->group;
    for (size_t i = k->c->first[k->bin]; i < k->c->first[k->bin + 1]; i++) {
        const struct pp_piece *q = &k->c->pieces[k->c->items[i]];
        uint32_t n = pp_piece_n_parts(k->c, q);
        for (uint32_t m = 0; m < n; m++) {
            struct pp_part p = pp_piece_part(k->c, q, m);
            if (fill_part(k, r, q, &p, err) != 0)
                return -1;
        }
        k->group++;
        if (cu_groups)
            cu_groups[k->group + k->bin] =
                (uint32_t)(k->sequence - r->first_sequence);
        r->n_groups++;
    }
    r->n_sequences = (uint32_t)(k->sequence - r->first_sequence);
    for (int i = 0; i < k->n_streams; i++)
        pp_item_close_bin(&k->items[i]);
    k->bin++;
    return 0;
}

static int fill_bins(struct index_cursor *k, struct pp_err *err)
{
    struct pp_packed_header *h = k->h;
    struct pp_packed_record *r = section_at(h, h->bins);
    for (size_t b = 0, reported = 0; b < k->c->n_bins; b++, r++) {
        if (fill_bin(k, r, err) != 0)
            return -1;
        h->n_positions += r->tokens;
        h->n_tokens += r->real;
        h->max_tokens = r->tokens > h->max_tokens ? r->tokens : h->max_tokens;
        h->max_seqlen =
            r->max_seqlen > h->max_seqlen ? r->max_seqlen : h->max_seqlen;
        if (k->c->progress &&
            k->c->first[b + 1] - reported >= PP_PROGRESS_PIECES) {
            reported = k->c->first[b + 1];
            k->c->progress(k->c->ctx, b);
        }
    }
    return 0;
}

/* Fills the ranks of all sequences. The bins are filled. */
static void fill_ranks(struct pp_packed_header *h,
                       const struct pp_packed_content *c)
{
    struct pp_rank_range *ranks = section_at(h, h->ranks);
    const struct pp_packed p = {
        .n_bins = h->n_bins,
        .cp = h->cp,
        .sections = {[PP_SECTION_BINS] = section_at(h, h->bins),
                     [PP_SECTION_CU_PADDED] =
                         section_at(h, h->cu_seqlens_padded),
                     [PP_SECTION_RANKS] = ranks}};
    memcpy(ranks, c->ranks, h->n_sequences * sizeof *ranks);
    h->max_rank_tokens = pp_packed_most_rank_tokens(&p);
}

static void fill_columns(struct pp_packed_header *h,
                         const struct pp_packed_content *c,
                         const uint64_t sums[PP_PACKED_N_FILES])
{
    const uint64_t n[] = {h->n_positions, h->n_sequences, h->n_groups};
    struct pp_packed_column *t = section_at(h, h->columns);
    for (int f = PP_PACKED_INDEX + 1; f < PP_PACKED_N_FILES; f++) {
        if (!pp_packed_content_has(c, f))
            continue;
        const char *name = pp_packed_name(f);
        memcpy(t->name, name, strlen(name));
        t->scope = pp_packed_scope(f);
        t->dtype = pp_packed_is_int(f) ? PP_COLUMN_INT32 : PP_COLUMN_FLOAT32;
        if (f < PP_PACKED_ROWS) {
            t->n = n[t->scope];
        } else {
            const struct pp_packed_items *s =
                pp_packed_items(h, f - PP_PACKED_ROWS);
            t->n = s->n_rows * s->width;
        }
        if (pp_packed_is_list(f)) {
            t->width = (uint32_t)c->docs->top_k;
            t->n *= t->width;
        }
        t->checksum = sums[f];
        t++;
    }
    if (c->origin) {
        memcpy(t->name, PP_PACKED_ORIGIN, sizeof PP_PACKED_ORIGIN);
        t->checksum = c->origin;
    }
}

uint64_t pp_packed_sum(const struct pp_packed_header *index, size_t bytes)
{
    static const char zero[sizeof index->checksum];
    const char *p = (const char *)index;
    size_t at = offsetof(struct pp_packed_header, checksum);
    size_t rest = at + sizeof zero;
    enum pp_checksum_kind kind = pp_packed_checksum_kind(index->version);
    if (kind != PP_CHECKSUM_FNV1A64)
        return pp_checksum_of(kind, p + rest, bytes - rest);
    uint64_t h = pp_fnv(PP_FNV_START, p, at);
    h = pp_fnv(h, zero, sizeof zero);
    return pp_fnv(h, p + rest, bytes - rest);
}

struct pp_packed_header *
pp_packed_make_index(const struct pp_packed_content *c,
                     const uint64_t sums[PP_PACKED_N_FILES], struct pp_err *err)
{
    enum pp_modality of[PP_N_MODALITIES];
    if (pp_packed_content_streams(c, of) > 1 &&
        c->docs->items[PP_MODALITY_IMAGES].kind.class_out) {
        pp_fail(err, PP_EXIT_INPUT,
                "images with a feature of a class token cannot be packed "
                "beside audio");
        return NULL;
    }
    struct pp_packed_header head = make_index_header(c);
    lay_out_sections(&head);
    struct pp_packed_header *h = calloc(1, head.index_bytes);
    struct index_cursor k = {
        .h = h, .c = c, .n_streams = pp_packed_n_streams(&head)};
    if (!h) {
        pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
        return NULL;
    }
    memcpy(h, &head, head.header_bytes);
    for (int i = 0; i < k.n_streams; i++)
        pp_item_begin(&k.items[i], h, i, &k.totals[i]);
    if (fill_bins(&k, err) != 0) {
        free(h);
        return NULL;
    }
    for (int i = 0; i < k.n_streams; i++)
        pp_item_end(&k.items[i], pp_packed_items(h, i));
    fill_columns(h, c, sums);
    if (c->ranks)
        fill_ranks(h, c);
    h->checksum = pp_packed_sum(h, h->index_bytes);
    return h;
}
