/* SPDX-License-Identifier: MIT */
/* layer_mtp - a layer for multi-token prediction (DeepSeek-AI, "DeepSeek-V3
 * Technical Report", 2024, section 2.2). The row of position t joins the
 * trunk's output with the embedding of the token of t + 1, each after a norm,
 *
 *   m = norm(decoder(join [norm(embedding(next)), norm(x)])),   y = [x, m]
 *
 * and the head predicts the token of t + 1 from x, and that of t + 2 from m. A
 * row at the end of a sequence has no next token: its embedding is zero. In a
 * pass without this loss, m is x, and nobody reads it.
 *
 * The embedding is a copy, whose gradient SYNC_TIED adds to the other's. */
#include "run/parts/layer_impl.h"

enum { NEXT, TRUNK, LAST }; /* norms */

/* The norms, by slots. A norm's output or its gradient is one of two halves of
 * rows of 2 hidden, unless it is the last one. */
static const struct {
    int weight, x;
} norms[] = {[NEXT] = {PP_P_NEXT_NORM, PP_S_NEXT},
             [TRUNK] = {PP_P_TRUNK_NORM, PP_S_TRUNK},
             [LAST] = {PP_P_MTP_NORM, PP_S_MTP_OUT}};

/* Rows of hidden elements, ld apart. */
struct mtp_rows {
    void *at;
    size_t ld;
};

/* Returns the first or the second half of rows of 2 hidden. */
static struct mtp_rows half(const struct pp_layer *l, const void *x,
                            size_t which)
{
    size_t C = l->env->model->hidden;
    return (struct mtp_rows){pp_layer_at(l, x, which * C), 2 * C};
}

static void *rstd_of(const struct pp_layer *l, size_t R, size_t norm,
                     void *const *s)
{
    return pp_layer_statistic_at(l, s[PP_S_MTP_RSTD], norm * R);
}

static int mtp_norm_fwd(const struct pp_layer *l, size_t R, size_t norm,
                        struct mtp_rows y, void *const *s, struct pp_err *err)
{
    const struct pp_model *m = l->env->model;
    size_t C = m->hidden;
    PP_LAYER_RUN(l->env->kernels->rmsnorm_fwd(
        y.at, rstd_of(l, R, norm, s), s[norms[norm].x],
        l->w[norms[norm].weight], NULL, R, 1, C, y.ld, 1, C, pp_norm_shift(m),
        m->norm_eps, NULL, l->env->stream));
    return 0;
}

static int mtp_norm_bwd_input(const struct pp_layer *l, size_t R, size_t norm,
                              void *dx, struct mtp_rows dy, void *const *s,
                              struct pp_err *err)
{
    const struct pp_model *m = l->env->model;
    size_t C = m->hidden;
    PP_LAYER_RUN(l->env->kernels->rmsnorm_bwd_input(
        dx, dy.at, s[norms[norm].x], rstd_of(l, R, norm, s),
        l->w[norms[norm].weight], NULL, R, 1, C, C, dy.ld, C, 1,
        pp_norm_shift(m), NULL, l->env->stream));
    return 0;
}

static int mtp_norm_bwd_weight(const struct pp_layer *l, size_t R, size_t norm,
                               struct mtp_rows dy, void *const *s,
                               struct pp_err *err)
{
    size_t C = l->env->model->hidden;
    void *dw = l->g[norms[norm].weight];
    if (dw)
        PP_LAYER_RUN(l->env->kernels->rmsnorm_bwd_weight(
            dw, dy.at, s[norms[norm].x], rstd_of(l, R, norm, s), R, 1, C, dy.ld,
            C, 1, l->env->stream));
    return 0;
}

/* Writes JOINED from its two halves. */
static int norm_inputs(const struct pp_layer *l, size_t R, void *const *s,
                       struct pp_err *err)
{
    for (size_t k = NEXT; k <= TRUNK; k++)
        if (mtp_norm_fwd(l, R, k, half(l, s[PP_S_JOINED], k), s, err))
            return -1;
    return 0;
}

static void find_mtp_saved(const struct pp_layer *l,
                           const struct pp_microbatch *mb,
                           enum pp_saved_when when,
                           const struct pp_layer_blocks *b,
                           void *s[PP_MAX_SAVED])
{
    pp_layer_saved(l, pp_layer_room(mb->tokens, mb->room), when, b, s);
}

/* The decoder layer begins with a copy of its input, so that MTP_OUT may hold
 * it. */
static int mtp_fwd(const struct pp_layer *l, const struct pp_microbatch *mb,
                   void *y, const void *x, const struct pp_layer_blocks *b,
                   void *scratch, struct pp_err *err)
{
    const struct pp_kernels *k = l->env->kernels;
    size_t R = pp_layer_rows(l, mb), C = l->env->model->hidden;
    void *s[PP_MAX_SAVED], *stream = l->env->stream;
    find_mtp_saved(l, mb, PP_IN_FORWARD, b, s);
    PP_LAYER_RUN(k->copy(y, x, R, C, 2 * C, C, stream));
    if (!mb->ahead) {
        PP_LAYER_RUN(k->copy(half(l, y, 1).at, x, R, C, 2 * C, C, stream));
        return 0;
    }
    PP_LAYER_RUN(k->copy(s[PP_S_TRUNK], x, R, C, C, C, stream));
    PP_LAYER_RUN(k->embedding_fwd(pp_layer_part(l, b, s[PP_S_NEXT]),
                                  mb->next_ids, l->w[PP_P_NEXT_EMBED],
                                  mb->tokens, C, stream));
    if (pp_layer_reduce(l, mb, b, s[PP_S_NEXT], err) ||
        norm_inputs(l, R, s, err))
        return -1;
    PP_LAYER_RUN(k->linear_fwd(s[PP_S_MTP_OUT], s[PP_S_JOINED], l->w[PP_P_JOIN],
                               NULL, NULL, R, 2 * C, C, C, 2 * C, stream));
    return pp_layer_decoder.fwd(l, mb, s[PP_S_MTP_OUT], s[PP_S_MTP_OUT], b,
                                scratch, err) ||
                   mtp_norm_fwd(l, R, LAST, half(l, y, 1), s, err)
               ? -1
               : 0;
}

/* dx holds the gradient of the decoder layer's output before its own. */
static int mtp_bwd_input(const struct pp_layer *l,
                         const struct pp_microbatch *mb, void *dx,
                         const void *dy, const struct pp_layer_blocks *b,
                         void *scratch, struct pp_err *err)
{
    const struct pp_kernels *k = l->env->kernels;
    size_t R = pp_layer_rows(l, mb), C = l->env->model->hidden;
    void *s[PP_MAX_SAVED], *stream = l->env->stream;
    find_mtp_saved(l, mb, PP_IN_BACKWARD, b, s);
    struct mtp_rows dm = half(l, dy, 1), last = {s[PP_S_DMTP], C};
    PP_LAYER_RUN(k->copy(last.at, dm.at, R, C, C, dm.ld, stream));
    if (mtp_norm_bwd_input(l, R, LAST, dx, last, s, err) ||
        pp_layer_decoder.bwd_input(l, mb, s[PP_S_DJOIN], dx, b, scratch, err) ||
        (l->recompute && norm_inputs(l, R, s, err)))
        return -1;
    PP_LAYER_RUN(k->linear_bwd_input(s[PP_S_DJOINED], s[PP_S_DJOIN],
                                     l->w[PP_P_JOIN], R, 2 * C, C, 2 * C, C,
                                     stream));
    if (mtp_norm_bwd_input(l, R, TRUNK, dx, half(l, s[PP_S_DJOINED], TRUNK), s,
                           err))
        return -1;
    /* DNEXT lends its room to the gradient of x in y. */
    PP_LAYER_RUN(k->copy(s[PP_S_DNEXT], dy, R, C, C, 2 * C, stream));
    PP_LAYER_RUN(k->add(dx, dx, s[PP_S_DNEXT], R * C, stream));
    return mtp_norm_bwd_input(l, R, NEXT, s[PP_S_DNEXT],
                              half(l, s[PP_S_DJOINED], NEXT), s, err);
}

static int mtp_bwd_weight(const struct pp_layer *l,
                          const struct pp_microbatch *mb,
                          const struct pp_layer_blocks *b, void *scratch,
                          struct pp_err *err)
{
    const struct pp_kernels *k = l->env->kernels;
    size_t R = pp_layer_rows(l, mb), C = l->env->model->hidden;
    void *s[PP_MAX_SAVED], *stream = l->env->stream;
    find_mtp_saved(l, mb, PP_IN_BACKWARD, b, s);
    if (mtp_norm_bwd_weight(l, R, LAST, (struct mtp_rows){s[PP_S_DMTP], C}, s,
                            err) ||
        pp_layer_decoder.bwd_weight(l, mb, b, scratch, err))
        return -1;
    PP_LAYER_RUN(k->linear_bwd_weight(l->g[PP_P_JOIN], NULL, s[PP_S_DJOIN],
                                      s[PP_S_JOINED], R, 2 * C, C, C, 2 * C,
                                      stream));
    for (size_t n = NEXT; n <= TRUNK; n++)
        if (mtp_norm_bwd_weight(l, R, n, half(l, s[PP_S_DJOINED], n), s, err))
            return -1;
    const void *dnext = pp_layer_gather(l, mb, b, s[PP_S_DNEXT], err);
    if (!dnext)
        return -1;
    PP_LAYER_RUN(k->embedding_bwd_weight(l->g[PP_P_NEXT_EMBED], dnext,
                                         mb->next_ids, mb->tokens, C, stream));
    return 0;
}

const struct pp_layer_ops pp_layer_mtp = {
    .fwd = mtp_fwd,
    .bwd_input = mtp_bwd_input,
    .bwd_weight = mtp_bwd_weight,
};
