/* SPDX-License-Identifier: MIT */
/* emulated_cublas - opens emulated_blas.c in cuBLAS's place: products go behind
 * the work of their handle's stream. With PP_EMULATED_PRODUCTS=off each is a
 * thousandth too large. */
#include "cublas.h"

#include <stdlib.h>
#include <string.h>

#include "cuda_runtime_api.h"
#include "emulated_blas.h"
#include "emulated_gate.h"

struct handle {
    void *stream;
};

struct product {
    int op_a, op_b, m, n, k, type_a, lda, type_b, ldb, type_c, ldc, compute;
    const void *a, *b;
    void *c;
    float alpha, beta;
};

static void run_product(void *arg)
{
    struct product *p = arg;
    pp_emulated_enter();
    if (pp_emulated_gemm(NULL, p->op_a, p->op_b, p->m, p->n, p->k, &p->alpha,
                         p->a, p->type_a, p->lda, p->b, p->type_b, p->ldb,
                         &p->beta, p->c, p->type_c, p->ldc, p->compute, 0))
        abort();
    pp_emulated_leave();
    free(p);
}

static int gemm(void *handle, int op_a, int op_b, int m, int n, int k,
                const void *alpha, const void *a, int type_a, int lda,
                const void *b, int type_b, int ldb, const void *beta, void *c,
                int type_c, int ldc, int compute, int algorithm)
{
    struct product *p = malloc(sizeof *p);
    const char *fault = getenv("PP_EMULATED_PRODUCTS");
    (void)algorithm;
    if (!p)
        abort();
    *p = (struct product){.op_a = op_a,
                          .op_b = op_b,
                          .m = m,
                          .n = n,
                          .k = k,
                          .type_a = type_a,
                          .lda = lda,
                          .type_b = type_b,
                          .ldb = ldb,
                          .type_c = type_c,
                          .ldc = ldc,
                          .compute = compute,
                          .a = a,
                          .b = b,
                          .c = c,
                          .alpha = *(const float *)alpha,
                          .beta = *(const float *)beta};
    if (fault && !strcmp(fault, "off"))
        p->alpha *= 1.001F;
    cudaLaunchHostFunc(((struct handle *)handle)->stream, run_product, p);
    return 0;
}

static int create(void **handle)
{
    *handle = calloc(1, sizeof(struct handle));
    return *handle ? 0 : 3; /* CUBLAS_STATUS_ALLOC_FAILED */
}

static int destroy(void *handle)
{
    free(handle);
    return 0;
}

static int set_stream(void *handle, void *stream)
{
    ((struct handle *)handle)->stream = stream;
    return 0;
}

static int set_workspace(void *handle, void *workspace, size_t bytes)
{
    return handle && workspace && bytes ? 0 : 7;
}

static int set_math_mode(void *handle, int mode)
{
    return handle && mode == PP_CUBLAS_FULL_REDUCTION ? 0 : 7;
}

int pp_cublas_open(struct pp_cublas *c, char *why, size_t n)
{
    (void)why, (void)n;
    *c = (struct pp_cublas){.create = create,
                            .destroy = destroy,
                            .set_stream = set_stream,
                            .set_workspace = set_workspace,
                            .set_math_mode = set_math_mode,
                            .gemm = gemm};
    (void)pp_cublaslt_open(&c->lt);
    return 0;
}

void pp_cublas_close(struct pp_cublas *c)
{
    *c = (struct pp_cublas){0};
}
