/* SPDX-License-Identifier: MIT */
/* distribution on the CPU. */
#include "kernels.h"

#include <math.h>

#include "real.h"

PP_ENTROPY(PP_KERNEL(entropy))
{
    (void)stream;
    const real *x = logits, *l = lse;
    real *out = entropy;
    for (size_t t = 0; t < N; t++, x += V) {
        double sum = 0;
        for (size_t i = 0; i < V; i++) {
            double below = (double)x[i] - (double)l[t], p = exp(below);
            sum -= p > 0 ? p * below : 0;
        }
        out[t] = (real)sum;
    }
    return 0;
}

/* Inserts (x, id) in a list of `held` that descends. */
static void insert(real *values, int32_t *ids, size_t held, real x, int32_t id)
{
    size_t i = held;
    for (; i > 0 && x > values[i - 1]; i--) {
        values[i] = values[i - 1];
        ids[i] = ids[i - 1];
    }
    values[i] = x;
    ids[i] = id;
}

PP_TOP_K(PP_KERNEL(top_k))
{
    (void)stream;
    const real *x = logits;
    real *v = values;
    for (size_t t = 0; t < N; t++, x += V, v += k, ids += k)
        for (size_t i = 0; i < V; i++)
            if (i < k)
                insert(v, ids, i, x[i], (int32_t)i);
            else if (x[i] > v[k - 1])
                insert(v, ids, k - 1, x[i], (int32_t)i);
    return 0;
}
