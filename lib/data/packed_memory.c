/* SPDX-License-Identifier: MIT */
#include "data/packed_memory.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "base/rng.h"
#include "data/packed_format.h"

/* A set under way. Counted first, with nothing allocated, then filled. */
struct set_builder {
    struct pp_packed *out;
    size_t n_bins, n_sequences, n_positions; /* so far */
    struct pp_packed_record *records;        /* all NULL while counting */
    int32_t *cu, *cu_padded, *ids, *labels;
    uint32_t *source, *start;
    int32_t *tokens; /* a bin of the set that is read: its ids, its labels */
};

static void open_bin(struct set_builder *b)
{
    if (b->records) {
        b->records[b->n_bins] = (struct pp_packed_record){
            .first_sequence = b->n_sequences, .first_position = b->n_positions};
        b->cu[b->n_sequences + b->n_bins] = 0;
        b->cu_padded[b->n_sequences + b->n_bins] = 0;
    }
    b->n_bins++;
}

/* Where a sequence's columns are; NULL while counting. */
struct sequence_columns {
    int32_t *ids, *labels;
};

/* A further sequence of the last bin. The caller fills its columns up to
 * length; the rest of the slot is padding. */
static struct sequence_columns append_sequence_to(struct set_builder *b,
                                                  uint32_t start,
                                                  uint32_t length,
                                                  uint32_t padded)
{
    struct sequence_columns at = {0};
    if (b->records) {
        struct pp_packed_record *r = &b->records[b->n_bins - 1];
        size_t i = b->n_sequences + b->n_bins - 1;
        r->n_sequences++;
        r->n_groups++;
        r->real += length;
        r->tokens += padded;
        r->max_seqlen = padded > r->max_seqlen ? padded : r->max_seqlen;
        b->cu[i + 1] = b->cu[i] + (int32_t)length;
        b->cu_padded[i + 1] = b->cu_padded[i] + (int32_t)padded;
        b->source[b->n_sequences] = (uint32_t)b->n_sequences;
        b->start[b->n_sequences] = start;
        at = (struct sequence_columns){b->ids + b->n_positions,
                                       b->labels + b->n_positions};
        for (uint32_t t = length; t < padded; t++) {
            at.ids[t] = 0;
            at.labels[t] = PP_LABEL_IGNORE;
        }
    }
    b->n_sequences++;
    b->n_positions += padded;
    return at;
}

/* Allocates what was counted and begins anew; from is what will be read, or
 * NULL. */
static int start_filling(struct set_builder *b, const struct pp_packed *from,
                         struct pp_packed *out, struct pp_err *err)
{
    size_t tokens = from ? from->max_tokens : 0;
    size_t n_cu = b->n_sequences + b->n_bins, bytes;
    size_t words = 2 * (n_cu + b->n_sequences + b->n_positions);
    if (b->n_sequences > UINT32_MAX || b->n_positions > SIZE_MAX / 64 ||
        pp_mul(b->n_bins, sizeof *b->records, &bytes, err))
        return pp_fail(err, PP_EXIT_SYSTEM, "too many sequences");
    char *owned = calloc(1, bytes + words * 4);
    int32_t *scratch = calloc(2 * tokens + 1, sizeof *scratch);
    if (!owned || !scratch) {
        free(owned);
        free(scratch);
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    }
    memset(out, 0, sizeof *out);
    out->owned = owned;
    out->n_bins = b->n_bins;
    out->n_sequences = out->n_inputs = b->n_sequences;
    out->n_groups = b->n_sequences;
    out->n_positions = b->n_positions;
    out->align = 1;
    int32_t *at = (int32_t *)(owned + bytes);
    *b = (struct set_builder){.out = out, .records = (void *)owned, .cu = at};
    b->cu_padded = at + n_cu;
    b->source = (uint32_t *)(at + 2 * n_cu);
    b->start = b->source + out->n_sequences;
    b->ids = (int32_t *)b->start + out->n_sequences;
    b->labels = b->ids + out->n_positions;
    b->tokens = scratch;
    return 0;
}

/* Bin i of p, beginning anew at its end; its tokens are wherever they are, so
 * they are copied, but not for counting. */
static void read_bin(struct set_builder *b, const struct pp_packed *p, size_t i,
                     struct pp_bin *bin)
{
    pp_packed_bin(p, i % p->n_bins, bin);
    if (!b->tokens)
        return;
    bin->input_ids = b->tokens;
    bin->labels = b->tokens + p->max_tokens;
    pp_packed_tokens(p, i % p->n_bins, b->tokens, b->tokens + p->max_tokens);
}

/* The counts that the columns decide. */
static void finish_set(struct set_builder *b)
{
    struct pp_packed *p = b->out;
    for (size_t i = 0; i < p->n_bins; i++) {
        struct pp_packed_record *r = &b->records[i];
        const int32_t *padded = b->cu_padded + r->first_sequence + i;
        const int32_t *labels = b->labels + r->first_position;
        for (uint32_t s = 0; s < r->n_sequences; s++)
            for (int32_t t = padded[s] + 1; t < padded[s + 1]; t++)
                r->scored += labels[t] != PP_LABEL_IGNORE;
        p->n_tokens += r->real;
        if (r->tokens > p->max_tokens)
            p->max_tokens = r->tokens;
        if (r->max_seqlen > p->max_seqlen)
            p->max_seqlen = r->max_seqlen;
    }
    for (size_t t = 0; t < p->n_positions; t++)
        if ((uint32_t)b->ids[t] + 1 > p->vocab)
            p->vocab = (uint32_t)b->ids[t] + 1;
    free(b->tokens);
    p->capacity = p->max_tokens;
    p->sections[PP_SECTION_BINS] = b->records;
    p->sections[PP_SECTION_CU] = b->cu;
    p->sections[PP_SECTION_CU_PADDED] = b->cu_padded;
    p->sections[PP_SECTION_SOURCE] = b->source;
    p->sections[PP_SECTION_START] = b->start;
    p->map[PP_PACKED_INPUT_IDS] = b->ids;
    p->map[PP_PACKED_LABELS] = b->labels;
}

/* Adds the sequences of one bin as they are; single: each in a bin of its own,
 * its padding left out. */
static void copy_bin(struct set_builder *b, const struct pp_bin *bin,
                     bool single)
{
    if (!single)
        open_bin(b);
    for (uint32_t i = 0; i < bin->n_sequences; i++) {
        int32_t at = bin->cu_seqlens_padded[i];
        uint32_t padded = (uint32_t)(bin->cu_seqlens_padded[i + 1] - at);
        uint32_t length =
            (uint32_t)(bin->cu_seqlens[i + 1] - bin->cu_seqlens[i]);
        if (single)
            open_bin(b);
        struct sequence_columns to = append_sequence_to(
            b, bin->start[i], length, single ? length : padded);
        if (!to.ids)
            continue;
        memcpy(to.ids, bin->input_ids + at, length * sizeof *to.ids);
        memcpy(to.labels, bin->labels + at, length * sizeof *to.labels);
    }
}

static int copy_bins(const struct pp_packed *p, size_t n_bins, bool single,
                     struct pp_packed *out, struct pp_err *err)
{
    struct set_builder b = {0};
    struct pp_bin bin;
    for (int pass = 0; pass < 2; pass++) {
        if (pass == 1 && start_filling(&b, p, out, err))
            return -1;
        for (size_t i = 0; i < n_bins; i++) {
            read_bin(&b, p, i, &bin);
            copy_bin(&b, &bin, single);
        }
    }
    out->align = single ? 1 : p->align;
    finish_set(&b);
    return 0;
}

int pp_packed_take(const struct pp_packed *p, size_t n_bins,
                   struct pp_packed *out, struct pp_err *err)
{
    return copy_bins(p, n_bins, false, out, err);
}

int pp_packed_unpack(const struct pp_packed *p, struct pp_packed *out,
                     struct pp_err *err)
{
    return copy_bins(p, p->n_bins, true, out, err);
}

/* n in small: at least 1. */
static uint32_t scale_length(uint32_t n, double by)
{
    double x = n * by;
    return x < 1 ? 1 : (uint32_t)x;
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

static void add_scaled_bin(struct set_builder *b, const struct pp_bin *bin,
                           double by, const struct pp_synthetic_data *l)
{
    uint32_t n = bin->n_sequences;
    n = n < l->max_sequences ? n : l->max_sequences;
    open_bin(b);
    for (uint32_t i = 0; i < n; i++) {
        int32_t at = bin->cu_seqlens_padded[i];
        uint32_t padded = (uint32_t)(bin->cu_seqlens_padded[i + 1] - at);
        uint32_t old = (uint32_t)(bin->cu_seqlens[i + 1] - bin->cu_seqlens[i]);
        uint32_t length = scale_length(old, by);
        uint32_t padding = padded > old ? scale_length(padded - old, by) : 0;
        struct sequence_columns to =
            append_sequence_to(b, 0, length, length + padding);
        fill_random(b, to, length, bin->labels ? bin->labels + at : NULL, old,
                    l);
    }
}

/* Up to four sequences that fill between half of the tokens and all. */
static void add_random_bin(struct set_builder *b,
                           const struct pp_synthetic_data *l)
{
    uint64_t key = pp_rng_key(l->seed, "lengths"), at = 8 * b->n_bins;
    uint32_t n = 1 + (uint32_t)(pp_rng_uniform(key, at) * 4);
    open_bin(b);
    for (uint32_t i = 0; i < n; i++) {
        double share = (1 + pp_rng_uniform(key, at + 1 + i)) / 2;
        uint32_t length = scale_length(l->tokens, share / n);
        fill_random(b, append_sequence_to(b, 0, length, length), length, NULL,
                    length, l);
    }
}

int pp_packed_synthetic(const struct pp_packed *p, size_t n_bins,
                        const struct pp_synthetic_data *l,
                        struct pp_packed *out, struct pp_err *err)
{
    struct set_builder b = {0};
    struct pp_bin bin;
    double by =
        p && p->max_tokens > l->tokens ? (double)l->tokens / p->max_tokens : 1;
    for (int pass = 0; pass < 2; pass++) {
        if (pass == 1 && start_filling(&b, p, out, err))
            return -1;
        for (size_t i = 0; i < n_bins; i++) {
            if (!p) {
                add_random_bin(&b, l);
                continue;
            }
            read_bin(&b, p, i, &bin);
            add_scaled_bin(&b, &bin, by, l);
        }
    }
    finish_set(&b);
    return 0;
}
