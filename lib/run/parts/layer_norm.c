/* SPDX-License-Identifier: MIT */
/* layer_norm - the norms of a model as parts, and the last of them as a unit.
 */
#include "run/parts/layer_impl.h"

/* --- RMSNorm --- */

static int rms_fwd(const struct pp_layer *l, const struct pp_norm_slots *n,
                   size_t T, void *y, const void *x, const void *residual,
                   void *const *s, struct pp_err *err)
{
    size_t C = l->env->model->hidden;
    PP_LAYER_RUN(l->env->kernels->rmsnorm_fwd(
        y, s[n->rstd], x, l->w[n->weight], residual, T, 1, C, C, 1, C,
        pp_norm_shift(l->env->model), l->env->model->norm_eps, NULL,
        l->env->stream));
    return 0;
}

static int rms_bwd_input(const struct pp_layer *l,
                         const struct pp_norm_slots *n, size_t T, void *dx,
                         const void *dy, const void *residual, void *const *s,
                         struct pp_err *err)
{
    size_t C = l->env->model->hidden;
    PP_LAYER_RUN(l->env->kernels->rmsnorm_bwd_input(
        dx, dy, s[n->x], s[n->rstd], l->w[n->weight], residual, T, 1, C, C, C,
        C, 1, pp_norm_shift(l->env->model), NULL, l->env->stream));
    return 0;
}

static int rms_bwd_weight(const struct pp_layer *l,
                          const struct pp_norm_slots *n, size_t T,
                          void *const *s, struct pp_err *err)
{
    size_t C = l->env->model->hidden;
    if (l->g[n->weight])
        PP_LAYER_RUN(l->env->kernels->rmsnorm_bwd_weight(
            l->g[n->weight], s[n->dy], s[n->x], s[n->rstd], T, 1, C, C, C, 1,
            l->env->stream));
    return 0;
}

const struct pp_norm_ops pp_part_rms_norm = {
    .fwd = rms_fwd,
    .bwd_input = rms_bwd_input,
    .bwd_weight = rms_bwd_weight,
};

/* --- LayerNorm --- */

static int layer_fwd(const struct pp_layer *l, const struct pp_norm_slots *n,
                     size_t T, void *y, const void *x, const void *residual,
                     void *const *s, struct pp_err *err)
{
    PP_LAYER_RUN(l->env->kernels->layernorm_fwd(
        y, s[n->mean], s[n->rstd], x, l->w[n->weight], l->w[n->bias], residual,
        T, l->env->model->hidden, l->env->model->norm_eps, l->env->stream));
    return 0;
}

static int layer_bwd_input(const struct pp_layer *l,
                           const struct pp_norm_slots *n, size_t T, void *dx,
                           const void *dy, const void *residual, void *const *s,
                           struct pp_err *err)
{
    PP_LAYER_RUN(l->env->kernels->layernorm_bwd_input(
        dx, dy, s[n->x], s[n->mean], s[n->rstd], l->w[n->weight], residual, T,
        l->env->model->hidden, l->env->stream));
    return 0;
}

static int layer_bwd_weight(const struct pp_layer *l,
                            const struct pp_norm_slots *n, size_t T,
                            void *const *s, struct pp_err *err)
{
    PP_LAYER_RUN(l->env->kernels->layernorm_bwd_weight(
        l->g[n->weight], l->g[n->bias], s[n->dy], s[n->x], s[n->mean],
        s[n->rstd], T, l->env->model->hidden, l->env->stream));
    return 0;
}

const struct pp_norm_ops pp_part_layer_norm = {
    .fwd = layer_fwd,
    .bwd_input = layer_bwd_input,
    .bwd_weight = layer_bwd_weight,
};

/* --- the last norm --- */

static const struct pp_norm_slots *const last = &pp_norm_slots[PP_BEFORE_HEAD];

static const struct pp_norm_ops *ops_of(const struct pp_layer *l)
{
    struct pp_model_part part[PP_MAX_PARTS];
    pp_unit_parts(l->env->model, l->unit, part);
    return pp_norm_ops(part[0].kind);
}

static int norm_fwd(const struct pp_layer *l, const struct pp_microbatch *mb,
                    void *y, const void *x, const struct pp_layer_blocks *b,
                    void *scratch, struct pp_err *err)
{
    (void)scratch;
    void *s[PP_MAX_SAVED];
    pp_layer_saved(l, mb->tokens, PP_IN_FORWARD, b, s);
    if (pp_layer_keep(l, mb, s[last->x], x, err))
        return -1;
    return ops_of(l)->fwd(l, last, pp_layer_rows(l, mb), y, x, NULL, s, err);
}

static int norm_bwd_input(const struct pp_layer *l,
                          const struct pp_microbatch *mb, void *dx,
                          const void *dy, const struct pp_layer_blocks *b,
                          void *scratch, struct pp_err *err)
{
    (void)scratch;
    size_t R = pp_layer_rows(l, mb);
    void *s[PP_MAX_SAVED];
    pp_layer_saved(l, mb->tokens, PP_IN_BACKWARD, b, s);
    if (pp_layer_keep(l, mb, s[last->dy], dy, err))
        return -1;
    return ops_of(l)->bwd_input(l, last, R, dx, dy, NULL, s, err);
}

static int norm_bwd_weight(const struct pp_layer *l,
                           const struct pp_microbatch *mb,
                           const struct pp_layer_blocks *b, void *scratch,
                           struct pp_err *err)
{
    (void)scratch;
    void *s[PP_MAX_SAVED];
    pp_layer_saved(l, mb->tokens, PP_IN_BACKWARD, b, s);
    return ops_of(l)->bwd_weight(l, last, pp_layer_rows(l, mb), s, err);
}

static void *norm_kept(const struct pp_layer *l, const struct pp_microbatch *mb,
                       enum pp_saved_when when, const struct pp_layer_blocks *b)
{
    void *s[PP_MAX_SAVED];
    pp_layer_saved(l, mb->tokens, when, b, s);
    return s[when == PP_IN_FORWARD ? last->x : last->dy];
}

const struct pp_layer_ops pp_layer_norm = {
    .fwd = norm_fwd,
    .bwd_input = norm_bwd_input,
    .bwd_weight = norm_bwd_weight,
    .kept = norm_kept,
};
