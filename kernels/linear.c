/* SPDX-License-Identifier: MIT */
/* linear on the CPU: BLAS products, then loops for the bias and the
 * residual. */
#include "kernels.h"

#include "real.h"

PP_CLONES static void add_bias(real *y, const real *b, size_t N, size_t OC,
                               size_t ldy)
{
    for (size_t t = 0; t < N; t++)
        for (size_t j = 0; j < OC; j++)
            y[t * ldy + j] += b[j];
}

PP_CLONES static void add_residual(real *y, const real *r, size_t N, size_t OC,
                                   size_t ldy)
{
    for (size_t t = 0; t < N; t++)
        for (size_t j = 0; j < OC; j++)
            y[t * ldy + j] += r[t * ldy + j];
}

PP_CLONES static void add_bias_gradient(real *db, const real *dy, size_t N,
                                        size_t OC, size_t lddy)
{
    for (size_t t = 0; t < N; t++)
        for (size_t j = 0; j < OC; j++)
            db[j] += dy[t * lddy + j];
}

PP_LINEAR_FWD(PP_KERNEL(linear_fwd))
{
    (void)stream;
    gemm_nt(N, OC, C, 1, x, ldx, w, C, r == y, y, ldy);
    if (b)
        add_bias(y, b, N, OC, ldy);
    if (r && r != y)
        add_residual(y, r, N, OC, ldy);
    return 0;
}

PP_LINEAR_BWD_INPUT(PP_KERNEL(linear_bwd_input))
{
    (void)stream;
    gemm_nn(N, C, OC, 1, dy, lddy, w, C, r == dx, dx, lddx);
    if (r && r != dx)
        add_residual(dx, r, N, C, lddx);
    return 0;
}

PP_LINEAR_BWD_WEIGHT(PP_KERNEL(linear_bwd_weight))
{
    (void)stream;
    if (N)
        gemm_tn(OC, C, N, 1, dy, lddy, x, ldx, !writes, dw, C);
    if (db)
        add_bias_gradient(db, dy, N, OC, lddy);
    return 0;
}
