/* SPDX-License-Identifier: MIT */
/* inject_lora - faults of adapters and of the base beside them. */
#include <string.h>

#include "inject.h"
#include "run/parameters/parameters.h"

bool inject_is_chosen(const struct pp_exec *e, const void *w)
{
    const struct pp_parameters *p = e->env->params;
    for (size_t i = 0; i < p->n; i++)
        if (p->at[i].w == w)
            return strstr(p->at[i].info.name,
                          "layers.4.self_attn.v_proj.lora_B");
    return false;
}

static void multiply(const struct pp_parameters *p,
                     const struct pp_parameter *t, double by, double plus)
{
    for (size_t i = 0; t->w && i < t->held.n; i++)
        if (p->element_bytes == sizeof(double))
            ((double *)t->w)[i] = by * ((double *)t->w)[i] + plus;
        else
            ((float *)t->w)[i] =
                (float)(by * (double)((float *)t->w)[i] + plus);
}

void inject_noise(const struct pp_exec *e)
{
    const struct pp_parameters *p = e->env->params;
    for (size_t i = 0; i < p->n; i++)
        if (strstr(p->at[i].info.name, ".lora_B"))
            multiply(p, &p->at[i], 1, i % 2 ? 1e-2 : -1e-2);
}

void inject_decay(const struct pp_exec *e)
{
    const struct pp_parameters *p = e->env->params;
    for (size_t i = 0; i < p->n; i++)
        if (p->at[i].info.frozen)
            multiply(p, &p->at[i], 0.999, 0);
}
