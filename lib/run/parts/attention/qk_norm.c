/* SPDX-License-Identifier: MIT */
/* qk_norm - the norm of queries and keys before they are rotated: of each
 * head, or of all queries and of all keys of a token together (OLMo 2).
 *
 * Tensor-parallel ranks divide the heads. For a norm of all heads they tell
 * each other the sums over their own. If several ranks have the same key heads,
 * each adds its copy to the sum and to the width, so the mean is right. In
 * backward such a rank has a part of the gradient. The parts add up to the
 * gradient, and the share of the mean that each takes off adds up to the mean.
 */
#include "run/parts/attention/attention.h"

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
    /* If ranks divide the norms: the sums over them. */
    bool divided;
    struct pp_norm_sums sums[N_NORMS];
};

static struct qk_norms norms_of(const struct pp_call *c)
{
    const struct pp_model *m = c->m;
    struct pp_qkv_widths w = pp_qkv_widths(c);
    size_t NH = w.of.n, NKV = w.of.n_kv, HD = w.of.qk;
    bool all = m->norms_all_heads;
    size_t q = all ? 1 : NH, k = all ? 1 : NKV;
    return (struct qk_norms){
        .of = {{PP_P_Q_NORM, 0, q, NH * HD / q, 0},
               {PP_P_K_NORM, w.q, k, NKV * HD / k, q}},
        .width = w.qk,
        .ld = w.row,
        .n_groups = q + k,
        .divided = pp_env_tp(c->env) > 1 && all && c->T > 0,
    };
}

/* Collective if the norms are divided. Finds the sums over the ranks: of x x,
 * or of dy x and the weight. dy is DQKV. */
static void tell_sums(const struct pp_call *c, struct qk_norms *n,
                      const void *dy)
{
    size_t ranks = pp_env_tp(c->env), total = N_NORMS * c->T;
    if (!n->divided)
        return;
    for (size_t i = 0; i < N_NORMS; i++) {
        const struct qk_norm *k = &n->of[i];
        const void *x = pp_at(c, c->s[PP_S_QKV_RAW], k->column);
        PP_RUN(c, rmsnorm_sums, pp_statistic_at(c, c->gathered, i * c->T),
               dy ? pp_at(c, dy, k->column) : x, x, dy ? c->w[k->weight] : NULL,
               c->T, 1, k->C, dy ? n->ld : n->width, n->width,
               pp_norm_shift(c->m));
    }
    const void *all =
        pp_layer_collect(c, c->gathered, total * c->k->accumulator_bytes);
    for (size_t i = 0; i < N_NORMS; i++)
        n->sums[i] = (struct pp_norm_sums){pp_statistic_at(c, all, i * c->T),
                                           ranks, total, ranks * n->of[i].C};
}

/* Without a weight rows are multiplied by 1. */
static double shift_of(const struct pp_call *c, const struct qk_norm *k)
{
    return c->w[k->weight] ? pp_norm_shift(c->m) : 1;
}

void pp_qk_norm_fwd(const struct pp_call *c)
{
    struct qk_norms n = norms_of(c);
    tell_sums(c, &n, NULL);
    for (size_t i = 0; i < N_NORMS; i++) {
        const struct qk_norm *k = &n.of[i];
        PP_RUN(c, rmsnorm_fwd, pp_at(c, c->s[PP_S_QKV], k->column),
               pp_statistic_at(c, c->s[PP_S_QK_RSTD], k->rstd),
               pp_at(c, c->s[PP_S_QKV_RAW], k->column), c->w[k->weight], NULL,
               c->T, k->G, k->C, n.ld, n.n_groups, n.width, shift_of(c, k),
               c->m->norm_eps, n.divided ? &n.sums[i] : NULL);
    }
}

void pp_qk_norm_bwd_input(const struct pp_call *c)
{
    struct qk_norms n = norms_of(c);
    if (c->w[PP_P_Q_NORM])
        PP_RUN(c, copy, c->s[PP_S_DQK_NORM], c->s[PP_S_DQKV], c->T, n.width,
               n.width, n.ld);
    tell_sums(c, &n, c->s[PP_S_DQKV]);
    for (size_t i = 0; i < N_NORMS; i++) {
        const struct qk_norm *k = &n.of[i];
        void *dx = pp_at(c, c->s[PP_S_DQKV], k->column);
        PP_RUN(c, rmsnorm_bwd_input, dx, dx,
               pp_at(c, c->s[PP_S_QKV_RAW], k->column),
               pp_statistic_at(c, c->s[PP_S_QK_RSTD], k->rstd), c->w[k->weight],
               NULL, c->T, k->G, k->C, n.ld, n.ld, n.width, n.n_groups,
               shift_of(c, k), n.divided ? &n.sums[i] : NULL);
    }
}

void pp_qk_norm_bwd_weight(const struct pp_call *c)
{
    struct qk_norms n = norms_of(c);
    for (size_t i = 0; i < N_NORMS; i++) {
        const struct qk_norm *k = &n.of[i];
        if (c->g[k->weight])
            PP_RUN(c, rmsnorm_bwd_weight, pp_call_gradient(c, k->weight),
                   pp_at(c, c->s[PP_S_DQK_NORM], k->column),
                   pp_at(c, c->s[PP_S_QKV_RAW], k->column),
                   pp_statistic_at(c, c->s[PP_S_QK_RSTD], k->rstd), c->T, k->G,
                   k->C, n.width, n.width, n.n_groups);
    }
}
