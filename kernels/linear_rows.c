/* SPDX-License-Identifier: MIT */
/* linear_rows - products whose rows do not depend on each other: forward and
 * input gradient of linear, with sums over k in ascending order.
 *
 * A BLAS gives equal rows other bits in another place or with another number of
 * rows. Here a row has the same bits alone, in any place and beside any other
 * rows, because products.h adds each element by itself. So log-probabilities do
 * not depend on how sequences are packed. The weight is copied in parts that
 * stay in cache, as by Goto and van de Geijn, "Anatomy of High-Performance
 * Matrix Multiplication" (2008). The weight gradient sums over rows and stays
 * with the BLAS. */
#include "kernels.h"

#include "products.h"
#include "real.h"

/* A part of the weight: PART_K of the sum by PART_N columns of y. It takes
 * up to 128 KiB of the stack. PART_M rows of x by PART_K stay in cache beside
 * it. */
enum { PART_N = 64, PART_K = 256, PART_M = 384 };

struct rows_operands {
    const real *x, *w;
    size_t ldx, ldw, ldy;
    real *y;
    bool transposed; /* w (N, K), else (K, N) */
    bool adds;       /* to y */
};

typedef real quad __attribute__((vector_size(4 * sizeof(real))));

/* Copies 4 rows of w to 4 columns of part. */
PP_INLINE void turn_block(real *part, const real *w, size_t ldw)
{
    quad row[4], low[2], high[2];
    for (size_t j = 0; j < 4; j++)
        memcpy(&row[j], w + j * ldw, sizeof row[j]);
    for (size_t j = 0; j < 2; j++) {
        low[j] = __builtin_shufflevector(row[j], row[j + 2], 0, 4, 1, 5);
        high[j] = __builtin_shufflevector(row[j], row[j + 2], 2, 6, 3, 7);
    }
    row[0] = __builtin_shufflevector(low[0], low[1], 0, 4, 1, 5);
    row[1] = __builtin_shufflevector(low[0], low[1], 2, 6, 3, 7);
    row[2] = __builtin_shufflevector(high[0], high[1], 0, 4, 1, 5);
    row[3] = __builtin_shufflevector(high[0], high[1], 2, 6, 3, 7);
    for (size_t j = 0; j < 4; j++)
        memcpy(part + j * PART_N, &row[j], sizeof row[j]);
}

/* Copies rows k.. and columns n.. of the weight to part (K, N), with a distance
 * of PART_N between rows. */
PP_CLONES static void copy_part(real *part, const struct rows_operands *o,
                                size_t k, size_t n, size_t K, size_t N)
{
    if (!o->transposed) {
        for (size_t i = 0; i < K; i++)
            memcpy(part + i * PART_N, o->w + (k + i) * o->ldw + n,
                   N * sizeof *part);
        return;
    }
    const real *w = o->w + n * o->ldw + k;
    size_t whole_k = K - K % 4, whole_n = N - N % 4;
    for (size_t i = 0; i < whole_k; i += 4)
        for (size_t j = 0; j < whole_n; j += 4)
            turn_block(part + i * PART_N + j, w + j * o->ldw + i, o->ldw);
    for (size_t i = 0; i < K; i++)
        for (size_t j = i < whole_k ? whole_n : 0; j < N; j++)
            part[i * PART_N + j] = w[j * o->ldw + i];
}

/* y (M, N) = x (M, K) W, or y += */
static void product(const struct rows_operands *o, size_t M, size_t N, size_t K)
{
    const struct pp_products *p = products_at(0);
    real part[PART_K * PART_N] __attribute__((aligned(64)));
    for (size_t m = 0; m < M; m += PART_M)
        for (size_t k = 0; k < K; k += PART_K)
            for (size_t n = 0; n < N; n += PART_N) {
                size_t ms = M - m < PART_M ? M - m : PART_M;
                size_t ks = K - k < PART_K ? K - k : PART_K;
                size_t ns = N - n < PART_N ? N - n : PART_N;
                copy_part(part, o, k, n, ks, ns);
                p->nn(ms, ns, ks, o->x + m * o->ldx + k, o->ldx, part, PART_N,
                      k > 0 || o->adds, o->y + m * o->ldy + n, o->ldy);
            }
}

/* Adds the bias and the residual, either may be NULL. */
PP_CLONES static void add_both(real *y, const real *b, const real *r, size_t M,
                               size_t N, size_t ldy)
{
    for (size_t t = 0; b && t < M; t++)
        for (size_t j = 0; j < N; j++)
            y[t * ldy + j] += b[j];
    for (size_t t = 0; r && t < M; t++)
        for (size_t j = 0; j < N; j++)
            y[t * ldy + j] += r[t * ldy + j];
}

PP_LINEAR_FWD(PP_KERNEL(linear_rows_fwd))
{
    const struct rows_operands o = {x, w, ldx, C, ldy, y, true, r == y};
    (void)stream;
    product(&o, N, OC, C);
    add_both(y, b, r == y ? NULL : r, N, OC, ldy);
    return 0;
}

PP_LINEAR_BWD_INPUT(PP_KERNEL(linear_rows_bwd_input))
{
    const struct rows_operands o = {dy, w, lddy, C, lddx, dx, false, r == dx};
    (void)stream;
    product(&o, N, C, OC);
    add_both(dx, NULL, r == dx ? NULL : r, N, C, lddx);
    return 0;
}
