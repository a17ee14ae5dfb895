/* SPDX-License-Identifier: MIT */
/* bench_cuda - the speed of the main CUDA kernels of a step, at the sizes of a
 * model of about a billion parameters (hidden 2048, 32 heads of 64 over 8 key
 * heads, MLP 8192, vocabulary 128256), with 4096 tokens in one sequence.
 * Attention is also measured with heads of 128, in 1 and in 16 sequences, and
 * with 16 heads of 80, of 192 and 128, and of 256. It prints a line for each
 * kernel: name, type, microseconds, TFLOP/s or GB/s. Numbers are random,
 * because a GPU draws less power and runs faster on zeros. */
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "gpu.h"

#define T ((size_t)4096)
#define C ((size_t)2048)
#define F ((size_t)8192)
#define V ((size_t)128256)
#define HEADS ((size_t)32)
#define KEY_HEADS ((size_t)8)
#define HD ((size_t)64)
#define BIG (2 * T * F)     /* elements of the largest arrays */
#define PACKED ((size_t)16) /* number of sequences if packed */
#define REPEAT 20
#define WARMUP 3

static const struct pp_kernels *k;
static void *x, *y, *z, *w, *f32, *stats; /* x, y: (BIG) */
static int32_t *ids, *cu;
static struct pp_attention_shape shape;

typedef int step_fn(void);

static int linear_fwd(void)
{
    return k->linear_fwd(y, x, w, NULL, NULL, T, C, F, F, C, gpu_stream());
}

static int linear_bwd_input(void)
{
    return k->linear_bwd_input(x, y, w, NULL, T, C, F, C, F, gpu_stream());
}

static int linear_bwd_weight(void)
{
    return k->linear_bwd_weight(f32, NULL, y, x, T, C, F, F, C, false,
                                gpu_stream());
}

/* Returns the i-th of several consecutive arrays, each as large as the largest
 * of attention. */
static void *array(void *of, size_t i)
{
    return (char *)of + i * T * HEADS * 128 * k->element_bytes;
}

static int attention_fwd(void)
{
    return k->attention_fwd(y, stats, x, array(x, 1), array(x, 2), NULL, &shape,
                            z, gpu_stream());
}

/* Call forward first: it fills y and stats. */
static int attention_bwd(void)
{
    return k->attention_bwd(array(y, 1), array(y, 2), array(y, 3), array(x, 3),
                            x, array(x, 1), array(x, 2), y, stats, &shape, z,
                            gpu_stream());
}

static int rmsnorm_fwd(void)
{
    return k->rmsnorm_fwd(y, stats, x, w, NULL, T, 1, C, C, 1, C, 0, 1e-5, NULL,
                          gpu_stream());
}

static int rmsnorm_bwd_weight(void)
{
    return k->rmsnorm_bwd_weight(f32, y, x, stats, T, 1, C, C, C, 1,
                                 gpu_stream());
}

static int swiglu_fwd(void)
{
    return k->swiglu_fwd(y, x, T, F, gpu_stream());
}

static int rope(void)
{
    return k->rope(x, f32, f32, ids, T, HEADS + KEY_HEADS, HD,
                   (HEADS + 2 * KEY_HEADS) * HD, HD, false, 1, gpu_stream());
}

static int cross_entropy_fwd(void)
{
    return k->cross_entropy_fwd(stats, f32, x, ids, 64, V, gpu_stream());
}

static int embedding_bwd_weight(void)
{
    return k->embedding_bwd_weight(f32, x, ids, T, C, gpu_stream());
}

/* Without decay, so that the weights stay what they are. */
static int adamw(void)
{
    static const struct pp_adamw_step s = {0, 0.9, 0.99, 1e-8, 0, 1, 1, 1};
    return k->adamw(w, k->element_bytes == 2 ? z : NULL, x, y, f32, C * F, &s,
                    gpu_stream());
}

static double seconds(step_fn *step)
{
    cudaEvent_t from, to;
    float ms = 0;
    int rc = 0;
    for (int i = 0; i < WARMUP && !rc; i++)
        rc = step();
    cudaEventCreate(&from);
    cudaEventCreate(&to);
    cudaEventRecord(from, gpu_stream()->stream);
    for (int i = 0; i < REPEAT && !rc; i++)
        rc = step();
    cudaEventRecord(to, gpu_stream()->stream);
    if (rc || cudaEventSynchronize(to) != cudaSuccess) {
        fprintf(stderr, "bench_cuda: %s: error %d\n", k->name, rc);
        exit(3);
    }
    cudaEventElapsedTime(&ms, from, to);
    cudaEventDestroy(from);
    cudaEventDestroy(to);
    return (double)ms / 1e3 / REPEAT;
}

static void line(const char *name, step_fn *step, double work, const char *unit)
{
    double s = seconds(step);
    printf("%-24s %-10s %9.1f us %8.1f %s\n", name, k->name, s * 1e6,
           work / s / (unit[0] == 'T' ? 1e12 : 1e9), unit);
}

/* Measures heads of two widths, for q and k and for v, in n sequences. */
static void bench_attention(size_t heads, size_t key_heads, size_t qk, size_t v,
                            size_t n)
{
    const double flops = (double)(heads * (qk + v)) * T * T / (double)n;
    int32_t ends[PACKED + 1];
    char of[32], name[64];
    for (size_t i = 0; i <= n; i++)
        ends[i] = (int32_t)(i * T / n);
    gpu_put(cu, ends, (n + 1) * sizeof *ends);
    shape.n_sequences = n;
    shape.NH = heads;
    shape.NKV = key_heads;
    shape.HDQK = qk;
    shape.HDV = v;
    shape.ldq = heads * qk;
    shape.ldkv = key_heads * qk;
    shape.ldo = heads * v;
    shape.scale = 1 / sqrt((double)qk);
    if (v == qk)
        snprintf(of, sizeof of, "%zu%s", qk, n > 1 ? " packed" : "");
    else
        snprintf(of, sizeof of, "%zu/%zu", qk, v);
    snprintf(name, sizeof name, "attention_fwd %s", of);
    line(name, attention_fwd, flops, "TFLOP/s");
    snprintf(name, sizeof name, "attention_bwd %s", of);
    line(name, attention_bwd, 2.5 * flops, "TFLOP/s");
}

/* Fills with a block of normal numbers, repeated. */
static void fill_random(void *at, size_t n)
{
    enum { BLOCK = 1 << 20 };
    static float numbers[BLOCK];
    static uint16_t halves[BLOCK];
    const size_t bytes = k->element_bytes;
    for (size_t i = 0; i < BLOCK; i++) {
        uint32_t word;
        numbers[i] = (float)pp_rng_normal(pp_rng_key(1, "bench"), i);
        memcpy(&word, &numbers[i], sizeof word);
        halves[i] = (uint16_t)(word >> 16);
    }
    for (size_t i = 0; i < n; i += BLOCK)
        gpu_put((char *)at + i * bytes,
                bytes == 2 ? (void *)halves : (void *)numbers,
                (n - i < BLOCK ? n - i : BLOCK) * bytes);
}

static void bench(const struct pp_kernels *kernels)
{
    k = kernels;
    const double e = (double)k->element_bytes;
    const double product = 2.0 * T * C * F;
    fill_random(x, BIG);
    fill_random(y, BIG);
    fill_random(w, C * F);
    bench_attention(HEADS, KEY_HEADS, 64, 64, 1);
    if (k->element_bytes == 2) {
        bench_attention(HEADS, KEY_HEADS, 128, 128, 1);
        bench_attention(HEADS, KEY_HEADS, 128, 128, PACKED);
        bench_attention(16, 16, 80, 80, 1);
        bench_attention(16, 16, 192, 128, 1);
        bench_attention(16, 4, 256, 256, 1);
    }
    line("linear_fwd", linear_fwd, product, "TFLOP/s");
    line("linear_bwd_input", linear_bwd_input, product, "TFLOP/s");
    line("linear_bwd_weight", linear_bwd_weight, product, "TFLOP/s");
    line("rmsnorm_fwd", rmsnorm_fwd, 2 * e * T * C, "GB/s");
    line("rmsnorm_bwd_weight", rmsnorm_bwd_weight, 2 * e * T * C, "GB/s");
    line("swiglu_fwd", swiglu_fwd, 3 * e * T * F, "GB/s");
    line("cross_entropy_fwd", cross_entropy_fwd, e * 64 * V, "GB/s");
    line("embedding_bwd_weight", embedding_bwd_weight, (e + 8) * T * C, "GB/s");
    line("adamw", adamw, (k->element_bytes == 2 ? 30 : 28) * (double)(C * F),
         "GB/s");
    /* This is last, because repetition in place lets its numbers overflow. */
    line("rope", rope, 2 * e * T * (HEADS + KEY_HEADS) * HD, "GB/s");
}

static void *zeroed(size_t bytes)
{
    void *p = gpu_alloc(bytes);
    if (cudaMemset(p, 0, bytes) != cudaSuccess)
        exit(3);
    return p;
}

int main(void)
{
    const char *why = gpu_open();
    int32_t host[T];
    if (why) {
        fprintf(stderr, "bench_cuda: %s\n", why);
        return 3;
    }
    for (size_t i = 0; i < T; i++)
        host[i] = (int32_t)(i * 2654435761u % T);
    x = zeroed(BIG * 4);
    y = zeroed(BIG * 4);
    z = zeroed(T * F * 4);
    w = zeroed(C * F * 4);
    f32 = zeroed(C * F * 4);
    stats = zeroed(T * HEADS * 4);
    ids = zeroed(sizeof host);
    cu = zeroed((PACKED + 1) * sizeof *cu);
    gpu_put(ids, host, sizeof host);
    shape = (struct pp_attention_shape){
        .N = T, .cu = cu, .cu_padded = cu}; /* the rest is set later */
    bench(&pp_kernels_cuda_bf16);
    bench(&pp_kernels_cuda_f32);
    return 0;
}
