/* SPDX-License-Identifier: MIT */
/* real - code of all CPU kernels: the element type, names that depend on it,
 * matrix products by BLAS, reductions in a fixed order, and a fast exp.
 *
 * Every kernel .c is compiled twice, with PP_REAL_F32 and with PP_REAL_F64;
 * PP_KERNEL(linear_fwd) is pp_linear_fwd_f32 or pp_linear_fwd_f64. */
#ifndef PP_KERNELS_REAL_H
#define PP_KERNELS_REAL_H

#include <cblas.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernels.h"
#include "blas_places.h"

#if defined(PP_REAL_F32)
typedef float real;
#define PP_KERNEL(name) pp_##name##_f32
#define PP_GEMM cblas_sgemm
#elif defined(PP_REAL_F64)
typedef double real;
#define PP_KERNEL(name) pp_##name##_f64
#define PP_GEMM cblas_dgemm
#else
#error "define PP_REAL_F32 or PP_REAL_F64"
#endif

/* Functions with PP_CLONES are compiled for several instruction sets, and the
 * loader chooses one. Contraction is off and sums have a fixed order, so that
 * all sets give the same bits. Sanitizers do not work with the loader's
 * choice. */
#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && \
    !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) &&              \
    !defined(__SANITIZE_THREAD__)
#define PP_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define PP_CLONES
#endif

#define PP_INLINE static inline __attribute__((always_inline, unused))

/* Precedes a loop whose iterations are independent although an output may be
 * one of the inputs. clang takes the pragma as an order to vectorize, and warns
 * if a sanitizer's checks prevent it. */
#if !defined(__clang__)
#define PP_INDEPENDENT _Pragma("GCC ivdep")
#elif __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(undefined_behavior_sanitizer)
#define PP_INDEPENDENT
#else
#define PP_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#endif

/* Row-major products, C (M, N) = alpha op(A) op(B) + beta C. The letters say
 * whether A and B are transposed. A size of 0 leaves C as it is, so that a
 * caller with K = 0 and beta = 0 has to clear C itself. */
PP_INLINE void gemm(enum CBLAS_TRANSPOSE ta, enum CBLAS_TRANSPOSE tb, size_t M,
                    size_t N, size_t K, real alpha, const real *a, size_t lda,
                    const real *b, size_t ldb, real beta, real *c, size_t ldc)
{
    if (!M || !N || !K)
        return;
    pp_blas_begin();
    PP_GEMM(CblasRowMajor, ta, tb, (int)M, (int)N, (int)K, alpha, a, (int)lda,
            b, (int)ldb, beta, c, (int)ldc);
    pp_blas_end();
}
#define gemm_nt(...) gemm(CblasNoTrans, CblasTrans, __VA_ARGS__)
#define gemm_nn(...) gemm(CblasNoTrans, CblasNoTrans, __VA_ARGS__)
#define gemm_tn(...) gemm(CblasTrans, CblasNoTrans, __VA_ARGS__)

/* --- reductions ---
 *
 * Sums are in double. Element i goes to vector lane i % 16; lanes are added in
 * halves, and the elements after the last full vector come last. The order
 * depends on n only, never on the address or the instruction set. The code uses
 * GNU vectors because a compiler may not reorder a plain sum. */
#define PP_LANES 8
typedef real lanes __attribute__((vector_size(PP_LANES * sizeof(real))));
typedef double dlanes __attribute__((vector_size(PP_LANES * sizeof(double))));

PP_INLINE double fold(const dlanes *v)
{
    double s[PP_LANES];
    memcpy(s, v, sizeof s);
    for (int half = PP_LANES / 2; half; half /= 2)
        for (int j = 0; j < half; j++)
            s[j] += s[j + half];
    return s[0];
}

/* Returns the sum of a[i] * b[i] in double; a and b may be the same. */
PP_INLINE double dot_rows(const real *a, const real *b, size_t n)
{
    dlanes sum0 = {0}, sum1 = {0};
    size_t i = 0;
    for (; i + 2 * PP_LANES <= n; i += 2 * PP_LANES) {
        lanes x0, y0, x1, y1;
        memcpy(&x0, a + i, sizeof x0);
        memcpy(&y0, b + i, sizeof y0);
        memcpy(&x1, a + i + PP_LANES, sizeof x1);
        memcpy(&y1, b + i + PP_LANES, sizeof y1);
        sum0 += __builtin_convertvector(x0, dlanes) *
                __builtin_convertvector(y0, dlanes);
        sum1 += __builtin_convertvector(x1, dlanes) *
                __builtin_convertvector(y1, dlanes);
    }
    sum0 += sum1;
    double s = fold(&sum0);
    for (; i < n; i++)
        s += (double)a[i] * (double)b[i];
    return s;
}

/* Returns the sum of x[i] in double. */
PP_INLINE double sum_row(const real *x, size_t n)
{
    dlanes sum0 = {0}, sum1 = {0};
    size_t i = 0;
    for (; i + 2 * PP_LANES <= n; i += 2 * PP_LANES) {
        lanes x0, x1;
        memcpy(&x0, x + i, sizeof x0);
        memcpy(&x1, x + i + PP_LANES, sizeof x1);
        sum0 += __builtin_convertvector(x0, dlanes);
        sum1 += __builtin_convertvector(x1, dlanes);
    }
    sum0 += sum1;
    double s = fold(&sum0);
    for (; i < n; i++)
        s += (double)x[i];
    return s;
}

/* Returns the largest of x, or -infinity if n is 0. */
PP_INLINE real max_row(const real *x, size_t n)
{
    real best[2 * PP_LANES];
    for (int j = 0; j < 2 * PP_LANES; j++)
        best[j] = -(real)__builtin_inf();
    size_t i = 0;
    for (; i + 2 * PP_LANES <= n; i += 2 * PP_LANES)
        for (int j = 0; j < 2 * PP_LANES; j++)
            best[j] = x[i + (size_t)j] > best[j] ? x[i + (size_t)j] : best[j];
    for (; i < n; i++)
        best[0] = x[i] > best[0] ? x[i] : best[0];
    for (int j = 1; j < 2 * PP_LANES; j++)
        best[0] = best[j] > best[0] ? best[j] : best[0];
    return best[0];
}

/* --- exp ---
 *
 * In f32, exp(x) = 2^n exp(r) with |r| <= ln 2 / 2. ln 2 has two parts (Cody
 * and Waite), and exp(r) is a minimax polynomial (Cephes' expf). The error is
 * below 2 ulp for every input; the worst one found is 0.99. Results are 0 below
 * -104, infinite above 89, and NaN for NaN. The code has only additions and
 * products without contraction, so that all machines give the same bits. f64
 * uses libm. */
/* Returns 2^n for n in [-126, 127]. Any other n, from a NaN, gives some
 * float. */
PP_INLINE float exp2_int(int32_t n)
{
    uint32_t bits = ((uint32_t)n + 127) << 23;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* Stores n and returns p such that exp(y) = 2^n p. Adding 1.5 * 2^23 rounds to
 * an integer, which is in the low bits. */
PP_INLINE float exp_parts(float y, int32_t *n)
{
    const float magic = 12582912.0f;
    float shifted = y * 1.44269504088896341f + magic;
    int32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    *n = (int32_t)((uint32_t)bits - 0x4b400000u);
    float nf = shifted - magic;
    float r = (y - nf * 0.693359375f) - nf * -2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    return (p * (r * r) + r) + 1.0f;
}

PP_INLINE float fast_expf(float x)
{
    float y = x > 89.0f ? 89.0f : x;
    int32_t n;
    float p = exp_parts(y < -104.0f ? -104.0f : y, &n);
    /* One exponent does not reach all n, so there are two factors. */
    int32_t half = n >> 1;
    return p * exp2_int(half) * exp2_int(n - half);
}

/* Is like fast_expf for x <= 1, as in a softmax. A result below
 * exp(-87), 1.6e-38, becomes exp(-87). */
PP_INLINE float fast_expf_below(float x)
{
    int32_t n;
    float p = exp_parts(x < -87.0f ? -87.0f : x, &n);
    return p * exp2_int(n);
}

PP_INLINE real fast_exp(real x)
{
#ifdef PP_REAL_F32
    return fast_expf(x);
#else
    return exp(x);
#endif
}

/* Returns tanh(x). In f32 the polynomial interpolates (tanh(x) - x) / x^3 as a
 * function of x^2 at Chebyshev's nodes up to 0.4, and the error is below 2 ulp.
 */
PP_INLINE real fast_tanh(real x)
{
#ifdef PP_REAL_F32
    float z = x * x;
    float p = -6.045165097e-03f;
    p = p * z + 2.096132911e-02f;
    p = p * z - 5.384326318e-02f;
    p = p * z + 1.333271885e-01f;
    p = p * z - 3.333332843e-01f;
    float far = 1 - 2 / (fast_expf(2 * x) + 1);
    return z < 0.4f ? x + x * z * p : far;
#else
    return tanh(x);
#endif
}

PP_INLINE real exp_below(real x)
{
#ifdef PP_REAL_F32
    return fast_expf_below(x);
#else
    return exp(x);
#endif
}

/* --- the kernels of this element type --- */
#define PP_DECLARE(name, type) type PP_KERNEL(name);
PP_ALL_KERNELS(PP_DECLARE)
#undef PP_DECLARE
PP_LINEAR_FWD(PP_KERNEL(linear_rows_fwd));
PP_LINEAR_BWD_INPUT(PP_KERNEL(linear_rows_bwd_input));
extern const struct pp_delta_kernels PP_KERNEL(delta_kernels);
extern const struct pp_expert_kernels PP_KERNEL(expert_kernels),
    PP_KERNEL(expert_kernels_rows);

#endif
