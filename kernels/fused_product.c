/* SPDX-License-Identifier: MIT */
/* fused_product - makes and remembers the plans of products for cuBLASLt. */
#include "fused_product.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Number of shapes to remember: enough for the microbatches of a step if they
 * repeat. A new plan replaces the oldest. */
#define N_PLANS 128

/* The parameters that select an algorithm. */
struct product_shape {
    uint64_t m, n, k, lda, ldb, ldd;
    int32_t op_a, op_b, type_in, type_out, epilogue, adds;
};

struct product_plan {
    struct product_shape shape;
    void *desc, *a, *b, *d;
    struct pp_cublaslt_algorithm algorithm;
    bool refused;
};

struct pp_fuser {
    const struct pp_cublaslt *lt;
    void *handle, *preference, *workspace;
    size_t workspace_bytes;
    struct product_plan plans[N_PLANS];
    size_t n; /* plans made so far */
};

static struct product_shape shape_of(const struct pp_fused_product *p)
{
    struct product_shape s;
    memset(&s, 0, sizeof s); /* compared as bytes */
    s.m = p->m, s.n = p->n, s.k = p->k;
    s.lda = p->lda, s.ldb = p->ldb, s.ldd = p->ldd;
    s.op_a = p->op_a, s.op_b = p->op_b;
    s.type_in = p->type_in, s.type_out = p->type_out;
    s.epilogue = (int32_t)p->epilogue;
    s.adds = p->beta != 0;
    return s;
}

static int set_preference(struct pp_fuser *f)
{
    const struct pp_cublaslt *lt = f->lt;
    uint64_t bytes = f->workspace_bytes;
    uint32_t reduction = PP_CUBLASLT_REDUCTION_COMPUTE_TYPE;
    uint32_t alignment = PP_FUSED_ALIGNMENT;
    int rc = lt->preference_create(&f->preference);
    if (!rc)
        rc = lt->preference_set(f->preference, PP_CUBLASLT_PREFERENCE_WORKSPACE,
                                &bytes, sizeof bytes);
    if (!rc)
        rc = lt->preference_set(f->preference, PP_CUBLASLT_PREFERENCE_REDUCTION,
                                &reduction, sizeof reduction);
    for (int i = 0; i < 4 && !rc; i++)
        rc = lt->preference_set(f->preference,
                                PP_CUBLASLT_PREFERENCE_ALIGNMENT + i,
                                &alignment, sizeof alignment);
    return rc;
}

static void finish_plan(const struct pp_cublaslt *lt, struct product_plan *plan)
{
    if (plan->desc)
        lt->desc_destroy(plan->desc);
    void *layouts[] = {plan->a, plan->b, plan->d};
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        if (layouts[i])
            lt->layout_destroy(layouts[i]);
    memset(plan, 0, sizeof *plan);
}

static int set_bias(const struct pp_cublaslt *lt, void *desc, const void *bias)
{
    return lt->desc_set(desc, PP_CUBLASLT_DESC_BIAS, &bias, sizeof bias);
}

/* cuBLASLt takes the alignment of the bias from its address when it chooses an
 * algorithm, and does not read the bias. It gets an address with the alignment
 * of every bias and no more. */
static int describe_product(const struct pp_cublaslt *lt,
                            struct product_plan *plan,
                            const struct pp_fused_product *p)
{
    static const int32_t epilogues[] = {PP_CUBLASLT_EPILOGUE_DEFAULT,
                                        PP_CUBLASLT_EPILOGUE_BIAS,
                                        PP_CUBLASLT_EPILOGUE_BGRADB};
    int32_t op_a = p->op_a, op_b = p->op_b;
    bool ta = op_a == PP_CUBLAS_OP_T, tb = op_b == PP_CUBLAS_OP_T;
    int rc =
        lt->desc_create(&plan->desc, PP_CUBLAS_COMPUTE_32F, PP_CUBLAS_R_32F);
    if (!rc)
        rc =
            lt->desc_set(plan->desc, PP_CUBLASLT_DESC_OP_A, &op_a, sizeof op_a);
    if (!rc)
        rc =
            lt->desc_set(plan->desc, PP_CUBLASLT_DESC_OP_B, &op_b, sizeof op_b);
    if (!rc)
        rc = lt->desc_set(plan->desc, PP_CUBLASLT_DESC_EPILOGUE,
                          &epilogues[p->epilogue], sizeof *epilogues);
    if (!rc && p->bias)
        rc = set_bias(lt, plan->desc,
                      (const void *)(uintptr_t)PP_FUSED_ALIGNMENT);
    if (!rc)
        rc = lt->layout_create(&plan->a, p->type_in, ta ? p->k : p->m,
                               ta ? p->m : p->k, (int64_t)p->lda);
    if (!rc)
        rc = lt->layout_create(&plan->b, p->type_in, tb ? p->n : p->k,
                               tb ? p->k : p->n, (int64_t)p->ldb);
    return rc ? rc
              : lt->layout_create(&plan->d, p->type_out, p->m, p->n,
                                  (int64_t)p->ldd);
}

static int make_plan(struct pp_fuser *f, struct product_plan *plan,
                     const struct pp_fused_product *p)
{
    struct pp_cublaslt_result found = {0};
    int n = 0;
    finish_plan(f->lt, plan);
    int rc = describe_product(f->lt, plan, p);
    if (rc) {
        finish_plan(f->lt, plan);
        return rc;
    }
    plan->shape = shape_of(p);
    rc = f->lt->heuristic(f->handle, plan->desc, plan->a, plan->b, plan->d,
                          plan->d, f->preference, 1, &found, &n);
    plan->refused = rc || n < 1 || found.state ||
                    found.workspace_bytes > f->workspace_bytes;
    plan->algorithm = found.algorithm;
    return 0;
}

/* Finds the plan of the shape, or makes one. */
static int find_plan(struct pp_fuser *f, const struct pp_fused_product *p,
                     struct product_plan **out)
{
    struct product_shape s = shape_of(p);
    size_t known = f->n < N_PLANS ? f->n : N_PLANS;
    for (size_t i = 0; i < known; i++)
        if (!memcmp(&f->plans[i].shape, &s, sizeof s)) {
            *out = &f->plans[i];
            return 0;
        }
    *out = &f->plans[f->n++ % N_PLANS];
    return make_plan(f, *out, p);
}

struct pp_fuser *pp_fuser_create(const struct pp_cublaslt *lt, void *workspace,
                                 size_t workspace_bytes)
{
    struct pp_fuser *f = calloc(1, sizeof *f);
    if (!f)
        return NULL;
    f->lt = lt;
    f->workspace = workspace;
    f->workspace_bytes = workspace_bytes;
    if (lt->create(&f->handle) == 0 && set_preference(f) == 0)
        return f;
    pp_fuser_destroy(f);
    return NULL;
}

void pp_fuser_destroy(struct pp_fuser *f)
{
    if (!f)
        return;
    for (size_t i = 0; i < N_PLANS; i++)
        finish_plan(f->lt, &f->plans[i]);
    if (f->preference)
        f->lt->preference_destroy(f->preference);
    if (f->handle)
        f->lt->destroy(f->handle);
    free(f);
}

int pp_fused_product(struct pp_fuser *f, const struct pp_fused_product *p,
                     void *stream)
{
    const struct pp_cublaslt *lt = f->lt;
    const float one = 1;
    struct product_plan *plan;
    int rc = find_plan(f, p, &plan);
    if (rc)
        return rc;
    if (plan->refused)
        return PP_NOT_FUSED;
    if (p->bias && (rc = set_bias(lt, plan->desc, p->bias)))
        return rc;
    rc = lt->matmul(f->handle, plan->desc, &one, p->a, plan->a, p->b, plan->b,
                    &p->beta, p->c, plan->d, p->d, plan->d, &plan->algorithm,
                    f->workspace, f->workspace_bytes, stream);
    plan->refused = rc == PP_CUBLAS_NOT_SUPPORTED;
    return plan->refused ? PP_NOT_FUSED : rc;
}
