/* SPDX-License-Identifier: MIT */
/* adamw and sgd on the CPU, in PyTorch's order of operations. */
#include "kernels.h"

#include <math.h>

#include "real.h"

PP_CLONES static void adamw_all(real *restrict w, real *restrict m,
                                real *restrict v, const real *restrict g,
                                size_t n, const struct pp_adamw_step *s)
{
    const real decay = (real)(1 - s->lr * s->weight_decay);
    const real b1 = (real)s->beta1, rest1 = (real)(1 - s->beta1);
    const real b2 = (real)s->beta2, rest2 = (real)(1 - s->beta2);
    const real step = (real)(s->lr / s->bias1), eps = (real)s->eps;
    const real root2 = (real)sqrt(s->bias2), g_scale = (real)s->g_scale;
    for (size_t i = 0; i < n; i++) {
        real d = g[i] * g_scale;
        m[i] = b1 * m[i] + rest1 * d;
        v[i] = b2 * v[i] + rest2 * d * d;
#ifdef PP_REAL_F32
        real denominator = sqrtf(v[i]) / root2 + eps;
#else
        real denominator = sqrt(v[i]) / root2 + eps;
#endif
        w[i] = w[i] * decay - step * (m[i] / denominator);
    }
}

PP_CLONES static void sgd_all(real *restrict w, const real *restrict g,
                              size_t n, const struct pp_adamw_step *s)
{
    const real lr = (real)s->lr, decay = (real)s->weight_decay;
    const real g_scale = (real)s->g_scale;
    for (size_t i = 0; i < n; i++)
        w[i] -= lr * (g[i] * g_scale + decay * w[i]);
}

PP_ADAMW(PP_KERNEL(adamw))
{
    (void)master, (void)stream;
    adamw_all(w, m, v, g, n, s);
    return 0;
}

PP_SGD(PP_KERNEL(sgd))
{
    (void)master, (void)stream;
    sgd_all(w, g, n, s);
    return 0;
}
