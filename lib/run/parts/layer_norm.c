/* SPDX-License-Identifier: MIT */
/* layer_norm - the final RMSNorm. */
#include "run/parts/layer_impl.h"

static int norm_fwd(const struct pp_layer *l, const struct pp_microbatch *mb,
                    void *y, const void *x, const struct pp_layer_blocks *b,
                    void *scratch, struct pp_err *err)
{
    (void)scratch;
    const struct pp_kernels *k = l->kernels;
    size_t T = mb->tokens, C = l->model->hidden;
    void *s[PP_MAX_SAVED];
    pp_layer_saved(l, T, PP_IN_FORWARD, b, s);
    PP_LAYER_RUN(k->copy(s[PP_S_FN_X], x, T, C, C, C, l->stream));
    PP_LAYER_RUN(k->rmsnorm_fwd(y, s[PP_S_FN_RSTD], x, l->w[PP_P_WEIGHT], T, 1,
                                C, C, 1, C, l->model->norm_eps, l->stream));
    return 0;
}

static int norm_bwd_input(const struct pp_layer *l,
                          const struct pp_microbatch *mb, void *dx,
                          const void *dy, const struct pp_layer_blocks *b,
                          void *scratch, struct pp_err *err)
{
    (void)scratch;
    const struct pp_kernels *k = l->kernels;
    size_t T = mb->tokens, C = l->model->hidden;
    void *s[PP_MAX_SAVED];
    pp_layer_saved(l, T, PP_IN_BACKWARD, b, s);
    PP_LAYER_RUN(k->copy(s[PP_S_FN_DY], dy, T, C, C, C, l->stream));
    PP_LAYER_RUN(k->rmsnorm_bwd_input(dx, dy, s[PP_S_FN_X], s[PP_S_FN_RSTD],
                                      l->w[PP_P_WEIGHT], T, 1, C, C, C, C, 1,
                                      l->stream));
    return 0;
}

static int norm_bwd_weight(const struct pp_layer *l,
                           const struct pp_microbatch *mb,
                           const struct pp_layer_blocks *b, void *scratch,
                           struct pp_err *err)
{
    (void)scratch;
    size_t T = mb->tokens, C = l->model->hidden;
    void *s[PP_MAX_SAVED];
    pp_layer_saved(l, T, PP_IN_BACKWARD, b, s);
    if (l->g[PP_P_WEIGHT])
        PP_LAYER_RUN(l->kernels->rmsnorm_bwd_weight(
            l->g[PP_P_WEIGHT], s[PP_S_FN_DY], s[PP_S_FN_X], s[PP_S_FN_RSTD], T,
            1, C, C, C, 1, l->stream));
    return 0;
}

const struct pp_layer_ops pp_layer_norm = {
    .fwd = norm_fwd,
    .bwd_input = norm_bwd_input,
    .bwd_weight = norm_bwd_weight,
};
