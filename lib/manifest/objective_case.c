/* SPDX-License-Identifier: MIT */
#include "manifest/objective_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "manifest/fields.h"

static const char *const array_names[PP_N_CASE_ARRAYS] = {
    [PP_CASE_X] = "x",
    [PP_CASE_P] = "p",
    [PP_CASE_Q] = "q",
    [PP_CASE_F] = "f",
    [PP_CASE_ADVANTAGES] = "advantages",
    [PP_CASE_MASK] = "mask"};

/* Reads a number; null is minus infinity, which JSON lacks. */
static int read_number(const struct pp_value *at, double *out)
{
    *out = -HUGE_VAL;
    if (json_is_null(at->value))
        return 0;
    if (json_is_boolean(at->value)) {
        *out = json_is_true(at->value);
        return 0;
    }
    return pp_value_real(at, -1e300, 1e300, out);
}

/* Reads an array with an element per token, or per sequence for advantages. */
static int read_array(const struct pp_value *root, enum pp_case_array which,
                      struct pp_arena *a, struct pp_objective_case *c)
{
    struct pp_value at;
    size_t n;
    if (!pp_value_find(root, array_names[which], &at) || json_is_null(at.value))
        return 0;
    if (pp_value_array(&at, &n))
        return -1;
    bool spread = which == PP_CASE_ADVANTAGES && n == c->n_sequences;
    if (n != c->n_tokens && !spread)
        return pp_value_fail(&at, "'%zu' numbers, but cu_seqlens ends in %zu",
                             n, c->n_tokens);
    double *v = pp_arena_alloc(a, c->n_tokens + 1, sizeof *v);
    for (size_t s = 0, i = 0; s < c->n_sequences; s++)
        for (; i < (size_t)c->cu_seqlens[s + 1]; i++) {
            struct pp_value item =
                pp_value_item(&at, spread && n != c->n_tokens ? s : i);
            if (read_number(&item, &v[i]))
                return -1;
            if (which == PP_CASE_MASK && v[i] != 0 && v[i] != 1)
                return pp_value_fail(&item, "must be 0 or 1");
        }
    c->arrays[which] = v;
    return 0;
}

/* Reads numbers that begin with 0 and grow by at least `least`. */
static int read_sums(const struct pp_value *at, struct pp_arena *a,
                     int64_t least, int32_t **out, size_t *n)
{
    int64_t last = -least;
    if (pp_value_array(at, n))
        return -1;
    if (*n == 0)
        return pp_value_fail(at, "must begin with 0");
    *out = pp_arena_alloc(a, *n, sizeof **out);
    for (size_t i = 0; i < *n; i++) {
        struct pp_value item = pp_value_item(at, i);
        if (pp_value_int(&item, last + least, i ? INT32_MAX : 0, &last))
            return -1;
        (*out)[i] = (int32_t)last;
    }
    return 0;
}

static int read_groups(const struct pp_value *root, struct pp_arena *a,
                       struct pp_objective_case *c)
{
    struct pp_value at;
    int32_t *groups;
    size_t n;
    c->pairs_fit = c->n_sequences % 2 == 0;
    if (!pp_value_find(root, "groups", &at) || json_is_null(at.value))
        return 0;
    if (read_sums(&at, a, 1, &groups, &n))
        return -1;
    if ((size_t)groups[n - 1] != c->n_sequences)
        return pp_value_fail(&at, "must end in '%zu', the number of sequences",
                             c->n_sequences);
    for (size_t g = 0; g + 1 < n; g++)
        c->pairs_fit &= groups[g + 1] - groups[g] == 2;
    return 0;
}

static int read_options(const struct pp_value *root, pp_case_option_fn *set,
                        void *ctx)
{
    struct pp_value at;
    const char *key;
    json_t *value;
    if (!pp_value_find(root, "options", &at) || json_is_null(at.value))
        return 0;
    if (pp_value_is_object(&at))
        return -1;
    json_object_foreach(at.value, key, value)
    {
        struct pp_value item;
        char *text = json_is_null(value) ? NULL
                     : json_is_string(value)
                         ? pp_strdup(json_string_value(value))
                         : json_dumps(value, JSON_ENCODE_ANY);
        (void)pp_value_find(&at, key, &item);
        int rc = set(ctx, key, text, at.source->err);
        free(text);
        if (rc)
            return pp_value_fail_at(&item);
    }
    return 0;
}

#define COUNT(i)                                                      \
    PP_REAL, PP_OPTIONAL, PP_AT(struct pp_objective_case, counts[i]), \
        .most = 1e15
static const struct pp_doc_field count_fields[] = {{"tokens", COUNT(0)},
                                                   {"sequences", COUNT(1)},
                                                   {"pairs", COUNT(2)},
                                                   {"chosen", COUNT(3)},
                                                   {NULL}};

static int read_counts(const struct pp_value *root, struct pp_objective_case *c)
{
    struct pp_value at;
    for (int i = 0; i < 4; i++)
        c->counts[i] = -1;
    return pp_value_find(root, "counts", &at) && !json_is_null(at.value)
               ? pp_fields_read(&at, count_fields, c)
               : 0;
}

static int read_case(const struct pp_value *root, struct pp_arena *a,
                     pp_case_option_fn *set, void *ctx,
                     struct pp_objective_case *c)
{
    static const struct pp_doc_field keys[] = {
        {"id"},   {"objective"}, {"options"}, {"groups"}, {"cu_seqlens"},
        {"x"},    {"p"},         {"q"},       {"f"},      {"advantages"},
        {"mask"}, {"counts"},    {NULL}};
    struct pp_value at;
    const char *objective;
    int32_t *cu;
    size_t n;
    if (pp_value_object(root, keys))
        return -1;
    c->id = NULL;
    if (pp_value_find(root, "id", &at)) {
        char *id = json_dumps(at.value, JSON_ENCODE_ANY | JSON_COMPACT);
        c->id = pp_arena_strdup(a, id);
        free(id);
    }
    if (pp_value_get_text(root, "objective", &objective) ||
        pp_value_member(root, "objective", &at))
        return -1;
    if (set(ctx, "objective", objective, at.source->err))
        return pp_value_fail_at(&at);
    if (pp_value_member(root, "cu_seqlens", &at) ||
        read_sums(&at, a, 0, &cu, &n))
        return -1;
    c->cu_seqlens = cu;
    c->n_sequences = n - 1;
    c->n_tokens = (size_t)cu[n - 1];
    for (int i = 0; i < PP_N_CASE_ARRAYS; i++)
        if (read_array(root, (enum pp_case_array)i, a, c))
            return -1;
    if (!c->arrays[PP_CASE_X])
        return pp_value_member(root, "x", &at) ? -1
                                               : pp_value_fail(&at, "is null");
    return read_groups(root, a, c) || read_counts(root, c) ||
                   read_options(root, set, ctx)
               ? -1
               : 0;
}

int pp_objective_case_parse(const char *text, size_t n, const char *name,
                            struct pp_arena *a, pp_case_option_fn *set,
                            void *ctx, struct pp_objective_case *out,
                            struct pp_err *err)
{
    const struct pp_value_source source = {name, err};
    struct pp_value root = {.source = &source};
    memset(out, 0, sizeof *out);
    if (pp_value_parse(text, n, name, &root.value, err))
        return -1;
    int rc = read_case(&root, a, set, ctx, out);
    json_decref(root.value);
    return rc;
}
