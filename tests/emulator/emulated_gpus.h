/* SPDX-License-Identifier: MIT */
/* emulated_gpus - the GPUs of the emulated machine, and errors of the CUDA
 * runtime. */
#ifndef PP_TESTS_EMULATED_GPUS_H
#define PP_TESTS_EMULATED_GPUS_H

#include "cuda_runtime_api.h"

/* Returns the current GPU of the calling thread. */
int pp_emulated_gpu(void);

/* Returns the number of processors of a GPU. */
int pp_emulated_processors(void);

/* Returns rc, which cudaGetLastError returns too if it is an error. */
cudaError_t pp_emulated_keep_error(cudaError_t rc);

/* Ends the program, because a call is not valid. */
void pp_emulated_refuse_call(const char *what);

#endif
