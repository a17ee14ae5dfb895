/* SPDX-License-Identifier: MIT */
/* layer_decoder - a decoder layer of two blocks: mid = x + attention(norm(x)),
 * y = mid + mlp(norm(mid)). A family may have a second norm behind each block,
 * mid = x + norm(attention(norm(x))), or that one alone.
 *
 * I computes all gradients of activations, and keeps in the grad_w block what W
 * multiplies. W is products and sums only. */
#include "run/parts/layer_impl.h"

struct decoder_block {
    const struct pp_block_ops *ops;
    const struct pp_norm_slots *before, *after; /* NULL: no such norm */
};

struct decoder {
    const struct pp_norm_ops *norm; /* all norms are of one kind */
    struct decoder_block attention, mlp;
};

static struct decoder decoder_of(const struct pp_layer *l)
{
    struct pp_model_part parts[PP_MAX_PARTS];
    size_t n = pp_unit_parts(l->env->model, l->unit, parts);
    struct decoder d = {.norm = NULL};
    const struct pp_norm_slots **place[PP_N_NORM_PLACES] = {
        [PP_BEFORE_ATTENTION] = &d.attention.before,
        [PP_AFTER_ATTENTION] = &d.attention.after,
        [PP_BEFORE_MLP] = &d.mlp.before,
        [PP_AFTER_MLP] = &d.mlp.after,
    };
    for (size_t i = 0; i < n; i++) {
        const struct pp_norm_ops *norm = pp_norm_ops(parts[i].kind);
        const struct pp_block_ops *block = pp_block_ops(parts[i].kind);
        if (norm) {
            d.norm = norm;
            *place[parts[i].place] = &pp_norm_slots[parts[i].place];
        } else if (block && !d.attention.ops) {
            d.attention.ops = block;
        } else if (block) {
            d.mlp.ops = block;
        }
    }
    return d;
}

/* Finds the saved tensors. Without a norm before a block, the slot of its
 * output is the block's input; without one after it, the slot of the gradient
 * of its input is the block's. In I, bwd_input sets PP_S_DNORM1. */
static void find_saved(const struct pp_layer *l, const struct decoder *d,
                       size_t tokens, enum pp_saved_when when,
                       const struct pp_layer_blocks *b, void *s[PP_MAX_SAVED])
{
    pp_layer_saved(l, tokens, when, b, s);
    if (!d->attention.before)
        s[PP_S_NORM1] = s[PP_S_X];
    if (!d->mlp.before) {
        s[PP_S_NORM2] = s[PP_S_MID];
        s[PP_S_DNORM2] = s[PP_S_DMID];
    }
    if (!d->attention.after)
        s[PP_S_DOUT1] = s[PP_S_DMID];
    if (!d->mlp.after)
        s[PP_S_DOUT2] = s[PP_S_DY];
}

static int norm_before(const struct pp_layer *l, const struct decoder *d,
                       const struct decoder_block *k, size_t R, void *const *s,
                       struct pp_err *err)
{
    const struct pp_norm_slots *n = k->before;
    return n ? d->norm->fwd(l, n, R, s[n->y], s[n->x], NULL, s, err) : 0;
}

/* y = x + the block, with its norms */
static int block_fwd(const struct pp_layer *l, const struct decoder *d,
                     const struct decoder_block *k,
                     const struct pp_microbatch *mb, void *y, const void *x,
                     const struct pp_layer_blocks *b, void *const *s,
                     void *scratch, struct pp_err *err)
{
    const struct pp_norm_slots *n = k->after;
    size_t R = pp_layer_rows(l, mb);
    if (norm_before(l, d, k, R, s, err))
        return -1;
    if (!n)
        return k->ops->fwd(l, mb, y, x, b, s, scratch, err);
    return k->ops->fwd(l, mb, s[n->x], NULL, b, s, scratch, err) ||
                   d->norm->fwd(l, n, R, y, s[n->x], x, s, err)
               ? -1
               : 0;
}

static int decoder_fwd(const struct pp_layer *l, const struct pp_microbatch *mb,
                       void *y, const void *x, const struct pp_layer_blocks *b,
                       void *scratch, struct pp_err *err)
{
    const struct decoder d = decoder_of(l);
    void *s[PP_MAX_SAVED];
    find_saved(l, &d, pp_layer_room(mb->tokens, mb->room), PP_IN_FORWARD, b, s);
    return pp_layer_keep(l, mb, s[PP_S_X], x, err) ||
                   block_fwd(l, &d, &d.attention, mb, s[PP_S_MID], s[PP_S_X], b,
                             s, scratch, err) ||
                   block_fwd(l, &d, &d.mlp, mb, y, s[PP_S_MID], b, s, scratch,
                             err)
               ? -1
               : 0;
}

/* Computes again what the forward did not keep. The kernels and their inputs
 * are those of the forward, so the bits are the same. An MLP's output is needed
 * only by the norm after it. */
static int recompute(const struct pp_layer *l, const struct decoder *d,
                     const struct pp_microbatch *mb,
                     const struct pp_layer_blocks *b, void *const *s,
                     void *scratch, struct pp_err *err)
{
    size_t R = pp_layer_rows(l, mb);
    bool full = l->recompute == PP_RECOMPUTE_FULL;
    if (full ? block_fwd(l, d, &d->attention, mb, s[PP_S_MID], s[PP_S_X], b, s,
                         scratch, err)
             : norm_before(l, d, &d->attention, R, s, err) ||
                   d->attention.ops->recompute(l, mb, b, s, scratch, err))
        return -1;
    if (norm_before(l, d, &d->mlp, R, s, err))
        return -1;
    return full && d->mlp.after
               ? d->mlp.ops->fwd(l, mb, s[PP_S_OUT2], NULL, b, s, scratch, err)
               : d->mlp.ops->recompute(l, mb, b, s, scratch, err);
}

/* Computes dx from dy, the gradient of the block's sum. Without a norm before
 * it, the block writes dx. */
static int block_bwd_input(const struct pp_layer *l, const struct decoder *d,
                           const struct decoder_block *k,
                           const struct pp_microbatch *mb, void *dx,
                           const void *dy, const struct pp_layer_blocks *b,
                           void *const *s, void *scratch, struct pp_err *err)
{
    const struct pp_norm_slots *n = k->after;
    size_t R = pp_layer_rows(l, mb);
    if (n && d->norm->bwd_input(l, n, R, s[n->dx], dy, NULL, s, err))
        return -1;
    if (k->ops->bwd_input(l, mb, n ? s[n->dx] : dy, b, s, scratch, err))
        return -1;
    if (k->before)
        return d->norm->bwd_input(l, k->before, R, dx, s[k->before->dy], dy, s,
                                  err);
    PP_LAYER_RUN(l->env->kernels->add(dx, dx, dy, R * l->env->model->hidden,
                                      l->env->stream));
    return 0;
}

static int decoder_bwd_input(const struct pp_layer *l,
                             const struct pp_microbatch *mb, void *dx,
                             const void *dy, const struct pp_layer_blocks *b,
                             void *scratch, struct pp_err *err)
{
    const struct decoder d = decoder_of(l);
    void *s[PP_MAX_SAVED];
    find_saved(l, &d, pp_layer_room(mb->tokens, mb->room), PP_IN_BACKWARD, b,
               s);
    if (!d.attention.before)
        s[PP_S_DNORM1] = dx;
    if (l->recompute && recompute(l, &d, mb, b, s, scratch, err))
        return -1;
    return pp_layer_keep(l, mb, s[PP_S_DY], dy, err) ||
                   block_bwd_input(l, &d, &d.mlp, mb, s[PP_S_DMID], dy, b, s,
                                   scratch, err) ||
                   block_bwd_input(l, &d, &d.attention, mb, dx, s[PP_S_DMID], b,
                                   s, scratch, err)
               ? -1
               : 0;
}

static int block_bwd_weight(const struct pp_layer *l, const struct decoder *d,
                            const struct decoder_block *k,
                            const struct pp_microbatch *mb,
                            const struct pp_layer_blocks *b, void *const *s,
                            void *scratch, struct pp_err *err)
{
    size_t R = pp_layer_rows(l, mb);
    if (k->after && d->norm->bwd_weight(l, k->after, R, s, err))
        return -1;
    if (k->ops->bwd_weight(l, mb, b, s, scratch, err))
        return -1;
    return k->before ? d->norm->bwd_weight(l, k->before, R, s, err) : 0;
}

static int decoder_bwd_weight(const struct pp_layer *l,
                              const struct pp_microbatch *mb,
                              const struct pp_layer_blocks *b, void *scratch,
                              struct pp_err *err)
{
    const struct decoder d = decoder_of(l);
    void *s[PP_MAX_SAVED];
    find_saved(l, &d, pp_layer_room(mb->tokens, mb->room), PP_IN_BACKWARD, b,
               s);
    return block_bwd_weight(l, &d, &d.mlp, mb, b, s, scratch, err) ||
                   block_bwd_weight(l, &d, &d.attention, mb, b, s, scratch, err)
               ? -1
               : 0;
}

static void *decoder_kept(const struct pp_layer *l,
                          const struct pp_microbatch *mb,
                          enum pp_saved_when when,
                          const struct pp_layer_blocks *b)
{
    void *s[PP_MAX_SAVED];
    pp_layer_saved(l, pp_layer_room(mb->tokens, mb->room), when, b, s);
    return s[when == PP_IN_FORWARD ? PP_S_X : PP_S_DY];
}

const struct pp_layer_ops pp_layer_decoder = {
    .fwd = decoder_fwd,
    .bwd_input = decoder_bwd_input,
    .bwd_weight = decoder_bwd_weight,
    .kept = decoder_kept,
};
