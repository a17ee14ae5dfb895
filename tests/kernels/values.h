/* SPDX-License-Identifier: MIT */
/* values - arrays of both element types for the kernel tests, with guard
 * elements behind them, and comparisons that print the worst element. The
 * functions are defined in this header, as in tap.h. */
#ifndef PP_TESTS_VALUES_H
#define PP_TESTS_VALUES_H

#include <stdint.h>

#include "base/rng.h"
#include "kernels.h"
#include "tap.h"

#define GUARD 16
#define GUARD_BYTE 0x5a

/* n elements and a guard. base is the allocation; at is `shift` elements behind
 * it, to test another alignment. */
struct values {
    void *base, *at;
    size_t n, bytes; /* bytes of an element */
};

__attribute__((unused)) static struct values
values_new(const struct pp_kernels *k, size_t n, size_t shift)
{
    struct values v = {.n = n, .bytes = k->element_bytes};
    v.base = malloc((n + shift + GUARD) * v.bytes);
    if (!v.base)
        abort();
    v.at = (char *)v.base + shift * v.bytes;
    memset(v.base, GUARD_BYTE, (n + shift + GUARD) * v.bytes);
    memset(v.at, 0xff, n * v.bytes); /* NaN until written */
    return v;
}

__attribute__((unused)) static void values_free(struct values *v)
{
    free(v->base);
    *v = (struct values){0};
}

__attribute__((unused)) static bool guard_whole(const struct values *v)
{
    const unsigned char *g = (unsigned char *)v->at + v->n * v->bytes;
    for (size_t i = 0; i < GUARD * v->bytes; i++)
        if (g[i] != GUARD_BYTE)
            return false;
    return true;
}

__attribute__((unused)) static double get(const struct values *v, size_t i)
{
    return v->bytes == sizeof(float) ? (double)((float *)v->at)[i]
                                     : ((double *)v->at)[i];
}

__attribute__((unused)) static void set(struct values *v, size_t i, double x)
{
    if (v->bytes == sizeof(float))
        ((float *)v->at)[i] = (float)x;
    else
        ((double *)v->at)[i] = x;
}

__attribute__((unused)) static void fill(struct values *v, double x)
{
    for (size_t i = 0; i < v->n; i++)
        set(v, i, x);
}

/* Fills with normal numbers that are floats, so that both types hold the same
 * values. */
__attribute__((unused)) static void fill_normal(struct values *v,
                                                const char *name, double size)
{
    uint64_t key = pp_rng_key(7, name);
    for (size_t i = 0; i < v->n; i++)
        set(v, i, (double)(float)(size * pp_rng_normal(key, i)));
}

/* Fills with integers in [-limit, limit]. */
__attribute__((unused)) static void fill_integers(struct values *v,
                                                  const char *name, int limit)
{
    uint64_t key = pp_rng_key(7, name);
    for (size_t i = 0; i < v->n; i++)
        set(v, i,
            (double)(pp_rng_bits(key, i) % (2 * (uint64_t)limit + 1)) - limit);
}

/* Returns whether the largest |got - want|, divided by the largest |want| or
 * `least`, is within the bound. Prints the element if not. NaN never passes. */
__attribute__((unused)) static bool values_near(const struct values *got,
                                                const struct values *want,
                                                double bound, double least,
                                                const char *what)
{
    double size = least, worst = 0;
    size_t where = 0;
    for (size_t i = 0; i < want->n; i++)
        size = fabs(get(want, i)) > size ? fabs(get(want, i)) : size;
    for (size_t i = 0; i < want->n; i++) {
        double d = fabs(get(got, i) - get(want, i));
        if (!(d <= worst)) {
            worst = d;
            where = i;
        }
        if (d != d)
            break;
    }
    if (worst <= bound * size)
        return true;
    printf("# %s: seed 7, element %zu of %zu: got %.17g, expected %.17g; "
           "largest %.3g, bound %.3g\n",
           what, where, want->n, get(got, where), get(want, where), size,
           bound);
    return false;
}

/* Returns the mean squared error divided by the mean square. */
__attribute__((unused)) static double nmse(const struct values *got,
                                           const struct values *want)
{
    double error = 0, size = 0;
    for (size_t i = 0; i < want->n; i++) {
        double d = get(got, i) - get(want, i);
        error += d * d;
        size += get(want, i) * get(want, i);
    }
    return error == 0 ? 0 : error / size;
}

__attribute__((unused)) static bool same_bits(const struct values *a,
                                              const struct values *b)
{
    return a->n == b->n && !memcmp(a->at, b->at, a->n * a->bytes);
}

#endif
