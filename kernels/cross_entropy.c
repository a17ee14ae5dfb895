/* SPDX-License-Identifier: MIT */
/* cross_entropy on the CPU. Sums of a row are in double, over pieces of it. */
#include "kernels.h"

#include <math.h>

#include "real.h"

#define PIECE 512

PP_CLONES static real largest_logit(const real *x, size_t V)
{
    return max_row(x, V);
}

PP_CLONES static double sum_exp(const real *x, size_t V, real max)
{
    real e[PIECE];
    double sum = 0;
    for (size_t at = 0; at < V; at += PIECE) {
        size_t n = V - at < PIECE ? V - at : PIECE;
        for (size_t i = 0; i < n; i++)
            e[i] = fast_exp(x[at + i] - max);
        sum += sum_row(e, n);
    }
    return sum;
}

PP_CLONES static void row_gradient(real *x, size_t V, real lse, real scale)
{
    for (size_t i = 0; i < V; i++)
        x[i] = fast_exp(x[i] - lse) * scale;
}

/* The same behind softcap, whose slope is 1 - (x / cap)^2. */
PP_CLONES static void capped_gradient(real *x, size_t V, real lse, real scale,
                                      real cap)
{
    for (size_t i = 0; i < V; i++) {
        real y = x[i] / cap;
        x[i] = fast_exp(x[i] - lse) * scale * (1 - y * y);
    }
}

PP_CROSS_ENTROPY_FWD(PP_KERNEL(cross_entropy_fwd))
{
    (void)stream;
    real *l = lse, *p = logp;
    const real *x = logits;
    for (size_t t = 0; t < N; t++, x += V) {
        real max = largest_logit(x, V);
        double rest = log(sum_exp(x, V, max));
        l[t] = (real)((double)max + rest);
        p[t] = targets[t] < 0
                   ? -(real)INFINITY
                   : (real)((double)x[targets[t]] - (double)max - rest);
    }
    return 0;
}

PP_CROSS_ENTROPY_BWD(PP_KERNEL(cross_entropy_bwd))
{
    (void)stream;
    const real *l = lse, *s = scale;
    real *x = logits;
    for (size_t t = 0; t < N; t++, x += V) {
        real at_target = targets[t] < 0 ? 0 : x[targets[t]];
        real y = cap > 0 ? at_target / (real)cap : 0;
        if (cap > 0)
            capped_gradient(x, V, l[t], s[t], (real)cap);
        else
            row_gradient(x, V, l[t], s[t]);
        if (targets[t] >= 0)
            x[targets[t]] =
                (fast_exp(at_target - l[t]) - 1) * s[t] * (1 - y * y);
    }
    return 0;
}

PP_CROSS_ENTROPY_MERGE(PP_KERNEL(cross_entropy_merge))
{
    (void)stream;
    const real *x = parts;
    real *l = lse, *p = logp;
    for (size_t t = 0; t < N; t++) {
        double max = -INFINITY, sum = 0, found = -INFINITY;
        for (size_t k = 0; k < P; k++)
            max = fmax(max, (double)x[2 * k * N + t]);
        for (size_t k = 0; k < P; k++)
            sum += exp((double)x[2 * k * N + t] - max);
        for (size_t k = 0; k < P; k++) {
            double part = (double)x[2 * k * N + t] - max - log(sum);
            found = fmax(found, (double)x[(2 * k + 1) * N + t] + part);
        }
        l[t] = (real)(max + log(sum));
        p[t] = (real)found;
    }
    return 0;
}

PP_SOFT_TARGETS_FWD(PP_KERNEL(soft_targets_fwd))
{
    (void)stream;
    const real *x = logits, *l = lse, *w = weights;
    real *p = logp;
    for (size_t t = 0; t < N; t++, x += V, ids += k, w += k) {
        double sum = 0;
        for (size_t j = 0; j < k; j++)
            if (ids[j] >= 0)
                sum += (double)w[j] * ((double)x[ids[j]] - (double)l[t]);
        p[t] = (real)((double)p[t] + sum);
    }
    return 0;
}

PP_SOFT_TARGETS_BWD(PP_KERNEL(soft_targets_bwd))
{
    (void)stream;
    const real *l = lse, *s = scale, *w = weights;
    real *x = logits, own[PP_MOST_SOFT_TARGETS];
    for (size_t t = 0; t < N; t++, x += V, ids += k, w += k) {
        for (size_t j = 0; j < k; j++) {
            real y = cap > 0 && ids[j] >= 0 ? x[ids[j]] / (real)cap : 0;
            own[j] = w[j] * s[t] * (1 - y * y);
        }
        if (cap > 0)
            capped_gradient(x, V, l[t], s[t], (real)cap);
        else
            row_gradient(x, V, l[t], s[t]);
        for (size_t j = 0; j < k; j++)
            if (ids[j] >= 0)
                x[ids[j]] -= own[j];
    }
    return 0;
}

PP_CROSS_ENTROPY_ADD(PP_KERNEL(cross_entropy_add))
{
    (void)stream;
    const real *p = logp;
    double all = 0;
    for (size_t t = 0; t < N; t++)
        all -= (double)p[t];
    *sum += all * scale;
    return 0;
}
