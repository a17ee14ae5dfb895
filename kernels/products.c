/* SPDX-License-Identifier: MIT */
/* products - a tile of C stays in ROWS by two vector registers while k runs, as
 * in the inner kernel of Goto and van de Geijn (2008).
 *
 * This file is compiled once for each element type and instruction set;
 * PP_PRODUCTS is the name of the set. */
#include "products.h"

#include <string.h>

#include "real.h"

#define NAME_OF(set) PP_KERNEL(products_##set)
#define NAMED(set) NAME_OF(set)
#define TEXT_OF(set) #set
#define TEXT(set) TEXT_OF(set)

#ifndef PP_VECTOR_BYTES
#if defined(__AVX512F__)
#define PP_VECTOR_BYTES 64
#elif defined(__AVX__)
#define PP_VECTOR_BYTES 32
#else
#define PP_VECTOR_BYTES 16
#endif
#endif

/* Six rows of two vectors, two vectors of B and one of A use 15 of the 16
 * registers that all sets have. */
#define ROWS 6

typedef real vec __attribute__((vector_size(PP_VECTOR_BYTES)));
#define LANES (sizeof(vec) / sizeof(real))

/* a_row and a_k are the distances between the rows of A and between its k. */
struct product_operands {
    const real *a, *b;
    size_t a_row, a_k, ldb, ldc, K;
    real *c;
    bool add;
};

/* The first n elements of p, then zeros. */
PP_INLINE vec load(const real *p, size_t n)
{
    vec v = {0};
    memcpy(&v, p, n * sizeof *p);
    return v;
}

/* Computes c (rows, (vecs - 1) * LANES + last). All callers pass constants,
 * except for last at the right border. */
PP_INLINE void tile(size_t rows, size_t vecs, size_t last,
                    struct product_operands o)
{
    vec sum[ROWS][2], b[2];
    for (size_t r = 0; r < rows; r++)
        for (size_t v = 0; v < vecs; v++)
            sum[r][v] = o.add ? load(o.c + r * o.ldc + v * LANES,
                                     v + 1 < vecs ? LANES : last)
                              : (vec){0};
    for (size_t k = 0; k < o.K; k++, o.a += o.a_k, o.b += o.ldb) {
        for (size_t v = 0; v < vecs; v++)
            b[v] = load(o.b + v * LANES, v + 1 < vecs ? LANES : last);
        for (size_t r = 0; r < rows; r++)
            for (size_t v = 0; v < vecs; v++)
                sum[r][v] += o.a[r * o.a_row] * b[v];
    }
    for (size_t r = 0; r < rows; r++)
        for (size_t v = 0; v < vecs; v++)
            memcpy(o.c + r * o.ldc + v * LANES, &sum[r][v],
                   (v + 1 < vecs ? LANES : last) * sizeof(real));
}

/* Computes all rows of some columns. */
PP_INLINE void columns(size_t M, size_t vecs, size_t last,
                       struct product_operands o)
{
    for (; M >= ROWS; M -= ROWS) {
        tile(ROWS, vecs, last, o);
        o.a += ROWS * o.a_row;
        o.c += ROWS * o.ldc;
    }
    switch (M) {
    case 5:
        tile(5, vecs, last, o);
        break;
    case 4:
        tile(4, vecs, last, o);
        break;
    case 3:
        tile(3, vecs, last, o);
        break;
    case 2:
        tile(2, vecs, last, o);
        break;
    case 1:
        tile(1, vecs, last, o);
        break;
    }
}

PP_INLINE void product(size_t M, size_t N, struct product_operands o)
{
    size_t width;
    for (; N; N -= width, o.b += width, o.c += width) {
        width = N < LANES ? N : N < 2 * LANES ? LANES : 2 * LANES;
        if (width == 2 * LANES)
            columns(M, 2, LANES, o);
        else if (width == LANES)
            columns(M, 1, LANES, o);
        else
            columns(M, 1, width, o);
    }
}

static void nn(size_t M, size_t N, size_t K, const real *a, size_t lda,
               const real *b, size_t ldb, bool add, real *c, size_t ldc)
{
    product(M, N, (struct product_operands){a, b, lda, 1, ldb, ldc, K, c, add});
}

static void tn(size_t M, size_t N, size_t K, const real *a, size_t lda,
               const real *b, size_t ldb, bool add, real *c, size_t ldc)
{
    product(M, N, (struct product_operands){a, b, 1, lda, ldb, ldc, K, c, add});
}

typedef __typeof__((vec){0} < (vec){0}) mask;

PP_INLINE vec max_of(vec a, vec b)
{
    mask b_wins = a < b;
    return (vec)((b_wins & (mask)b) | (~b_wins & (mask)a));
}

static real row_max(const real *x, size_t n)
{
    vec best0 = (vec){0} + x[0], best1 = best0;
    size_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        best0 = max_of(best0, load(x + i, LANES));
        best1 = max_of(best1, load(x + i + LANES, LANES));
    }
    best0 = max_of(best0, best1);
    real all = best0[0];
    for (size_t j = 1; j < LANES; j++)
        all = all < best0[j] ? best0[j] : all;
    for (; i < n; i++)
        all = all < x[i] ? x[i] : all;
    return all;
}

static real row_exp(real *x, size_t n, real shift)
{
    real sum[LANES] = {0}, rest = 0;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t j = 0; j < LANES; j++) {
            x[i + j] = exp_below(x[i + j] - shift);
            sum[j] += x[i + j];
        }
    for (; i < n; i++) {
        x[i] = exp_below(x[i] - shift);
        rest += x[i];
    }
    for (size_t half = LANES / 2; half; half /= 2)
        for (size_t j = 0; j < half; j++)
            sum[j] += sum[j + half];
    return rest + sum[0];
}

const struct pp_products NAMED(PP_PRODUCTS) = {
    .name = TEXT(PP_PRODUCTS),
    .nn = nn,
    .tn = tn,
    .max = row_max,
    .exp = row_exp,
};
