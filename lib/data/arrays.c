/* SPDX-License-Identifier: MIT */
/* arrays - documents from named arrays, whatever file they come from. */
#include "data/readers.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "data/packed/packed.h"
#include "data/documents.h"

/* The arrays of one input. data is NULL if an array is absent. */
struct array_input {
    const char *name;
    bool allow_empty;
    struct pp_array ids, labels, mask, generator_mask, attention, lengths, cu,
        cu_padded, groups, kind, bytes, source, start, columns[PP_N_COLUMNS];
    size_t n;     /* sequences */
    size_t skip;  /* padding before the tokens of the sequence */
    size_t top_k; /* values of a list, or 0 */
    /* Scratch for one sequence. */
    int32_t *label_room, *id_room;
    float *float_room;
    size_t room;
};

/* Returns element i of an integer array, or -1 if it is not in [0, 2^63). */
static int64_t integer_at(const struct pp_array *a, size_t i)
{
    unsigned size = pp_token_bytes(a->type);
    const unsigned char *p = (const unsigned char *)a->data + i * size;
    uint64_t v = 0;
    memcpy(&v, p, size);
    bool is_signed = a->type == PP_TOKEN_I8 || a->type == PP_TOKEN_I16 ||
                     a->type == PP_TOKEN_I32 || a->type == PP_TOKEN_I64;
    if (is_signed && v >> (8 * size - 1))
        return -1;
    return v > INT64_MAX ? -1 : (int64_t)v;
}

float pp_array_real(const struct pp_array *a, size_t i)
{
    float f;
    double x;
    if (a->type == PP_TOKEN_F32) {
        memcpy(&f, (const char *)a->data + i * sizeof f, sizeof f);
        return f;
    }
    memcpy(&x, (const char *)a->data + i * sizeof x, sizeof x);
    return (float)x;
}

bool pp_array_is_real(const struct pp_array *a)
{
    return a->type == PP_TOKEN_F32 || a->type == PP_TOKEN_F64;
}

static int fail_array(const struct array_input *x, const char *array,
                      const char *what, struct pp_err *err)
{
    return pp_fail(err, PP_EXIT_INPUT, "%s: '%s' %s", x->name, array, what);
}

/* Checks that an array, if it is there, begins with 0 and never falls. */
static int check_rising(const struct array_input *x, const struct pp_array *a,
                        const char *name, struct pp_err *err)
{
    if (!a->data)
        return 0;
    if (a->n_dims != 1 || a->n < 1 || integer_at(a, 0) != 0)
        return fail_array(x, name, "must be one-dimensional and begin with 0",
                          err);
    for (size_t i = 1; i < a->n; i++)
        if (integer_at(a, i) < integer_at(a, i - 1))
            return fail_array(x, name, "must not decrease", err);
    return 0;
}

/* Finds the array of that name, of integers or of reals. */
static int get_array(const struct array_input *x, pp_array_find_fn *find,
                     void *ctx, const char *name, bool reals,
                     struct pp_array *out, struct pp_err *err)
{
    int rc = find(ctx, name, out, err);
    if (rc < 0)
        return -1;
    if (rc == 1 && out->n_dims > 2)
        return fail_array(x, name, "must have one or two dimensions", err);
    if (rc == 1 && pp_array_is_real(out) != reals)
        return fail_array(
            x, name, reals ? "must be F32 or F64" : "must be integers", err);
    return 0;
}

static int get_all_arrays(struct array_input *x, pp_array_find_fn *find,
                          void *ctx, struct pp_err *err)
{
    const struct {
        const char *name;
        struct pp_array *out;
    } wanted[] = {
        {"input_ids", &x->ids},    {"labels", &x->labels},
        {"loss_mask", &x->mask},   {"attention_mask", &x->attention},
        {"lengths", &x->lengths},  {"cu_seqlens", &x->cu},
        {"cu_groups", &x->groups}, {"cu_seqlens_padded", &x->cu_padded},
        {"kind", &x->kind},        {"generator_mask", &x->generator_mask},
        {"source", &x->source},    {"start", &x->start},
        {"bytes", &x->bytes},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        if (get_array(x, find, ctx, wanted[i].name, false, wanted[i].out,
                      err) != 0)
            return -1;
    for (int c = 0; c < PP_N_COLUMNS; c++)
        if (get_array(x, find, ctx, pp_columns[c].name, !pp_columns[c].is_ids,
                      &x->columns[c], err) != 0)
            return -1;
    if ((x->columns[PP_COLUMN_GENERATOR_LABELS].data ||
         x->generator_mask.data) &&
        !x->columns[PP_COLUMN_GENERATOR_IDS].data)
        return fail_array(x, "generator_ids", "is missing", err);
    return x->ids.data ? 0 : fail_array(x, "input_ids", "is missing", err);
}

/* Checks that there is a value for each token. */
static int check_shape(const struct array_input *x, const struct pp_array *a,
                       const char *name, struct pp_err *err)
{
    if (a->data && (a->n_dims != x->ids.n_dims || a->n != x->ids.n ||
                    a->dims[0] != x->ids.dims[0]))
        return fail_array(x, name, "must have the shape of 'input_ids'", err);
    return 0;
}

/* Checks that there is a list of values for each token, and that all lists are
 * as long. A length of 1 needs no dimension of its own. */
static int check_lists(struct array_input *x, const struct pp_array *a,
                       const char *name, struct pp_err *err)
{
    size_t width = x->ids.n ? a->n / x->ids.n : 1;
    int dims = x->ids.n_dims + 1;
    if (a->n != x->ids.n * width || width < 1 || width > PP_LONGEST_LIST ||
        a->dims[0] != x->ids.dims[0] ||
        (a->n_dims == dims ? a->dims[dims - 1] != width
                           : a->n_dims != x->ids.n_dims || width != 1) ||
        (x->top_k && width != x->top_k))
        return fail_array(x, name,
                          "must have a list for each of 'input_ids', as long "
                          "as the other lists",
                          err);
    x->top_k = width;
    return 0;
}

static int check_shapes(struct array_input *x, struct pp_err *err)
{
    if (check_shape(x, &x->labels, "labels", err) != 0 ||
        check_shape(x, &x->mask, "loss_mask", err) != 0 ||
        check_shape(x, &x->generator_mask, "generator_mask", err) != 0 ||
        check_shape(x, &x->attention, "attention_mask", err) != 0)
        return -1;
    size_t n_groups = x->groups.data ? x->groups.n - 1 : x->n;
    for (int c = 0; c < PP_N_COLUMNS; c++) {
        const struct pp_array *a = &x->columns[c];
        const char *name = pp_columns[c].name;
        size_t n = pp_columns[c].scope == PP_SCOPE_GROUP ? n_groups : x->n;
        if (!a->data)
            continue;
        if (pp_columns[c].is_list) {
            if (check_lists(x, a, name, err) != 0)
                return -1;
        } else if (pp_columns[c].scope == PP_SCOPE_TOKEN) {
            if (check_shape(x, a, name, err) != 0)
                return -1;
        } else if (a->n_dims != 1 || a->n != n) {
            return fail_array(x, name,
                              "must have one value per sequence or group", err);
        }
    }
    return 0;
}

/* Checks that one list at most says how long sequences are. */
static int check_length_lists(struct array_input *x, struct pp_err *err)
{
    bool rows = x->ids.n_dims == 2;
    if (rows && (x->cu.data || x->cu_padded.data))
        return fail_array(x, "cu_seqlens",
                          "cannot be used with rows of 'input_ids'", err);
    if (x->cu_padded.data && (!x->cu.data || x->cu_padded.n != x->cu.n))
        return fail_array(x, "cu_seqlens_padded",
                          "needs a 'cu_seqlens' of the same length", err);
    if (x->lengths.data &&
        (x->cu.data || x->attention.data || x->lengths.n_dims != 1))
        return fail_array(x, "lengths", "must be the only list of lengths",
                          err);
    if (x->attention.data && !rows)
        return fail_array(x, "attention_mask", "needs rows of 'input_ids'",
                          err);
    return 0;
}

static enum pp_data_kind kind_of(const struct array_input *x)
{
    return x->kind.data     ? (enum pp_data_kind)integer_at(&x->kind, 0)
           : x->groups.data ? PP_DATA_ROLLOUTS
                            : PP_DATA_DOCUMENTS;
}

/* Returns whether the responses of a group are the responses of one source, in
 * any order. */
static bool has_sources(const struct array_input *x)
{
    return kind_of(x) == PP_DATA_ROLLOUTS && !x->groups.data && x->source.data;
}

/* Checks that groups have all sequences, and one at least each. */
static int check_array_groups(struct array_input *x, struct pp_err *err)
{
    if (!x->groups.data)
        return 0;
    if ((size_t)integer_at(&x->groups, x->groups.n - 1) != x->n)
        return fail_array(x, "cu_groups",
                          "must end with the number of sequences", err);
    for (size_t i = 1; i < x->groups.n; i++)
        if (integer_at(&x->groups, i) == integer_at(&x->groups, i - 1))
            return fail_array(x, "cu_groups", "has an empty group", err);
    return 0;
}

/* Computes the number of sequences, and checks that the arrays agree. */
static int check_array_layout(struct array_input *x, struct pp_err *err)
{
    bool rows = x->ids.n_dims == 2;
    if (check_rising(x, &x->cu, "cu_seqlens", err) != 0 ||
        check_rising(x, &x->cu_padded, "cu_seqlens_padded", err) != 0 ||
        check_rising(x, &x->groups, "cu_groups", err) != 0 ||
        check_length_lists(x, err) != 0)
        return -1;
    x->n = rows              ? x->ids.dims[0]
           : x->cu.data      ? x->cu.n - 1
           : x->lengths.data ? x->lengths.n
                             : 1;
    if (rows && x->lengths.data && x->lengths.n != x->n)
        return fail_array(x, "lengths", "must have one element per row", err);
    if (check_array_groups(x, err) != 0)
        return -1;
    if (x->kind.data && (x->kind.n != 1 || integer_at(&x->kind, 0) < 0 ||
                         integer_at(&x->kind, 0) >= PP_DATA_N_KINDS))
        return fail_array(x, "kind", "must be 0, 1 or 2", err);
    if (x->bytes.data && (x->bytes.n != 1 || integer_at(&x->bytes, 0) < 0 ||
                          integer_at(&x->bytes, 0) > 1))
        return fail_array(x, "bytes", "must be 0 or 1", err);
    if (has_sources(x) && (x->source.n != x->n || x->start.n != x->n))
        return fail_array(x, "source",
                          "needs a 'start', and both an element "
                          "per sequence",
                          err);
    return check_shapes(x, err);
}

/* Returns the tokens of a row: the ones of its attention mask, or -1 if they
 * are not together. Sets x->skip to the padding before them. */
static int64_t attended_length(struct array_input *x, size_t i)
{
    size_t width = x->ids.dims[1], at = i * width, n = 0;
    while (x->skip < width && integer_at(&x->attention, at + x->skip) == 0)
        x->skip++;
    n = x->skip;
    while (n < width && integer_at(&x->attention, at + n) == 1)
        n++;
    for (size_t k = n; k < width; k++)
        if (integer_at(&x->attention, at + k) != 0)
            return -1;
    return (int64_t)(n - x->skip);
}

/* Finds the length and the room of sequence i, whose room begins at *at. */
static int find_sequence(struct array_input *x, size_t i, size_t *at,
                         size_t *length, size_t *room, struct pp_err *err)
{
    int64_t n, padded;
    x->skip = 0;
    if (x->ids.n_dims == 2) {
        padded = (int64_t)x->ids.dims[1];
        n = x->attention.data ? attended_length(x, i)
            : x->lengths.data ? integer_at(&x->lengths, i)
                              : padded;
    } else if (x->cu.data) {
        const struct pp_array *p = x->cu_padded.data ? &x->cu_padded : &x->cu;
        n = integer_at(&x->cu, i + 1) - integer_at(&x->cu, i);
        padded = integer_at(p, i + 1) - integer_at(p, i);
    } else {
        n = padded =
            x->lengths.data ? integer_at(&x->lengths, i) : (int64_t)x->ids.n;
    }
    if (n < 0 || n > padded || (uint64_t)padded > x->ids.n - *at ||
        n > INT32_MAX)
        return pp_fail(
            err, PP_EXIT_INPUT,
            "%s: the length of sequence %zu is too large or negative", x->name,
            i);
    if (n == 0 && !x->allow_empty)
        return pp_fail_setting(err, PP_EXIT_INPUT, "empty", "drop",
                               "%s: sequence %zu is empty", x->name, i);
    *length = (size_t)n;
    *room = (size_t)padded;
    return 0;
}

static void reserve_values(struct array_input *x, size_t n)
{
    if (n <= x->room && x->room)
        return;
    size_t room = n + n / 2 + 64; /* at least one value */
    free(x->label_room);
    free(x->id_room);
    free(x->float_room);
    x->label_room = pp_calloc(room, sizeof *x->label_room);
    x->id_room = pp_calloc(room, sizeof *x->id_room);
    x->float_room =
        pp_calloc(room, (x->top_k ? x->top_k : 1) * sizeof *x->float_room);
    x->room = room;
}

/* Reads the labels of the sequence at token `at` into label_room. An absent
 * array of them has the ids, and an absent mask is of ones. */
static int read_array_labels(struct array_input *x,
                             const struct pp_array *labels,
                             const struct pp_array *mask, size_t i, size_t at,
                             size_t n, const int32_t *ids, struct pp_err *err)
{
    for (size_t k = 0; k < n; k++) {
        int32_t label = ids[k];
        if (labels->data) {
            unsigned size = pp_token_bytes(labels->type);
            const char *p = (const char *)labels->data + (at + k) * size;
            int32_t ignored = PP_LABEL_IGNORE;
            /* Integers of 32 and 64 bits can hold PP_LABEL_IGNORE; their low
             * bytes are the same. */
            if (pp_token_convert(labels->type, p, 1, &label))
                ;
            else if (size >= 4 && !memcmp(p, &ignored, 4) &&
                     (size == 4 || !memcmp(p + 4, "\xff\xff\xff\xff", 4)))
                label = PP_LABEL_IGNORE;
            else
                return pp_fail(err, PP_EXIT_INPUT,
                               "%s: sequence %zu has an invalid label", x->name,
                               i);
        }
        if (mask->data && integer_at(mask, at + k) == 0)
            label = PP_LABEL_IGNORE;
        x->label_room[k] = label;
    }
    return 0;
}

static int set_array_columns(struct array_input *x, struct pp_documents *d,
                             size_t i, size_t group, bool is_first, size_t at,
                             size_t n, struct pp_err *err)
{
    for (int c = 0; c < PP_N_COLUMNS; c++) {
        const struct pp_array *a = &x->columns[c];
        const size_t first[] = {at, i, group};
        enum pp_scope scope = pp_columns[c].scope;
        if (!a->data || pp_columns[c].is_ids ||
            (scope == PP_SCOPE_GROUP && !is_first))
            continue;
        size_t width = pp_column_width(c, x->top_k);
        size_t n_values = (scope == PP_SCOPE_TOKEN ? n : 1) * width;
        for (size_t k = 0; k < n_values; k++)
            x->float_room[k] = pp_array_real(a, first[scope] * width + k);
        if (pp_documents_set_column(d, (enum pp_column)c, x->float_room, err) !=
            0)
            return -1;
    }
    return 0;
}

/* Copies n ids from element `at` of an array. */
static int read_array_ids(const struct array_input *x, const struct pp_array *a,
                          size_t i, size_t at, size_t n, int32_t *out,
                          struct pp_err *err)
{
    const char *p = (const char *)a->data + at * pp_token_bytes(a->type);
    return pp_token_convert(a->type, p, n, out)
               ? 0
               : pp_fail(err, PP_EXIT_INPUT,
                         "%s: sequence %zu has an invalid token id", x->name,
                         i);
}

/* Sets the generator's tokens of sequence i, which is the last one. */
static int set_array_generator(struct array_input *x, struct pp_documents *d,
                               size_t i, size_t at, size_t n,
                               struct pp_err *err)
{
    const struct pp_array *ids = &x->columns[PP_COLUMN_GENERATOR_IDS];
    const struct pp_array *labels = &x->columns[PP_COLUMN_GENERATOR_LABELS];
    bool own = labels->data || x->generator_mask.data;
    if (!ids->data)
        return 0;
    if (read_array_ids(x, ids, i, at, n, x->id_room, err) != 0 ||
        (own && read_array_labels(x, labels, &x->generator_mask, i, at, n,
                                  x->id_room, err) != 0))
        return -1;
    return pp_documents_set_generator(d, x->id_room, own ? x->label_room : NULL,
                                      err);
}

static int add_array_sequence(struct array_input *x, struct pp_documents *d,
                              size_t i, size_t group, bool is_first, size_t at,
                              size_t n, struct pp_err *err)
{
    bool own = x->labels.data || x->mask.data;
    int32_t *out = pp_documents_reserve(d, n, err);
    if (!out)
        return -1;
    reserve_values(x, n);
    if (read_array_ids(x, &x->ids, i, at, n, out, err) != 0 ||
        (own &&
         read_array_labels(x, &x->labels, &x->mask, i, at, n, out, err) != 0) ||
        pp_documents_add(d, n, own ? x->label_room : NULL, err) != 0 ||
        set_array_columns(x, d, i, group, is_first, at, n, err) != 0 ||
        set_array_generator(x, d, i, at, n, err) != 0)
        return -1;
    return is_first ? 0 : pp_documents_join(d, err);
}

static int check_all_read(struct array_input *x, size_t at, struct pp_err *err)
{
    return at == x->ids.n
               ? 0
               : fail_array(x, "input_ids",
                            "must have as many tokens as the lengths need",
                            err);
}

/* A response: where its tokens are, and its place in the input. */
struct response {
    size_t i, at, n;
    int64_t source, start;
};

static int compare_responses(const void *va, const void *vb)
{
    const struct response *a = va, *b = vb;
    if (a->source != b->source)
        return a->source < b->source ? -1 : 1;
    if (a->start != b->start)
        return a->start < b->start ? -1 : 1;
    return (a->i > b->i) - (a->i < b->i);
}

static int add_sorted_responses(struct array_input *x,
                                const struct response *all,
                                struct pp_documents *d, struct pp_err *err)
{
    for (size_t k = 0; k < x->n; k++) {
        const struct response *r = &all[k];
        bool starts = k == 0 || r[-1].source != r->source;
        bool ends = k + 1 == x->n || r[1].source != r->source;
        if (add_array_sequence(x, d, r->i, r->i, starts, r->at, r->n, err) !=
                0 ||
            (ends && pp_documents_check_last(d, PP_DATA_ROLLOUTS, err) != 0))
            return -1;
    }
    return 0;
}

/* Adds the responses of each source as a group. */
static int add_responses(struct array_input *x, struct pp_documents *d,
                         struct pp_err *err)
{
    struct response *all = pp_calloc(x->n + 1, sizeof *all);
    size_t at = 0, room;
    int rc = 0;
    for (size_t i = 0; i < x->n && rc == 0; i++, at += room) {
        rc = find_sequence(x, i, &at, &all[i].n, &room, err);
        all[i].i = i;
        all[i].at = at + x->skip;
        all[i].source = integer_at(&x->source, i);
        all[i].start = integer_at(&x->start, i);
    }
    if (rc == 0)
        rc = check_all_read(x, at, err);
    if (rc == 0) {
        qsort(all, x->n, sizeof *all, compare_responses);
        rc = add_sorted_responses(x, all, d, err);
    }
    free(all);
    return rc;
}

static int add_array_documents(struct array_input *x, struct pp_documents *d,
                               struct pp_err *err)
{
    enum pp_data_kind kind = kind_of(x);
    size_t at = 0, n = 0, room = 0, group = 0;
    if (has_sources(x))
        return add_responses(x, d, err);
    for (size_t i = 0; i < x->n; i++, at += room) {
        bool starts = true, ends = true;
        if (x->groups.data) {
            starts = (size_t)integer_at(&x->groups, group) == i;
            ends = (size_t)integer_at(&x->groups, group + 1) == i + 1;
        } else {
            group = i;
        }
        if (find_sequence(x, i, &at, &n, &room, err) != 0 ||
            add_array_sequence(x, d, i, group, starts, at + x->skip, n, err) !=
                0 ||
            (ends && pp_documents_check_last(d, kind, err) != 0))
            return -1;
        group += ends;
    }
    return check_all_read(x, at, err);
}

int pp_arrays_read(const char *name, pp_array_find_fn *find, void *ctx,
                   bool allow_empty, struct pp_documents *d, struct pp_err *err)
{
    struct array_input x = {.name = name, .allow_empty = allow_empty};
    int rc = -1;
    if (get_all_arrays(&x, find, ctx, err) == 0 &&
        check_array_layout(&x, err) == 0 &&
        pp_documents_set_top_k(d, x.top_k, err) == 0) {
        d->bytes |= x.bytes.data && integer_at(&x.bytes, 0);
        rc = add_array_documents(&x, d, err);
    }
    free(x.label_room);
    free(x.id_room);
    free(x.float_room);
    return rc;
}
