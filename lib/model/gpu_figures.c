/* SPDX-License-Identifier: MIT */
#include "model/gpu_figures.h"

#include <stddef.h>
#include <string.h>

const struct pp_gpu pp_gpus[] = {
    {"a100", 312e12, 19.5e12, 9.7e12, 80e9, 2.039e12, 300e9},
    {"a100-40", 312e12, 19.5e12, 9.7e12, 40e9, 1.555e12, 300e9},
    {"h100", 989.4e12, 67e12, 34e12, 80e9, 3.35e12, 450e9},
    {"h200", 989.4e12, 67e12, 34e12, 141e9, 4.8e12, 450e9},
    {"b200", 2250e12, 75e12, 37e12, 180e9, 8e12, 900e9},
    {"l40s", 362e12, 91.6e12, 1.4e12, 48e9, 864e9, 32e9},
    {"mi300x", 1307.4e12, 163.4e12, 81.7e12, 192e9, 5.3e12, 64e9},
    {NULL, 0, 0, 0, 0, 0, 0},
};

void pp_gpu_names(const char *names[])
{
    size_t n = 0;
    for (; pp_gpus[n].name; n++)
        names[n] = pp_gpus[n].name;
    names[n] = NULL;
}

const struct pp_gpu *pp_gpu_find(const char *name)
{
    const struct pp_gpu *g = pp_gpus;
    while (g->name && strcmp(g->name, name))
        g++;
    return g->name ? g : NULL;
}

double pp_gpu_peak(const struct pp_gpu *g, const char *dtype)
{
    return !strcmp(dtype, "bf16")   ? g->bf16
           : !strcmp(dtype, "fp64") ? g->fp64
                                    : g->fp32;
}
