/* SPDX-License-Identifier: MIT */
/* documents - growing arrays of tokens and columns. It is one file because
 * every function keeps the same arrays in step. */
#include "data/documents.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/num.h"
#include "data/packed/packed.h"

const struct pp_column_kind pp_columns[PP_N_COLUMNS] = {
    [PP_COLUMN_ADVANTAGES] = {"advantages", PP_SCOPE_TOKEN, false, false, 0},
    [PP_COLUMN_LOGPROBS] = {"logprobs", PP_SCOPE_TOKEN, false, false, 0},
    [PP_COLUMN_PREV_LOGPROBS] = {"prev_logprobs", PP_SCOPE_TOKEN, false, false,
                                 0},
    [PP_COLUMN_REF_LOGPROBS] = {"ref_logprobs", PP_SCOPE_TOKEN, false, false,
                                0},
    [PP_COLUMN_REWARDS] = {"rewards", PP_SCOPE_SEQUENCE, false, false, 0},
    [PP_COLUMN_REF_LOGPS] = {"ref_logps", PP_SCOPE_SEQUENCE, false, false, 0},
    [PP_COLUMN_MARGINS] = {"margins", PP_SCOPE_GROUP, false, false, 0},
    [PP_COLUMN_TOPK_IDS] = {"topk_ids", PP_SCOPE_TOKEN, true, false, 0},
    [PP_COLUMN_TOPK_LOGITS] = {"topk_logits", PP_SCOPE_TOKEN, true, false, 0},
    [PP_COLUMN_GENERATOR_IDS] = {"generator_ids", PP_SCOPE_TOKEN, false, true,
                                 0},
    [PP_COLUMN_GENERATOR_LABELS] = {"generator_labels", PP_SCOPE_TOKEN, false,
                                    true, PP_LABEL_IGNORE},
};

const char *const pp_data_kinds[PP_DATA_N_KINDS] = {"documents", "pairs",
                                                    "rollouts"};

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "tokens are copied as they lie: little endian machines only");

unsigned pp_token_bytes(unsigned type)
{
    static const unsigned char bytes[] = {
        [PP_TOKEN_U8] = 1,  [PP_TOKEN_I8] = 1,  [PP_TOKEN_I16] = 2,
        [PP_TOKEN_I32] = 4, [PP_TOKEN_I64] = 8, [PP_TOKEN_U16] = 2,
        [PP_TOKEN_U32] = 4, [PP_TOKEN_U64] = 8,
    };
    return type < sizeof bytes ? bytes[type] : 0;
}

/* One loop per type, since the compiler then knows the width. */
#define DEFINE_CONVERT(name, type)                                   \
    static bool name(const unsigned char *p, size_t n, int32_t *out) \
    {                                                                \
        bool good = true;                                            \
        for (size_t i = 0; i < n; i++) {                             \
            type v;                                                  \
            memcpy(&v, p + i * sizeof v, sizeof v);                  \
            int64_t id = v;                                          \
            bool is_id = id >= 0 && id < INT32_MAX;                  \
            out[i] = is_id ? (int32_t)id : -1;                       \
            good &= is_id;                                           \
        }                                                            \
        return good;                                                 \
    }

DEFINE_CONVERT(from_u8, uint8_t)
DEFINE_CONVERT(from_i8, int8_t)
DEFINE_CONVERT(from_i16, int16_t)
DEFINE_CONVERT(from_i32, int32_t)
DEFINE_CONVERT(from_i64, int64_t)
DEFINE_CONVERT(from_u16, uint16_t)
DEFINE_CONVERT(from_u32, uint32_t)

bool pp_token_convert(unsigned type, const void *from, size_t n, int32_t *out)
{
    switch (type) {
    case PP_TOKEN_U8:
        return from_u8(from, n, out);
    case PP_TOKEN_I8:
        return from_i8(from, n, out);
    case PP_TOKEN_I16:
        return from_i16(from, n, out);
    case PP_TOKEN_I32:
        return from_i32(from, n, out);
    case PP_TOKEN_U32:
        return from_u32(from, n, out);
    case PP_TOKEN_I64:
    case PP_TOKEN_U64: /* above the signed range is no id either */
        return from_i64(from, n, out);
    case PP_TOKEN_U16:
        return from_u16(from, n, out);
    default:
        return false;
    }
}

size_t pp_documents_n_tokens(const struct pp_documents *d)
{
    return d->n_sequences ? d->first[d->n_sequences] : 0;
}

/* Makes room for n elements of 4 bytes in an array that may move to a file. */
static int reserve_tokens(struct pp_documents *d, struct pp_spill_array *g,
                          size_t n, struct pp_err *err)
{
    return n <= g->room && g->at ? 0
                                 : pp_spill_grow(g, n, sizeof(int32_t),
                                                 d->spill, d->spill_bytes, err);
}

int32_t *pp_documents_reserve(struct pp_documents *d, size_t n,
                              struct pp_err *err)
{
    size_t need;
    if (__builtin_add_overflow(pp_documents_n_tokens(d), n, &need)) {
        pp_fail(err, PP_EXIT_SYSTEM, "too many tokens");
        return NULL;
    }
    if (d->forget_ids) {
        if (n >= d->grow_ids.room &&
            pp_spill_grow(&d->grow_ids, n + 1, sizeof *d->ids, NULL, 0, err) !=
                0)
            return NULL;
        return d->grow_ids.at;
    }
    if (reserve_tokens(d, &d->grow_ids, need, err) != 0)
        return NULL;
    d->ids = d->grow_ids.at;
    return d->ids + pp_documents_n_tokens(d);
}

/* Copies ids to labels; unknown ids become 0. */
static void copy_ids_to_labels(struct pp_documents *d, size_t from, size_t n)
{
    if (n && d->ids)
        memcpy(d->labels + from, d->ids + from, n * sizeof *d->labels);
    else if (n)
        memset(d->labels + from, 0, n * sizeof *d->labels);
}

/* Sets the labels of the sequence of n tokens that begins at used. */
static int set_labels(struct pp_documents *d, size_t used, size_t n,
                      const int32_t *labels, struct pp_err *err)
{
    bool fresh = !d->labels;
    if (reserve_tokens(d, &d->grow_labels, used + n, err) != 0)
        return -1;
    d->labels = d->grow_labels.at;
    /* Earlier sequences had no labels of their own: their ids are the
     * labels. */
    if (fresh)
        copy_ids_to_labels(d, 0, used);
    if (!labels)
        copy_ids_to_labels(d, used, n);
    else if (n)
        memcpy(d->labels + used, labels, n * sizeof *d->labels);
    return 0;
}

static int reserve_first(struct pp_documents *d, struct pp_err *err)
{
    if (d->n_sequences + 2 > d->grow_first.room &&
        pp_spill_grow(&d->grow_first, d->n_sequences + 2, sizeof *d->first,
                      NULL, 0, err) != 0)
        return -1;
    d->first = d->grow_first.at;
    return 0;
}

static int reserve_members(struct pp_documents *d, struct pp_err *err)
{
    if (d->n + 2 > d->grow_member.room &&
        pp_spill_grow(&d->grow_member, d->n + 2, sizeof *d->member, NULL, 0,
                      err) != 0)
        return -1;
    d->member = d->grow_member.at;
    return 0;
}

int pp_documents_add(struct pp_documents *d, size_t n, const int32_t *labels,
                     struct pp_err *err)
{
    size_t used = pp_documents_n_tokens(d);
    if (d->n_sequences >= UINT32_MAX || n > INT32_MAX)
        return pp_fail(err, PP_EXIT_INPUT, "too long to be packed");
    if ((labels || d->labels) && set_labels(d, used, n, labels, err) != 0)
        return -1;
    if (reserve_first(d, err) != 0 ||
        (d->member && reserve_members(d, err) != 0))
        return -1;
    if (d->n_sequences == 0)
        d->first[0] = 0;
    d->first[++d->n_sequences] = used + n;
    d->n++;
    if (d->member)
        d->member[d->n] = (uint32_t)d->n_sequences;
    if (d->spill && (used + n - d->released) * sizeof *d->ids > d->spill_bytes)
        pp_documents_release(d);
    return 0;
}

int pp_documents_join(struct pp_documents *d, struct pp_err *err)
{
    if (!d->member) {
        if (reserve_members(d, err) != 0)
            return -1;
        for (size_t i = 0; i <= d->n; i++)
            d->member[i] = (uint32_t)i;
    }
    if (d->first[d->n_sequences] - d->first[d->member[d->n - 2]] > INT32_MAX)
        return pp_fail(err, PP_EXIT_INPUT, "too long to be packed");
    d->member[d->n - 1] = d->member[d->n];
    d->n--;
    return 0;
}

/* Returns how many elements a complete column has, with or without the last
 * sequence. */
static size_t n_column_values(const struct pp_documents *d,
                              enum pp_column column, bool before_last)
{
    size_t s = d->n_sequences - before_last;
    switch (pp_columns[column].scope) {
    case PP_SCOPE_TOKEN:
        return s ? d->first[s] * pp_column_width(column, d->top_k) : 0;
    case PP_SCOPE_SEQUENCE:
        return s;
    default:
        return d->n - before_last;
    }
}

bool pp_documents_have_items(const struct pp_documents *d)
{
    for (int m = 0; m < PP_N_MODALITIES; m++)
        if (d->items[m].n)
            return true;
    return false;
}

int pp_documents_attach_items(struct pp_documents *d, struct pp_err *err)
{
    for (int m = 0; m < PP_N_MODALITIES; m++)
        if (pp_items_attach(&d->items[m], d->n_sequences - 1, err) != 0)
            return -1;
    return 0;
}

/* Makes room for `to` elements of a column. */
static int reserve_column(struct pp_documents *d, enum pp_column column,
                          size_t to, struct pp_err *err)
{
    if (reserve_tokens(d, &d->grow_columns[column], to, err) != 0)
        return -1;
    d->columns[column] = d->grow_columns[column].at;
    return 0;
}

static int32_t *column_ids(const struct pp_documents *d, enum pp_column column)
{
    return (int32_t *)(void *)d->columns[column];
}

/* Pads a column of ids up to element `to`: earlier sequences have none. */
static int pad_ids(struct pp_documents *d, enum pp_column column, size_t to,
                   struct pp_err *err)
{
    if (!pp_columns[column].is_ids || d->n_values[column] >= to)
        return 0;
    if (reserve_column(d, column, to, err) != 0)
        return -1;
    for (size_t i = d->n_values[column]; i < to; i++)
        column_ids(d, column)[i] = pp_columns[column].pad;
    d->n_values[column] = to;
    return 0;
}

int pp_documents_set_column(struct pp_documents *d, enum pp_column column,
                            const void *values, struct pp_err *err)
{
    size_t from = n_column_values(d, column, true),
           to = n_column_values(d, column, false);
    if (pad_ids(d, column, from, err) != 0)
        return -1;
    if (d->n_values[column] != from)
        return pp_fail(err, PP_EXIT_INPUT,
                       "has '%s', but earlier documents do not",
                       pp_columns[column].name);
    if (reserve_column(d, column, to, err) != 0)
        return -1;
    if (to > from)
        memcpy(d->columns[column] + from, values,
               (to - from) * sizeof(int32_t));
    d->n_values[column] = to;
    return 0;
}

static int fail_beside_generator(const char *what, struct pp_err *err)
{
    return pp_fail(err, PP_EXIT_INPUT,
                   "'generator_ids' cannot be beside '%s': a generator is "
                   "trained by supervised fine-tuning alone",
                   what);
}

int pp_documents_set_generator(struct pp_documents *d, const int32_t *ids,
                               const int32_t *labels, struct pp_err *err)
{
    const enum pp_column c = PP_COLUMN_GENERATOR_LABELS;
    for (int i = 0; i < PP_N_COLUMNS; i++)
        if (d->columns[i] && !pp_columns[i].is_ids)
            return fail_beside_generator(pp_columns[i].name, err);
    if (d->n > 1 && d->kind != PP_DATA_DOCUMENTS)
        return fail_beside_generator(pp_data_kinds[d->kind], err);
    if (pp_documents_set_column(d, PP_COLUMN_GENERATOR_IDS, ids, err) != 0)
        return -1;
    if (labels)
        return pp_documents_set_column(d, c, labels, err);
    size_t from = n_column_values(d, c, true),
           to = n_column_values(d, c, false);
    if (pad_ids(d, c, from, err) != 0 || reserve_column(d, c, to, err) != 0)
        return -1;
    for (size_t i = from; i < to; i++)
        column_ids(d, c)[i] = d->labels && d->labels[i] == PP_LABEL_IGNORE
                                  ? PP_LABEL_IGNORE
                                  : ids[i - from];
    d->n_values[c] = to;
    return 0;
}

int pp_documents_set_top_k(struct pp_documents *d, size_t top_k,
                           struct pp_err *err)
{
    if (top_k && d->top_k && top_k != d->top_k)
        return pp_fail(err, PP_EXIT_INPUT,
                       "has lists of '%zu' elements, but those of earlier "
                       "documents have %zu",
                       top_k, d->top_k);
    d->top_k = top_k ? top_k : d->top_k;
    return 0;
}

float *pp_documents_make_column(struct pp_documents *d, enum pp_column column,
                                struct pp_err *err)
{
    size_t n = n_column_values(d, column, false);
    if (d->columns[PP_COLUMN_GENERATOR_IDS]) {
        fail_beside_generator(pp_columns[column].name, err);
        return NULL;
    }
    if (reserve_column(d, column, n, err) != 0)
        return NULL;
    d->n_values[column] = n;
    return d->columns[column];
}

int pp_documents_check_last(struct pp_documents *d, enum pp_data_kind kind,
                            struct pp_err *err)
{
    if (d->n > 1 && kind != d->kind)
        return pp_fail(err, PP_EXIT_INPUT,
                       "'%s' cannot be mixed with the earlier %s; pack each "
                       "apart",
                       pp_data_kinds[kind], pp_data_kinds[d->kind]);
    d->kind = kind;
    if (kind != PP_DATA_DOCUMENTS && d->columns[PP_COLUMN_GENERATOR_IDS])
        return fail_beside_generator(pp_data_kinds[kind], err);
    for (int c = 0; c < PP_N_COLUMNS; c++)
        if (d->columns[c] &&
            pad_ids(d, (enum pp_column)c,
                    n_column_values(d, (enum pp_column)c, false), err) != 0)
            return -1;
    for (int c = 0; c < PP_N_COLUMNS; c++)
        if (d->columns[c] &&
            d->n_values[c] != n_column_values(d, (enum pp_column)c, false))
            return pp_fail(err, PP_EXIT_INPUT,
                           "has no '%s', but earlier documents do",
                           pp_columns[c].name);
    return 0;
}

void pp_documents_truncate(struct pp_documents *d, size_t n)
{
    if (n >= d->n)
        return;
    d->n_sequences = pp_documents_sequence(d, n);
    d->n = n;
    while (d->n_omissions > 0 && d->omissions[d->n_omissions - 1].document >= n)
        d->n_omissions--;
    d->released = 0;
    for (int c = 0; c < PP_N_COLUMNS; c++) {
        size_t all = n_column_values(d, (enum pp_column)c, false);
        if (d->n_values[c] > all)
            d->n_values[c] = all;
        /* Then no document has a column. */
        if (n == 0)
            d->columns[c] = NULL;
    }
    if (n == 0) {
        d->labels = NULL;
        d->member = NULL;
    }
    for (int m = 0; m < PP_N_MODALITIES; m++)
        pp_items_truncate(&d->items[m], d->n_sequences);
}

void pp_documents_release(struct pp_documents *d)
{
    pp_spill_release(&d->grow_ids);
    pp_spill_release(&d->grow_labels);
    for (int c = 0; c < PP_N_COLUMNS; c++)
        pp_spill_release(&d->grow_columns[c]);
    for (int m = 0; m < PP_N_MODALITIES; m++)
        pp_items_release(&d->items[m]);
    d->released = pp_documents_n_tokens(d);
}

int pp_documents_add_omission(struct pp_documents *d, size_t document,
                              size_t n_sequences, size_t n_tokens,
                              struct pp_err *err)
{
    if (d->n_omissions == d->grow_omissions.room &&
        pp_spill_grow(&d->grow_omissions, d->n_omissions + 1,
                      sizeof *d->omissions, NULL, 0, err))
        return -1;
    d->omissions = d->grow_omissions.at;
    d->omissions[d->n_omissions++] =
        (struct pp_omission){document, n_sequences, n_tokens};
    return 0;
}

void pp_documents_finish(struct pp_documents *d)
{
    pp_spill_finish(&d->grow_first);
    pp_spill_finish(&d->grow_member);
    pp_spill_finish(&d->grow_ids);
    pp_spill_finish(&d->grow_labels);
    pp_spill_finish(&d->grow_omissions);
    for (int c = 0; c < PP_N_COLUMNS; c++)
        pp_spill_finish(&d->grow_columns[c]);
    for (int m = 0; m < PP_N_MODALITIES; m++)
        pp_items_finish(&d->items[m]);
    memset(d, 0, sizeof *d);
}
