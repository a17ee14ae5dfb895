/* SPDX-License-Identifier: MIT */
/* cublas - opens the libraries and finds their functions. */
#include "cublas.h"

#include <dlfcn.h>
#include <stdio.h>

#ifdef PP_CUDA_TOOLKIT
#include <cublasLt.h>
#include <cublas_v2.h>
#define SAME(ours, theirs) \
    _Static_assert((int)(ours) == (int)(theirs), "cublas.h")
SAME(PP_CUBLAS_OP_N, CUBLAS_OP_N);
SAME(PP_CUBLAS_OP_T, CUBLAS_OP_T);
SAME(PP_CUBLAS_R_32F, CUDA_R_32F);
SAME(PP_CUBLAS_R_16BF, CUDA_R_16BF);
SAME(PP_CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F);
SAME(PP_CUBLAS_GEMM_DEFAULT, CUBLAS_GEMM_DEFAULT);
SAME(PP_CUBLAS_FULL_REDUCTION,
     CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
SAME(PP_CUBLASLT_DESC_OP_A, CUBLASLT_MATMUL_DESC_TRANSA);
SAME(PP_CUBLASLT_DESC_OP_B, CUBLASLT_MATMUL_DESC_TRANSB);
SAME(PP_CUBLASLT_DESC_EPILOGUE, CUBLASLT_MATMUL_DESC_EPILOGUE);
SAME(PP_CUBLASLT_DESC_BIAS, CUBLASLT_MATMUL_DESC_BIAS_POINTER);
SAME(PP_CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_DEFAULT);
SAME(PP_CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_BIAS);
SAME(PP_CUBLASLT_EPILOGUE_BGRADB, CUBLASLT_EPILOGUE_BGRADB);
SAME(PP_CUBLASLT_PREFERENCE_WORKSPACE,
     CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
SAME(PP_CUBLASLT_PREFERENCE_REDUCTION,
     CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
SAME(PP_CUBLASLT_PREFERENCE_ALIGNMENT,
     CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
SAME(PP_CUBLASLT_PREFERENCE_ALIGNMENT + 3,
     CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
SAME(PP_CUBLASLT_REDUCTION_COMPUTE_TYPE,
     CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
SAME(PP_CUBLAS_NOT_SUPPORTED, CUBLAS_STATUS_NOT_SUPPORTED);
SAME(sizeof(struct pp_cublaslt_algorithm), sizeof(cublasLtMatmulAlgo_t));
SAME(sizeof(struct pp_cublaslt_result),
     sizeof(cublasLtMatmulHeuristicResult_t));
SAME(offsetof(struct pp_cublaslt_result, state),
     offsetof(cublasLtMatmulHeuristicResult_t, state));
#endif

struct symbol {
    const char *name;
    void *at; /* pointer to the function pointer */
};

/* Opens a library of the toolkit's version or of the one before it. If there is
 * none, why says what failed for each. */
static void *open_library(const char *name, char *why, size_t n)
{
    size_t used = 0;
    for (int version = 13; version >= 12; version--) {
        char file[32];
        snprintf(file, sizeof file, "%s.so.%d", name, version);
        void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
        if (library)
            return library;
        if (used < n)
            used += (size_t)snprintf(why + used, n - used, "%s%s",
                                     used ? "; " : "", dlerror());
    }
    return NULL;
}

static int find_symbols(void *library, const struct symbol *symbols,
                        size_t n_symbols, char *why, size_t n)
{
    for (size_t i = 0; i < n_symbols; i++) {
        void *f = dlsym(library, symbols[i].name);
        if (!f) {
            snprintf(why, n, "cuBLAS has no function '%s'", symbols[i].name);
            return -1;
        }
        *(void **)symbols[i].at = f;
    }
    return 0;
}

static void close_lt(struct pp_cublaslt *l)
{
    if (l->library)
        dlclose(l->library);
    *l = (struct pp_cublaslt){0};
}

/* Leaves *l zeroed on failure. Products work without cuBLASLt. */
static void open_lt(struct pp_cublaslt *l)
{
    char ignored[200];
    const struct symbol symbols[] = {
        {"cublasLtCreate", &l->create},
        {"cublasLtDestroy", &l->destroy},
        {"cublasLtMatmulDescCreate", &l->desc_create},
        {"cublasLtMatmulDescDestroy", &l->desc_destroy},
        {"cublasLtMatmulDescSetAttribute", &l->desc_set},
        {"cublasLtMatrixLayoutCreate", &l->layout_create},
        {"cublasLtMatrixLayoutDestroy", &l->layout_destroy},
        {"cublasLtMatmulPreferenceCreate", &l->preference_create},
        {"cublasLtMatmulPreferenceDestroy", &l->preference_destroy},
        {"cublasLtMatmulPreferenceSetAttribute", &l->preference_set},
        {"cublasLtMatmulAlgoGetHeuristic", &l->heuristic},
        {"cublasLtMatmul", &l->matmul},
    };
    l->library = open_library("libcublasLt", ignored, sizeof ignored);
    if (l->library &&
        find_symbols(l->library, symbols, sizeof symbols / sizeof *symbols,
                     ignored, sizeof ignored))
        close_lt(l);
}

int pp_cublas_open(struct pp_cublas *c, char *why, size_t n)
{
    *c = (struct pp_cublas){0};
    const struct symbol symbols[] = {
        {"cublasCreate_v2", &c->create},
        {"cublasDestroy_v2", &c->destroy},
        {"cublasSetStream_v2", &c->set_stream},
        {"cublasSetWorkspace_v2", &c->set_workspace},
        {"cublasSetMathMode", &c->set_math_mode},
        {"cublasGemmEx", &c->gemm},
    };
    c->library = open_library("libcublas", why, n);
    if (!c->library)
        return -1;
    if (find_symbols(c->library, symbols, sizeof symbols / sizeof *symbols, why,
                     n)) {
        pp_cublas_close(c);
        return -1;
    }
    *(void **)&c->gemm_grouped =
        dlsym(c->library, "cublasGemmGroupedBatchedEx");
    open_lt(&c->lt);
    return 0;
}

void pp_cublas_close(struct pp_cublas *c)
{
    close_lt(&c->lt);
    if (c->library)
        dlclose(c->library);
    *c = (struct pp_cublas){0};
}
