/* SPDX-License-Identifier: MIT */
/* gpu_figures - published figures of GPUs: the peaks of matrix products without
 * sparsity, memory, and bandwidths. No figure is measured.
 *
 * Sources, of the SXM or OAM modules: NVIDIA A100 data sheet (June 2021), H100
 * data sheet (2024), H200 data sheet (2024), HGX B200 (data sheet of DGX B200,
 * 2024, an eighth of it), L40S data sheet (2023); AMD Instinct MI300X data
 * sheet (2023). Those that state products with sparsity are halved. */
#ifndef PP_MODEL_GPU_FIGURES_H
#define PP_MODEL_GPU_FIGURES_H

struct pp_gpu {
    const char *name;
    /* Operations a second; fp32 and fp64 without tensor cores, as the kernels
     * of pprun have it. */
    double bf16, fp32, fp64;
    double memory;    /* bytes */
    double bandwidth; /* of the memory, bytes a second */
    double link;      /* to another GPU of the node, one direction, bytes a
                         second */
};

/* The table; the last name is NULL. */
extern const struct pp_gpu pp_gpus[];

/* Fills names with those of the table, and NULL at the end. */
enum { PP_MAX_GPUS = 16 };
void pp_gpu_names(const char *names[]);

/* Returns the GPU of that name, or NULL. */
const struct pp_gpu *pp_gpu_find(const char *name);

/* Returns the peak for elements of that type ("bf16"). */
double pp_gpu_peak(const struct pp_gpu *g, const char *dtype);

#endif
