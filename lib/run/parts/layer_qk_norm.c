/* SPDX-License-Identifier: MIT */
/* layer_qk_norm - the norm of queries and keys before they are rotated: of each
 * head, or of all queries and of all keys of a token together (OLMo 2).
 *
 * Tensor-parallel ranks divide the heads. For a norm of all heads they tell
 * each other the sums over their own. If several ranks have the same key heads,
 * each adds its copy to the sum and to the width, so the mean is right. In
 * backward such a rank has a part of the gradient. The parts add up to the
 * gradient, and the share of the mean that each takes off adds up to the mean.
 */
#include "run/parts/layer_impl.h"

/* One of the two norms: G groups of C elements, at a column of the rows. */
struct qk_norm {
    size_t weight, column, G, C;
    size_t rstd; /* of its first group in a row of statistics */
};

enum { QUERIES, KEYS, N_NORMS };

struct qk_norms {
    struct qk_norm of[N_NORMS];
    size_t width, ld; /* of a row of raw queries and keys, and of QKV */
    size_t n_groups;
};

static struct qk_norms norms_of(const struct pp_model *m)
{
    size_t NH = m->n_heads, NKV = m->n_kv_heads, HD = m->head_dim;
    bool all = m->norms_all_heads;
    struct pp_qkv_widths w = pp_qkv_widths(m);
    size_t q = all ? 1 : NH, k = all ? 1 : NKV;
    return (struct qk_norms){
        .of = {{PP_P_Q_NORM, 0, q, NH * HD / q, 0},
               {PP_P_K_NORM, w.q, k, NKV * HD / k, q}},
        .width = w.qk,
        .ld = w.qkv,
        .n_groups = q + k,
    };
}

static bool are_divided(const struct pp_layer *l)
{
    return pp_env_tp(l->env) > 1 && l->env->model->norms_all_heads;
}

/* Collective if the norms are divided. Points sums[i] to those of norm i over
 * the ranks: of x x, or of dy x and the weight; or to NULL. dy is DQKV. */
static int tell_sums(const struct pp_layer *l, const struct qk_norms *n,
                     const struct pp_layer_blocks *b, size_t T, const void *dy,
                     void *const *s, struct pp_norm_sums of[N_NORMS],
                     struct pp_norm_sums *sums[N_NORMS], struct pp_err *err)
{
    size_t ranks = pp_env_tp(l->env), total = N_NORMS * T;
    for (size_t i = 0; i < N_NORMS; i++)
        sums[i] = NULL;
    if (!are_divided(l) || T == 0)
        return 0;
    for (size_t i = 0; i < N_NORMS; i++) {
        const void *x = pp_layer_at(l, s[PP_S_QKV_RAW], n->of[i].column);
        PP_LAYER_RUN(l->env->kernels->rmsnorm_sums(
            pp_layer_statistic_at(l, b->gathered, i * T),
            dy ? pp_layer_at(l, dy, n->of[i].column) : x, x,
            dy ? l->w[n->of[i].weight] : NULL, T, 1, n->of[i].C,
            dy ? n->ld : n->width, n->width, pp_norm_shift(l->env->model),
            l->env->stream));
    }
    const void *all = pp_layer_collect(
        l, b, b->gathered, total * l->env->kernels->accumulator_bytes, err);
    for (size_t i = 0; all && i < N_NORMS; i++) {
        of[i] = (struct pp_norm_sums){pp_layer_statistic_at(l, all, i * T),
                                      ranks, total, ranks * n->of[i].C};
        sums[i] = &of[i];
    }
    return all ? 0 : -1;
}

int pp_qk_norm_fwd(const struct pp_layer *l, const struct pp_layer_blocks *b,
                   size_t T, void *const *s, struct pp_err *err)
{
    const struct pp_model *m = l->env->model;
    struct qk_norms n = norms_of(m);
    struct pp_norm_sums of[N_NORMS], *sums[N_NORMS];
    if (tell_sums(l, &n, b, T, NULL, s, of, sums, err))
        return -1;
    for (size_t i = 0; i < N_NORMS; i++) {
        const struct qk_norm *k = &n.of[i];
        PP_LAYER_RUN(l->env->kernels->rmsnorm_fwd(
            pp_layer_at(l, s[PP_S_QKV], k->column),
            pp_layer_statistic_at(l, s[PP_S_QK_RSTD], k->rstd),
            pp_layer_at(l, s[PP_S_QKV_RAW], k->column), l->w[k->weight], NULL,
            T, k->G, k->C, n.ld, n.n_groups, n.width, pp_norm_shift(m),
            m->norm_eps, sums[i], l->env->stream));
    }
    return 0;
}

int pp_qk_norm_bwd_input(const struct pp_layer *l,
                         const struct pp_layer_blocks *b, size_t T,
                         void *const *s, struct pp_err *err)
{
    struct qk_norms n = norms_of(l->env->model);
    struct pp_norm_sums of[N_NORMS], *sums[N_NORMS];
    PP_LAYER_RUN(l->env->kernels->copy(s[PP_S_DQK_NORM], s[PP_S_DQKV], T,
                                       n.width, n.width, n.ld, l->env->stream));
    if (tell_sums(l, &n, b, T, s[PP_S_DQKV], s, of, sums, err))
        return -1;
    for (size_t i = 0; i < N_NORMS; i++) {
        const struct qk_norm *k = &n.of[i];
        void *dx = pp_layer_at(l, s[PP_S_DQKV], k->column);
        PP_LAYER_RUN(l->env->kernels->rmsnorm_bwd_input(
            dx, dx, pp_layer_at(l, s[PP_S_QKV_RAW], k->column),
            pp_layer_statistic_at(l, s[PP_S_QK_RSTD], k->rstd), l->w[k->weight],
            NULL, T, k->G, k->C, n.ld, n.ld, n.width, n.n_groups,
            pp_norm_shift(l->env->model), sums[i], l->env->stream));
    }
    return 0;
}

int pp_qk_norm_bwd_weight(const struct pp_layer *l, size_t T, void *const *s,
                          struct pp_err *err)
{
    struct qk_norms n = norms_of(l->env->model);
    for (size_t i = 0; i < N_NORMS; i++) {
        const struct qk_norm *k = &n.of[i];
        if (!l->g[k->weight])
            continue;
        PP_LAYER_RUN(l->env->kernels->rmsnorm_bwd_weight(
            l->g[k->weight], pp_layer_at(l, s[PP_S_DQK_NORM], k->column),
            pp_layer_at(l, s[PP_S_QKV_RAW], k->column),
            pp_layer_statistic_at(l, s[PP_S_QK_RSTD], k->rstd), T, k->G, k->C,
            n.width, n.width, n.n_groups, l->env->stream));
    }
    return 0;
}
