/* SPDX-License-Identifier: MIT */
/* cuda_call - calls a CUDA kernel and the CPU's kernel in fp64 on the same
 * tensors, and compares the results. */
#ifndef PP_TESTS_CUDA_CALL_H
#define PP_TESTS_CUDA_CALL_H

#include "base/rng.h"
#include "gpu.h"
#include "tap.h"

enum kind { ELEMENT, ACCUMULATED, DOUBLES };

/* Numbers on the device, and as doubles for the reference. */
struct tensor {
    size_t n, bytes; /* bytes of a number on the device */
    double *want;
    void *at;
    void *base;
};

struct call {
    const struct pp_kernels *k; /* under test */
    struct tensor tensors[24];
    int n;
    bool integers;
    char **only; /* names of tests, NULL-terminated; none: all */
};

static const struct pp_kernels *const ref = &pp_kernels_f64;

static double from_bf16(uint16_t x)
{
    uint32_t word = (uint32_t)x << 16;
    float f;
    memcpy(&f, &word, sizeof f);
    return (double)f;
}

static uint16_t to_bf16(double x)
{
    float f = (float)x;
    uint32_t word;
    memcpy(&word, &f, sizeof word);
    return (uint16_t)((word + 0x7fff + (word >> 16 & 1)) >> 16);
}

static void encode(const struct tensor *t, void *out)
{
    for (size_t i = 0; i < t->n; i++)
        if (t->bytes == 2)
            ((uint16_t *)out)[i] = to_bf16(t->want[i]);
        else if (t->bytes == 4)
            ((float *)out)[i] = (float)t->want[i];
        else
            ((double *)out)[i] = t->want[i];
}

static double decode(const void *in, size_t bytes, size_t i)
{
    return bytes == 2   ? from_bf16(((const uint16_t *)in)[i])
           : bytes == 4 ? (double)((const float *)in)[i]
                        : ((const double *)in)[i];
}

/* Makes a tensor of n numbers, `shift` numbers behind an aligned address. */
static struct tensor *make(struct call *c, enum kind kind, size_t n,
                           size_t shift)
{
    struct tensor *t = &c->tensors[c->n++];
    t->n = n;
    t->bytes = kind == ELEMENT       ? c->k->element_bytes
               : kind == ACCUMULATED ? c->k->accumulator_bytes
                                     : sizeof(double);
    t->want = malloc((n + 1) * sizeof *t->want);
    t->base = gpu_alloc((n + shift + 1) * t->bytes);
    t->at = (char *)t->base + shift * t->bytes;
    if (!t->want)
        abort();
    return t;
}

static void upload(struct tensor *t)
{
    void *raw = malloc((t->n + 1) * t->bytes);
    if (!raw)
        abort();
    encode(t, raw);
    for (size_t i = 0; i < t->n; i++) /* the reference sees the rounding */
        t->want[i] = decode(raw, t->bytes, i);
    gpu_put(t->at, raw, t->n * t->bytes);
    free(raw);
}

/* Makes an input of normal numbers, or of integers whose sums of products are
 * exact. */
static struct tensor *in_at(struct call *c, enum kind kind, size_t n,
                            size_t shift)
{
    struct tensor *t = make(c, kind, n, shift);
    uint64_t key = pp_rng_key(11, "cuda") + (uint64_t)c->n * 977;
    for (size_t i = 0; i < n; i++)
        t->want[i] = c->integers ? (double)(pp_rng_bits(key, i) % 5) - 2
                                 : pp_rng_normal(key, i);
    upload(t);
    return t;
}

static struct tensor *in(struct call *c, enum kind kind, size_t n)
{
    return in_at(c, kind, n, 0);
}

/* Makes an output. It is filled with NaN, so that the test finds elements that
 * the kernel did not write. */
static struct tensor *out(struct call *c, enum kind kind, size_t n)
{
    struct tensor *t = make(c, kind, n, 0);
    for (size_t i = 0; i < n; i++)
        t->want[i] = NAN;
    upload(t);
    return t;
}

/* Returns the normalised error of the device's numbers against t->want.
 * Elements that the reference did not write must still be NaN. */
static double error_of(const struct tensor *t)
{
    double error = 0, size = 0;
    void *raw = malloc((t->n + 1) * t->bytes);
    if (!raw)
        abort();
    gpu_get(raw, t->at, t->n * t->bytes);
    for (size_t i = 0; i < t->n; i++) {
        double got = decode(raw, t->bytes, i), want = t->want[i];
        if (isnan(want) && isnan(got))
            continue;
        error += (got - want) * (got - want);
        size += want * want;
    }
    free(raw);
    return error == 0 ? 0 : error / (size > 0 ? size : 1);
}

static double bound_of(const struct call *c, double bf16, double f32)
{
    return c->k->element_bytes == 2 ? bf16 : f32;
}

/* Reports the test of one output. */
static void close_to(struct call *c, const struct tensor *t, double bound,
                     const char *what)
{
    double e = error_of(t);
    if (!ok(e <= (c->integers ? 0 : bound), "%s %s%s (NMSE %.1e)", c->k->name,
            what, c->integers ? ", integers" : "", e))
        printf("# bound %.1e\n", bound);
}

static void finish(struct call *c)
{
    for (int i = 0; i < c->n; i++) {
        free(c->tensors[i].want);
        gpu_free(c->tensors[i].base);
    }
    c->n = 0;
}

static int32_t *ids_on_device(const int32_t *ids, size_t n)
{
    int32_t *p = gpu_alloc((n + 1) * sizeof *p);
    gpu_put(p, ids, n * sizeof *p);
    return p;
}

#endif
