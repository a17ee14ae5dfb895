/* SPDX-License-Identifier: MIT */
#include "base/elements.h"

#include <stdint.h>
#include <string.h>

static double read_element(const char *from, size_t bytes)
{
    double d;
    float f;
    uint16_t half;
    uint32_t bits;
    switch (bytes) {
    case sizeof d:
        memcpy(&d, from, sizeof d);
        return d;
    case sizeof f:
        memcpy(&f, from, sizeof f);
        return (double)f;
    default:
        memcpy(&half, from, sizeof half);
        bits = (uint32_t)half << 16;
        memcpy(&f, &bits, sizeof f);
        return (double)f;
    }
}

static uint16_t to_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7fffffff) > 0x7f800000) /* not a number */
        return 0x7fff;
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Rounds to float first, so fp64 may round twice to bf16. */
static void write_element(char *to, size_t bytes, double x)
{
    float f = (float)x;
    uint16_t half;
    switch (bytes) {
    case sizeof x:
        memcpy(to, &x, sizeof x);
        break;
    case sizeof f:
        memcpy(to, &f, sizeof f);
        break;
    default:
        half = to_bf16(f);
        memcpy(to, &half, sizeof half);
    }
}

/* The pixels of a microbatch go this way in every step. */
static void floats_to_bf16(char *to, const char *from, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float x;
        memcpy(&x, from + i * sizeof x, sizeof x);
        uint16_t half = to_bf16(x);
        memcpy(to + i * sizeof half, &half, sizeof half);
    }
}

void pp_elements_convert(void *to, size_t to_bytes, const void *from,
                         size_t from_bytes, size_t n)
{
    if (to_bytes == from_bytes) {
        memmove(to, from, n * to_bytes);
        return;
    }
    if (to_bytes == sizeof(uint16_t) && from_bytes == sizeof(float)) {
        floats_to_bf16(to, from, n);
        return;
    }
    for (size_t i = 0; i < n; i++)
        write_element(
            (char *)to + i * to_bytes, to_bytes,
            read_element((const char *)from + i * from_bytes, from_bytes));
}
