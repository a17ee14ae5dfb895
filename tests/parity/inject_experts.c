/* SPDX-License-Identifier: MIT */
/* inject_experts - faults of ranks that divide experts, and a count of what
 * they compute while rows travel. */
#include "inject.h"

#include <stdio.h>
#include <string.h>

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

static void multiply(const struct pp_parameters *p,
                     const struct pp_parameter *t, double by)
{
    double *wide = t->g;
    float *narrow = t->g;
    bool is_wide = p->accumulator_bytes == sizeof *wide;
    for (size_t i = 0; i < t->n; i++)
        if (is_wide)
            wide[i] *= by;
        else
            narrow[i] *= (float)by;
}

void inject_average(const struct pp_worker *w, int stage)
{
    const struct pp_mesh *x = pp_env_mesh(w->env);
    for (size_t i = 0; i < w->env->params->n; i++) {
        const struct pp_parameter *t = &w->env->params->at[i];
        if (t->expert && t->stage == stage)
            multiply(w->env->params, t, 1.0 / (x->dp * x->cp));
    }
}

void inject_repeat(const struct pp_worker *w, int stage)
{
    for (size_t i = 0; i < w->env->params->n; i++) {
        const struct pp_parameter *t = &w->env->params->at[i];
        if (t->expert && t->stage == stage)
            multiply(w->env->params, t, (double)pp_env_tp(w->env));
    }
}

void inject_drop_routers(const struct pp_worker *w, int stage)
{
    bool is_first = w->env->tensor.group.index == 0;
    for (size_t i = 0; i < w->env->params->n; i++) {
        const struct pp_parameter *t = &w->env->params->at[i];
        size_t bytes = t->n * w->env->params->accumulator_bytes;
        if (strstr(t->info.name, "mlp.gate.") && t->stage == stage && !is_first)
            memset(t->g, 0, bytes);
    }
}

/* The products and the waits of this rank. */
static _Thread_local struct {
    struct pp_kernels real;
    bool product; /* one ran since the last receive was posted */
    size_t waits, behind;
} overlap;

static PP_LINEAR_FWD(noted_linear_fwd)
{
    overlap.product = true;
    return overlap.real.linear_fwd(y, x, w, b, r, N, C, OC, ldy, ldx, stream);
}

static PP_LINEAR_BWD_INPUT(noted_linear_bwd_input)
{
    overlap.product = true;
    return overlap.real.linear_bwd_input(dx, dy, w, r, N, C, OC, lddx, lddy,
                                         stream);
}

static PP_LINEAR_BWD_WEIGHT(noted_linear_bwd_weight)
{
    overlap.product = true;
    return overlap.real.linear_bwd_weight(dw, db, dy, x, N, C, OC, lddy, ldx,
                                          writes, stream);
}

void inject_note_products(struct pp_kernels *k)
{
    overlap.real = *k;
    k->linear_fwd = noted_linear_fwd;
    k->linear_bwd_input = noted_linear_bwd_input;
    k->linear_bwd_weight = noted_linear_bwd_weight;
}

void inject_posted(enum pp_direction direction)
{
    if (direction == PP_DIRECTION_DATA)
        overlap.product = false;
}

void inject_waited(enum pp_direction direction)
{
    if (direction != PP_DIRECTION_DATA)
        return;
    overlap.waits++;
    overlap.behind += overlap.product;
    overlap.product = false;
}

void inject_print_received(int rank, size_t bytes)
{
    fprintf(stderr,
            "rank %d received %zu, waited %zu times, %zu behind a "
            "product\n",
            rank, bytes, overlap.waits, overlap.behind);
}
