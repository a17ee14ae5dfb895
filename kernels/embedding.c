/* SPDX-License-Identifier: MIT */
/* embedding on the CPU. */
#include "kernels.h"

#include <string.h>

#include "real.h"

PP_CLONES static void add_row(real *restrict y, const real *restrict x,
                              size_t C)
{
    for (size_t i = 0; i < C; i++)
        y[i] += x[i];
}

PP_EMBEDDING_FWD(PP_KERNEL(embedding_fwd))
{
    (void)stream;
    real *out = y;
    const real *table = w;
    for (size_t t = 0; t < N; t++) {
        if (ids[t] >= 0)
            memcpy(out + t * C, table + (size_t)ids[t] * C, C * sizeof *out);
        else
            memset(out + t * C, 0, C * sizeof *out);
    }
    return 0;
}

PP_EMBEDDING_FWD(PP_KERNEL(embedding_add))
{
    (void)stream;
    real *out = y;
    const real *table = w;
    for (size_t t = 0; t < N; t++)
        if (ids[t] >= 0)
            add_row(out + t * C, table + (size_t)ids[t] * C, C);
    return 0;
}

PP_EMBEDDING_BWD_WEIGHT(PP_KERNEL(embedding_bwd_weight))
{
    (void)stream;
    real *table = dw;
    const real *d = dy;
    for (size_t t = 0; t < N; t++)
        if (ids[t] >= 0)
            add_row(table + (size_t)ids[t] * C, d + t * C, C);
    return 0;
}

PP_SCATTER(PP_KERNEL(scatter))
{
    (void)stream;
    real *out = y;
    const real *in = x;
    for (size_t t = 0; t < N; t++)
        memcpy(out + (size_t)rows[t] * C, in + t * C, C * sizeof *out);
    return 0;
}
