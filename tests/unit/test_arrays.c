/* SPDX-License-Identifier: MIT */
/* test_arrays - reads documents from arrays and .npy files. */
#include "data/readers.h"

#include "data/packed/packed.h"
#include "data/documents.h"
#include "tap.h"

/* The arrays of one input. */
struct set {
    struct {
        const char *name;
        struct pp_array array;
    } at[8];
};

static int find(void *ctx, const char *name, struct pp_array *out,
                struct pp_err *err)
{
    const struct set *s = ctx;
    (void)err;
    for (size_t i = 0; i < 8 && s->at[i].name; i++)
        if (!strcmp(s->at[i].name, name)) {
            *out = s->at[i].array;
            return 1;
        }
    return 0;
}

#define LIST(type, ...)                                              \
    {                                                                \
        type, 1, {sizeof(__VA_ARGS__) / sizeof *(__VA_ARGS__)},      \
            sizeof(__VA_ARGS__) / sizeof *(__VA_ARGS__), __VA_ARGS__ \
    }

/* Returns "1,2|3", with the tokens that are not scored in parentheses. */
static void is_read(const struct set *s, const char *want, const char *what)
{
    struct pp_documents d = {0};
    struct pp_err err = {0};
    char got[512] = "";
    size_t at = 0;
    if (pp_arrays_read("in", find, (void *)(size_t)s, false, &d, &err) != 0)
        snprintf(got, sizeof got, "%s", err.text);
    for (size_t k = 0; !*err.text && k < d.n_sequences; k++)
        for (size_t t = d.first[k]; t < d.first[k + 1]; t++) {
            bool scored = !d.labels || d.labels[t] != PP_LABEL_IGNORE;
            at += (size_t)snprintf(got + at, sizeof got - at,
                                   scored ? "%s%d" : "%s(%d)",
                                   t > d.first[k] ? ","
                                   : k            ? "|"
                                                  : "",
                                   d.ids[t]);
        }
    is_str(got, want, what);
    pp_documents_finish(&d);
}

static void test_layouts(void)
{
    struct set s = {
        {{"input_ids", LIST(PP_TOKEN_U16, (uint16_t[]){1, 2, 3, 4, 5, 6})}}};
    is_read(&s, "1,2,3,4,5,6", "a list is one document");
    s.at[1].name = "cu_seqlens";
    s.at[1].array = (struct pp_array)LIST(PP_TOKEN_I64, (int64_t[]){0, 2, 6});
    is_read(&s, "1,2|3,4,5,6", "or as many as cu_seqlens says");
    s.at[2].name = "cu_seqlens_padded";
    s.at[2].array = (struct pp_array)LIST(PP_TOKEN_I32, (int32_t[]){0, 2, 6});
    s.at[1].array = (struct pp_array)LIST(PP_TOKEN_I64, (int64_t[]){0, 1, 4});
    is_read(&s, "1|3,4,5", "without their padding");
    s.at[1].array = (struct pp_array)LIST(PP_TOKEN_I64, (int64_t[]){0, 3, 4});
    is_read(&s, "in: the length of sequence 0 is too large or negative",
            "longer than its room");
    s.at[2].name = NULL;
    s.at[1].array = (struct pp_array)LIST(PP_TOKEN_I64, (int64_t[]){0, 7});
    is_read(&s, "in: the length of sequence 0 is too large or negative",
            "beyond the end");
    s.at[1].array = (struct pp_array)LIST(PP_TOKEN_I64, (int64_t[]){0, 5});
    is_read(&s, "in: 'input_ids' must have as many tokens as the lengths need",
            "tokens that belong to no sequence");
    s.at[1].array = (struct pp_array)LIST(PP_TOKEN_I64, (int64_t[]){0, 4, 3});
    is_read(&s, "in: 'cu_seqlens' must not decrease", "not rising");
    s.at[1].array = (struct pp_array)LIST(PP_TOKEN_I64, (int64_t[]){1, 6});
    is_read(&s, "in: 'cu_seqlens' must be one-dimensional and begin with 0",
            "not 0");
    s.at[1].array = (struct pp_array)LIST(PP_TOKEN_I64, (int64_t[]){0, 6, 6});
    is_read(&s, "in: sequence 1 is empty", "empty");
    s.at[1].name = "lengths";
    s.at[1].array = (struct pp_array)LIST(PP_TOKEN_U8, (uint8_t[]){1, 5});
    is_read(&s, "1|2,3,4,5,6", "lengths");
}

static void test_rows(void)
{
    struct set s = {
        {{"input_ids",
          {PP_TOKEN_I32, 2, {2, 3}, 6, (int32_t[]){1, 2, 3, 4, 5, 6}}}}};
    is_read(&s, "1,2,3|4,5,6", "rows");
    s.at[1].name = "attention_mask";
    s.at[1].array = (struct pp_array){
        PP_TOKEN_U8, 2, {2, 3}, 6, (uint8_t[]){1, 1, 0, 1, 1, 1}};
    is_read(&s, "1,2|4,5,6", "rows with an attention mask");
    s.at[1].array.data = (uint8_t[]){0, 1, 1, 1, 1, 1};
    is_read(&s, "2,3|4,5,6", "padding on the left");
    s.at[1].array.data = (uint8_t[]){1, 0, 1, 1, 1, 1};
    is_read(&s, "in: the length of sequence 0 is too large or negative",
            "a hole in the mask");
    s.at[1].name = "labels";
    s.at[1].array = (struct pp_array){
        PP_TOKEN_I64, 2, {2, 3}, 6, (int64_t[]){-100, 2, 3, 4, -100, 6}};
    is_read(&s, "(1),2,3|4,(5),6", "labels");
    s.at[1].array.data = (int64_t[]){-1, 2, 3, 4, 5, 6};
    is_read(&s, "in: sequence 0 has an invalid label", "a bad one");
    s.at[1].array.dims[0] = 3;
    is_read(&s, "in: 'labels' must have the shape of 'input_ids'", "a shape");
    s.at[1].name = NULL;
    s.at[0].array.data = (int32_t[]){1, 2, 3, 4, -5, 6};
    is_read(&s, "in: sequence 1 has an invalid token id", "a bad id");
    s.at[0].array.type = PP_TOKEN_F32;
    is_read(&s, "in: 'input_ids' must be integers", "reals");
}

static void test_groups(void)
{
    struct pp_documents d = {0};
    struct pp_err err = {0};
    struct set s = {{{"input_ids", LIST(PP_TOKEN_I32, (int32_t[]){1, 2, 3, 4})},
                     {"lengths", LIST(PP_TOKEN_I32, (int32_t[]){1, 2, 1})},
                     {"cu_groups", LIST(PP_TOKEN_I32, (int32_t[]){0, 2, 3})},
                     {"kind", LIST(PP_TOKEN_U8, (uint8_t[]){2})},
                     {"advantages", LIST(PP_TOKEN_F64, (double[]){1, 2, 3, 4})},
                     {"rewards", LIST(PP_TOKEN_F32, (float[]){5, 6, 7})},
                     {"margins", LIST(PP_TOKEN_F32, (float[]){8, 9})}}};
    ok(pp_arrays_read("in", find, &s, false, &d, &err) == 0 && d.n == 2 &&
           d.n_sequences == 3 && d.member[1] == 2 && d.kind == PP_DATA_ROLLOUTS,
       "groups %s", err.text);
    ok(d.n == 2 && d.columns[PP_COLUMN_ADVANTAGES][3] == 4 &&
           d.columns[PP_COLUMN_REWARDS][2] == 7 &&
           d.columns[PP_COLUMN_MARGINS][1] == 9,
       "groups and a column of each scope");
    pp_documents_finish(&d);
    s.at[2].array = (struct pp_array)LIST(PP_TOKEN_I32, (int32_t[]){0, 3, 3});
    is_read(&s, "in: 'cu_groups' has an empty group", "an empty group");
    s.at[2].array = (struct pp_array)LIST(PP_TOKEN_I32, (int32_t[]){0, 2});
    is_read(&s, "in: 'cu_groups' must end with the number of sequences",
            "too few");
    s.at[2].name = NULL;
    s.at[0].name = "ids";
    is_read(&s, "in: 'input_ids' is missing", "nothing to pack");
}

/* Makes a .npy file of version 1 with that header and 24 bytes of elements. */
static size_t make_npy(char *out, const char *header)
{
    size_t n = strlen(header);
    memcpy(out, "\x93NUMPY\1\0", 8);
    out[8] = (char)n;
    out[9] = 0;
    memcpy(out + 10, header, n);
    memset(out + 10 + n, 0, 24);
    out[10 + n] = 7;
    return 10 + n + 24;
}

static void is_npy(const char *header, size_t want, const char *what)
{
    char text[300];
    struct pp_array a;
    struct pp_err err = {0};
    size_t n = make_npy(text, header), got;
    /* A copy of the exact size lets a sanitizer find a read past its end. */
    char *copy = malloc(n);
    memcpy(copy, text, n);
    got = pp_npy_parse("in", copy, n, &a, &err) == 0 ? a.n : 0;
    ok(got == want && (want == 0) == (err.code == PP_EXIT_INPUT), "%s: %s",
       what, err.text);
    size_t cut = 0;
    for (size_t i = 0; want && i < n; i++) {
        char *part = malloc(i + 1);
        memcpy(part, text, i);
        err = (struct pp_err){0};
        cut += pp_npy_parse("in", part, i, &a, &err) != 0;
        free(part);
    }
    ok(!want || cut == n, "every prefix is refused");
    free(copy);
}

static void test_npy(void)
{
    is_npy("{'descr': '<i4', 'fortran_order': False, 'shape': (6,), }  \n", 6,
           "a list");
    is_npy("{'descr': '<u2', 'fortran_order': False, 'shape': (3, 4), }\n", 12,
           "rows");
    is_npy("{'shape': (3, 1), 'fortran_order': False, 'descr': '<i8'}", 3,
           "another order");
    is_npy("{'descr': '<i4', 'fortran_order': True, 'shape': (2, 3), }\n", 0,
           "columns first");
    is_npy("{'descr': '>i4', 'fortran_order': False, 'shape': (6,), }\n", 0,
           "big endian");
    is_npy("{'descr': '|O', 'fortran_order': False, 'shape': (6,), }\n", 0,
           "pickled objects");
    is_npy("{'descr': '<i4', 'fortran_order': False, 'shape': (), }\n", 0,
           "one number");
    is_npy("{'descr': '<i4', 'fortran_order': False, 'shape': (1, 2, 3), }", 6,
           "three dimensions");
    is_npy("{'descr': '<i4', 'fortran_order': False, 'shape': (1, 1, 2, 3), }",
           0, "four dimensions");
    is_npy("{'descr': '<i4', 'fortran_order': False, 'shape': (5,), }\n", 0,
           "more elements than the shape");
    is_npy("{'descr': '<i4', 'fortran_order': False, 'shape': "
           "(4611686018427387910,), }\n",
           0, "a size that wraps");
    is_npy("{'descr': '<i4', 'fortran_order': False, 'shape': "
           "(99999999999999999999999,), }\n",
           0, "a number that wraps");
    is_npy("{'descr': '<i4', 'fortran_order': False}", 0, "no shape");
}

static void test_types(void)
{
    int32_t out[3];
    const int64_t wide[] = {5, INT32_MAX, -1};
    const uint64_t large[] = {UINT64_MAX, 1, 2};
    char odd[sizeof wide + 1];
    memcpy(odd + 1, wide, sizeof wide);
    ok(!pp_token_convert(PP_TOKEN_I64, odd + 1, 3, out) && out[0] == 5 &&
           out[1] == -1 && out[2] == -1,
       "ids end below 2^31 - 1, at any address");
    ok(!pp_token_convert(PP_TOKEN_U64, large, 3, out) && out[0] == -1 &&
           out[2] == 2,
       "unsigned numbers do not wrap");
    ok(!pp_token_bytes(PP_TOKEN_F32) && !pp_token_bytes(99) &&
           pp_token_bytes(PP_TOKEN_U16) == 2,
       "types");
}

int main(void)
{
    test_layouts();
    test_rows();
    test_groups();
    test_npy();
    test_types();
    return done();
}
