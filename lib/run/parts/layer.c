/* SPDX-License-Identifier: MIT */
/* layer - the tables of unit kinds and parts, calls of layers, and helpers of
 * the files of layers. */
#include "run/parts/layer.h"

#include <string.h>

#include "kernel_sizes.h"
#include "model/inventory.h"
#include "model/lora.h"
#include "model/vision.h"
#include "run/parts/layer_impl.h"
#include "run/parameters/gradients.h"
#include "run/parameters/weights.h"

static const struct pp_layer_ops *ops_of(const struct pp_layer *l)
{
    static const struct pp_layer_ops *const ops[] = {
        [PP_UNIT_EMBED] = &pp_layer_embed,
        [PP_UNIT_LAYER] = &pp_layer_decoder,
        [PP_UNIT_NORM] = &pp_layer_norm,
        [PP_UNIT_HEAD] = &pp_layer_head,
        [PP_UNIT_LOSS] = &pp_layer_loss,
        [PP_UNIT_PATCHES] = &pp_layer_patches,
        [PP_UNIT_PROJECTOR] = &pp_layer_projector,
    };
    const struct pp_model *m = l->env->shard.model;
    if (l->unit.kind == PP_UNIT_PATCHES &&
        pp_vision_hears(pp_unit_encoder(m, l->unit)))
        return &pp_layer_frames;
    if (l->unit.kind == PP_UNIT_HEAD && m->head_stages)
        return &pp_layer_words;
    return pp_unit_is_mtp(m, l->unit) ? &pp_layer_mtp : ops[l->unit.kind];
}

const struct pp_block_ops *pp_block_ops(enum pp_part_kind kind)
{
    static const struct pp_block_ops *const ops[PP_N_PARTS] = {
        [PP_PART_ATTENTION] = &pp_part_attention,
        [PP_PART_LATENT_ATTENTION] = &pp_part_latent_attention,
        [PP_PART_DELTA] = &pp_part_delta,
        [PP_PART_GATED_MLP] = &pp_part_mlp,
        [PP_PART_PLAIN_MLP] = &pp_part_mlp,
        [PP_PART_EXPERTS] = &pp_part_experts,
    };
    return ops[kind];
}

struct pp_backend pp_kernels_backend(const struct pp_kernels *k, bool is_host)
{
    return (struct pp_backend){.element_bytes = k->element_bytes,
                               .accumulator_bytes = k->accumulator_bytes,
                               .head_logits = k->head_logits,
                               .head_rows = k->head_rows,
                               .is_host = is_host};
}

/* --- calls --- */

/* Finds the saved tensors of the unit, by slot, in blocks that are laid out for
 * so many rows. */
static void find_saved(const struct pp_layer *l, size_t rows,
                       enum pp_saved_when when, void *const *blocks,
                       void *at[PP_MAX_SAVED])
{
    struct pp_saved s[PP_MAX_SAVED];
    const struct pp_kernels *k = l->env->kernels;
    size_t n = pp_unit_saved(&l->env->shard, l->unit, l->recompute, when, s);
    for (size_t i = 0; i < n; i++) {
        char *block = blocks[s[i].block];
        size_t statistics = s[i].statistics * rows;
        size_t elements = s[i].offset * rows - statistics;
        at[i] = block ? block + elements * k->element_bytes +
                            statistics * k->accumulator_bytes
                      : NULL;
    }
}

/* Returns the rows that blocks for so many tokens are laid out for. */
static size_t laid_out_rows(const struct pp_layer *l, size_t tokens)
{
    return pp_saved_rows(pp_env_is_host(l->env),
                         tokens / pp_shard_row_ranks(&l->env->shard));
}

/* Returns the bytes of what the adapters of a layer compute. */
static size_t narrow_bytes(const struct pp_layer *l, size_t tokens)
{
    return l->n_adapters
               ? pp_line_bytes(tokens *
                               pp_lora_most(l->env->shard.model->lora) *
                               l->env->kernels->element_bytes)
               : 0;
}

struct pp_call pp_layer_call(const struct pp_layer *l,
                             const struct pp_microbatch *mb,
                             const struct pp_layer_blocks *b,
                             enum pp_saved_when when, struct pp_err *err)
{
    size_t tokens = l->rows >= PP_ROWS_FEATURES
                        ? mb->encoder.n_features
                        : pp_layer_room(mb->tokens, mb->room);
    struct pp_call c = {
        .l = l,
        .mb = mb,
        .env = l->env,
        .m = l->env->shard.model,
        .k = l->env->kernels,
        .w = l->w,
        .g = l->g,
        .T = mb->tokens,
        .R = mb->tokens / pp_shard_row_ranks(&l->env->shard),
        .C = l->env->shard.model->hidden,
        .gathered = b->gathered,
        .summed = b->summed,
        .scratch = (char *)b->scratch + narrow_bytes(l, mb->tokens),
        .narrow = b->scratch,
        .states = b->block[PP_SAVED_STATES],
        .err = err,
    };
    memcpy(c.offset, b->offset, sizeof c.offset);
    find_saved(l, laid_out_rows(l, tokens), when, b->block, c.s);
    return c;
}

struct pp_call pp_call_in(const struct pp_call *c, const struct pp_env *env)
{
    struct pp_call in = *c;
    in.env = env;
    in.m = env->shard.model;
    in.k = env->kernels;
    in.C = env->shard.model->hidden;
    return in;
}

void pp_layer_saved_before(const struct pp_call *c,
                           const struct pp_slice_blocks *slice,
                           void *at[PP_MAX_SAVED])
{
    void *block[PP_N_UNIT_BLOCKS];
    size_t rows =
        laid_out_rows(c->l, pp_layer_room(slice->tokens, slice->room));
    for (int k = 0; k < PP_N_UNIT_BLOCKS; k++) {
        char *base = slice->block[k];
        block[k] = base ? base + c->offset[k] * rows : NULL;
    }
    find_saved(c->l, rows, PP_IN_BACKWARD, block, at);
}

void *pp_layer_kept(const struct pp_call *c, enum pp_saved_when when)
{
    const struct pp_layer_ops *ops = ops_of(c->l);
    int slot = when == PP_IN_FORWARD ? ops->x : ops->dy;
    return slot == PP_NO_SLOT ? NULL : c->s[slot];
}

void pp_layer_lend(struct pp_call *c, void *dy)
{
    if (pp_layer_kept(c, PP_IN_BACKWARD))
        c->s[ops_of(c->l)->dy] = dy;
}

/* Copies the rows of a layer to where it keeps them, unless they are there.
 * Returns where the layer reads them. */
static const void *keep(const struct pp_call *c, enum pp_saved_when when,
                        const void *x)
{
    void *kept = pp_layer_kept(c, when);
    if (kept && x != kept)
        PP_RUN(c, copy, kept, x, c->R, c->C, c->C, c->C);
    return kept ? kept : x;
}

static int result_of(const struct pp_call *c)
{
    return pp_call_failed(c) ? -1 : 0;
}

int pp_layer_fwd(const struct pp_call *c, void *y, const void *x)
{
    ops_of(c->l)->fwd(c, y, keep(c, PP_IN_FORWARD, x));
    return result_of(c);
}

int pp_layer_bwd_input(const struct pp_call *c, void *dx, const void *dy)
{
    ops_of(c->l)->bwd_input(c, dx, keep(c, PP_IN_BACKWARD, dy));
    return result_of(c);
}

int pp_layer_bwd_weight(const struct pp_call *c)
{
    ops_of(c->l)->bwd_weight(c);
    return result_of(c);
}

bool pp_layer_joins(const struct pp_layer *l)
{
    return ops_of(l)->bwd;
}

int pp_layer_bwd(const struct pp_call *c, void *dx, const void *dy)
{
    ops_of(c->l)->bwd(c, dx, keep(c, PP_IN_BACKWARD, dy));
    return result_of(c);
}

void pp_call_check(const struct pp_call *c, int code)
{
    char name[PP_FQN_TEXT];
    if (!code)
        return;
    pp_model_fqn(c->m, c->l->unit, name);
    pp_fail(c->err, PP_EXIT_SYSTEM, "%s: a kernel of %s failed: code %d", name,
            c->k->name, code);
}

void pp_call_stop(const struct pp_call *c)
{
    char name[PP_FQN_TEXT];
    pp_model_fqn(c->m, c->l->unit, name);
    pp_fail(c->err, PP_EXIT_SYSTEM, "%s: an exchange failed", name);
}

/* --- memory --- */

void pp_call_put(const struct pp_call *c, void *to, const void *from,
                 size_t bytes)
{
    struct pp_device *d = c->env->device;
    if (!pp_device_ops(d)->is_host)
        PP_TRY(c, pp_device_ops(d)->put(d, to, from, bytes, c->err));
    else if (!pp_call_failed(c))
        memcpy(to, from, bytes);
}

void pp_call_move(const struct pp_call *c, void *to, const void *from,
                  size_t bytes)
{
    struct pp_device *d = c->env->device;
    PP_TRY(c, pp_device_ops(d)->copy(d, to, from, bytes, c->err));
}

void pp_call_erase(const struct pp_call *c, void *at, size_t bytes)
{
    struct pp_device *d = c->env->device;
    if (bytes)
        PP_TRY(c, pp_device_ops(d)->zero(d, at, bytes, c->err));
}

const void *pp_call_read(const struct pp_call *c, const void *from,
                         size_t bytes, void *room)
{
    return pp_call_failed(c)
               ? NULL
               : pp_device_read(c->env->device, from, bytes, room, c->err);
}

void pp_call_tell(const struct pp_call *c, void *to, const void *from,
                  size_t bytes)
{
    const struct pp_reader *r = &c->env->reader;
    PP_TRY(c, pp_device_follow(r->device, c->env->device, r->event, c->err));
    PP_TRY(c, r->device->ops->copy(r->device, to, from, bytes, c->err));
}

void pp_call_told(const struct pp_call *c)
{
    struct pp_device *d = c->env->reader.device;
    PP_TRY(c, d->ops->wait(d, c->err));
}

/* --- products --- */

static void *slot_at(void *const *parameters, int slot)
{
    return slot == PP_NO_SLOT ? NULL : parameters[slot];
}

static size_t ld(size_t given, size_t width)
{
    return given ? given : width;
}

/* Some consecutive outputs of a product, and their rows of its weights. */
struct outputs {
    size_t first, n;
    const void *w;
};

/* Widens rows of the mapped tensors of a product, for so many outputs that they
 * have room, or finds the rest in place. The bounds depend on the shapes of the
 * tensors alone. */
static void widen(const struct pp_call *c, const struct pp_product *p,
                  struct outputs *o)
{
    const struct pp_parameter *const *t = &c->l->tensor[p->weight];
    size_t before = 0, most = PP_WIDENED / p->in;
    size_t end = o->first + (most > 1 ? most : 1);
    end = end < p->out ? end : p->out;
    o->w = c->env->widened;
    for (size_t at = o->first; at < end && !pp_call_failed(c); t++) {
        size_t rows = *t ? (*t)->piece.rows : 0, next = before + rows;
        if (at < next) {
            const void *rest =
                pp_weights_in_place(c->env->params, *t, at - before);
            if (rest && at == o->first && next >= p->out) {
                o->w = rest;
                end = p->out;
            } else {
                size_t n = (next < end ? next : end) - at;
                void *to = pp_at(c, o->w, (at - o->first) * p->in);
                PP_TRY(c, pp_weights_widen(c->env->params, *t, at - before, n,
                                           to, c->err));
            }
            at = next < end ? next : end;
        }
        before = next;
    }
    o->n = end - o->first;
}

/* Goes on to the next outputs of a product: all, unless its tensors are mapped.
 * Returns false at the end. */
static bool next_outputs(const struct pp_call *c, const struct pp_product *p,
                         struct outputs *o)
{
    const struct pp_parameter *t = c->l->tensor[p->weight];
    o->first += o->n;
    o->n = p->out - o->first;
    o->w = c->w[p->weight];
    if (o->n > 0 && t && t->info.mapped)
        widen(c, p, o);
    return o->n > 0 && !pp_call_failed(c);
}

static const void *behind(const struct pp_call *c, const void *p, size_t n)
{
    return p ? pp_at(c, p, n) : NULL;
}

void pp_product_fwd(const struct pp_call *c, const struct pp_product *p,
                    size_t N, void *y, const void *x, const void *r)
{
    struct outputs o = {0};
    while (next_outputs(c, p, &o))
        PP_RUN(c, linear_fwd, pp_at(c, y, o.first), x, o.w,
               behind(c, slot_at(c->w, p->bias), o.first),
               behind(c, r, o.first), N, p->in, o.n, ld(p->ldy, p->out),
               ld(p->ldx, p->in));
    pp_adapters_fwd(c, p, N, y, x);
}

void pp_product_bwd_input(const struct pp_call *c, const struct pp_product *p,
                          size_t N, void *dx, const void *dy)
{
    struct outputs o = {0};
    while (next_outputs(c, p, &o))
        PP_RUN(c, linear_bwd_input, dx, pp_at(c, dy, o.first), o.w,
               o.first ? dx : NULL, N, p->in, o.n, ld(p->ldx, p->in),
               ld(p->ldy, p->out));
    pp_adapters_bwd_input(c, p, N, dx, dy);
}

/* Prepares n elements of gradients from a slot on; may_write as
 * pp_call_writes, whose result it returns. */
static bool take(const struct pp_call *c, int slot, size_t n, bool may_write)
{
    const struct pp_parameter *t = c->l->tensor[slot];
    bool writes = false;
    if (t && t->g)
        PP_TRY(c, pp_gradients_take(c->env->params, t, n ? n : t->n,
                                    c->env->device, may_write ? &writes : NULL,
                                    c->err));
    return writes;
}

void *pp_call_gradient(const struct pp_call *c, int slot)
{
    take(c, slot, 0, false);
    return c->g[slot];
}

bool pp_call_writes(const struct pp_call *c, int slot, size_t n)
{
    return take(c, slot, n, true);
}

void pp_linear_bwd_weight(const struct pp_call *c, const struct pp_product *p,
                          size_t N, const void *dy, const void *x)
{
    if (!N || !c->g[p->weight])
        return;
    void *db = slot_at(c->g, p->bias);
    bool writes = pp_call_writes(c, p->weight, p->in * p->out);
    if (db)
        take(c, p->bias, p->out, false);
    PP_RUN(c, linear_bwd_weight, c->g[p->weight], db, dy, x, N, p->in, p->out,
           ld(p->ldy, p->out), ld(p->ldx, p->in), writes);
}

void pp_product_bwd_weight(const struct pp_call *c, const struct pp_product *p,
                           size_t N, const void *dy, const void *x)
{
    pp_linear_bwd_weight(c, p, N, dy, x);
    pp_adapters_bwd_weight(c, p, N, dy, x);
}
