/* SPDX-License-Identifier: MIT */
/* mtp - a layer for multi-token prediction (DeepSeek-AI, "DeepSeek-V3
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
static struct mtp_rows half(const struct pp_call *c, const void *x,
                            size_t which)
{
    return (struct mtp_rows){pp_at(c, x, which * c->C), 2 * c->C};
}

static void *rstd_of(const struct pp_call *c, size_t norm)
{
    return pp_statistic_at(c, c->s[PP_S_MTP_RSTD], norm * c->R);
}

static void mtp_norm_fwd(const struct pp_call *c, size_t norm,
                         struct mtp_rows y)
{
    PP_RUN(c, rmsnorm_fwd, y.at, rstd_of(c, norm), c->s[norms[norm].x],
           c->w[norms[norm].weight], NULL, c->R, 1, c->C, y.ld, 1, c->C,
           pp_norm_shift(c->m), c->m->norm_eps, NULL);
}

static void mtp_norm_bwd_input(const struct pp_call *c, size_t norm, void *dx,
                               struct mtp_rows dy)
{
    PP_RUN(c, rmsnorm_bwd_input, dx, dy.at, c->s[norms[norm].x],
           rstd_of(c, norm), c->w[norms[norm].weight], NULL, c->R, 1, c->C,
           c->C, dy.ld, c->C, 1, pp_norm_shift(c->m), NULL);
}

static void mtp_norm_bwd_weight(const struct pp_call *c, size_t norm,
                                struct mtp_rows dy)
{
    if (c->g[norms[norm].weight])
        PP_RUN(c, rmsnorm_bwd_weight, pp_call_gradient(c, norms[norm].weight),
               dy.at, c->s[norms[norm].x], rstd_of(c, norm), c->R, 1, c->C,
               dy.ld, c->C, 1);
}

/* Writes JOINED from its two halves. */
static void norm_inputs(const struct pp_call *c)
{
    for (size_t k = NEXT; k <= TRUNK; k++)
        mtp_norm_fwd(c, k, half(c, c->s[PP_S_JOINED], k));
}

static struct pp_product join(const struct pp_call *c)
{
    return (struct pp_product){PP_P_JOIN, PP_NO_SLOT, 2 * c->C, c->C};
}

static void mtp_fwd(const struct pp_call *c, void *y, const void *x)
{
    const struct pp_product p = join(c);
    size_t R = c->R, C = c->C;
    PP_RUN(c, copy, y, x, R, C, 2 * C, C);
    if (!c->mb->ahead.loss) {
        PP_RUN(c, copy, half(c, y, 1).at, x, R, C, 2 * C, C);
        return;
    }
    PP_RUN(c, copy, c->s[PP_S_TRUNK], x, R, C, C, C);
    PP_RUN(c, embedding_fwd, pp_layer_part(c, c->s[PP_S_NEXT]),
           c->mb->ahead.next_ids, c->w[PP_P_NEXT_EMBED], c->T, C);
    pp_layer_reduce(c, c->s[PP_S_NEXT]);
    norm_inputs(c);
    pp_product_fwd(c, &p, R, c->s[PP_S_X], c->s[PP_S_JOINED], NULL);
    pp_layer_decoder.fwd(c, c->s[PP_S_MTP_OUT], c->s[PP_S_X]);
    mtp_norm_fwd(c, LAST, half(c, y, 1));
}

static void mtp_bwd_input(const struct pp_call *c, void *dx, const void *dy)
{
    const struct pp_product p = join(c);
    size_t R = c->R, C = c->C;
    struct mtp_rows dm = half(c, dy, 1), last = {c->s[PP_S_DMTP], C};
    void *dnext = c->s[PP_S_DNEXT];
    PP_RUN(c, copy, last.at, dm.at, R, C, C, dm.ld);
    mtp_norm_bwd_input(c, LAST, c->s[PP_S_DY], last);
    pp_layer_decoder.bwd_input(c, c->s[PP_S_DJOIN], c->s[PP_S_DY]);
    if (pp_layer_recomputes(c) & PP_AGAIN_NORMS)
        norm_inputs(c);
    pp_product_bwd_input(c, &p, R, c->s[PP_S_DJOINED], c->s[PP_S_DJOIN]);
    mtp_norm_bwd_input(c, TRUNK, dx, half(c, c->s[PP_S_DJOINED], TRUNK));
    /* DNEXT lends its room to the gradient of x in y. */
    PP_RUN(c, copy, dnext, dy, R, C, C, 2 * C);
    PP_RUN(c, add, dx, dx, dnext, R * C);
    mtp_norm_bwd_input(c, NEXT, dnext, half(c, c->s[PP_S_DJOINED], NEXT));
}

static void mtp_bwd_weight(const struct pp_call *c)
{
    const struct pp_product p = join(c);
    mtp_norm_bwd_weight(c, LAST, (struct mtp_rows){c->s[PP_S_DMTP], c->C});
    pp_layer_decoder.bwd_weight(c);
    pp_product_bwd_weight(c, &p, c->R, c->s[PP_S_DJOIN], c->s[PP_S_JOINED]);
    for (size_t n = NEXT; n <= TRUNK; n++)
        mtp_norm_bwd_weight(c, n, half(c, c->s[PP_S_DJOINED], n));
    const void *dnext = pp_layer_gather(c, c->s[PP_S_DNEXT]);
    PP_RUN(c, embedding_bwd_weight, pp_call_gradient(c, PP_P_NEXT_EMBED), dnext,
           c->mb->ahead.next_ids, c->T, c->C);
}

const struct pp_layer_ops pp_layer_mtp = {
    .fwd = mtp_fwd,
    .bwd_input = mtp_bwd_input,
    .bwd_weight = mtp_bwd_weight,
    .x = PP_NO_SLOT,
    .dy = PP_NO_SLOT,
};
