/* SPDX-License-Identifier: MIT */
/* documents - makes from a packed set the documents that it was packed
 * from, in their order. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "data/packed/packed.h"
#include "data/packed/format.h"
#include "data/readers.h"

/* A packed sequence. */
struct packed_sequence {
    uint32_t source, start, bin, sequence, group;
};

static int compare_inputs(const void *va, const void *vb)
{
    const struct packed_sequence *a = va, *b = vb;
    if (a->source != b->source)
        return a->source < b->source ? -1 : 1;
    return (a->start > b->start) - (a->start < b->start);
}

static void list_sequences(const struct pp_packed *p,
                           struct packed_sequence *out)
{
    for (size_t b = 0; b < p->n_bins; b++) {
        struct pp_bin bin;
        uint32_t group = 0;
        pp_packed_bin(p, b, &bin);
        for (uint32_t i = 0; i < bin.n_sequences; i++) {
            if (!bin.cu_groups)
                group = i;
            else if (i == bin.cu_groups[group + 1])
                group++;
            *out++ = (struct packed_sequence){bin.source[i], bin.start[i],
                                              (uint32_t)b, i, group};
        }
    }
}

/* Scratch for the tokens of a document and its values of one column. */
struct document_room {
    int32_t *all_labels; /* labels of a document */
    float *values;
    size_t n, top_k;
};

static void grow_document_room(struct document_room *r, size_t n)
{
    if (n <= r->n)
        return;
    r->n = n + n / 2;
    r->all_labels = pp_realloc(r->all_labels, r->n, sizeof *r->all_labels);
    r->values = pp_realloc(r->values, r->n,
                           (r->top_k ? r->top_k : 1) * sizeof *r->values);
}

/* Appends the tokens of one packed sequence to the n that are there. */
static int append_sequence(const struct pp_packed *p,
                           const struct packed_sequence *at,
                           struct document_room *r, struct pp_documents *d,
                           size_t *n, struct pp_err *err)
{
    struct pp_bin bin;
    pp_packed_bin(p, at->bin, &bin);
    size_t first = (size_t)bin.cu_seqlens_padded[at->sequence];
    size_t length = (size_t)(bin.cu_seqlens[at->sequence + 1] -
                             bin.cu_seqlens[at->sequence]);
    int32_t *ids = pp_documents_reserve(d, *n + length, err);
    if (!ids)
        return -1;
    grow_document_room(r, *n + length);
    memcpy(ids + *n, bin.input_ids + first, length * sizeof *ids);
    memcpy(r->all_labels + *n, bin.labels + first, length * sizeof *ids);
    for (size_t i = *n; i < *n + length; i++)
        if (ids[i] < 0 || ids[i] == INT32_MAX)
            return pp_fail(err, PP_EXIT_INPUT, "bin %u: '%d' is not a token id",
                           at->bin, ids[i]);
    *n += length;
    return 0;
}

/* Checks the ids or labels of a column, which nobody has looked at. */
static int check_ids(const int32_t *ids, size_t n, enum pp_column c,
                     struct pp_err *err)
{
    for (size_t i = 0; i < n; i++)
        if (ids[i] == INT32_MAX || (ids[i] < 0 && ids[i] != pp_columns[c].pad))
            return pp_fail(err, PP_EXIT_INPUT, "'%d' cannot be in '%s'", ids[i],
                           pp_columns[c].name);
    return 0;
}

/* Sets a column's values for a document made of n pieces. */
static int set_packed_column(const struct pp_packed *p, enum pp_column c,
                             const struct packed_sequence *at, size_t n,
                             bool is_first, struct document_room *r,
                             struct pp_documents *d, struct pp_err *err)
{
    enum pp_scope scope = pp_columns[c].scope;
    size_t have = 0;
    if (scope == PP_SCOPE_GROUP && !is_first)
        return 0;
    for (size_t k = 0; k < n; k++) {
        struct pp_bin bin;
        pp_packed_bin(p, at[k].bin, &bin);
        if (!bin.columns[c])
            return 0;
        size_t s = at[k].sequence, length = pp_column_width(c, p->top_k);
        const size_t first[] = {(size_t)bin.cu_seqlens_padded[s] * length, s,
                                at[k].group};
        if (scope == PP_SCOPE_TOKEN)
            length *= (size_t)(bin.cu_seqlens[s + 1] - bin.cu_seqlens[s]);
        if (scope == PP_SCOPE_TOKEN || k == 0)
            memcpy(r->values + have, bin.columns[c] + first[scope],
                   length * sizeof(float));
        have += length;
    }
    if (pp_columns[c].is_ids &&
        check_ids((const int32_t *)(const void *)r->values, have, c, err) != 0)
        return -1;
    return pp_documents_set_column(d, c, r->values, err);
}

/* Adds one sequence of the input from its n pieces. */
static int add_packed_sequence(const struct pp_packed *p,
                               const struct packed_sequence *at, size_t n,
                               bool is_first, struct document_room *r,
                               struct pp_documents *d, struct pp_err *err)
{
    size_t n_tokens = 0;
    for (size_t k = 0; k < n; k++)
        if (append_sequence(p, &at[k], r, d, &n_tokens, err) != 0)
            return -1;
    const int32_t *ids = pp_documents_reserve(d, n_tokens, err);
    if (!ids)
        return -1;
    bool own = memcmp(ids, r->all_labels, n_tokens * sizeof *ids) != 0;
    if (pp_documents_add(d, n_tokens, own ? r->all_labels : NULL, err) != 0 ||
        pp_packed_load_items(p, at->bin, at->sequence, d, err) != 0)
        return -1;
    for (int c = 0; c < PP_N_COLUMNS; c++)
        if (set_packed_column(p, (enum pp_column)c, at, n, is_first, r, d,
                              err) != 0)
            return -1;
    return is_first ? 0 : pp_documents_join(d, err);
}

/* Adds all documents. The sequences of a group stay apart; the pieces of a
 * split document are joined. */
static int add_packed_documents(const struct pp_packed *p,
                                const struct packed_sequence *at,
                                struct document_room *r, struct pp_documents *d,
                                struct pp_err *err)
{
    bool groups = p->kind != PP_DATA_DOCUMENTS || p->n_groups != p->n_sequences;
    for (size_t i = 0, n; i < p->n_sequences; i += n) {
        bool is_first = i == 0 || at[i].source != at[i - 1].source;
        for (n = 1; !groups && i + n < p->n_sequences &&
                    at[i + n].source == at[i].source;)
            n++;
        if (add_packed_sequence(p, at + i, n, is_first, r, d, err) != 0)
            return -1;
        bool ends = i + n == p->n_sequences || at[i + n].source != at[i].source;
        if (ends && pp_documents_check_last(d, p->kind, err) != 0)
            return -1;
    }
    return 0;
}

int pp_packed_documents(const struct pp_packed *p, struct pp_documents *d,
                        struct pp_err *err)
{
    struct packed_sequence *at = pp_calloc(p->n_sequences, sizeof *at);
    struct document_room r = {.top_k = p->top_k};
    int rc = pp_documents_set_top_k(d, p->top_k, err);
    d->bytes |= p->bytes;
    if (rc == 0) {
        list_sequences(p, at);
        qsort(at, p->n_sequences, sizeof *at, compare_inputs);
        rc = add_packed_documents(p, at, &r, d, err);
    }
    free(at);
    free(r.all_labels);
    free(r.values);
    return rc;
}
