/* SPDX-License-Identifier: MIT */
#include "data/packed_documents.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"

/* A packed sequence. */
struct place {
    uint32_t source, start, bin, sequence, group;
};

static int by_input(const void *va, const void *vb)
{
    const struct place *a = va, *b = vb;
    if (a->source != b->source)
        return a->source < b->source ? -1 : 1;
    return (a->start > b->start) - (a->start < b->start);
}

static void list_places(const struct pp_packed *p, struct place *out)
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
            *out++ = (struct place){bin.source[i], bin.start[i], (uint32_t)b, i,
                                    group};
        }
    }
}

/* Room for the tokens of a document, and for its values of one column. */
struct room {
    int32_t *ids, *labels; /* of a bin */
    int32_t *all_labels;   /* of a document */
    float *values;
    size_t n;
};

static int grow_room(struct room *r, size_t n, struct pp_err *err)
{
    if (n <= r->n)
        return 0;
    size_t room = n + n / 2, bytes;
    if (pp_mul(room, sizeof(int32_t), &bytes, err) != 0)
        return -1;
    int32_t *labels = realloc(r->all_labels, bytes);
    if (labels)
        r->all_labels = labels;
    float *values = realloc(r->values, bytes);
    if (values)
        r->values = values;
    if (!labels || !values)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    r->n = room;
    return 0;
}

/* The tokens of one packed sequence behind the n that are there already. */
static int append(const struct pp_packed *p, const struct place *at,
                  struct room *r, struct pp_documents *d, size_t *n,
                  struct pp_err *err)
{
    struct pp_bin bin;
    pp_packed_bin(p, at->bin, &bin);
    if (p->index_only) {
        pp_packed_tokens(p, at->bin, r->ids, r->labels);
        bin.input_ids = r->ids;
        bin.labels = r->labels;
    }
    size_t first = (size_t)bin.cu_seqlens_padded[at->sequence];
    size_t length = (size_t)(bin.cu_seqlens[at->sequence + 1] -
                             bin.cu_seqlens[at->sequence]);
    int32_t *ids = pp_documents_room(d, *n + length, err);
    if (!ids || grow_room(r, *n + length, err) != 0)
        return -1;
    memcpy(ids + *n, bin.input_ids + first, length * sizeof *ids);
    memcpy(r->all_labels + *n, bin.labels + first, length * sizeof *ids);
    for (size_t i = *n; i < *n + length; i++)
        if (ids[i] < 0 || ids[i] == INT32_MAX)
            return pp_fail(err, PP_EXIT_INPUT, "bin %u: '%d' is not a token id",
                           at->bin, ids[i]);
    *n += length;
    return 0;
}

/* A column's values for a document made of n pieces. */
static int put_column(const struct pp_packed *p, enum pp_column c,
                      const struct place *at, size_t n, bool is_first,
                      struct room *r, struct pp_documents *d,
                      struct pp_err *err)
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
        size_t s = at[k].sequence, length = 1;
        const size_t first[] = {(size_t)bin.cu_seqlens_padded[s], s,
                                at[k].group};
        if (scope == PP_SCOPE_TOKEN)
            length = (size_t)(bin.cu_seqlens[s + 1] - bin.cu_seqlens[s]);
        if (scope == PP_SCOPE_TOKEN || k == 0)
            memcpy(r->values + have, bin.columns[c] + first[scope],
                   length * sizeof(float));
        have += length;
    }
    return pp_documents_put(d, c, r->values, err);
}

/* One sequence of the input, from its n pieces. */
static int add_sequence(const struct pp_packed *p, const struct place *at,
                        size_t n, bool is_first, struct room *r,
                        struct pp_documents *d, struct pp_err *err)
{
    size_t n_tokens = 0;
    for (size_t k = 0; k < n; k++)
        if (append(p, &at[k], r, d, &n_tokens, err) != 0)
            return -1;
    const int32_t *ids = pp_documents_room(d, n_tokens, err);
    if (!ids)
        return -1;
    bool own = memcmp(ids, r->all_labels, n_tokens * sizeof *ids) != 0;
    if (pp_documents_add(d, n_tokens, own ? r->all_labels : NULL, err) != 0)
        return -1;
    for (int c = 0; c < PP_N_COLUMNS; c++)
        if (put_column(p, (enum pp_column)c, at, n, is_first, r, d, err) != 0)
            return -1;
    return is_first ? 0 : pp_documents_join(d, err);
}

/* A group's sequences stay apart; what a document was split into comes together
 * again. */
static int add_all(const struct pp_packed *p, const struct place *at,
                   struct room *r, struct pp_documents *d, struct pp_err *err)
{
    bool groups = p->n_groups != p->n_sequences;
    for (size_t i = 0, n; i < p->n_sequences; i += n) {
        bool is_first = i == 0 || at[i].source != at[i - 1].source;
        for (n = 1; !groups && i + n < p->n_sequences &&
                    at[i + n].source == at[i].source;)
            n++;
        if (add_sequence(p, at + i, n, is_first, r, d, err) != 0)
            return -1;
        bool ends = i + n == p->n_sequences || at[i + n].source != at[i].source;
        if (ends && pp_documents_end(d, p->kind, err) != 0)
            return -1;
    }
    return 0;
}

int pp_packed_documents(const struct pp_packed *p, struct pp_documents *d,
                        struct pp_err *err)
{
    size_t bytes;
    if (pp_mul(p->n_sequences, sizeof(struct place), &bytes, err) != 0)
        return -1;
    struct place *at = malloc(bytes);
    struct room r = {calloc(p->max_tokens + 1u, sizeof(int32_t)),
                     calloc(p->max_tokens + 1u, sizeof(int32_t)), NULL, NULL,
                     0};
    int rc = -1;
    if (!at || !r.ids || !r.labels)
        pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    else {
        list_places(p, at);
        qsort(at, p->n_sequences, sizeof *at, by_input);
        rc = add_all(p, at, &r, d, err);
    }
    free(at);
    free(r.ids);
    free(r.labels);
    free(r.all_labels);
    free(r.values);
    return rc;
}
