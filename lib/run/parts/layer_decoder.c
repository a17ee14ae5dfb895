/* SPDX-License-Identifier: MIT */
/* layer_decoder - a decoder layer of four parts: mid = x + attention(norm(x)),
 * y = mid + mlp(norm(mid)).
 *
 * I computes all gradients of activations, and keeps in the grad_w block what W
 * multiplies. W is products and sums only. */
#include "run/parts/layer_impl.h"

struct decoder {
    const struct pp_norm_ops *norm;
    const struct pp_block_ops *attention, *mlp;
    const struct pp_norm_slots *first, *second;
};

static struct decoder decoder_of(const struct pp_layer *l)
{
    struct pp_model_part parts[PP_MAX_PARTS];
    pp_unit_parts(l->env->model, l->unit, parts);
    return (struct decoder){
        pp_norm_ops(parts[0].kind), pp_block_ops(parts[1].kind),
        pp_block_ops(parts[3].kind), &pp_norm_slots[parts[0].place],
        &pp_norm_slots[parts[2].place]};
}

static int decoder_fwd(const struct pp_layer *l, const struct pp_microbatch *mb,
                       void *y, const void *x, const struct pp_layer_blocks *b,
                       void *scratch, struct pp_err *err)
{
    struct decoder d = decoder_of(l);
    size_t R = pp_layer_rows(l, mb), C = l->env->model->hidden;
    void *s[PP_MAX_SAVED];
    pp_layer_saved(l, pp_layer_room(mb->tokens, mb->room), PP_IN_FORWARD, b, s);
    PP_LAYER_RUN(
        l->env->kernels->copy(s[PP_S_X], x, R, C, C, C, l->env->stream));
    return d.norm->fwd(l, d.first, R, s[PP_S_NORM1], s[PP_S_X], s, err) ||
                   d.attention->fwd(l, mb, s[PP_S_MID], b, s, scratch, err) ||
                   d.norm->fwd(l, d.second, R, s[PP_S_NORM2], s[PP_S_MID], s,
                               err) ||
                   d.mlp->fwd(l, mb, y, b, s, scratch, err)
               ? -1
               : 0;
}

/* Computes again what the forward did not keep. The kernels and their inputs
 * are those of the forward, so the bits are the same. */
static int recompute(const struct pp_layer *l, const struct decoder *d,
                     const struct pp_microbatch *mb,
                     const struct pp_layer_blocks *b, void *const *s,
                     void *scratch, struct pp_err *err)
{
    size_t R = pp_layer_rows(l, mb);
    return d->norm->fwd(l, d->first, R, s[PP_S_NORM1], s[PP_S_X], s, err) ||
                   d->attention->recompute(l, mb, b, s, scratch, err) ||
                   d->norm->fwd(l, d->second, R, s[PP_S_NORM2], s[PP_S_MID], s,
                                err) ||
                   d->mlp->recompute(l, mb, b, s, scratch, err)
               ? -1
               : 0;
}

static int decoder_bwd_input(const struct pp_layer *l,
                             const struct pp_microbatch *mb, void *dx,
                             const void *dy, const struct pp_layer_blocks *b,
                             void *scratch, struct pp_err *err)
{
    struct decoder d = decoder_of(l);
    const struct pp_kernels *k = l->env->kernels;
    size_t R = pp_layer_rows(l, mb), C = l->env->model->hidden;
    void *s[PP_MAX_SAVED];
    pp_layer_saved(l, pp_layer_room(mb->tokens, mb->room), PP_IN_BACKWARD, b,
                   s);
    if (l->recompute && recompute(l, &d, mb, b, s, scratch, err))
        return -1;
    PP_LAYER_RUN(k->copy(s[PP_S_DY], dy, R, C, C, C, l->env->stream));
    if (d.mlp->bwd_input(l, mb, dy, b, s, scratch, err) ||
        d.norm->bwd_input(l, d.second, R, s[PP_S_DMID], s[PP_S_DNORM2], s, err))
        return -1;
    PP_LAYER_RUN(k->add(s[PP_S_DMID], s[PP_S_DMID], dy, R * C, l->env->stream));
    if (d.attention->bwd_input(l, mb, s[PP_S_DMID], b, s, scratch, err) ||
        d.norm->bwd_input(l, d.first, R, dx, s[PP_S_DNORM1], s, err))
        return -1;
    PP_LAYER_RUN(k->add(dx, dx, s[PP_S_DMID], R * C, l->env->stream));
    return 0;
}

static int decoder_bwd_weight(const struct pp_layer *l,
                              const struct pp_microbatch *mb,
                              const struct pp_layer_blocks *b, void *scratch,
                              struct pp_err *err)
{
    struct decoder d = decoder_of(l);
    size_t R = pp_layer_rows(l, mb);
    void *s[PP_MAX_SAVED];
    pp_layer_saved(l, pp_layer_room(mb->tokens, mb->room), PP_IN_BACKWARD, b,
                   s);
    return d.mlp->bwd_weight(l, mb, b, s, scratch, err) ||
                   d.norm->bwd_weight(l, d.second, R, s, err) ||
                   d.attention->bwd_weight(l, mb, b, s, scratch, err) ||
                   d.norm->bwd_weight(l, d.first, R, s, err)
               ? -1
               : 0;
}

const struct pp_layer_ops pp_layer_decoder = {
    .fwd = decoder_fwd,
    .bwd_input = decoder_bwd_input,
    .bwd_weight = decoder_bwd_weight,
};
