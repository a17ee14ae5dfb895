/* SPDX-License-Identifier: MIT */
/* adamw and sgd on a GPU, with PyTorch's order of operations. bfloat16 weights
 * have a master copy in float; the step updates the copy and rounds it. */
#include "device.cuh"

#include <math.h>

#define THREADS 256

/* Coefficients of a step in float. */
struct coefficients {
    float decay, b1, rest1, b2, rest2, step, eps, root2, g_scale, lr, wd;
};

static struct coefficients coefficients(const struct pp_adamw_step *s)
{
    struct coefficients c;
    c.decay = (float)(1 - s->lr * s->weight_decay);
    c.b1 = (float)s->beta1;
    c.rest1 = (float)(1 - s->beta1);
    c.b2 = (float)s->beta2;
    c.rest2 = (float)(1 - s->beta2);
    c.step = (float)(s->lr / s->bias1);
    c.eps = (float)s->eps;
    c.root2 = (float)sqrt(s->bias2);
    c.g_scale = (float)s->g_scale;
    c.lr = (float)s->lr;
    c.wd = (float)s->weight_decay;
    return c;
}

static __global__ void adamw_kernel(elem *w, float *master, float *m, float *v,
                                    const float *g, size_t n,
                                    struct coefficients c)
{
    for (size_t i = grid_thread(); i < n; i += grid_threads()) {
        float d = g[i] * c.g_scale, x = master ? master[i] : to_float(w[i]);
        float first = c.b1 * m[i] + c.rest1 * d;
        float second = c.b2 * v[i] + c.rest2 * d * d;
        x = x * c.decay - c.step * (first / (sqrtf(second) / c.root2 + c.eps));
        m[i] = first;
        v[i] = second;
        if (master)
            master[i] = x;
        store(&w[i], x);
    }
}

static __global__ void sgd_kernel(elem *w, float *master, const float *g,
                                  size_t n, struct coefficients c)
{
    for (size_t i = grid_thread(); i < n; i += grid_threads()) {
        float x = master ? master[i] : to_float(w[i]);
        x -= c.lr * (g[i] * c.g_scale + c.wd * x);
        if (master)
            master[i] = x;
        store(&w[i], x);
    }
}

PP_ADAMW(PP_CUDA(adamw))
{
    if (!n)
        return 0;
    return PP_LAUNCH(adamw_kernel, blocks_for(n, THREADS), THREADS, 0, stream,
                     (elem *)w, (float *)master, (float *)m, (float *)v,
                     (const float *)g, n, coefficients(s));
}

PP_SGD(PP_CUDA(sgd))
{
    if (!n)
        return 0;
    return PP_LAUNCH(sgd_kernel, blocks_for(n, THREADS), THREADS, 0, stream,
                     (elem *)w, (float *)master, (const float *)g, n,
                     coefficients(s));
}
