/* SPDX-License-Identifier: MIT */
/* inject_experts - faults of ranks that divide experts. */
#include "inject.h"

void inject_miscount(int32_t *counts, size_t n)
{
    size_t i = 0;
    while (i < n && counts[i] == 0)
        i++;
    if (i == n)
        return;
    counts[i]--;
    counts[i ^ 1]++;
}

static void divide(const struct pp_parameters *p, const struct pp_parameter *t,
                   int by)
{
    double *wide = t->g;
    float *narrow = t->g;
    bool is_wide = p->accumulator_bytes == sizeof *wide;
    for (size_t i = 0; i < t->n; i++)
        if (is_wide)
            wide[i] /= by;
        else
            narrow[i] /= (float)by;
}

void inject_average(const struct pp_worker *w, int stage)
{
    const struct pp_mesh *x = pp_env_mesh(w->env);
    for (size_t i = 0; i < w->env->params->n; i++) {
        const struct pp_parameter *t = &w->env->params->at[i];
        if (t->expert && t->stage == stage)
            divide(w->env->params, t, x->dp * x->cp);
    }
}
