/* SPDX-License-Identifier: MIT */
/* decoder - a decoder layer of two blocks: mid = x + attention(norm(x)),
 * y = mid + mlp(norm(mid)). A family may have a second norm behind each block,
 * mid = x + norm(attention(norm(x))), or that one alone. Parallel blocks read
 * the same norm: y = mid + mlp(norm(x)).
 *
 * I computes all gradients of activations, and keeps in the grad_w block what W
 * multiplies. W is products and sums only. */
#include "run/parts/layer_impl.h"

struct block {
    const struct pp_block_ops *ops;
    const struct pp_norm_slots *before, *after; /* NULL: no such norm */
};

/* The blocks of a layer, and its call with their saved tensors. */
struct decoder {
    struct block attention, mlp;
    bool parallel;
    struct pp_call call;
};

static void find_blocks(const struct pp_call *c, struct decoder *d)
{
    struct pp_model_part parts[PP_MAX_PARTS];
    size_t n = pp_unit_parts(c->m, c->l->unit, parts);
    const struct pp_norm_slots **place[PP_N_NORM_PLACES] = {
        [PP_BEFORE_ATTENTION] = &d->attention.before,
        [PP_AFTER_ATTENTION] = &d->attention.after,
        [PP_BEFORE_MLP] = &d->mlp.before,
        [PP_AFTER_MLP] = &d->mlp.after,
    };
    for (size_t i = 0; i < n; i++) {
        const struct pp_block_ops *ops = pp_block_ops(parts[i].kind);
        if (parts[i].kind == pp_family_of(c->m->architecture)->norm)
            *place[parts[i].place] = &pp_norm_slots[parts[i].place];
        else if (ops && !d->attention.ops)
            d->attention.ops = ops;
        else if (ops)
            d->mlp.ops = ops;
    }
}

/* Without a norm before a block, the slot of its output is the block's input;
 * without one after it, the slot of the gradient of its input is the block's.
 * dx is that of I, where the first block without a norm writes. */
static struct decoder decoder_of(const struct pp_call *c, void *dx)
{
    struct decoder d = {.call = *c,
                        .parallel = pp_family_of(c->m->architecture)->parallel};
    void **s = d.call.s;
    find_blocks(c, &d);
    if (d.parallel) {
        s[PP_S_NORM2] = s[PP_S_NORM1];
        s[PP_S_DMID] = s[PP_S_DY];
    }
    if (!d.attention.before) {
        s[PP_S_NORM1] = s[PP_S_X];
        s[PP_S_DNORM1] = dx;
    }
    if (!d.mlp.before && !d.parallel) {
        s[PP_S_NORM2] = s[PP_S_MID];
        s[PP_S_DNORM2] = s[PP_S_DMID];
    }
    if (!d.attention.after)
        s[PP_S_DOUT1] = s[PP_S_DMID];
    if (!d.mlp.after)
        s[PP_S_DOUT2] = s[PP_S_DY];
    return d;
}

static void norm_before(const struct pp_call *c, const struct block *k)
{
    if (k->before)
        pp_norm_fwd(c, k->before, c->R, c->s[k->before->y], NULL);
}

/* y = x + the last product of the block, with the norm after it */
static void block_output(const struct pp_call *c, const struct block *k,
                         void *y, const void *x)
{
    const struct pp_norm_slots *n = k->after;
    k->ops->last(c, n ? c->s[n->x] : y, n ? NULL : x);
    if (n)
        pp_norm_fwd(c, n, c->R, y, x);
}

/* y = x + the block, with its norms */
static void block_fwd(const struct pp_call *c, const struct block *k, void *y,
                      const void *x)
{
    norm_before(c, k);
    if (!k->ops->whole)
        k->ops->inner(c, PP_RECOMPUTE_FULL);
    block_output(c, k, y, x);
}

static void decoder_fwd(const struct pp_call *call, void *y, const void *x)
{
    const struct decoder d = decoder_of(call, NULL);
    block_fwd(&d.call, &d.attention, d.call.s[PP_S_MID], x);
    block_fwd(&d.call, &d.mlp, y, d.call.s[PP_S_MID]);
}

/* Computes again what the forward did not keep. The kernels and their inputs
 * are the forward's, so the bits are the same. An MLP's output is needed
 * only by the norm after it. */
static void recompute(const struct pp_call *c, const struct decoder *d)
{
    enum pp_recompute parts = pp_layer_recomputes(c);
    bool outputs = parts & PP_AGAIN_OUTPUTS, norms = parts & PP_AGAIN_NORMS,
         last = outputs && d->mlp.after;
    if (norms)
        norm_before(c, &d->attention);
    d->attention.ops->inner(c, parts);
    if (outputs)
        block_output(c, &d->attention, c->s[PP_S_MID], c->s[PP_S_X]);
    if (norms)
        norm_before(c, &d->mlp);
    if (!last || !d->mlp.ops->whole)
        d->mlp.ops->inner(c, parts);
    if (last)
        d->mlp.ops->last(c, c->s[PP_S_OUT2], NULL);
}

/* Computes dx from dy, the gradient of the block's sum. Without a norm before
 * it, the block writes dx. */
static void block_bwd_input(const struct pp_call *c, const struct block *k,
                            void *dx, const void *dy)
{
    const struct pp_norm_slots *n = k->after;
    if (n)
        pp_norm_bwd_input(c, n, c->R, c->s[n->dx], dy, NULL);
    k->ops->bwd_input(c, n ? c->s[n->dx] : dy);
    if (k->before)
        pp_norm_bwd_input(c, k->before, c->R, dx, c->s[k->before->dy], dy);
    else
        PP_RUN(c, add, dx, dx, dy, c->R * c->C);
}

static void parallel_bwd_input(const struct decoder *d, void *dx,
                               const void *dy)
{
    const struct pp_call *c = &d->call;
    void *sum = c->s[PP_S_DNORM1];
    d->mlp.ops->bwd_input(c, dy);
    d->attention.ops->bwd_input(c, dy);
    PP_RUN(c, add, sum, sum, c->s[PP_S_DNORM2], c->R * c->C);
    pp_norm_bwd_input(c, d->attention.before, c->R, dx, sum, dy);
}

static void decoder_bwd_input(const struct pp_call *call, void *dx,
                              const void *dy)
{
    const struct decoder d = decoder_of(call, dx);
    if (pp_layer_recomputes(call))
        recompute(&d.call, &d);
    if (d.parallel) {
        parallel_bwd_input(&d, dx, dy);
        return;
    }
    block_bwd_input(&d.call, &d.mlp, d.call.s[PP_S_DMID], dy);
    block_bwd_input(&d.call, &d.attention, dx, d.call.s[PP_S_DMID]);
}

static void block_bwd_weight(const struct pp_call *c, const struct block *k)
{
    if (k->after)
        pp_norm_bwd_weight(c, k->after, c->R);
    k->ops->bwd_weight(c);
    if (k->before)
        pp_norm_bwd_weight(c, k->before, c->R);
}

static void decoder_bwd_weight(const struct pp_call *call)
{
    const struct decoder d = decoder_of(call, NULL);
    block_bwd_weight(&d.call, &d.mlp);
    block_bwd_weight(&d.call, &d.attention);
}

static void decoder_bwd(const struct pp_call *call, void *dx, const void *dy)
{
    struct pp_call c = *call;
    c.both = true;
    decoder_bwd_input(&c, dx, dy);
    decoder_bwd_weight(&c);
}

const struct pp_layer_ops pp_layer_decoder = {
    .fwd = decoder_fwd,
    .bwd_input = decoder_bwd_input,
    .bwd_weight = decoder_bwd_weight,
    .bwd = decoder_bwd,
    .x = PP_S_X,
    .dy = PP_S_DY,
};
