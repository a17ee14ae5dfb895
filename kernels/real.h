/* SPDX-License-Identifier: MIT */
/* real - the element type that a kernel file is compiled for, its names and
 * its matrix products.
 *
 * Every kernel .c is compiled twice, with PP_REAL_F32 and with PP_REAL_F64;
 * PP_KERNEL(linear_fwd) is pp_linear_fwd_f32 or pp_linear_fwd_f64. */
#ifndef PP_KERNELS_REAL_H
#define PP_KERNELS_REAL_H

#include <cblas.h>
#include <stddef.h>

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

/* Loops below are compiled for several instruction sets and chosen when the
 * program loads. Contraction is off and sums have a fixed order, so all of
 * them give the same bits. Sanitizers do not survive the load-time choice. */
#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && \
    !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) &&              \
    !defined(__SANITIZE_THREAD__)
#define PP_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define PP_CLONES
#endif

#define PP_INLINE static inline __attribute__((always_inline, unused))

/* Before a loop whose iterations are independent although an output may be
 * one of the inputs. To clang it is an order to vectorize, which a sanitizer's
 * checks in the loop make impossible. */
#if !defined(__clang__)
#define PP_INDEPENDENT _Pragma("GCC ivdep")
#elif __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(undefined_behavior_sanitizer)
#define PP_INDEPENDENT
#else
#define PP_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#endif

/* Row-major products, C (M, N) = alpha op(A) op(B) + beta C: the letters say
 * whether A and B are transposed. Nothing happens when a size is 0, so a
 * caller with K = 0 and beta = 0 clears C itself. */
PP_INLINE void gemm(enum CBLAS_TRANSPOSE ta, enum CBLAS_TRANSPOSE tb, size_t M,
                    size_t N, size_t K, real alpha, const real *a, size_t lda,
                    const real *b, size_t ldb, real beta, real *c, size_t ldc)
{
    if (M && N && K)
        PP_GEMM(CblasRowMajor, ta, tb, (int)M, (int)N, (int)K, alpha, a,
                (int)lda, b, (int)ldb, beta, c, (int)ldc);
}
#define gemm_nt(...) gemm(CblasNoTrans, CblasTrans, __VA_ARGS__)
#define gemm_nn(...) gemm(CblasNoTrans, CblasNoTrans, __VA_ARGS__)
#define gemm_tn(...) gemm(CblasTrans, CblasNoTrans, __VA_ARGS__)

#endif
