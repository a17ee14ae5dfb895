/* SPDX-License-Identifier: MIT */
/* bench_kernels - speed of every CPU kernel at the sizes of a small model, on
 * one thread. It prints the best CPU time of several runs: products in GFLOP/s,
 * the rest in GB/s of the data that must be read and written. */
#include <time.h>

#include "values.h"

enum { T = 1024, C = 768, I = 2048, NH = 12, NKV = 4, HD = 64, V = 8192 };
#define RUNS 15

struct arrays {
    const struct pp_kernels *k;
    struct values big[4], wide[2], vocab[2], rstd, scratch;
    int32_t ids[T], positions[T], cu[2];
    struct pp_attention_shape s;
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void report(const struct pp_kernels *k, const char *name, double seconds,
                   double work, const char *unit)
{
    printf("%s  %-22s %9.1f us  %8.1f %s\n", k->name, name, seconds * 1e6,
           work / seconds * 1e-9, unit);
}

/* Prints the best time of a call. */
#define BENCH(name, work, unit, call)                 \
    do {                                              \
        double best_ = 1e9;                           \
        for (int run_ = 0; run_ < RUNS; run_++) {     \
            double from_ = now();                     \
            (void)(call);                             \
            double took_ = now() - from_;             \
            best_ = took_ < best_ ? took_ : best_;    \
        }                                             \
        report(k, name, best_, (double)(work), unit); \
    } while (0)

static void arrays_init(struct arrays *a, const struct pp_kernels *k)
{
    *a = (struct arrays){.k = k, .cu = {0, T}};
    a->s = (struct pp_attention_shape){.N = T,
                                       .NH = NH,
                                       .NKV = NKV,
                                       .HDQK = HD,
                                       .HDV = HD,
                                       .ldq = NH * HD,
                                       .ldkv = NH * HD,
                                       .ldo = NH * HD,
                                       .n_sequences = 1,
                                       .cu = a->cu,
                                       .cu_padded = a->cu,
                                       .scale = 0.125};
    for (int i = 0; i < 4; i++)
        a->big[i] = values_new(k, (size_t)T * 2 * I, 0);
    for (int i = 0; i < 2; i++) {
        a->wide[i] = values_new(k, (size_t)T * 2 * I, 0);
        a->vocab[i] = values_new(k, (size_t)V * C, 0);
        fill_normal(&a->wide[i], "wide", 1);
        fill_normal(&a->vocab[i], "vocab", 0.05);
    }
    for (int i = 0; i < 4; i++)
        fill_normal(&a->big[i], "big", 1);
    a->rstd = values_new(k, (size_t)T * NH, 0);
    a->scratch = values_new(k, k->attention_scratch(&a->s), 0);
    for (int32_t t = 0; t < T; t++) {
        a->ids[t] = t * 7 % 1000;
        a->positions[t] = t;
    }
}

static void arrays_free(struct arrays *a)
{
    for (int i = 0; i < 4; i++)
        values_free(&a->big[i]);
    for (int i = 0; i < 2; i++) {
        values_free(&a->wide[i]);
        values_free(&a->vocab[i]);
    }
    values_free(&a->rstd);
    values_free(&a->scratch);
}

static void bench_products(struct arrays *a)
{
    const struct pp_kernels *k = a->k;
    void *x = a->big[0].at, *y = a->wide[0].at, *w = a->vocab[0].at;
    double flops = 2.0 * T * C * I;
    BENCH("linear_fwd", flops, "GFLOP/s",
          k->linear_fwd(y, x, w, NULL, NULL, T, C, I, I, C, NULL));
    BENCH("linear_fwd, bias", flops, "GFLOP/s",
          k->linear_fwd(y, x, w, a->big[1].at, NULL, T, C, I, I, C, NULL));
    BENCH("linear_bwd_input", flops, "GFLOP/s",
          k->linear_bwd_input(x, y, w, NULL, T, C, I, C, I, NULL));
    BENCH("linear_bwd_weight", flops, "GFLOP/s",
          k->linear_bwd_weight(a->vocab[1].at, NULL, y, a->big[1].at, T, C, I,
                               I, C, false, NULL));
    flops = 4.0 * NH * HD * T * (T + 1) / 2;
    void *q = a->big[0].at, *kk = a->big[1].at, *v = a->big[2].at;
    fill_normal(&a->big[0], "q", 1);
    BENCH("attention_fwd", flops, "GFLOP/s",
          k->attention_fwd(a->big[3].at, a->rstd.at, q, kk, v, NULL, &a->s,
                           a->scratch.at, NULL));
    void *d = a->wide[0].at;
    BENCH("attention_bwd", 2.5 * flops, "GFLOP/s",
          k->attention_bwd(d, a->wide[1].at, a->vocab[1].at, a->big[2].at, q,
                           kk, v, a->big[3].at, a->rstd.at, &a->s,
                           a->scratch.at, NULL));
}

static void bench_rows(struct arrays *a)
{
    const struct pp_kernels *k = a->k;
    double b = (double)k->element_bytes, tc = b * T * C, ti = b * T * I;
    void *x = a->big[0].at, *y = a->big[1].at, *z = a->big[2].at;
    void *r = a->rstd.at, *w = a->vocab[0].at;
    fill_normal(&a->wide[0], "wide", 1);
    BENCH("rmsnorm_fwd", 2 * tc, "GB/s",
          k->rmsnorm_fwd(y, r, x, w, NULL, T, 1, C, C, 1, C, 0, 1e-5, NULL,
                         NULL));
    BENCH("rmsnorm_bwd_input", 3 * tc, "GB/s",
          k->rmsnorm_bwd_input(z, y, x, r, w, NULL, T, 1, C, C, C, C, 1, 0,
                               NULL, NULL));
    BENCH(
        "rmsnorm_bwd_weight", 2 * tc, "GB/s",
        k->rmsnorm_bwd_weight(a->vocab[1].at, y, x, r, T, 1, C, C, C, 1, NULL));
    void *mean = (char *)r + T * k->element_bytes;
    BENCH("layernorm_fwd", 2 * tc, "GB/s",
          k->layernorm_fwd(y, mean, r, x, w, w, NULL, T, C, 1e-5, NULL));
    BENCH("layernorm_bwd_input", 3 * tc, "GB/s",
          k->layernorm_bwd_input(z, y, x, mean, r, w, NULL, T, C, NULL));
    BENCH("layernorm_bwd_weight", 2 * tc, "GB/s",
          k->layernorm_bwd_weight(a->vocab[1].at, a->big[3].at, y, x, mean, r,
                                  T, C, NULL));
    BENCH("rope", 2 * tc, "GB/s",
          k->rope(x, a->wide[0].at, a->wide[1].at, a->positions, T, NH, HD, C,
                  HD, false, 1, NULL));
    BENCH("swiglu_fwd", 3 * ti, "GB/s",
          k->swiglu_fwd(y, a->wide[0].at, T, I, NULL));
    BENCH("swiglu_bwd", 5 * ti, "GB/s",
          k->swiglu_bwd(z, y, a->wide[0].at, T, I, NULL));
    void *wide = a->wide[0].at;
    BENCH("gelu_fwd", 2 * ti, "GB/s",
          k->gelu_fwd(y, wide, (size_t)T * I, PP_GELU_TANH, NULL));
    BENCH("gelu_bwd", 3 * ti, "GB/s",
          k->gelu_bwd(z, y, wide, (size_t)T * I, PP_GELU_TANH, NULL));
    BENCH("gelu_fwd, exact", 2 * ti, "GB/s",
          k->gelu_fwd(y, wide, (size_t)T * I, PP_GELU_ERF, NULL));
    BENCH("gelu_bwd, exact", 3 * ti, "GB/s",
          k->gelu_bwd(z, y, wide, (size_t)T * I, PP_GELU_ERF, NULL));
    BENCH("embedding_fwd", 2 * tc, "GB/s",
          k->embedding_fwd(y, a->ids, w, T, C, NULL));
    BENCH("embedding_bwd_weight", 3 * tc, "GB/s",
          k->embedding_bwd_weight(a->vocab[1].at, y, a->ids, T, C, NULL));
    BENCH("cross_entropy_fwd", b * 256 * V, "GB/s",
          k->cross_entropy_fwd(r, z, a->wide[1].at, a->ids, 256, V, NULL));
    BENCH("cross_entropy_bwd", 2 * b * 256 * V, "GB/s",
          k->cross_entropy_bwd(a->wide[1].at, r, a->ids, r, 256, V, 0, NULL));
}

static void bench_tensors(struct arrays *a)
{
    const struct pp_kernels *k = a->k;
    const struct pp_adamw_step s = {.lr = 1e-3,
                                    .beta1 = 0.9,
                                    .beta2 = 0.95,
                                    .eps = 1e-8,
                                    .bias1 = 0.1,
                                    .bias2 = 0.05,
                                    .g_scale = 1};
    size_t n = (size_t)T * 2 * I;
    double bytes = (double)(n * k->element_bytes);
    void *x = a->big[0].at, *y = a->big[1].at, *z = a->big[2].at;
    BENCH("add", 3 * bytes, "GB/s", k->add(y, x, y, n, NULL));
    BENCH("copy", 2 * bytes, "GB/s",
          k->copy(y, x, T, 2 * I, 2 * I, 2 * I, NULL));
    BENCH("zero", bytes, "GB/s", k->zero(y, n, NULL));
    BENCH("sum_squares", bytes, "GB/s", k->sum_squares(z, x, n, NULL));
    k->zero(z, n, NULL);
    BENCH("adamw", 7 * bytes, "GB/s",
          k->adamw(x, NULL, y, z, a->big[3].at, n, &s, NULL));
    BENCH("sgd", 3 * bytes, "GB/s", k->sgd(x, NULL, a->big[3].at, n, &s, NULL));
}

int main(void)
{
    const struct pp_kernels *const tables[][2] = {
        {&pp_kernels_f32, &pp_kernels_rows_f32},
        {&pp_kernels_f64, &pp_kernels_rows_f64}};
    pp_blas_set_threads(1);
    for (int i = 0; i < 2; i++) {
        struct arrays a;
        arrays_init(&a, tables[i][1]);
        bench_products(&a);
        arrays_free(&a);
        arrays_init(&a, tables[i][0]);
        bench_products(&a);
        bench_rows(&a);
        bench_tensors(&a);
        arrays_free(&a);
    }
    return 0;
}
