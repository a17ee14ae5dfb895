/* SPDX-License-Identifier: MIT */
/* array_files - arrays from .npy and .safetensors files.
 *
 * A .npy file has a magic, a version, the length of a header, the header and
 * the elements. The header is a Python dictionary. Only NumPy's own form of it
 * is read: {'descr': '<i4', 'fortran_order': False, 'shape': (3, 4), }. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/num.h"
#include "data/readers.h"
#include "data/tensors/safetensors.h"
#include "data/documents.h"

static const struct {
    const char *descr;
    unsigned type;
} npy_types[] = {
    {"|b1", PP_TOKEN_U8},  {"|u1", PP_TOKEN_U8},  {"|i1", PP_TOKEN_I8},
    {"<u2", PP_TOKEN_U16}, {"<i2", PP_TOKEN_I16}, {"<u4", PP_TOKEN_U32},
    {"<i4", PP_TOKEN_I32}, {"<u8", PP_TOKEN_U64}, {"<i8", PP_TOKEN_I64},
    {"<f4", PP_TOKEN_F32}, {"<f8", PP_TOKEN_F64},
};

/* The rest of a header. */
struct npy_text {
    const char *at, *end;
};

static bool skip_word(struct npy_text *t, const char *word)
{
    size_t n = strlen(word);
    while (t->at < t->end && (*t->at == ' ' || *t->at == '\n'))
        t->at++;
    if ((size_t)(t->end - t->at) < n || memcmp(t->at, word, n) != 0)
        return false;
    t->at += n;
    return true;
}

static bool read_npy_type(struct npy_text *t, unsigned *type)
{
    for (size_t i = 0; i < sizeof npy_types / sizeof *npy_types; i++) {
        struct npy_text ahead = *t;
        if (skip_word(&ahead, "'") && skip_word(&ahead, npy_types[i].descr) &&
            skip_word(&ahead, "'")) {
            *t = ahead;
            *type = npy_types[i].type;
            return true;
        }
    }
    return false;
}

static bool read_npy_size(struct npy_text *t, size_t *out)
{
    const char *start = t->at;
    *out = 0;
    for (; t->at < t->end && *t->at >= '0' && *t->at <= '9'; t->at++)
        if (__builtin_mul_overflow(*out, (size_t)10, out) ||
            __builtin_add_overflow(*out, (size_t)(*t->at - '0'), out))
            return false;
    return t->at > start;
}

/* Reads (3,) or (3, 4). */
static bool read_npy_shape(struct npy_text *t, struct pp_array *a)
{
    if (!skip_word(t, "("))
        return false;
    while (!skip_word(t, ")")) {
        if (a->n_dims == PP_ARRAY_MAX_DIMS ||
            !read_npy_size(t, &a->dims[a->n_dims]))
            return false;
        a->n_dims++;
        if (!skip_word(t, ","))
            return skip_word(t, ")");
    }
    return true;
}

static bool read_npy_header(struct npy_text *t, struct pp_array *a)
{
    bool type = false, order = false, shape = false;
    if (!skip_word(t, "{"))
        return false;
    while (!skip_word(t, "}")) {
        if (!type && skip_word(t, "'descr':") && read_npy_type(t, &a->type))
            type = true;
        else if (!order && skip_word(t, "'fortran_order':") &&
                 skip_word(t, "False"))
            order = true;
        else if (!shape && skip_word(t, "'shape':") && read_npy_shape(t, a))
            shape = true;
        else
            return false;
        skip_word(t, ",");
    }
    return type && order && shape && skip_word(t, "") && t->at == t->end;
}

static unsigned element_bytes(unsigned type)
{
    unsigned n = pp_token_bytes(type);
    return n ? n : type == PP_TOKEN_F32 ? 4 : 8;
}

/* Finds the header. Returns false if this is no .npy file. */
static bool find_npy_header(const unsigned char *p, size_t n,
                            struct npy_text *out)
{
    if (n < 10 || memcmp(p, "\x93NUMPY", 6) != 0 || p[6] < 1 || p[6] > 3)
        return false;
    size_t at = p[6] == 1 ? 10 : 12, length = p[8] | (size_t)p[9] << 8;
    if (p[6] > 1) {
        if (n < 12)
            return false;
        length |= (size_t)p[10] << 16 | (size_t)p[11] << 24;
    }
    if (length > n - at)
        return false;
    *out =
        (struct npy_text){(const char *)p + at, (const char *)p + at + length};
    return true;
}

int pp_npy_parse(const char *name, const void *data, size_t bytes,
                 struct pp_array *out, struct pp_err *err)
{
    struct npy_text t = {0};
    size_t size = 0;
    *out = (struct pp_array){.n = 1};
    if (!find_npy_header(data, bytes, &t))
        return pp_fail(err, PP_EXIT_INPUT, "%s: not a .npy file, or cut short",
                       name);
    if (!read_npy_header(&t, out) || out->n_dims == 0)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s: must be an array of numbers of one to three "
                       "dimensions, little endian, in C order",
                       name);
    bool large = false;
    for (int i = 0; i < out->n_dims; i++)
        large |= __builtin_mul_overflow(out->n, out->dims[i], &out->n);
    large |= __builtin_mul_overflow(out->n, element_bytes(out->type), &size);
    size_t there = bytes - (size_t)(t.end - (const char *)data);
    if (large)
        return pp_fail(err, PP_EXIT_INPUT, "%s: its shape is too large", name);
    if (size != there)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s: has '%zu' bytes of elements, but its shape needs "
                       "%zu",
                       name, there, size);
    out->data = t.end;
    return 0;
}

/* The files of one input. */
struct npy_files {
    const char *path;
    struct {
        const void *map;
        size_t bytes;
    } files[24]; /* more than there are names */
    size_t n;
};

/* Returns NAME.npy or NAME.what.npy, which the caller frees. */
static char *npy_companion(const char *path, const char *what)
{
    size_t n = strlen(path) - strlen(".npy");
    size_t size = n + strlen(what) + sizeof "..npy";
    char *s = pp_calloc(size, 1);
    snprintf(s, size, "%.*s%s%s.npy", (int)n, path, *what ? "." : "", what);
    return s;
}

static int find_npy(void *ctx, const char *name, struct pp_array *out,
                    struct pp_err *err)
{
    struct npy_files *x = ctx;
    bool is_ids = !strcmp(name, "input_ids");
    char *path = npy_companion(x->path, is_ids ? "" : name);
    int rc = 0;
    if (is_ids || pp_file_exists(path)) {
        rc = pp_file_map(path, &x->files[x->n].map, &x->files[x->n].bytes, err);
        if (rc == 0) {
            rc = pp_npy_parse(path, x->files[x->n].map, x->files[x->n].bytes,
                              out, err);
            x->n++;
        }
        rc = rc == 0 ? 1 : -1;
    }
    free(path);
    return rc;
}

int pp_npy_read(const char *path, bool allow_empty, struct pp_documents *d,
                struct pp_err *err)
{
    struct npy_files x = {.path = path};
    int rc = pp_arrays_read(path, find_npy, &x, allow_empty, d, err);
    for (size_t i = 0; i < x.n; i++)
        pp_file_unmap(x.files[i].map, x.files[i].bytes);
    return rc;
}

/* The dtypes of a .safetensors file that arrays can have. */
static const struct {
    const char *name;
    unsigned type;
} tensor_types[] = {
    {"BOOL", PP_TOKEN_U8}, {"U8", PP_TOKEN_U8},   {"I8", PP_TOKEN_I8},
    {"U16", PP_TOKEN_U16}, {"I16", PP_TOKEN_I16}, {"U32", PP_TOKEN_U32},
    {"I32", PP_TOKEN_I32}, {"U64", PP_TOKEN_U64}, {"I64", PP_TOKEN_I64},
    {"F32", PP_TOKEN_F32}, {"F64", PP_TOKEN_F64},
};

struct tensor_file {
    const char *path;
    struct pp_tensors *tensors;
};

static int find_tensor(void *ctx, const char *name, struct pp_array *out,
                       struct pp_err *err)
{
    const struct tensor_file *f = ctx;
    const struct pp_tensor *t = pp_tensors_find(f->tensors, name);
    size_t i = 0;
    if (!t)
        return 0;
    while (i < sizeof tensor_types / sizeof *tensor_types &&
           strcmp(tensor_types[i].name, t->dtype_name) != 0)
        i++;
    if (i == sizeof tensor_types / sizeof *tensor_types || t->n_dims < 1 ||
        t->n_dims > 2)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s: '%s': cannot pack %s of %d dimensions; one or two "
                       "dimensions of integers, F32 or F64 are possible",
                       f->path, name, t->dtype_name, t->n_dims);
    *out = (struct pp_array){.type = tensor_types[i].type,
                             .n_dims = t->n_dims,
                             .n = (size_t)t->n,
                             .data = t->data};
    for (int k = 0; k < t->n_dims; k++)
        out->dims[k] = (size_t)t->dims[k];
    return 1;
}

int pp_safetensors_read(const char *path, bool allow_empty,
                        struct pp_documents *d, struct pp_err *err)
{
    struct tensor_file f = {.path = path};
    if (pp_tensors_open(path, &f.tensors, err) != 0)
        return -1;
    int rc = pp_arrays_read(path, find_tensor, &f, allow_empty, d, err);
    pp_tensors_close(f.tensors);
    return rc;
}
