/* SPDX-License-Identifier: MIT */
/* emulated_cublaslt - opens what cuBLASLt's documentation says of a product in
 * its place, on the CPU: sums in double, rounded once, the epilogue before the
 * rounding. What a program may not ask for ends it.
 *
 * PP_EMULATED_LT=none: there is no library; declines: it has no kernel. */
#include "cublaslt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cublas.h"
#include "cuda_stream.h"
#include "emulated_blas.h"
#include "emulated_gate.h"
#include "fused_product.h"

struct desc {
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

struct job {
    struct desc desc;
    struct layout la, lb, ld;
    const void *a, *b, *c;
    void *d;
    float alpha, beta;
};

static void must(int holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "emulated cuBLASLt: %s\n", what);
    abort();
}

static double of_a(const struct job *p, int i, int l)
{
    return pp_emulated_element(p->a, p->la.type, p->desc.op_a, p->la.ld, i, l);
}

static double of_b(const struct job *p, int l, int j)
{
    return pp_emulated_element(p->b, p->lb.type, p->desc.op_b, p->lb.ld, l, j);
}

static void run(void *arg)
{
    struct job *p = arg;
    int m = p->ld.rows, n = p->ld.columns;
    int k = p->desc.op_a == PP_CUBLAS_OP_T ? p->la.rows : p->la.columns;
    pp_emulated_enter();
    for (int j = 0; j < n; j++) {
        double column = 0;
        for (int l = 0; l < k; l++)
            column += of_b(p, l, j);
        for (int i = 0; i < m; i++) {
            size_t at = (size_t)j * (size_t)p->ld.ld + (size_t)i;
            double sum = 0;
            for (int l = 0; l < k; l++)
                sum += of_a(p, i, l) * of_b(p, l, j);
            sum *= (double)p->alpha;
            if (p->beta != 0)
                sum += (double)p->beta * pp_emulated_element(p->c, p->ld.type,
                                                             PP_CUBLAS_OP_N,
                                                             p->ld.ld, i, j);
            if (p->desc.epilogue == PP_CUBLASLT_EPILOGUE_BIAS)
                sum += pp_emulated_element(p->desc.bias, p->ld.type,
                                           PP_CUBLAS_OP_N, m, i, 0);
            pp_emulated_put(p->d, p->ld.type, at, (float)sum);
        }
        if (p->desc.epilogue == PP_CUBLASLT_EPILOGUE_BGRADB)
            pp_emulated_put(p->desc.bias, p->ld.type, (size_t)j, (float)column);
    }
    pp_emulated_leave();
    free(p);
}

static int create(void **handle)
{
    *handle = calloc(1, 1);
    return *handle ? 0 : 3; /* CUBLAS_STATUS_ALLOC_FAILED */
}

static int release(void *p)
{
    free(p);
    return 0;
}

static int desc_create(void **desc, int compute, int scale_type)
{
    struct desc *d = calloc(1, sizeof *d);
    must(compute == PP_CUBLAS_COMPUTE_32F && scale_type == PP_CUBLAS_R_32F,
         "sums are in fp32");
    if (d)
        d->epilogue = PP_CUBLASLT_EPILOGUE_DEFAULT;
    *desc = d;
    return d ? 0 : 3;
}

static int desc_set(void *desc, int attribute, const void *value, size_t bytes)
{
    struct desc *d = desc;
    int32_t *to = attribute == PP_CUBLASLT_DESC_OP_A       ? &d->op_a
                  : attribute == PP_CUBLASLT_DESC_OP_B     ? &d->op_b
                  : attribute == PP_CUBLASLT_DESC_EPILOGUE ? &d->epilogue
                                                           : NULL;
    void *at = to ? (void *)to : (void *)&d->bias;
    if (!to && attribute != PP_CUBLASLT_DESC_BIAS)
        return 7; /* CUBLAS_STATUS_INVALID_VALUE */
    if (bytes != (to ? sizeof *to : sizeof d->bias))
        return 7;
    memcpy(at, value, bytes);
    return 0;
}

static int layout_create(void **layout, int type, uint64_t rows,
                         uint64_t columns, int64_t ld)
{
    struct layout *l = calloc(1, sizeof *l);
    must(ld >= (int64_t)rows, "columns overlap");
    if (l)
        *l = (struct layout){type, (int)rows, (int)columns, (int)ld};
    *layout = l;
    return l ? 0 : 3;
}

static int preference_create(void **preference)
{
    struct preference *p = calloc(1, sizeof *p);
    *preference = p;
    for (int i = 0; p && i < 4; i++)
        p->alignment[i] = 256;
    return p ? 0 : 3;
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
        return 7;
    return 0;
}

/* The algorithm carries the alignments that it was chosen for, and a mark. */
enum { MARK = 77 };

/* The address of a bias is said with a product, and its largest power of two is
 * taken for the alignment of those that come. */
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
    (void)handle, (void)a, (void)b, (void)c, (void)d;
    must(n == 1 && p->reduction == PP_CUBLASLT_REDUCTION_COMPUTE_TYPE,
         "reductions that do not race");
    must(!((struct desc *)desc)->bias ||
             alignment_of(((struct desc *)desc)->bias) == p->alignment[3],
         "a bias's place decides on an algorithm");
    *n_results = lt && !strcmp(lt, "declines") ? 0 : 1;
    *results = (struct pp_cublaslt_result){.state = 0};
    results->algorithm.data[0] = MARK;
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
    struct pp_cuda_stream to = {.stream = stream};
    struct job *p = malloc(sizeof *p);
    (void)handle;
    if (!p)
        abort();
    *p = (struct job){.desc = *(struct desc *)desc,
                      .la = *(struct layout *)layout_a,
                      .lb = *(struct layout *)layout_b,
                      .ld = *(struct layout *)layout_d,
                      .a = a,
                      .b = b,
                      .c = c,
                      .d = d,
                      .alpha = *(const float *)alpha,
                      .beta = *(const float *)beta};
    must(algorithm->data[0] == MARK, "an algorithm that was not found");
    for (int i = 0; i < 4; i++)
        must((uintptr_t)at[i] % algorithm->data[1 + i] == 0,
             "an address is not aligned as was said");
    must(!memcmp(layout_c, layout_d, sizeof p->ld), "c is not like d");
    must(workspace && workspace_bytes, "no workspace");
    must((p->desc.epilogue == PP_CUBLASLT_EPILOGUE_DEFAULT) == !p->desc.bias,
         "a bias without its epilogue, or the other way round");
    pp_emulated_queue(&to, run, p);
    return 0;
}

int pp_cublaslt_open(struct pp_cublaslt *l)
{
    const char *lt = getenv("PP_EMULATED_LT");
    *l = (struct pp_cublaslt){0};
    if (lt && !strcmp(lt, "none"))
        return -1;
    *l = (struct pp_cublaslt){.library = l,
                              .create = create,
                              .destroy = release,
                              .desc_create = desc_create,
                              .desc_destroy = release,
                              .desc_set = desc_set,
                              .layout_create = layout_create,
                              .layout_destroy = release,
                              .preference_create = preference_create,
                              .preference_destroy = release,
                              .preference_set = preference_set,
                              .heuristic = heuristic,
                              .matmul = matmul};
    return 0;
}

void pp_cublaslt_close(struct pp_cublaslt *l)
{
    *l = (struct pp_cublaslt){0};
}
