/* SPDX-License-Identifier: MIT */
/* memory - makes packed sets in memory from a packed set. */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "base/rng.h"
#include "data/packed/packed.h"
#include "data/packed/format.h"

/* A set being built: first counted without memory, then filled. */
struct set_builder {
    struct pp_packed *out;
    struct pp_packed_fill fill;   /* of out */
    int32_t *ids, *labels;        /* these are NULL while counting */
    float *columns[PP_N_COLUMNS]; /* of tokens and sequences */
    uint32_t generator_vocab;     /* of the set to read */
};

/* Returns whether the copies have a column of p, which may be NULL. */
static bool copies_column(const struct pp_packed *p, int c)
{
    return p && p->map[PP_PACKED_COLUMNS + c] &&
           pp_columns[c].scope != PP_SCOPE_GROUP;
}

/* Returns the elements of a column so far. */
static size_t column_elements(const struct set_builder *b, int c)
{
    return pp_columns[c].scope == PP_SCOPE_TOKEN
               ? b->out->n_positions * pp_column_width(c, b->out->top_k)
               : b->out->n_sequences;
}

/* The columns of a sequence; NULL while counting. */
struct sequence_columns {
    int32_t *ids, *labels;
    float *columns[PP_N_COLUMNS]; /* NULL: absent */
};

/* Returns the elements of a column of ids. */
static int32_t *ids_in(const struct sequence_columns *to, enum pp_column c)
{
    return (int32_t *)(void *)to->columns[c];
}

/* Fills the columns of ids of a sequence as if all of it were padding. */
static void pad_columns(const struct sequence_columns *to, uint32_t padded)
{
    for (int c = 0; c < PP_N_COLUMNS; c++)
        for (uint32_t t = 0;
             to->columns[c] && pp_columns[c].is_ids && t < padded; t++)
            ids_in(to, (enum pp_column)c)[t] = pp_columns[c].pad;
}

/* Adds a sequence to the last bin. The caller fills its columns up to length;
 * the rest is padding. */
static struct sequence_columns append_sequence_to(struct set_builder *b,
                                                  uint32_t start,
                                                  uint32_t length,
                                                  uint32_t padded)
{
    struct sequence_columns at = {0};
    struct pp_packed *p = b->out;
    const struct pp_fill_sequence q = {.source = (uint32_t)p->n_sequences,
                                       .start = start,
                                       .length = length,
                                       .padded = padded};
    if (b->ids) {
        at.ids = b->ids + p->n_positions;
        at.labels = b->labels + p->n_positions;
        for (int c = 0; c < PP_N_COLUMNS; c++)
            if (b->columns[c])
                at.columns[c] = b->columns[c] + column_elements(b, c);
        for (uint32_t t = length; t < padded; t++)
            at.labels[t] = PP_LABEL_IGNORE;
        pad_columns(&at, padded);
    }
    pp_fill_sequence(&b->fill, &q);
    return at;
}

/* Begins to count a set like `from`, which may be NULL. */
static struct set_builder count_set(const struct pp_packed *from, uint32_t cp,
                                    struct pp_packed *out)
{
    struct set_builder b = {.out = out, .fill = {.set = out}};
    *out = (struct pp_packed){.align = 1, .cp = cp};
    if (from) {
        out->kind = from->kind;
        out->top_k = from->top_k;
        out->bytes = from->bytes;
        b.generator_vocab = from->generator_vocab;
        out->generator_vocab = pp_packed_has_generator(from);
    }
    return b;
}

/* Allocates what was counted, and begins anew. */
static int start_filling(struct set_builder *b, const struct pp_packed *from,
                         struct pp_err *err)
{
    struct pp_packed *p = b->out;
    size_t words = 2 * p->n_positions, n_bytes = 0;
    uint64_t offset[PP_N_SECTIONS + 1];
    size_t n[PP_N_COLUMNS] = {0};
    if (p->n_positions > SIZE_MAX / 64)
        return pp_fail(err, PP_EXIT_SYSTEM, "too many positions");
    for (int c = 0; c < PP_N_COLUMNS; c++) {
        n[c] = copies_column(from, c) ? column_elements(b, c) : 0;
        words += n[c];
    }
    if (pp_mul(words, sizeof(int32_t), &n_bytes, err) != 0)
        return -1;
    const size_t n_positions = p->n_positions;
    p->owned = pp_fill_begin(&b->fill, 8, n_bytes, offset, err);
    if (!p->owned)
        return -1;
    b->ids = (int32_t *)(void *)((char *)p->owned + offset[PP_N_SECTIONS]);
    b->labels = b->ids + n_positions;
    float *column = (float *)(void *)(b->labels + n_positions);
    for (int c = 0; c < PP_N_COLUMNS; c++) {
        b->columns[c] = copies_column(from, c) ? column : NULL;
        p->map[PP_PACKED_COLUMNS + c] = b->columns[c];
        column += n[c];
    }
    p->map[PP_PACKED_INPUT_IDS] = b->ids;
    p->map[PP_PACKED_LABELS] = b->labels;
    return 0;
}

/* Gives the last sequence the ranks of sequence i of a bin. */
static void copy_range(struct set_builder *b, const struct pp_bin *bin,
                       uint32_t i)
{
    struct pp_rank_range *ranks = b->fill.at[PP_SECTION_RANKS];
    if (ranks)
        ranks[b->fill.sequence] = bin->ranks[i];
}

/* Counts the scored labels of a bin of n sequences. */
static uint32_t count_scored(const struct pp_bin *bin, const int32_t *labels)
{
    uint32_t n = 0;
    for (uint32_t s = 0; s < bin->n_sequences; s++)
        for (int32_t t = bin->cu_seqlens_padded[s] + 1;
             t < bin->cu_seqlens_padded[s + 1]; t++)
            n += labels[t] != PP_LABEL_IGNORE;
    return n;
}

/* Raises *vocab to cover the n ids and their labels. */
static void cover_ids(const int32_t *ids, const int32_t *labels, size_t n,
                      uint32_t *vocab)
{
    for (size_t t = 0; t < n; t++) {
        pp_raise(vocab, (uint32_t)ids[t] + 1);
        if (labels && labels[t] != PP_LABEL_IGNORE)
            pp_raise(vocab, (uint32_t)labels[t] + 1);
    }
}

/* Computes the counts that depend on the columns. */
static void finish_set(struct set_builder *b)
{
    struct pp_packed *p = b->out;
    struct pp_packed_record *r = b->fill.at[PP_SECTION_BINS];
    uint32_t *generator = b->fill.at[PP_SECTION_GENERATOR];
    struct pp_bin bin;
    for (size_t i = 0; i < p->n_bins; i++) {
        pp_packed_bin(p, i, &bin);
        r[i].scored = count_scored(&bin, bin.labels);
        if (generator) {
            pp_packed_generator_bin(p, i, &bin);
            generator[i] = count_scored(&bin, bin.labels);
            cover_ids(bin.input_ids, bin.labels, bin.tokens,
                      &p->generator_vocab);
        }
    }
    cover_ids(b->ids, NULL, p->n_positions, &p->vocab);
    p->n_inputs = p->n_sequences;
    p->max_rank_tokens = p->cp ? pp_packed_most_rank_tokens(p) : 0;
    p->capacity = pp_packed_room(p, (int)p->cp);
    pp_raise(&p->capacity, p->max_tokens);
}

static void copy_columns(const struct sequence_columns *to,
                         const struct pp_bin *bin, uint32_t i, uint32_t length)
{
    for (int c = 0; c < PP_N_COLUMNS; c++) {
        bool by_token = pp_columns[c].scope == PP_SCOPE_TOKEN;
        size_t width = pp_column_width(c, bin->top_k);
        size_t at = by_token ? (size_t)bin->cu_seqlens_padded[i] : i;
        if (to->columns[c])
            memcpy(to->columns[c], bin->columns[c] + at * width,
                   (by_token ? length : 1) * width * sizeof(float));
    }
}

/* How to copy the sequences of a bin. */
struct copying {
    uint32_t single; /* that many in a bin of their own; 0: as they are */
    uint32_t extra;  /* tokens without a label, added to each */
    uint32_t align;  /* of the lengths with padding, if single */
};

static uint32_t round_length(uint32_t length, uint32_t align)
{
    return (length + align - 1) / align * align;
}

static void copy_bin(struct set_builder *b, const struct pp_bin *bin,
                     const struct copying *c)
{
    if (!c->single)
        pp_fill_bin(&b->fill);
    for (uint32_t i = 0; i < bin->n_sequences; i++) {
        int32_t at = bin->cu_seqlens_padded[i];
        uint32_t padded = (uint32_t)(bin->cu_seqlens_padded[i + 1] - at);
        uint32_t length =
            (uint32_t)(bin->cu_seqlens[i + 1] - bin->cu_seqlens[i]);
        uint32_t extended = length + c->extra;
        if (c->single && i % c->single == 0)
            pp_fill_bin(&b->fill);
        if (c->single)
            padded = round_length(extended, c->align);
        struct sequence_columns to =
            append_sequence_to(b, bin->start[i], extended, padded);
        if (!to.ids)
            continue;
        memcpy(to.ids, bin->input_ids + at, length * sizeof *to.ids);
        memcpy(to.labels, bin->labels + at, length * sizeof *to.labels);
        for (uint32_t t = length; t < extended; t++)
            to.labels[t] = PP_LABEL_IGNORE;
        copy_columns(&to, bin, i, length);
        copy_range(b, bin, i);
    }
}

static int copy_bins(const struct pp_packed *p, size_t n_bins,
                     const struct copying *c, struct pp_packed *out,
                     struct pp_err *err)
{
    struct set_builder b = count_set(p, c->single ? 0 : p->cp, out);
    struct pp_bin bin;
    for (int pass = 0; pass < 2; pass++) {
        if (pass == 1 && start_filling(&b, p, err) != 0)
            return -1;
        for (size_t i = 0; i < n_bins; i++) {
            pp_packed_bin(p, i % p->n_bins, &bin);
            copy_bin(&b, &bin, c);
        }
    }
    out->align = c->single ? c->align : p->align;
    finish_set(&b);
    if (pp_packed_copy_items(p, n_bins, out, err) == 0)
        return 0;
    pp_packed_finish(out);
    return -1;
}

int pp_packed_take(const struct pp_packed *p, size_t n_bins,
                   struct pp_packed *out, struct pp_err *err)
{
    return copy_bins(p, n_bins, &(struct copying){0}, out, err);
}

int pp_packed_unpack(const struct pp_packed *p, struct pp_packed *out,
                     struct pp_err *err)
{
    const struct copying c = {p->kind == PP_DATA_PAIRS ? 2 : 1, 0, 1};
    return copy_bins(p, p->n_bins, &c, out, err);
}

int pp_packed_extend(const struct pp_packed *p, uint32_t extra, uint32_t align,
                     struct pp_packed *out, struct pp_err *err)
{
    const struct copying c = {1, extra, align};
    return copy_bins(p, p->n_bins, &c, out, err);
}

/* Scales n, to at least 1. */
static uint32_t scale_length(uint32_t n, double by)
{
    double x = n * by;
    return x < 1 ? 1 : (uint32_t)x;
}

/* Returns a length with padding that divides by the alignment. */
static uint32_t aligned(uint32_t length, const struct pp_synthetic_data *l)
{
    return round_length(length, l->align ? l->align : 1);
}

static void fill_random(struct set_builder *b, struct sequence_columns to,
                        uint32_t length, const int32_t *labels, uint32_t old,
                        const struct pp_synthetic_data *l)
{
    for (uint32_t t = 0; to.ids && t < length; t++) {
        size_t at = (size_t)(to.ids - b->ids) + t;
        to.ids[t] = (int32_t)(pp_rng_uniform(l->seed, at) * l->vocab);
        bool ignored =
            labels && labels[(uint64_t)t * old / length] == PP_LABEL_IGNORE;
        to.labels[t] = ignored ? PP_LABEL_IGNORE : to.ids[t];
    }
}

/* Fills the columns of a generator with random ids. The labels that are ignored
 * are as among the `old` tokens of sequence i of a bin, scaled. */
static void fill_random_generator(const struct set_builder *b,
                                  const struct sequence_columns *to,
                                  uint32_t length, const struct pp_bin *bin,
                                  uint32_t i, uint32_t old,
                                  const struct pp_synthetic_data *l)
{
    const int c = PP_COLUMN_GENERATOR_LABELS;
    int32_t *ids = ids_in(to, PP_COLUMN_GENERATOR_IDS);
    int32_t *labels = ids_in(to, PP_COLUMN_GENERATOR_LABELS);
    uint64_t key = pp_rng_key(l->seed, "generator");
    if (!ids)
        return;
    const int32_t *from = (const int32_t *)(const void *)bin->columns[c];
    from += bin->cu_seqlens_padded[i];
    for (uint32_t t = 0; t < length; t++) {
        size_t at = (size_t)(to->ids - b->ids) + t;
        ids[t] = (int32_t)(pp_rng_uniform(key, at) * b->generator_vocab);
        bool ignored = from[(uint64_t)t * old / length] == PP_LABEL_IGNORE;
        labels[t] = ignored ? PP_LABEL_IGNORE : ids[t];
    }
}

/* Fills columns with values of a size that suits: log-probabilities near the
 * log-probabilities of a model that knows nothing, and standard normal others.
 */
static void fill_random_columns(const struct set_builder *b,
                                const struct sequence_columns *to,
                                uint32_t length,
                                const struct pp_synthetic_data *l)
{
    double least = log(l->vocab);
    for (int c = 0; to->ids && c < PP_N_COLUMNS; c++) {
        bool by_token = pp_columns[c].scope == PP_SCOPE_TOKEN;
        size_t n = (by_token ? length : 1) * pp_column_width(c, b->out->top_k);
        uint64_t key = pp_rng_key(l->seed, pp_columns[c].name);
        if (pp_columns[c].is_ids)
            continue;
        for (size_t t = 0; to->columns[c] && t < n; t++) {
            size_t at = (size_t)(to->columns[c] - b->columns[c]) + t;
            double x = pp_rng_normal(key, at);
            if (c == PP_COLUMN_TOPK_IDS) /* distinct in a list */
                x = (double)((at / b->out->top_k + t % b->out->top_k) %
                             l->vocab);
            else if (c != PP_COLUMN_ADVANTAGES && c != PP_COLUMN_REWARDS &&
                     c != PP_COLUMN_TOPK_LOGITS)
                x = (x / 8 - least) * (by_token ? 1 : length);
            to->columns[c][t] = (float)x;
        }
    }
}

static void add_scaled_bin(struct set_builder *b, const struct pp_bin *bin,
                           double by, bool pairs,
                           const struct pp_synthetic_data *l)
{
    uint32_t n = bin->n_sequences;
    n = n < l->max_sequences ? n : l->max_sequences;
    if (pairs)
        n -= n % 2;
    pp_fill_bin(&b->fill);
    for (uint32_t i = 0; i < n; i++) {
        int32_t at = bin->cu_seqlens_padded[i];
        uint32_t padded = (uint32_t)(bin->cu_seqlens_padded[i + 1] - at);
        uint32_t old = (uint32_t)(bin->cu_seqlens[i + 1] - bin->cu_seqlens[i]);
        uint32_t length = scale_length(old, by);
        uint32_t padding = padded > old ? scale_length(padded - old, by) : 0;
        struct sequence_columns to =
            append_sequence_to(b, 0, length, aligned(length + padding, l));
        copy_range(b, bin, i);
        fill_random(b, to, length, bin->labels ? bin->labels + at : NULL, old,
                    l);
        fill_random_columns(b, &to, length, l);
        fill_random_generator(b, &to, length, bin, i, old, l);
    }
}

/* Adds up to four sequences that fill between half and all of the tokens. */
static void add_random_bin(struct set_builder *b,
                           const struct pp_synthetic_data *l)
{
    uint64_t key = pp_rng_key(l->seed, "lengths"), at = 8 * b->out->n_bins;
    uint32_t n = 1 + (uint32_t)(pp_rng_uniform(key, at) * 4);
    pp_fill_bin(&b->fill);
    for (uint32_t i = 0; i < n; i++) {
        double share = (1 + pp_rng_uniform(key, at + 1 + i)) / 2;
        uint32_t length = scale_length(l->tokens, share / n);
        struct sequence_columns to =
            append_sequence_to(b, 0, length, aligned(length, l));
        fill_random(b, to, length, NULL, length, l);
    }
}

int pp_packed_synthetic(const struct pp_packed *p, size_t n_bins,
                        const struct pp_synthetic_data *l,
                        struct pp_packed *out, struct pp_err *err)
{
    struct set_builder b = count_set(p, p ? p->cp : 0, out);
    struct pp_bin bin;
    double by =
        p && p->max_tokens > l->tokens ? (double)l->tokens / p->max_tokens : 1;
    for (int pass = 0; pass < 2; pass++) {
        if (pass == 1 && start_filling(&b, p, err) != 0)
            return -1;
        for (size_t i = 0; i < n_bins; i++) {
            if (!p) {
                add_random_bin(&b, l);
                continue;
            }
            pp_packed_bin(p, i % p->n_bins, &bin);
            add_scaled_bin(&b, &bin, by, p->kind == PP_DATA_PAIRS, l);
        }
    }
    finish_set(&b);
    return 0;
}
