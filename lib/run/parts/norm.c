/* SPDX-License-Identifier: MIT */
/* norm - the norms of a model as parts, and the last of them as a unit. A
 * model has norms of one kind: RMSNorm, or layer norms, which may have no
 * parameters. */
#include "run/parts/layer_impl.h"

static bool is_rms(const struct pp_call *c)
{
    return pp_family_of(c->m->architecture)->norm == PP_PART_RMS_NORM;
}

void pp_norm_fwd(const struct pp_call *c, const struct pp_norm_slots *n,
                 size_t N, void *y, const void *residual)
{
    const void *x = c->s[n->x];
    size_t C = c->C;
    if (is_rms(c))
        PP_RUN(c, rmsnorm_fwd, y, c->s[n->rstd], x, c->w[n->weight], residual,
               N, 1, C, C, 1, C, pp_norm_shift(c->m), c->m->norm_eps, NULL);
    else
        PP_RUN(c, layernorm_fwd, y, c->s[n->mean], c->s[n->rstd], x,
               c->w[n->weight], c->w[n->bias], residual, N, C, c->m->norm_eps);
}

void pp_norm_bwd_input(const struct pp_call *c, const struct pp_norm_slots *n,
                       size_t N, void *dx, const void *dy, const void *residual)
{
    const void *x = c->s[n->x];
    size_t C = c->C;
    if (is_rms(c))
        PP_RUN(c, rmsnorm_bwd_input, dx, dy, x, c->s[n->rstd], c->w[n->weight],
               residual, N, 1, C, C, C, C, 1, pp_norm_shift(c->m), NULL);
    else
        PP_RUN(c, layernorm_bwd_input, dx, dy, x, c->s[n->mean], c->s[n->rstd],
               c->w[n->weight], residual, N, C);
}

void pp_norm_bwd_weight(const struct pp_call *c, const struct pp_norm_slots *n,
                        size_t N)
{
    const void *dy = c->s[n->dy], *x = c->s[n->x];
    size_t C = c->C;
    if (!c->g[n->weight])
        return;
    if (!is_rms(c))
        PP_RUN(c, layernorm_bwd_weight, pp_call_gradient(c, n->weight),
               pp_call_gradient(c, n->bias), dy, x, c->s[n->mean],
               c->s[n->rstd], N, C);
    else
        PP_RUN(c, rmsnorm_bwd_weight, pp_call_gradient(c, n->weight), dy, x,
               c->s[n->rstd], N, 1, C, C, C, 1);
}

/* --- the last norm --- */

static const struct pp_norm_slots *const last = &pp_norm_slots[PP_BEFORE_HEAD];

static void norm_fwd(const struct pp_call *c, void *y, const void *x)
{
    (void)x;
    pp_norm_fwd(c, last, c->R, y, NULL);
}

static void norm_bwd_input(const struct pp_call *c, void *dx, const void *dy)
{
    pp_norm_bwd_input(c, last, c->R, dx, dy, NULL);
}

static void norm_bwd_weight(const struct pp_call *c)
{
    pp_norm_bwd_weight(c, last, c->R);
}

const struct pp_layer_ops pp_layer_norm = {
    .fwd = norm_fwd,
    .bwd_input = norm_bwd_input,
    .bwd_weight = norm_bwd_weight,
    .x = PP_S_FN_X,
    .dy = PP_S_FN_DY,
};
