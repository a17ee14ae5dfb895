/* SPDX-License-Identifier: MIT */
/* Elements of a mapped tensor as float or double. The data may lie at any
 * address, so they are copied, never pointed at. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "data/safetensors.h"

/* The format and this reader's copies are little-endian. */
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

/* Where element first lies, or NULL with the error set. */
static const unsigned char *at(const struct pp_tensor *t, uint64_t first,
                               uint64_t n, struct pp_err *err)
{
    if (t->dtype == PP_DTYPE_OTHER || t->dtype == PP_DTYPE_I64 ||
        t->dtype == PP_DTYPE_I32) {
        pp_fail(err, PP_EXIT_INPUT,
                "'%s' is not of dtype F64, F32, F16 or BF16", t->name);
        return NULL;
    }
    if (first > t->n || n > t->n - first) {
        pp_fail(err, PP_EXIT_INPUT,
                "'%s' has %" PRIu64 " elements, %" PRIu64 " from %" PRIu64
                " on are wanted",
                t->name, t->n, n, first);
        return NULL;
    }
    return (const unsigned char *)t->data + first * pp_dtype_bytes(t->dtype);
}

/* One loop for each pair of types: p advances over the source. */
#define CONVERT(out, from, size, type) \
    for (uint64_t i = 0; i < n; i++)   \
    (out)[i] = (type)from(p + i * (size))

int pp_tensor_read_f32(const struct pp_tensor *t, uint64_t first, uint64_t n,
                       float *out, struct pp_err *err)
{
    const unsigned char *p = at(t, first, n, err);
    if (!p)
        return -1;
    if (t->dtype == PP_DTYPE_F64)
        CONVERT(out, from_f64, 8, float);
    else if (t->dtype == PP_DTYPE_BF16)
        CONVERT(out, from_bf16, 2, float);
    else if (t->dtype == PP_DTYPE_F16)
        CONVERT(out, from_f16, 2, float);
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
        CONVERT(out, from_f32, 4, double);
    else if (t->dtype == PP_DTYPE_BF16)
        CONVERT(out, from_bf16, 2, double);
    else if (t->dtype == PP_DTYPE_F16)
        CONVERT(out, from_f16, 2, double);
    else if (n > 0)
        memcpy(out, p, n * sizeof *out);
    return 0;
}
