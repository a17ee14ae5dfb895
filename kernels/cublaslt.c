/* SPDX-License-Identifier: MIT */
/* cublaslt - opens the library and finds its functions. */
#include "cublaslt.h"

#include <dlfcn.h>

#ifdef PP_CUDA_TOOLKIT
#include <cublasLt.h>
#define SAME(ours, theirs) \
    _Static_assert((int)(ours) == (int)(theirs), "cublaslt.h")
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

/* As in cublas.c, which has it loaded already. */
static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12"};

int pp_cublaslt_open(struct pp_cublaslt *l)
{
    *l = (struct pp_cublaslt){0};
    for (size_t i = 0; i < sizeof names / sizeof *names && !l->library; i++)
        l->library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!l->library)
        return -1;
    const struct {
        const char *name;
        void *at;
    } functions[] = {
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
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *f = dlsym(l->library, functions[i].name);
        if (!f) {
            pp_cublaslt_close(l);
            return -1;
        }
        *(void **)functions[i].at = f;
    }
    return 0;
}

void pp_cublaslt_close(struct pp_cublaslt *l)
{
    if (l->library)
        dlclose(l->library);
    *l = (struct pp_cublaslt){0};
}
