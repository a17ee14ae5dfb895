/* SPDX-License-Identifier: MIT */
/* adamw and sgd on a GPU, with PyTorch's order of operations. bfloat16 weights
 * have a master copy in float; the step updates the copy and rounds it. */
#include "device.cuh"

#include <math.h>

#define THREADS 256
#define WIDE 4 /* elements of a thread: 16 bytes of each array of floats */

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

/* Returns V numbers from `at`, or from the weights if it is NULL. */
template <int V>
static __device__ floats<V> wide_weights(const float *at, const elem *w,
                                         size_t i)
{
    floats<V> x;
    if (at)
        return ((const floats<V> *)at)[i];
    pack<V> narrow = ((const pack<V> *)w)[i];
    for (int j = 0; j < V; j++)
        x.at[j] = to_float(narrow.at[j]);
    return x;
}

template <int V>
static __device__ void store_weights(float *master, elem *w, size_t i,
                                     floats<V> x)
{
    pack<V> narrow;
    for (int j = 0; j < V; j++)
        store(&narrow.at[j], x.at[j]);
    ((pack<V> *)w)[i] = narrow;
    if (master)
        ((floats<V> *)master)[i] = x;
}

template <int V>
static __global__ void adamw_kernel(elem *w, float *master, float *m, float *v,
                                    const float *g, size_t n,
                                    struct coefficients c)
{
    for (size_t i = grid_thread(); i < n / V; i += grid_threads()) {
        floats<V> x = wide_weights<V>(master, w, i);
        floats<V> first = ((floats<V> *)m)[i], second = ((floats<V> *)v)[i];
        floats<V> by = ((const floats<V> *)g)[i];
        /* fmaf, because the compiler may choose other sums for other V. */
        for (int j = 0; j < V; j++) {
            float d = by.at[j] * c.g_scale;
            first.at[j] = fmaf(c.b1, first.at[j], c.rest1 * d);
            second.at[j] = fmaf(c.b2, second.at[j], c.rest2 * d * d);
            float root = sqrtf(second.at[j]) / c.root2 + c.eps;
            x.at[j] = fmaf(c.decay, x.at[j], -c.step * (first.at[j] / root));
        }
        ((floats<V> *)m)[i] = first;
        ((floats<V> *)v)[i] = second;
        store_weights<V>(master, w, i, x);
    }
}

template <int V>
static __global__ void sgd_kernel(elem *w, float *master, const float *g,
                                  size_t n, struct coefficients c)
{
    for (size_t i = grid_thread(); i < n / V; i += grid_threads()) {
        floats<V> x = wide_weights<V>(master, w, i);
        floats<V> by = ((const floats<V> *)g)[i];
        for (int j = 0; j < V; j++)
            x.at[j] =
                fmaf(-c.lr, fmaf(by.at[j], c.g_scale, c.wd * x.at[j]), x.at[j]);
        store_weights<V>(master, w, i, x);
    }
}

/* A step reads arrays of gigabytes, each once. So many blocks that no thread
 * comes back to another place keep what is read at a time together. */
static unsigned blocks_of(size_t threads)
{
    size_t blocks = (threads + THREADS - 1) / THREADS;
    return (unsigned)(blocks < INT32_MAX ? blocks : INT32_MAX);
}

PP_ADAMW(PP_CUDA(adamw))
{
    bool wide = packs(w, n, 0) && floats_aligned(master) && floats_aligned(m) &&
                floats_aligned(v) && floats_aligned(g);
    if (!n)
        return 0;
    return PP_LAUNCH((wide ? adamw_kernel<WIDE> : adamw_kernel<1>),
                     blocks_of(wide ? n / WIDE : n), THREADS, 0, stream,
                     (elem *)w, (float *)master, (float *)m, (float *)v,
                     (const float *)g, n, coefficients(s));
}

PP_SGD(PP_CUDA(sgd))
{
    bool wide = packs(w, n, 0) && floats_aligned(master) && floats_aligned(g);
    if (!n)
        return 0;
    return PP_LAUNCH((wide ? sgd_kernel<WIDE> : sgd_kernel<1>),
                     blocks_of(wide ? n / WIDE : n), THREADS, 0, stream,
                     (elem *)w, (float *)master, (const float *)g, n,
                     coefficients(s));
}
