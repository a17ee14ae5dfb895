/* SPDX-License-Identifier: MIT */
/* header - reads the header of one file, and the elements of a
 * tensor. It is one file because the checks of the header make the reads of
 * elements safe. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/foreign.h"
#include "base/vec.h"
#include "data/tensors/safetensors.h"
#include "data/scan.h"

/* The format's own limit. */
#define MAX_HEADER_BYTES 100000000u

/* Every dtype of the format: size and place are checked also for tensors that
 * are never read. The types that are read come first, in the order of their
 * numbers. */
static const struct {
    const char *name;
    enum pp_dtype dtype;
    unsigned bits;
} dtypes[] = {
    {"F64", PP_DTYPE_F64, 64},      {"F32", PP_DTYPE_F32, 32},
    {"F16", PP_DTYPE_F16, 16},      {"BF16", PP_DTYPE_BF16, 16},
    {"I64", PP_DTYPE_I64, 64},      {"I32", PP_DTYPE_I32, 32},
    {"BOOL", PP_DTYPE_OTHER, 8},    {"U8", PP_DTYPE_OTHER, 8},
    {"I8", PP_DTYPE_OTHER, 8},      {"I16", PP_DTYPE_OTHER, 16},
    {"U16", PP_DTYPE_OTHER, 16},    {"U32", PP_DTYPE_OTHER, 32},
    {"U64", PP_DTYPE_OTHER, 64},    {"C64", PP_DTYPE_OTHER, 64},
    {"F8_E4M3", PP_DTYPE_OTHER, 8}, {"F8_E5M2", PP_DTYPE_OTHER, 8},
    {"F8_E8M0", PP_DTYPE_OTHER, 8}, {"F4", PP_DTYPE_OTHER, 4},
    {"F6_E2M3", PP_DTYPE_OTHER, 6}, {"F6_E3M2", PP_DTYPE_OTHER, 6},
};

size_t pp_dtype_bytes(enum pp_dtype d)
{
    return d < PP_DTYPE_OTHER ? dtypes[d].bits / 8 : 0;
}

const char *pp_dtype_name(enum pp_dtype d)
{
    return d < PP_DTYPE_OTHER ? dtypes[d].name : NULL;
}

struct tensor_header {
    struct pp_scan scan;
    struct pp_arena *arena;
    const char *path;
    const unsigned char *data; /* the tensors, after the header */
    uint64_t data_at;          /* its offset in the file */
    uint64_t data_bytes;
};

/* One tensor of the header: its fields so far, and its place in the data. */
struct tensor_entry {
    struct pp_tensor tensor;
    uint64_t begin, end;
    unsigned bits;
    bool has_dtype, has_shape, has_offsets;
};

static int read_dtype(struct tensor_header *h, struct tensor_entry *e,
                      struct pp_err *err)
{
    const char *name;
    if (pp_scan_string(&h->scan, h->arena, &name, err))
        return -1;
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (!strcmp(dtypes[i].name, name)) {
            e->tensor.dtype = dtypes[i].dtype;
            e->tensor.dtype_name = dtypes[i].name;
            e->bits = dtypes[i].bits;
            return 0;
        }
    return pp_fail(err, PP_EXIT_INPUT, "%s: '%s': unknown dtype '%s'", h->path,
                   e->tensor.name, name);
}

static int read_tensor_shape(struct tensor_header *h, struct tensor_entry *e,
                             struct pp_err *err)
{
    struct pp_tensor *t = &e->tensor;
    size_t n = 0;
    int more;
    if (pp_scan_expect(&h->scan, '[', err))
        return -1;
    while ((more = pp_scan_more(&h->scan, ']', &n, err)) > 0) {
        if (n > PP_MAX_DIMS)
            return pp_fail(err, PP_EXIT_INPUT,
                           "%s: '%s': more than %d dimensions", h->path,
                           t->name, PP_MAX_DIMS);
        if (pp_scan_u64(&h->scan, &t->dims[n - 1], err))
            return -1;
        t->n_dims = (int)n;
    }
    return more;
}

static int read_offsets(struct tensor_header *h, struct tensor_entry *e,
                        struct pp_err *err)
{
    if (pp_scan_expect(&h->scan, '[', err) ||
        pp_scan_u64(&h->scan, &e->begin, err) ||
        pp_scan_expect(&h->scan, ',', err) ||
        pp_scan_u64(&h->scan, &e->end, err))
        return -1;
    return pp_scan_expect(&h->scan, ']', err);
}

/* Reads {"dtype": ..., "shape": ..., "data_offsets": ...}, each exactly
 * once. */
static int read_entry(struct tensor_header *h, struct tensor_entry *e,
                      struct pp_err *err)
{
    const struct {
        const char *key;
        bool *seen;
        int (*read)(struct tensor_header *, struct tensor_entry *,
                    struct pp_err *);
    } fields[] = {
        {"dtype", &e->has_dtype, read_dtype},
        {"shape", &e->has_shape, read_tensor_shape},
        {"data_offsets", &e->has_offsets, read_offsets},
    };
    enum { N = sizeof fields / sizeof *fields };
    const char *key;
    size_t n = 0, i;
    int more;
    if (pp_scan_expect(&h->scan, '{', err))
        return -1;
    while ((more = pp_scan_more(&h->scan, '}', &n, err)) > 0) {
        if (pp_scan_key(&h->scan, h->arena, &key, err))
            return -1;
        for (i = 0; i < N && strcmp(fields[i].key, key); i++)
            ;
        if (i == N || *fields[i].seen)
            return pp_fail(err, PP_EXIT_INPUT, "%s: '%s': %s '%s'", h->path,
                           e->tensor.name, i == N ? "unknown key" : "repeated",
                           key);
        *fields[i].seen = true;
        if (fields[i].read(h, e, err))
            return -1;
    }
    for (i = 0; more == 0 && i < N; i++)
        if (!*fields[i].seen)
            return pp_fail(err, PP_EXIT_INPUT, "%s: '%s': no '%s'", h->path,
                           e->tensor.name, fields[i].key);
    return more;
}

static int check_entry(const struct tensor_header *h, struct tensor_entry *e,
                       struct pp_err *err)
{
    struct pp_tensor *t = &e->tensor;
    uint64_t bits;
    t->n = 1;
    bool zero = false, overflow = false;
    for (int i = 0; i < t->n_dims; i++)
        zero |= t->dims[i] == 0;
    for (int i = 0; i < t->n_dims && !zero; i++)
        overflow |= __builtin_mul_overflow(t->n, t->dims[i], &t->n);
    t->n = zero ? 0 : t->n;
    overflow |= __builtin_mul_overflow(t->n, e->bits, &bits);
    if (overflow)
        return pp_fail(err, PP_EXIT_INPUT, "%s: '%s': the shape is too large",
                       h->path, t->name);
    if (e->begin > e->end)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s: '%s': data_offsets %" PRIu64 ", %" PRIu64
                       " are out of order",
                       h->path, t->name, e->begin, e->end);
    if (bits % 8 || bits / 8 != e->end - e->begin)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s: '%s': has %" PRIu64 " bytes of data, but its shape "
                       "needs %" PRIu64,
                       h->path, t->name, e->end - e->begin, (bits + 7) / 8);
    if (e->end > h->data_bytes)
        return pp_fail(
            err, PP_EXIT_INPUT,
            "%s: '%s': data ends at %" PRIu64 ", but the file ends at %" PRIu64,
            h->path, t->name,
            e->end > UINT64_MAX - h->data_at ? e->end : h->data_at + e->end,
            h->data_at + h->data_bytes);
    t->data = h->data + e->begin;
    t->bytes = (size_t)(e->end - e->begin);
    return 0;
}

/* Reads {"key": "value", ...}. */
static int read_metadata(struct tensor_header *h, struct pp_err *err)
{
    const char *text;
    size_t n = 0;
    int more;
    if (pp_scan_expect(&h->scan, '{', err))
        return -1;
    while ((more = pp_scan_more(&h->scan, '}', &n, err)) > 0)
        if (pp_scan_key(&h->scan, h->arena, &text, err) ||
            pp_scan_string(&h->scan, h->arena, &text, err))
            return -1;
    return more;
}

static int read_tensor_header(struct tensor_header *h,
                              struct pp_tensor_list *list, struct pp_err *err)
{
    const char *name;
    size_t n = 0;
    int more;
    bool has_metadata = false;
    if (pp_scan_expect(&h->scan, '{', err))
        return -1;
    while ((more = pp_scan_more(&h->scan, '}', &n, err)) > 0) {
        if (pp_scan_key(&h->scan, h->arena, &name, err))
            return -1;
        if (!strcmp(name, "__metadata__")) {
            if (has_metadata)
                return pp_scan_fail(&h->scan, err, "repeated '%s'", name);
            has_metadata = true;
            if (read_metadata(h, err))
                return -1;
            continue;
        }
        struct tensor_entry e = {.tensor.name = name};
        if (read_entry(h, &e, err) || check_entry(h, &e, err))
            return -1;
        PP_VEC_PUSH(list, e.tensor);
    }
    return more ? -1 : pp_scan_end(&h->scan, err);
}

static int compare_places(const void *a, const void *b)
{
    const struct pp_tensor *x = a, *y = b;
    if (x->data != y->data)
        return (const char *)x->data < (const char *)y->data ? -1 : 1;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* Checks that every byte of the data belongs to exactly one tensor. */
static int check_cover(const struct tensor_header *h,
                       struct pp_tensor_list *list, size_t first,
                       struct pp_err *err)
{
    uint64_t at = 0;
    size_t n = list->n - first;
    struct pp_tensor *t = n > 0 ? list->items + first : NULL;
    if (n > 0)
        qsort(t, n, sizeof *t, compare_places);
    for (size_t i = 0; i < n; i++) {
        uint64_t begin = (uint64_t)((const unsigned char *)t[i].data - h->data);
        if (begin < at)
            return pp_fail(err, PP_EXIT_INPUT, "%s: '%s' and '%s' overlap",
                           h->path, t[i - 1].name, t[i].name);
        if (begin > at)
            return pp_fail(err, PP_EXIT_INPUT,
                           "%s: '%s': %" PRIu64 " bytes before it belong to no "
                           "tensor",
                           h->path, t[i].name, begin - at);
        at = begin + t[i].bytes;
    }
    if (at < h->data_bytes)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s: the last %" PRIu64 " bytes belong to no tensor",
                       h->path, h->data_bytes - at);
    return 0;
}

int pp_safetensors_parse(const char *path, const void *data, size_t bytes,
                         struct pp_arena *a, struct pp_tensor_list *list,
                         struct pp_err *err)
{
    const unsigned char *p = data;
    uint64_t size = 0;
    for (size_t i = 8; i-- > 0;)
        size = size << 8 | (i < bytes ? p[i] : 0);
    /* Read as a size, the first bytes of other files are larger than any
     * header. */
    const char *other = pp_foreign_file(data, bytes);
    if (size > MAX_HEADER_BYTES && other)
        return pp_fail(err, PP_EXIT_INPUT, "%s: is %s", path, other);
    if (bytes < 8)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s: %zu bytes are too few for a safetensors file", path,
                       bytes);
    if (size > MAX_HEADER_BYTES)
        return pp_fail(err, PP_EXIT_INPUT, "%s: is not a safetensors file",
                       path);
    if (size > bytes - 8)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s: the header ends at %" PRIu64
                       ", but the file ends at %zu",
                       path, size + 8, bytes);
    char *name = pp_arena_printf(a, "%s: header", path);
    struct tensor_header h = {
        .scan = {.text = (const char *)p + 8, .n = (size_t)size, .name = name},
        .arena = a,
        .path = path,
        .data = p + 8 + size,
        .data_at = 8 + size,
        .data_bytes = bytes - 8 - size,
    };
    size_t first = list->n;
    if (read_tensor_header(&h, list, err))
        return -1;
    return check_cover(&h, list, first, err);
}

/* The data of a mapped tensor may be at any address, so elements are copied,
 * never pointed at. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "safetensors files are little-endian");

static float from_bf16(const unsigned char *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
    uint32_t bits = (uint32_t)h << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static float from_f16(const unsigned char *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, fraction = h & 0x3ff;
    uint32_t exponent = h >> 10 & 31, bits;
    float x;
    if (exponent == 0) { /* zero and subnormal: fraction * 2^-24, exactly */
        x = ldexpf((float)fraction, -24);
        return sign ? -x : x;
    }
    if (exponent == 31) /* infinity, not-a-number with its payload */
        bits = sign | 0x7f800000 | fraction << 13;
    else
        bits = sign | (exponent + 112) << 23 | fraction << 13;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static float from_f32(const unsigned char *p)
{
    float x;
    memcpy(&x, p, sizeof x);
    return x;
}

static double from_f64(const unsigned char *p)
{
    double x;
    memcpy(&x, p, sizeof x);
    return x;
}

/* Returns the address of element first, or NULL with *err filled. */
static const unsigned char *at(const struct pp_tensor *t, uint64_t first,
                               uint64_t n, struct pp_err *err)
{
    if (t->dtype == PP_DTYPE_OTHER || t->dtype == PP_DTYPE_I64 ||
        t->dtype == PP_DTYPE_I32) {
        pp_fail(err, PP_EXIT_INPUT,
                "'%s' must have dtype F64, F32, F16 or BF16", t->name);
        return NULL;
    }
    if (first > t->n || n > t->n - first) {
        pp_fail(err, PP_EXIT_INPUT,
                "'%s' has %" PRIu64 " elements, but %" PRIu64 " from %" PRIu64
                " on are needed",
                t->name, t->n, n, first);
        return NULL;
    }
    return (const unsigned char *)t->data + first * pp_dtype_bytes(t->dtype);
}

/* One loop per pair of types, so that the compiler knows both. */
#define CONVERT_ALL(out, from, size, type) \
    for (uint64_t i = 0; i < n; i++)       \
    (out)[i] = (type)from(p + i * (size))

int pp_tensor_read_f32(const struct pp_tensor *t, uint64_t first, uint64_t n,
                       float *out, struct pp_err *err)
{
    const unsigned char *p = at(t, first, n, err);
    if (!p)
        return -1;
    if (t->dtype == PP_DTYPE_F64)
        CONVERT_ALL(out, from_f64, 8, float);
    else if (t->dtype == PP_DTYPE_BF16)
        CONVERT_ALL(out, from_bf16, 2, float);
    else if (t->dtype == PP_DTYPE_F16)
        CONVERT_ALL(out, from_f16, 2, float);
    else if (n > 0)
        memcpy(out, p, n * sizeof *out);
    return 0;
}

int pp_tensor_read_f64(const struct pp_tensor *t, uint64_t first, uint64_t n,
                       double *out, struct pp_err *err)
{
    const unsigned char *p = at(t, first, n, err);
    if (!p)
        return -1;
    if (t->dtype == PP_DTYPE_F32)
        CONVERT_ALL(out, from_f32, 4, double);
    else if (t->dtype == PP_DTYPE_BF16)
        CONVERT_ALL(out, from_bf16, 2, double);
    else if (t->dtype == PP_DTYPE_F16)
        CONVERT_ALL(out, from_f16, 2, double);
    else if (n > 0)
        memcpy(out, p, n * sizeof *out);
    return 0;
}
