/* SPDX-License-Identifier: MIT */
/* cublas - opens the library and finds its functions. */
#include "cublas.h"

#include <dlfcn.h>
#include <stdio.h>

#ifdef PP_CUDA_TOOLKIT
#include <cublas_v2.h>
_Static_assert((int)PP_CUBLAS_OP_N == (int)CUBLAS_OP_N, "cublas.h");
_Static_assert((int)PP_CUBLAS_OP_T == (int)CUBLAS_OP_T, "cublas.h");
_Static_assert((int)PP_CUBLAS_R_32F == (int)CUDA_R_32F, "cublas.h");
_Static_assert((int)PP_CUBLAS_R_16BF == (int)CUDA_R_16BF, "cublas.h");
_Static_assert((int)PP_CUBLAS_COMPUTE_32F == (int)CUBLAS_COMPUTE_32F,
               "cublas.h");
_Static_assert((int)PP_CUBLAS_GEMM_DEFAULT == (int)CUBLAS_GEMM_DEFAULT,
               "cublas.h");
_Static_assert((int)PP_CUBLAS_FULL_REDUCTION ==
                   (int)CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION,
               "cublas.h");
#endif

/* The toolkit that was compiled with, then the one before it. */
static const char *const names[] = {"libcublas.so.13", "libcublas.so.12"};

/* The first that opens; of none, why has what is wrong with each. */
static void *open_library(char *why, size_t n)
{
    size_t used = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        if (library)
            return library;
        if (used < n)
            used += (size_t)snprintf(why + used, n - used, "%s%s",
                                     i ? "; " : "", dlerror());
    }
    return NULL;
}

int pp_cublas_open(struct pp_cublas *c, char *why, size_t n)
{
    *c = (struct pp_cublas){.library = open_library(why, n)};
    if (!c->library)
        return -1;
    const struct {
        const char *name;
        void *at;
    } functions[] = {
        {"cublasCreate_v2", &c->create},
        {"cublasDestroy_v2", &c->destroy},
        {"cublasSetStream_v2", &c->set_stream},
        {"cublasSetWorkspace_v2", &c->set_workspace},
        {"cublasSetMathMode", &c->set_math_mode},
        {"cublasGemmEx", &c->gemm},
    };
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *f = dlsym(c->library, functions[i].name);
        if (!f) {
            snprintf(why, n, "%s is not in cuBLAS", functions[i].name);
            pp_cublas_close(c);
            return -1;
        }
        *(void **)functions[i].at = f;
    }
    (void)pp_cublaslt_open(&c->lt); /* cuBLAS does without */
    return 0;
}

void pp_cublas_close(struct pp_cublas *c)
{
    pp_cublaslt_close(&c->lt);
    if (c->library)
        dlclose(c->library);
    *c = (struct pp_cublas){0};
}
