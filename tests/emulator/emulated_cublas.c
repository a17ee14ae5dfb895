/* SPDX-License-Identifier: MIT */
/* emulated_cublas - cuBLAS and cuBLASLt on the CPU, in place of the libraries.
 * Sums are in double and rounded once, after the epilogue. An invalid request
 * ends the program. README.md lists the environment variables. */
#include "cublas.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_stream.h"
#include "emulated_gate.h"

/* Values of cublasStatus_t. */
enum { ALLOC_FAILED = 3, INVALID_VALUE = 7 };

struct blas_handle {
    void *stream;
};

struct product_desc {
    int32_t op_a, op_b, epilogue;
    void *bias;
};

struct layout {
    int type, rows, columns, ld;
};

struct preference {
    uint64_t workspace_bytes;
    uint32_t reduction, alignment[4];
};

/* d = alpha op(a) op(b) + beta c, then the epilogue; c has the layout of d. */
struct product {
    struct product_desc desc;
    struct layout la, lb, ld;
    const void *a, *b, *c;
    void *d;
    float alpha, beta;
};

static void require_blas(int holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "emulated cuBLAS: %s\n", what);
    abort();
}

/* --- the product --- */

/* Returns element (i, j) of op(x), column-major. */
static double element_at(const void *x, int type, int op, int ld, int i, int j)
{
    size_t at = op == PP_CUBLAS_OP_N ? (size_t)j * (size_t)ld + (size_t)i
                                     : (size_t)i * (size_t)ld + (size_t)j;
    if (type == PP_CUBLAS_R_32F)
        return (double)((const float *)x)[at];
    uint32_t word = (uint32_t)((const uint16_t *)x)[at] << 16;
    float f;
    memcpy(&f, &word, sizeof f);
    return (double)f;
}

static void put_element(void *x, int type, size_t at, float f)
{
    uint32_t word;
    if (type == PP_CUBLAS_R_32F) {
        ((float *)x)[at] = f;
        return;
    }
    memcpy(&word, &f, sizeof word);
    ((uint16_t *)x)[at] = (uint16_t)((word + 0x7fff + (word >> 16 & 1)) >> 16);
}

static double a_at(const struct product *p, int i, int l)
{
    return element_at(p->a, p->la.type, p->desc.op_a, p->la.ld, i, l);
}

static double b_at(const struct product *p, int l, int j)
{
    return element_at(p->b, p->lb.type, p->desc.op_b, p->lb.ld, l, j);
}

/* Sets sums (rows) to column j of op(a) op(b), whose terms ascend. a has op(a)
 * in double (k, rows). */
static void sum_column(double *sums, const struct product *p, const double *a,
                       int k, int j)
{
    size_t rows = (size_t)p->ld.rows;
    memset(sums, 0, rows * sizeof *sums);
    for (int l = 0; l < k; l++, a += rows) {
        double b = b_at(p, l, j);
        for (size_t i = 0; i < rows; i++)
            sums[i] += a[i] * b;
    }
}

/* Scales a sum of products, and adds what the product and its epilogue say. */
static double complete(const struct product *p, double sum, int i, int j)
{
    sum *= (double)p->alpha;
    if (p->beta != 0)
        sum += (double)p->beta *
               element_at(p->c, p->ld.type, PP_CUBLAS_OP_N, p->ld.ld, i, j);
    if (p->desc.epilogue == PP_CUBLASLT_EPILOGUE_BIAS)
        sum += element_at(p->desc.bias, p->ld.type, PP_CUBLAS_OP_N, p->ld.rows,
                          i, 0);
    return sum;
}

static void compute(const struct product *p)
{
    int k = p->desc.op_a == PP_CUBLAS_OP_T ? p->la.rows : p->la.columns;
    size_t rows = (size_t)p->ld.rows;
    double *sums = calloc(rows * ((size_t)k + 1), sizeof *sums);
    double *a = sums + rows;
    require_blas(sums != NULL, "out of memory");
    for (size_t at = 0; at < rows * (size_t)k; at++)
        a[at] = a_at(p, (int)(at % rows), (int)(at / rows));
    for (int j = 0; j < p->ld.columns; j++) {
        double column = 0;
        for (int l = 0; l < k; l++)
            column += b_at(p, l, j);
        sum_column(sums, p, a, k, j);
        for (int i = 0; i < p->ld.rows; i++)
            put_element(p->d, p->ld.type,
                        (size_t)j * (size_t)p->ld.ld + (size_t)i,
                        (float)complete(p, sums[i], i, j));
        if (p->desc.epilogue == PP_CUBLASLT_EPILOGUE_BGRADB)
            put_element(p->desc.bias, p->ld.type, (size_t)j, (float)column);
    }
    free(sums);
}

static void run_product(void *arg)
{
    pp_emulated_enter();
    compute(arg);
    pp_emulated_leave();
    free(arg);
}

static void queue_product(void *stream, struct product p)
{
    const char *fault = getenv("PP_EMULATED_PRODUCTS");
    struct pp_cuda_stream s = {.stream = stream};
    struct product *queued = malloc(sizeof *queued);
    if (!queued)
        abort();
    if (fault && !strcmp(fault, "off"))
        p.alpha *= 1.001F;
    *queued = p;
    /* Products of other types and operands are other kernels. */
    static const char codes[16];
    int code = (p.la.type == PP_CUBLAS_R_32F) +
               2 * (p.ld.type == PP_CUBLAS_R_32F) +
               4 * (p.desc.op_a == PP_CUBLAS_OP_N) +
               8 * (p.desc.op_b == PP_CUBLAS_OP_N);
    pp_emulated_queue(&s, codes + code, run_product, queued);
}

/* --- cuBLAS --- */

static int gemm(void *handle, int op_a, int op_b, int m, int n, int k,
                const void *alpha, const void *a, int type_a, int lda,
                const void *b, int type_b, int ldb, const void *beta, void *c,
                int type_c, int ldc, int compute, int algorithm)
{
    bool ta = op_a == PP_CUBLAS_OP_T, tb = op_b == PP_CUBLAS_OP_T;
    struct product p = {.desc = {.op_a = op_a,
                                 .op_b = op_b,
                                 .epilogue = PP_CUBLASLT_EPILOGUE_DEFAULT},
                        .la = {type_a, ta ? k : m, ta ? m : k, lda},
                        .lb = {type_b, tb ? n : k, tb ? k : n, ldb},
                        .ld = {type_c, m, n, ldc},
                        .a = a,
                        .b = b,
                        .c = c,
                        .d = c,
                        .alpha = *(const float *)alpha,
                        .beta = *(const float *)beta};
    (void)algorithm;
    if (lda < p.la.rows || ldb < p.lb.rows || ldc < m ||
        compute != PP_CUBLAS_COMPUTE_32F)
        return INVALID_VALUE;
    queue_product(((struct blas_handle *)handle)->stream, p);
    return 0;
}

/* n products, whose matrices begin where device memory says. */
struct grouped {
    const void *const *a, *const *b;
    void *const *c;
    int n;
    struct product of[];
};

static void run_grouped(void *arg)
{
    struct grouped *g = arg;
    pp_emulated_enter();
    for (int i = 0; i < g->n; i++) {
        struct product *p = &g->of[i];
        const void *at[] = {g->a[i], g->b[i], g->c[i]};
        p->a = at[0], p->b = at[1], p->c = at[2], p->d = g->c[i];
        for (int x = 0; x < 3; x++)
            require_blas((uintptr_t)at[x] % 16 == 0,
                         "a matrix of a grouped product lacks its alignment");
        compute(p);
    }
    pp_emulated_leave();
    free(g);
}

static int gemm_grouped(void *handle, const int *op_a, const int *op_b,
                        const int *m, const int *n, const int *k,
                        const void *alpha, const void *const *a, int type_a,
                        const int *lda, const void *const *b, int type_b,
                        const int *ldb, const void *beta, void *const *c,
                        int type_c, const int *ldc, int n_groups,
                        const int *size, int compute_type)
{
    static const char code;
    struct pp_cuda_stream s = {.stream =
                                   ((struct blas_handle *)handle)->stream};
    const char *fault = getenv("PP_EMULATED_PRODUCTS");
    if (type_a != type_b || type_a != type_c ||
        compute_type != PP_CUBLAS_COMPUTE_32F)
        return PP_CUBLAS_NOT_SUPPORTED;
    struct grouped *g = calloc(1, sizeof *g + (size_t)n_groups * sizeof *g->of);
    require_blas(g != NULL, "out of memory");
    g->a = a, g->b = b, g->c = c, g->n = n_groups;
    for (int i = 0; i < n_groups; i++) {
        bool ta = op_a[i] == PP_CUBLAS_OP_T, tb = op_b[i] == PP_CUBLAS_OP_T;
        struct product *p = &g->of[i];
        p->desc =
            (struct product_desc){.op_a = op_a[i],
                                  .op_b = op_b[i],
                                  .epilogue = PP_CUBLASLT_EPILOGUE_DEFAULT};
        p->la =
            (struct layout){type_a, ta ? k[i] : m[i], ta ? m[i] : k[i], lda[i]};
        p->lb =
            (struct layout){type_b, tb ? n[i] : k[i], tb ? k[i] : n[i], ldb[i]};
        p->ld = (struct layout){type_c, m[i], n[i], ldc[i]};
        p->alpha = ((const float *)alpha)[i];
        p->beta = ((const float *)beta)[i];
        if (fault && !strcmp(fault, "off"))
            p->alpha *= 1.001F;
        require_blas(size[i] == 1 && lda[i] >= p->la.rows &&
                         ldb[i] >= p->lb.rows && ldc[i] >= m[i],
                     "a grouped product is not one of matrices");
    }
    pp_emulated_queue(&s, &code, run_grouped, g);
    return 0;
}

static int create_blas(void **handle)
{
    *handle = calloc(1, sizeof(struct blas_handle));
    return *handle ? 0 : ALLOC_FAILED;
}

static int set_stream(void *handle, void *stream)
{
    ((struct blas_handle *)handle)->stream = stream;
    return 0;
}

static int set_workspace(void *handle, void *workspace, size_t bytes)
{
    return handle && workspace && bytes ? 0 : INVALID_VALUE;
}

static int set_math_mode(void *handle, int mode)
{
    return handle && mode == PP_CUBLAS_FULL_REDUCTION ? 0 : INVALID_VALUE;
}

/* --- cuBLASLt --- */

static int create_lt(void **handle)
{
    *handle = calloc(1, 1);
    return *handle ? 0 : ALLOC_FAILED;
}

static int destroy(void *p)
{
    free(p);
    return 0;
}

static int desc_create(void **desc, int compute, int scale_type)
{
    struct product_desc *d = calloc(1, sizeof *d);
    require_blas(compute == PP_CUBLAS_COMPUTE_32F &&
                     scale_type == PP_CUBLAS_R_32F,
                 "a product must have fp32 sums");
    if (d)
        d->epilogue = PP_CUBLASLT_EPILOGUE_DEFAULT;
    *desc = d;
    return d ? 0 : ALLOC_FAILED;
}

static int desc_set(void *desc, int attribute, const void *value, size_t bytes)
{
    struct product_desc *d = desc;
    int32_t *to = attribute == PP_CUBLASLT_DESC_OP_A       ? &d->op_a
                  : attribute == PP_CUBLASLT_DESC_OP_B     ? &d->op_b
                  : attribute == PP_CUBLASLT_DESC_EPILOGUE ? &d->epilogue
                                                           : NULL;
    void *at = to ? (void *)to : (void *)&d->bias;
    if (!to && attribute != PP_CUBLASLT_DESC_BIAS)
        return INVALID_VALUE;
    if (bytes != (to ? sizeof *to : sizeof d->bias))
        return INVALID_VALUE;
    memcpy(at, value, bytes);
    return 0;
}

static int layout_create(void **layout, int type, uint64_t rows,
                         uint64_t columns, int64_t ld)
{
    struct layout *l = calloc(1, sizeof *l);
    require_blas(ld >= (int64_t)rows, "the columns of a matrix overlap");
    if (l)
        *l = (struct layout){type, (int)rows, (int)columns, (int)ld};
    *layout = l;
    return l ? 0 : ALLOC_FAILED;
}

static int preference_create(void **preference)
{
    struct preference *p = calloc(1, sizeof *p);
    *preference = p;
    for (int i = 0; p && i < 4; i++)
        p->alignment[i] = 256;
    return p ? 0 : ALLOC_FAILED;
}

static int preference_set(void *preference, int attribute, const void *value,
                          size_t bytes)
{
    struct preference *p = preference;
    int i = attribute - PP_CUBLASLT_PREFERENCE_ALIGNMENT;
    if (attribute == PP_CUBLASLT_PREFERENCE_WORKSPACE &&
        bytes == sizeof p->workspace_bytes)
        memcpy(&p->workspace_bytes, value, bytes);
    else if (attribute == PP_CUBLASLT_PREFERENCE_REDUCTION &&
             bytes == sizeof p->reduction)
        memcpy(&p->reduction, value, bytes);
    else if (i >= 0 && i < 4 && bytes == sizeof *p->alignment)
        memcpy(&p->alignment[i], value, bytes);
    else
        return INVALID_VALUE;
    return 0;
}

/* First word of an algorithm that the heuristic chose. The alignments that it
 * needs follow. */
enum { ALGORITHM_MAGIC = 77 };

/* Returns the largest power of two that divides an address. cuBLASLt assumes
 * this alignment for all later biases. */
static uint64_t alignment_of(const void *p)
{
    uintptr_t at = (uintptr_t)p;
    return at & -at;
}

static int heuristic(void *handle, void *desc, void *a, void *b, void *c,
                     void *d, void *preference, int n,
                     struct pp_cublaslt_result *results, int *n_results)
{
    const struct preference *p = preference;
    const char *lt = getenv("PP_EMULATED_LT");
    const void *bias = ((struct product_desc *)desc)->bias;
    (void)handle, (void)a, (void)b, (void)c, (void)d;
    require_blas(n == 1 && p->reduction == PP_CUBLASLT_REDUCTION_COMPUTE_TYPE,
                 "the preference allows reductions that race");
    require_blas(!bias || alignment_of(bias) == p->alignment[3],
                 "the address of the bias affects the choice of an algorithm");
    *n_results = lt && !strcmp(lt, "declines") ? 0 : 1;
    *results = (struct pp_cublaslt_result){.state = 0};
    results->algorithm.data[0] = ALGORITHM_MAGIC;
    for (int i = 0; i < 4; i++)
        results->algorithm.data[1 + i] = p->alignment[i];
    return *n_results ? 0 : PP_CUBLAS_NOT_SUPPORTED;
}

static int matmul(void *handle, void *desc, const void *alpha, const void *a,
                  void *layout_a, const void *b, void *layout_b,
                  const void *beta, const void *c, void *layout_c, void *d,
                  void *layout_d, const struct pp_cublaslt_algorithm *algorithm,
                  void *workspace, size_t workspace_bytes, void *stream)
{
    const void *at[] = {a, b, c, d};
    struct product p = {.desc = *(struct product_desc *)desc,
                        .la = *(struct layout *)layout_a,
                        .lb = *(struct layout *)layout_b,
                        .ld = *(struct layout *)layout_d,
                        .a = a,
                        .b = b,
                        .c = c,
                        .d = d,
                        .alpha = *(const float *)alpha,
                        .beta = *(const float *)beta};
    (void)handle;
    require_blas(algorithm->data[0] == ALGORITHM_MAGIC,
                 "the algorithm is not from the heuristic");
    for (int i = 0; i < 4; i++)
        require_blas((uintptr_t)at[i] % algorithm->data[1 + i] == 0,
                     "an address lacks the alignment that was promised");
    require_blas(!memcmp(layout_c, layout_d, sizeof p.ld),
                 "c and d differ in layout");
    require_blas(workspace && workspace_bytes, "there is no workspace");
    require_blas((p.desc.epilogue == PP_CUBLASLT_EPILOGUE_DEFAULT) ==
                     !p.desc.bias,
                 "a bias needs an epilogue, and an epilogue a bias");
    queue_product(stream, p);
    return 0;
}

/* --- in place of kernels/cublas.c --- */

static const struct pp_cublaslt emulated_lt = {
    .create = create_lt,
    .destroy = destroy,
    .desc_create = desc_create,
    .desc_destroy = destroy,
    .desc_set = desc_set,
    .layout_create = layout_create,
    .layout_destroy = destroy,
    .preference_create = preference_create,
    .preference_destroy = destroy,
    .preference_set = preference_set,
    .heuristic = heuristic,
    .matmul = matmul,
};

int pp_cublas_open(struct pp_cublas *c, char *why, size_t n)
{
    const char *lt = getenv("PP_EMULATED_LT");
    const char *old = getenv("PP_EMULATED_GROUPED");
    (void)why, (void)n;
    *c = (struct pp_cublas){
        .create = create_blas,
        .destroy = destroy,
        .set_stream = set_stream,
        .set_workspace = set_workspace,
        .set_math_mode = set_math_mode,
        .gemm = gemm,
        .gemm_grouped = old && !strcmp(old, "none") ? NULL : gemm_grouped};
    if (!lt || strcmp(lt, "none")) {
        c->lt = emulated_lt;
        c->lt.library = c;
    }
    return 0;
}

void pp_cublas_close(struct pp_cublas *c)
{
    *c = (struct pp_cublas){0};
}
