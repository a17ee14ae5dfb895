/* SPDX-License-Identifier: MIT */
#include "data/documents.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/num.h"
#include "data/documents_grow.h"

size_t pp_documents_n_tokens(const struct pp_documents *d)
{
    return d->n_sequences ? d->first[d->n_sequences] : 0;
}

/* Room for n elements of 4 bytes in an array that may go to a file. */
static int room_for(struct pp_documents *d, struct pp_growing *g, size_t n,
                    struct pp_err *err)
{
    return n <= g->room && g->at
               ? 0
               : pp_grow(g, n, sizeof(int32_t), d->spill, d->spill_bytes, err);
}

int32_t *pp_documents_room(struct pp_documents *d, size_t n, struct pp_err *err)
{
    size_t need;
    if (__builtin_add_overflow(pp_documents_n_tokens(d), n, &need)) {
        pp_fail(err, PP_EXIT_SYSTEM, "too many tokens");
        return NULL;
    }
    if (d->forget_ids) {
        if (n >= d->grow_ids.room &&
            pp_grow(&d->grow_ids, n + 1, sizeof *d->ids, NULL, 0, err) != 0)
            return NULL;
        return d->grow_ids.at;
    }
    if (room_for(d, &d->grow_ids, need, err) != 0)
        return NULL;
    d->ids = d->grow_ids.at;
    return d->ids + pp_documents_n_tokens(d);
}

/* Ids that become labels, where they are known. */
static void copy_ids(struct pp_documents *d, size_t from, size_t n)
{
    if (n && d->ids)
        memcpy(d->labels + from, d->ids + from, n * sizeof *d->labels);
    else if (n)
        memset(d->labels + from, 0, n * sizeof *d->labels);
}

/* The labels of the sequence of n tokens that begins at used. */
static int put_labels(struct pp_documents *d, size_t used, size_t n,
                      const int32_t *labels, struct pp_err *err)
{
    bool fresh = !d->labels;
    if (room_for(d, &d->grow_labels, used + n, err) != 0)
        return -1;
    d->labels = d->grow_labels.at;
    /* Sequences before the first with labels of its own have their ids. */
    if (fresh)
        copy_ids(d, 0, used);
    if (!labels)
        copy_ids(d, used, n);
    else if (n)
        memcpy(d->labels + used, labels, n * sizeof *d->labels);
    return 0;
}

static int grow_first(struct pp_documents *d, struct pp_err *err)
{
    if (d->n_sequences + 2 > d->grow_first.room &&
        pp_grow(&d->grow_first, d->n_sequences + 2, sizeof *d->first, NULL, 0,
                err) != 0)
        return -1;
    d->first = d->grow_first.at;
    return 0;
}

static int grow_member(struct pp_documents *d, struct pp_err *err)
{
    if (d->n + 2 > d->grow_member.room &&
        pp_grow(&d->grow_member, d->n + 2, sizeof *d->member, NULL, 0, err) !=
            0)
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
    if ((labels || d->labels) && put_labels(d, used, n, labels, err) != 0)
        return -1;
    if (grow_first(d, err) != 0 || (d->member && grow_member(d, err) != 0))
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
        if (grow_member(d, err) != 0)
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

/* How many elements a column has when all have been put, and how many before
 * the last sequence. */
static size_t n_elements(const struct pp_documents *d, enum pp_column column,
                         bool before_last)
{
    size_t s = d->n_sequences - before_last;
    switch (pp_columns[column].scope) {
    case PP_SCOPE_TOKEN:
        return s ? d->first[s] : 0;
    case PP_SCOPE_SEQUENCE:
        return s;
    default:
        return d->n - before_last;
    }
}

int pp_documents_put(struct pp_documents *d, enum pp_column column,
                     const float *values, struct pp_err *err)
{
    size_t from = n_elements(d, column, true),
           to = n_elements(d, column, false);
    if (d->n_values[column] != from)
        return pp_fail(err, PP_EXIT_INPUT,
                       "has '%s', which what is before it has not",
                       pp_columns[column].name);
    if (room_for(d, &d->grow_columns[column], to, err) != 0)
        return -1;
    d->columns[column] = d->grow_columns[column].at;
    if (to > from)
        memcpy(d->columns[column] + from, values, (to - from) * sizeof *values);
    d->n_values[column] = to;
    return 0;
}

int pp_documents_end(struct pp_documents *d, enum pp_data_kind kind,
                     struct pp_err *err)
{
    if (d->n > 1 && kind != d->kind)
        return pp_fail(err, PP_EXIT_INPUT,
                       "'%s' do not go together with the %s before them",
                       pp_data_kinds[kind], pp_data_kinds[d->kind]);
    d->kind = kind;
    for (int c = 0; c < PP_N_COLUMNS; c++)
        if (d->columns[c] &&
            d->n_values[c] != n_elements(d, (enum pp_column)c, false))
            return pp_fail(err, PP_EXIT_INPUT,
                           "has no '%s', which what is before it has",
                           pp_columns[c].name);
    return 0;
}

void pp_documents_cut(struct pp_documents *d, size_t n)
{
    if (n >= d->n)
        return;
    d->n_sequences = pp_documents_sequence(d, n);
    d->n = n;
    while (d->n_lost > 0 && d->lost[d->n_lost - 1].document >= n)
        d->n_lost--;
    d->released = 0;
    for (int c = 0; c < PP_N_COLUMNS; c++) {
        size_t all = n_elements(d, (enum pp_column)c, false);
        if (d->n_values[c] > all)
            d->n_values[c] = all;
        /* A column that only the forgotten had was never there. */
        if (n == 0)
            d->columns[c] = NULL;
    }
    if (n == 0) {
        d->labels = NULL;
        d->member = NULL;
    }
}

void pp_documents_release(struct pp_documents *d)
{
    pp_grow_release(&d->grow_ids);
    pp_grow_release(&d->grow_labels);
    for (int c = 0; c < PP_N_COLUMNS; c++)
        pp_grow_release(&d->grow_columns[c]);
    d->released = pp_documents_n_tokens(d);
}

int pp_documents_place(struct pp_documents *d, uint64_t at, struct pp_err *err)
{
    if ((d->n > d->grow_file_of.room &&
         pp_grow(&d->grow_file_of, d->n, sizeof *d->file_of, NULL, 0, err)) ||
        (d->n > d->grow_file_at.room &&
         pp_grow(&d->grow_file_at, d->n, sizeof *d->file_at, NULL, 0, err)))
        return -1;
    d->file_of = d->grow_file_of.at;
    d->file_at = d->grow_file_at.at;
    d->file_of[d->n - 1] = (uint32_t)(d->n_files - 1);
    d->file_at[d->n - 1] = at;
    return 0;
}

int pp_documents_lose(struct pp_documents *d, size_t n_sequences,
                      size_t n_tokens, struct pp_err *err)
{
    if (d->n_lost == d->grow_lost.room &&
        pp_grow(&d->grow_lost, d->n_lost + 1, sizeof *d->lost, NULL, 0, err))
        return -1;
    d->lost = d->grow_lost.at;
    d->lost[d->n_lost++] = (struct pp_lost){d->n - 1, n_sequences, n_tokens};
    return 0;
}

static void finish_file(struct pp_token_file *f)
{
    pp_file_unmap(f->map, f->bytes);
    free(f->path);
}

int pp_documents_add_file(struct pp_documents *d, const struct pp_token_file *f,
                          struct pp_err *err)
{
    struct pp_token_file own = *f;
    struct pp_token_file *files =
        realloc(d->files, (d->n_files + 1) * sizeof *files);
    if (!files) {
        finish_file(&own);
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    }
    d->files = files;
    d->files[d->n_files++] = own;
    return 0;
}

void pp_documents_finish(struct pp_documents *d)
{
    pp_grow_finish(&d->grow_first);
    pp_grow_finish(&d->grow_member);
    pp_grow_finish(&d->grow_ids);
    pp_grow_finish(&d->grow_labels);
    pp_grow_finish(&d->grow_file_of);
    pp_grow_finish(&d->grow_file_at);
    pp_grow_finish(&d->grow_lost);
    for (int c = 0; c < PP_N_COLUMNS; c++)
        pp_grow_finish(&d->grow_columns[c]);
    for (size_t i = 0; i < d->n_files; i++)
        finish_file(&d->files[i]);
    free(d->files);
    memset(d, 0, sizeof *d);
}
