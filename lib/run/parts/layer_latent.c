/* SPDX-License-Identifier: MIT */
/* layer_latent - multi-head latent attention (DeepSeek-AI, "DeepSeek-V2", 2024,
 * section 2.1).
 *
 * The normed input becomes latent values of low rank, for keys and values and,
 * with q_rank, for queries. They have norms of their own, and then products
 * make heads of them. Only the last rope_dim elements of a query head rotate;
 * those of the keys come straight from the input, and all heads share them.
 * From QKV on everything is as in layer_attention, with values narrower or
 * wider than keys.
 *
 * Tensor-parallel ranks divide the heads. All of them compute the latent
 * values; their gradients there are the sums over the heads of a rank, and what
 * follows is linear in them, so the sums over the ranks are right. */
#include "run/parts/layer_impl.h"

/* transformers gives these norms no other. */
#define LATENT_EPS 1e-6

/* Widths of rows in elements. A row of LATENT holds latent queries, then latent
 * keys and values; one of LATENT_RAW also the shared part of the keys. */
struct latent {
    size_t T, C, NH;            /* tokens, hidden, heads of this rank */
    size_t qk, nope, rope, v;   /* of a head */
    size_t q_rank, kv_rank;     /* q_rank may be 0 */
    size_t low, raw, norms, up; /* LATENT; LATENT_RAW; LATENT_RSTD; keys without
                                   the shared part, and values, of all heads */
    struct pp_qkv_widths w;
};

static struct latent latent_of(const struct pp_layer *l,
                               const struct pp_microbatch *mb)
{
    const struct pp_model *m = l->env->model;
    const struct pp_mla *a = &m->mla;
    return (struct latent){
        .T = mb->tokens,
        .C = m->hidden,
        .NH = m->n_heads,
        .qk = m->head_dim,
        .nope = a->nope_dim,
        .rope = a->rope_dim,
        .v = a->v_dim,
        .q_rank = a->q_rank,
        .kv_rank = a->kv_rank,
        .low = a->q_rank + a->kv_rank,
        .raw = a->q_rank + a->kv_rank + a->rope_dim,
        .norms = a->q_rank > 0 ? 2 : 1,
        .up = m->n_heads * (a->nope_dim + a->v_dim),
        .w = pp_qkv_widths(m),
    };
}

/* One of the two latent parts of a row: its columns, and its parameters. */
struct low_rank {
    size_t at, rank, norm; /* norm: its number among the norms */
    size_t p_norm;
};

static struct low_rank low_queries(const struct latent *d)
{
    return (struct low_rank){0, d->q_rank, 0, PP_P_Q_A_NORM};
}

static struct low_rank low_keys(const struct latent *d)
{
    return (struct low_rank){d->q_rank, d->kv_rank, d->norms - 1,
                             PP_P_KV_A_NORM};
}

/* Rotates n heads of rows of ld elements; one begins every ldg. */
static int rotate_part(const struct pp_layer *l, const struct pp_microbatch *mb,
                       void *x, size_t n, size_t ld, size_t ldg, int direction,
                       struct pp_err *err)
{
    const struct pp_mla *a = &l->env->model->mla;
    PP_LAYER_RUN(l->env->kernels->rope(
        x, l->env->rope_cos, l->env->rope_sin, mb->positions, mb->tokens, n,
        a->rope_dim, ld, ldg, a->adjacent, direction, l->env->stream));
    return 0;
}

/* --- forward --- */

static int latent_norm_fwd(const struct pp_layer *l, const struct latent *d,
                           const struct low_rank *p, void *const *s,
                           struct pp_err *err)
{
    PP_LAYER_RUN(l->env->kernels->rmsnorm_fwd(
        pp_layer_at(l, s[PP_S_LATENT], p->at),
        pp_layer_statistic_at(l, s[PP_S_LATENT_RSTD], p->norm),
        pp_layer_at(l, s[PP_S_LATENT_RAW], p->at), l->w[p->p_norm], NULL, d->T,
        1, p->rank, d->low, d->norms, d->raw, 0, LATENT_EPS, NULL,
        l->env->stream));
    return 0;
}

/* Writes the queries of QKV from x (T, C). */
static int queries_fwd(const struct pp_layer *l, const struct latent *d,
                       const void *x, void *const *s, struct pp_err *err)
{
    const struct pp_kernels *k = l->env->kernels;
    const struct low_rank p = low_queries(d);
    if (!d->q_rank) {
        PP_LAYER_RUN(k->linear_fwd(s[PP_S_QKV], x, l->w[PP_P_Q], NULL, NULL,
                                   d->T, d->C, d->w.q, d->w.qkv, d->C,
                                   l->env->stream));
        return 0;
    }
    PP_LAYER_RUN(k->linear_fwd(s[PP_S_LATENT_RAW], x, l->w[PP_P_Q_A],
                               l->w[PP_P_Q_A_BIAS], NULL, d->T, d->C, d->q_rank,
                               d->raw, d->C, l->env->stream));
    if (latent_norm_fwd(l, d, &p, s, err))
        return -1;
    PP_LAYER_RUN(k->linear_fwd(s[PP_S_QKV], s[PP_S_LATENT], l->w[PP_P_Q_B],
                               NULL, NULL, d->T, d->q_rank, d->w.q, d->w.qkv,
                               d->low, l->env->stream));
    return 0;
}

/* Copies the keys without the shared part and the values between QKV, or its
 * gradient, and the product that makes them, up. */
static int copy_up(const struct pp_layer *l, const struct latent *d, void *qkv,
                   void *up, bool to_up, struct pp_err *err)
{
    for (size_t h = 0; h < d->NH; h++) {
        size_t at = h * (d->nope + d->v);
        const struct {
            void *qkv, *up;
            size_t n;
        } part[] = {
            {pp_layer_at(l, qkv, d->w.q + h * d->qk), pp_layer_at(l, up, at),
             d->nope},
            {pp_layer_at(l, qkv, d->w.qk + h * d->v),
             pp_layer_at(l, up, at + d->nope), d->v},
        };
        for (size_t i = 0; i < 2; i++)
            PP_LAYER_RUN(l->env->kernels->copy(
                to_up ? part[i].up : part[i].qkv,
                to_up ? part[i].qkv : part[i].up, d->T, part[i].n,
                to_up ? d->up : d->w.qkv, to_up ? d->w.qkv : d->up,
                l->env->stream));
    }
    return 0;
}

/* Writes the keys and values of QKV from x (T, C). */
static int keys_fwd(const struct pp_layer *l, const struct pp_microbatch *mb,
                    const struct latent *d, const void *x, void *const *s,
                    void *up, struct pp_err *err)
{
    const struct pp_kernels *k = l->env->kernels;
    const struct low_rank p = low_keys(d);
    void *raw = pp_layer_at(l, s[PP_S_LATENT_RAW], p.at);
    void *shared = pp_layer_at(l, raw, d->kv_rank);
    PP_LAYER_RUN(k->linear_fwd(raw, x, l->w[PP_P_KV_A], l->w[PP_P_KV_A_BIAS],
                               NULL, d->T, d->C, d->kv_rank + d->rope, d->raw,
                               d->C, l->env->stream));
    if (latent_norm_fwd(l, d, &p, s, err) ||
        rotate_part(l, mb, shared, 1, d->raw, d->rope, 1, err))
        return -1;
    PP_LAYER_RUN(k->linear_fwd(up, pp_layer_at(l, s[PP_S_LATENT], p.at),
                               l->w[PP_P_KV_B], NULL, NULL, d->T, d->kv_rank,
                               d->up, d->up, d->low, l->env->stream));
    if (copy_up(l, d, s[PP_S_QKV], up, false, err))
        return -1;
    for (size_t h = 0; h < d->NH; h++)
        PP_LAYER_RUN(
            k->copy(pp_layer_at(l, s[PP_S_QKV], d->w.q + h * d->qk + d->nope),
                    shared, d->T, d->rope, d->w.qkv, d->raw, l->env->stream));
    return 0;
}

static int latent_fwd(const struct pp_layer *l, const struct pp_microbatch *mb,
                      void *y, const void *residual,
                      const struct pp_layer_blocks *b, void *const *s,
                      void *scratch, struct pp_err *err)
{
    const struct latent d = latent_of(l, mb);
    const struct pp_joined o = pp_attention_output(l);
    const void *x = pp_layer_gather(l, mb, b, s[PP_S_NORM1], err);
    return !x || queries_fwd(l, &d, x, s, err) ||
                   rotate_part(l, mb, pp_layer_at(l, s[PP_S_QKV], d.nope), d.NH,
                               d.w.qkv, d.qk, 1, err) ||
                   keys_fwd(l, mb, &d, x, s, scratch, err) ||
                   pp_attention_heads_fwd(l, mb, b, s, scratch, err) ||
                   pp_layer_join_fwd(l, mb, b, y, s[PP_S_ATTN], &o, residual,
                                     err)
               ? -1
               : 0;
}

/* --- input gradient --- */

/* Takes the gradient of a latent part through its norm. */
static int latent_norm_bwd_input(const struct pp_layer *l,
                                 const struct latent *d,
                                 const struct low_rank *p, void *const *s,
                                 struct pp_err *err)
{
    PP_LAYER_RUN(l->env->kernels->rmsnorm_bwd_input(
        pp_layer_at(l, s[PP_S_DLATENT_RAW], p->at),
        pp_layer_at(l, s[PP_S_DLATENT], p->at),
        pp_layer_at(l, s[PP_S_LATENT_RAW], p->at),
        pp_layer_statistic_at(l, s[PP_S_LATENT_RSTD], p->norm), l->w[p->p_norm],
        NULL, d->T, 1, p->rank, d->raw, d->low, d->raw, d->norms, 0, NULL,
        l->env->stream));
    return 0;
}

/* Adds up the gradients of the shared part of the keys over the heads. sum and
 * one are (T, rope). */
static int shared_keys_bwd(const struct pp_layer *l,
                           const struct pp_microbatch *mb,
                           const struct latent *d, void *const *s, void *sum,
                           void *one, struct pp_err *err)
{
    const struct pp_kernels *k = l->env->kernels;
    void *shared = pp_layer_at(l, s[PP_S_DLATENT_RAW], d->low);
    for (size_t h = 0; h < d->NH; h++) {
        size_t at = d->w.q + h * d->qk + d->nope;
        PP_LAYER_RUN(k->copy(h ? one : sum, pp_layer_at(l, s[PP_S_DQKV], at),
                             d->T, d->rope, d->rope, d->w.qkv, l->env->stream));
        if (h)
            PP_LAYER_RUN(k->add(sum, sum, one, d->T * d->rope, l->env->stream));
    }
    PP_LAYER_RUN(
        k->copy(shared, sum, d->T, d->rope, d->raw, d->rope, l->env->stream));
    return rotate_part(l, mb, shared, 1, d->raw, d->rope, -1, err);
}

/* Writes the gradients of the latent values from DQKV. */
static int latents_bwd(const struct pp_layer *l, const struct pp_microbatch *mb,
                       const struct latent *d, void *const *s, void *scratch,
                       struct pp_err *err)
{
    const struct pp_kernels *k = l->env->kernels;
    const struct low_rank q = low_queries(d), kv = low_keys(d);
    void *sum = pp_layer_at(l, scratch, d->T * d->up);
    void *one = pp_layer_at(l, sum, d->T * d->rope);
    if (shared_keys_bwd(l, mb, d, s, sum, one, err) ||
        copy_up(l, d, s[PP_S_DQKV], scratch, true, err))
        return -1;
    PP_LAYER_RUN(k->linear_bwd_input(pp_layer_at(l, s[PP_S_DLATENT], kv.at),
                                     scratch, l->w[PP_P_KV_B], d->T, d->kv_rank,
                                     d->up, d->low, d->up, l->env->stream));
    if (latent_norm_bwd_input(l, d, &kv, s, err))
        return -1;
    if (!d->q_rank)
        return 0;
    PP_LAYER_RUN(k->linear_bwd_input(s[PP_S_DLATENT], s[PP_S_DQKV],
                                     l->w[PP_P_Q_B], d->T, d->q_rank, d->w.q,
                                     d->low, d->w.qkv, l->env->stream));
    return latent_norm_bwd_input(l, d, &q, s, err);
}

/* Writes the gradient of the normed input; product is (T, C). */
static int input_bwd(const struct pp_layer *l, const struct pp_microbatch *mb,
                     const struct latent *d, const struct pp_layer_blocks *b,
                     void *const *s, void *product, struct pp_err *err)
{
    const struct pp_kernels *k = l->env->kernels;
    void *dx = pp_layer_part(l, b, s[PP_S_DNORM1]);
    size_t slot = d->q_rank ? PP_P_Q_A : PP_P_Q;
    PP_LAYER_RUN(k->linear_bwd_input(
        dx, s[d->q_rank ? PP_S_DLATENT_RAW : PP_S_DQKV], l->w[slot], d->T, d->C,
        d->q_rank ? d->q_rank : d->w.q, d->C, d->q_rank ? d->raw : d->w.qkv,
        l->env->stream));
    PP_LAYER_RUN(k->linear_bwd_input(
        product, pp_layer_at(l, s[PP_S_DLATENT_RAW], d->q_rank),
        l->w[PP_P_KV_A], d->T, d->C, d->kv_rank + d->rope, d->C, d->raw,
        l->env->stream));
    PP_LAYER_RUN(k->add(dx, dx, product, d->T * d->C, l->env->stream));
    return pp_layer_reduce(l, mb, b, s[PP_S_DNORM1], err);
}

static int latent_bwd_input(const struct pp_layer *l,
                            const struct pp_microbatch *mb, const void *dy,
                            const struct pp_layer_blocks *b, void *const *s,
                            void *scratch, struct pp_err *err)
{
    const struct latent d = latent_of(l, mb);
    return pp_attention_heads_bwd(l, mb, dy, b, s, scratch, err) ||
                   rotate_part(l, mb, pp_layer_at(l, s[PP_S_DQKV], d.nope),
                               d.NH, d.w.qkv, d.qk, -1, err) ||
                   latents_bwd(l, mb, &d, s, scratch, err) ||
                   input_bwd(l, mb, &d, b, s, scratch, err)
               ? -1
               : 0;
}

/* --- weight gradient --- */

static int latent_norm_bwd_weight(const struct pp_layer *l,
                                  const struct latent *d,
                                  const struct low_rank *p, void *const *s,
                                  struct pp_err *err)
{
    if (l->g[p->p_norm])
        PP_LAYER_RUN(l->env->kernels->rmsnorm_bwd_weight(
            l->g[p->p_norm], pp_layer_at(l, s[PP_S_DLATENT], p->at),
            pp_layer_at(l, s[PP_S_LATENT_RAW], p->at),
            pp_layer_statistic_at(l, s[PP_S_LATENT_RSTD], p->norm), d->T, 1,
            p->rank, d->low, d->raw, d->norms, l->env->stream));
    return 0;
}

/* The weights of a product of x, whose rows have ldx elements. */
static int product_bwd_weight(const struct pp_layer *l, const struct latent *d,
                              size_t slot, void *bias, const void *dy,
                              size_t outputs, size_t lddy, const void *x,
                              size_t inputs, size_t ldx, struct pp_err *err)
{
    if (l->g[slot])
        PP_LAYER_RUN(l->env->kernels->linear_bwd_weight(
            l->g[slot], bias, dy, x, d->T, inputs, outputs, lddy, ldx,
            l->env->stream));
    return 0;
}

/* The weights of heads; up is (T, d->up). */
static int heads_bwd_weight(const struct pp_layer *l, const struct latent *d,
                            void *const *s, void *up, struct pp_err *err)
{
    const struct low_rank q = low_queries(d), kv = low_keys(d);
    if (copy_up(l, d, s[PP_S_DQKV], up, true, err) ||
        product_bwd_weight(l, d, PP_P_KV_B, NULL, up, d->up, d->up,
                           pp_layer_at(l, s[PP_S_LATENT], kv.at), d->kv_rank,
                           d->low, err) ||
        latent_norm_bwd_weight(l, d, &kv, s, err))
        return -1;
    if (!d->q_rank)
        return 0;
    return product_bwd_weight(l, d, PP_P_Q_B, NULL, s[PP_S_DQKV], d->w.q,
                              d->w.qkv, s[PP_S_LATENT], d->q_rank, d->low,
                              err) ||
                   latent_norm_bwd_weight(l, d, &q, s, err)
               ? -1
               : 0;
}

static int latent_bwd_weight(const struct pp_layer *l,
                             const struct pp_microbatch *mb,
                             const struct pp_layer_blocks *b, void *const *s,
                             void *scratch, struct pp_err *err)
{
    const struct latent d = latent_of(l, mb);
    const struct pp_joined o = pp_attention_output(l);
    if (pp_layer_join_bwd_weight(l, mb, b, s[PP_S_DOUT1], s[PP_S_ATTN], &o,
                                 err) ||
        heads_bwd_weight(l, &d, s, scratch, err))
        return -1;
    const void *x = pp_layer_gather(l, mb, b, s[PP_S_NORM1], err);
    if (!x || product_bwd_weight(l, &d, PP_P_KV_A, l->g[PP_P_KV_A_BIAS],
                                 pp_layer_at(l, s[PP_S_DLATENT_RAW], d.q_rank),
                                 d.kv_rank + d.rope, d.raw, x, d.C, d.C, err))
        return -1;
    return d.q_rank ? product_bwd_weight(l, &d, PP_P_Q_A, l->g[PP_P_Q_A_BIAS],
                                         s[PP_S_DLATENT_RAW], d.q_rank, d.raw,
                                         x, d.C, d.C, err)
                    : product_bwd_weight(l, &d, PP_P_Q, NULL, s[PP_S_DQKV],
                                         d.w.q, d.w.qkv, x, d.C, d.C, err);
}

const struct pp_block_ops pp_part_latent_attention = {
    .fwd = latent_fwd,
    .recompute = pp_attention_heads_fwd,
    .bwd_input = latent_bwd_input,
    .bwd_weight = latent_bwd_weight,
};
