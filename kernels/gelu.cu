/* SPDX-License-Identifier: MIT */
/* gelu on a GPU; gelu.c has the formulas. */
#include "device.cuh"
#include "gated.cuh"

#define THREADS 256
#define ROOT 0.7978845608028654f
#define CUBE 0.044715f
#define STEEP 1.702f
#define ROOT_HALF 0.7071067811865476f
#define DENSITY 0.3989422804014327f

static __device__ inline float erf_part(float x)
{
    return 0.5f * (1 + erff(x * ROOT_HALF));
}

/* Twice the argument of tanh. */
static __device__ inline float tanh_argument(float x)
{
    return 2 * ROOT * (x + CUBE * x * x * x);
}

template <enum pp_gelu FORM> static __device__ inline float gelu(float x)
{
    return x * (FORM == PP_GELU_ERF       ? erf_part(x)
                : FORM == PP_GELU_TANH    ? sigmoid(tanh_argument(x))
                : FORM == PP_GELU_SIGMOID ? sigmoid(STEEP * x)
                                          : fmaxf(x, 0));
}

template <enum pp_gelu FORM> static __device__ inline float slope(float x)
{
    if (FORM == PP_GELU_ERF)
        return erf_part(x) + x * DENSITY * expf(-0.5f * x * x);
    if (FORM == PP_RELU_SQUARED)
        return 2 * fmaxf(x, 0);
    float s = sigmoid(FORM == PP_GELU_TANH ? tanh_argument(x) : STEEP * x);
    float inner =
        FORM == PP_GELU_TANH ? 2 * ROOT * (1 + 3 * CUBE * x * x) : STEEP;
    return s + x * s * (1 - s) * inner;
}

template <int V, enum pp_gelu FORM>
static __global__ void gelu_fwd_kernel(elem *y, const elem *x, size_t n)
{
    for (size_t i = grid_thread(); i < n / V; i += grid_threads()) {
        pack<V> a = ((const pack<V> *)x)[i];
        for (int j = 0; j < V; j++)
            store(&a.at[j], gelu<FORM>(to_float(a.at[j])));
        ((pack<V> *)y)[i] = a;
    }
}

template <int V, enum pp_gelu FORM>
static __global__ void gelu_bwd_kernel(elem *dx, const elem *dy, const elem *x,
                                       size_t n)
{
    for (size_t i = grid_thread(); i < n / V; i += grid_threads()) {
        pack<V> a = ((const pack<V> *)x)[i], d = ((const pack<V> *)dy)[i];
        for (int j = 0; j < V; j++)
            store(&a.at[j], to_float(d.at[j]) * slope<FORM>(to_float(a.at[j])));
        ((pack<V> *)dx)[i] = a;
    }
}

template <enum pp_gelu FORM>
static int launch_gelu(elem *y, const elem *x, size_t n, void *stream)
{
    bool packed = packs(y, n, 0) && packs(x, n, 0);
    auto kernel =
        packed ? gelu_fwd_kernel<PP_PACK, FORM> : gelu_fwd_kernel<1, FORM>;
    return PP_LAUNCH(kernel, blocks_for(packed ? n / PP_PACK : n, THREADS),
                     THREADS, 0, stream, y, x, n);
}

template <enum pp_gelu FORM>
static int launch_slope(elem *dx, const elem *dy, const elem *x, size_t n,
                        void *stream)
{
    bool packed = packs(dx, n, 0) && packs(dy, n, 0) && packs(x, n, 0);
    auto kernel =
        packed ? gelu_bwd_kernel<PP_PACK, FORM> : gelu_bwd_kernel<1, FORM>;
    return PP_LAUNCH(kernel, blocks_for(packed ? n / PP_PACK : n, THREADS),
                     THREADS, 0, stream, dx, dy, x, n);
}

PP_GELU_FWD(PP_CUDA(gelu_fwd))
{
    auto launch = form == PP_GELU_TANH      ? launch_gelu<PP_GELU_TANH>
                  : form == PP_GELU_ERF     ? launch_gelu<PP_GELU_ERF>
                  : form == PP_GELU_SIGMOID ? launch_gelu<PP_GELU_SIGMOID>
                                            : launch_gelu<PP_RELU_SQUARED>;
    return n ? launch((elem *)y, (const elem *)x, n, stream) : 0;
}

PP_GELU_BWD(PP_CUDA(gelu_bwd))
{
    auto launch = form == PP_GELU_TANH      ? launch_slope<PP_GELU_TANH>
                  : form == PP_GELU_ERF     ? launch_slope<PP_GELU_ERF>
                  : form == PP_GELU_SIGMOID ? launch_slope<PP_GELU_SIGMOID>
                                            : launch_slope<PP_RELU_SQUARED>;
    return n ? launch((elem *)dx, (const elem *)dy, (const elem *)x, n, stream)
             : 0;
}

/* --- gate --- */

static __global__ void gate_fwd_kernel(elem *y, const elem *x, const elem *g,
                                       size_t N, size_t C, size_t ldg)
{
    for (size_t i = grid_thread(); i < N * C; i += grid_threads())
        store(&y[i],
              to_float(x[i]) * sigmoid(to_float(g[i / C * ldg + i % C])));
}

static __global__ void gate_bwd_kernel(elem *dg, const elem *dx, const elem *x,
                                       const elem *g, size_t N, size_t C,
                                       size_t ldg)
{
    for (size_t i = grid_thread(); i < N * C; i += grid_threads()) {
        size_t at = i / C * ldg + i % C;
        store(&dg[at],
              to_float(dx[i]) * to_float(x[i]) * sigmoid(-to_float(g[at])));
    }
}

PP_SIGMOID_GATE_FWD(PP_CUDA(sigmoid_gate_fwd))
{
    if (!N)
        return 0;
    return PP_LAUNCH(gate_fwd_kernel, blocks_for(N * C, THREADS), THREADS, 0,
                     stream, (elem *)y, (const elem *)x, (const elem *)g, N, C,
                     ldg);
}

PP_SIGMOID_GATE_BWD(PP_CUDA(sigmoid_gate_bwd))
{
    if (!N)
        return 0;
    return PP_LAUNCH(gate_bwd_kernel, blocks_for(N * C, THREADS), THREADS, 0,
                     stream, (elem *)dg, (const elem *)dx, (const elem *)x,
                     (const elem *)g, N, C, ldg);
}

/* --- xielu --- */

struct xielu_numbers {
    float a, b, beta, eps;
};

static __device__ inline xielu_numbers xielu_of(struct pp_xielu by)
{
    float beta = to_float(*(const elem *)by.beta);
    return {log1pf(expf(to_float(*(const elem *)by.p))),
            beta + log1pf(expf(to_float(*(const elem *)by.n))), beta,
            to_float(*(const elem *)by.eps)};
}

static __global__ void xielu_fwd_kernel(elem *y, const elem *x, size_t n,
                                        struct pp_xielu by)
{
    xielu_numbers s = xielu_of(by);
    for (size_t i = grid_thread(); i < n; i += grid_threads()) {
        float a = to_float(x[i]);
        float below = s.b * (expm1f(fminf(a, s.eps)) - a);
        store(&y[i], (a > 0 ? s.a * a * a : below) + s.beta * a);
    }
}

/* A block has a row. */
static __global__ void xielu_bwd_kernel(elem *dx, float *sums, const elem *dy,
                                        const elem *x, size_t N, size_t C,
                                        struct pp_xielu by)
{
    __shared__ float shared[THREADS / PP_WARP];
    size_t row = blockIdx.x;
    xielu_numbers s = xielu_of(by);
    float of_p = 0, of_n = 0;
    for (size_t i = threadIdx.x; i < C; i += THREADS) {
        float a = to_float(x[row * C + i]), d = to_float(dy[row * C + i]);
        float low = expm1f(fminf(a, s.eps));
        float slope = a < s.eps ? s.b * low : -s.b;
        of_p += a > 0 ? d * a * a : 0;
        of_n += a > 0 ? 0 : d * (low - a);
        store(&dx[row * C + i], d * ((a > 0 ? 2 * s.a * a : slope) + s.beta));
    }
    of_p = team_sum<THREADS>(of_p, shared);
    of_n = team_sum<THREADS>(of_n, shared);
    if (threadIdx.x == 0) {
        sums[row] = sigmoid(to_float(*(const elem *)by.p)) * of_p;
        sums[N + row] = sigmoid(to_float(*(const elem *)by.n)) * of_n;
    }
}

PP_XIELU_FWD(PP_CUDA(xielu_fwd))
{
    return N && C ? PP_LAUNCH(xielu_fwd_kernel, blocks_for(N * C, THREADS),
                              THREADS, 0, stream, (elem *)y, (const elem *)x,
                              N * C, *by)
                  : 0;
}

PP_XIELU_BWD(PP_CUDA(xielu_bwd))
{
    return N ? PP_LAUNCH(xielu_bwd_kernel, (unsigned)N, THREADS, 0, stream,
                         (elem *)dx, (float *)sums, (const elem *)dy,
                         (const elem *)x, N, C, *by)
             : 0;
}

/* --- geglu --- */

struct gelu_tanh {
    static __device__ inline float value(float x)
    {
        return gelu<PP_GELU_TANH>(x);
    }

    static __device__ inline float slope(float x)
    {
        return ::slope<PP_GELU_TANH>(x);
    }
};

PP_SWIGLU_FWD(PP_CUDA(geglu_fwd))
{
    return launch_gated_fwd<gelu_tanh>(y, gu, N, C, stream);
}

PP_SWIGLU_BWD(PP_CUDA(geglu_bwd))
{
    return launch_gated_bwd<gelu_tanh>(dgu, dy, gu, N, C, stream);
}
