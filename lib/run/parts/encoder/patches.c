/* SPDX-License-Identifier: MIT */
/* patches - the first unit of an encoder of images: a product of the
 * pixels of each patch, which is a convolution whose windows do not overlap;
 * and, with CLIP, the class token and learned positions.
 *
 * The row of a class token has pixels of 0, so that one product serves all
 * rows. Its W adds nothing to the product's weight for them. */
#include "run/parts/layer_impl.h"

#include <string.h>

#include "base/elements.h"

/* Returns the place of row number i of an image among its pixels, if its
 * features begin with number `first` among all. */
static ptrdiff_t source_of(const struct pp_call *c, size_t first, size_t i)
{
    size_t merge = pp_layer_encoder(c)->merge;
    if (!c->mb->encoder.sources)
        return (ptrdiff_t)i;
    ptrdiff_t feature =
        (ptrdiff_t)c->mb->encoder.sources[first + i / merge] - (ptrdiff_t)first;
    return feature * (ptrdiff_t)merge + (ptrdiff_t)(i % merge);
}

/* Writes the pixels of rows from `at` on, in the type of the layer. */
static void fill_pixels(const struct pp_call *c, void *to, size_t at, size_t n)
{
    const struct pp_vision *v = pp_layer_encoder(c);
    const struct pp_microbatch *mb = &c->mb->host->of;
    size_t P = v->patch_inputs, bytes = c->k->element_bytes;
    size_t skipped = c->w[PP_P_CLASS] ? 1 : 0, end = at + n;
    memset(to, 0, n * P * bytes);
    for (size_t k = 0; k < mb->n_sequences; k++) {
        size_t begin = (size_t)mb->cu_seqlens_padded[k],
               first = begin + skipped;
        size_t last =
            begin + (size_t)(mb->cu_seqlens[k + 1] - mb->cu_seqlens[k]);
        size_t row = first > at ? first : at;
        for (; row < last && row < end; row++) {
            ptrdiff_t source = source_of(c, first / v->merge, row - first);
            pp_elements_convert((char *)to + (row - at) * P * bytes, bytes,
                                mb->encoder.pixels[k] + source * (ptrdiff_t)P,
                                sizeof(float), P);
        }
    }
}

void pp_layer_put_rows(const struct pp_call *c, void *to, size_t width,
                       pp_layer_fill_fn *fill)
{
    size_t row = width * c->k->element_bytes;
    size_t most = PP_PIXEL_ROOM > row ? PP_PIXEL_ROOM / row : 1, n;
    if (pp_env_is_host(c->env)) {
        fill(c, to, 0, c->T);
        return;
    }
    for (size_t at = 0; at < c->T; at += n) {
        n = c->T - at < most ? c->T - at : most;
        fill(c, c->env->pixel_room, at, n);
        pp_call_put(c, (char *)to + at * row, c->env->pixel_room, n * row);
    }
}

static struct pp_product product(const struct pp_call *c)
{
    return (struct pp_product){PP_P_PATCH, PP_NO_SLOT,
                               pp_layer_encoder(c)->patch_inputs, c->C};
}

static void patches_fwd(const struct pp_call *c, void *y, const void *x)
{
    (void)x;
    const struct pp_product p = product(c);
    size_t first = pp_layer_first_row(c);
    pp_layer_put_rows(c, c->s[PP_S_PATCH_X], p.in, fill_pixels);
    pp_product_fwd(c, &p, c->R, y, c->s[PP_S_PATCH_X], NULL);
    if (!c->w[PP_P_CLASS])
        return;
    PP_RUN(c, embedding_add, y, c->mb->input_ids + first, c->w[PP_P_CLASS],
           c->R, c->C);
    PP_RUN(c, embedding_add, y, c->mb->positions + first, c->w[PP_P_POSITIONS],
           c->R, c->C);
}

/* The gradient of y is kept, and nothing reads one of the pixels. */
static void patches_bwd_input(const struct pp_call *c, void *dx, const void *dy)
{
    (void)c, (void)dx, (void)dy;
}

/* Adds the gradients of rows of a table: the class token, or the positions. */
static void add_rows_of(const struct pp_call *c, size_t slot,
                        const int32_t *ids)
{
    if (c->g[slot])
        PP_RUN(c, embedding_bwd_weight, pp_call_gradient(c, slot),
               c->s[PP_S_PATCH_DY], ids + pp_layer_first_row(c), c->R, c->C);
}

static void patches_bwd_weight(const struct pp_call *c)
{
    const struct pp_product p = product(c);
    pp_product_bwd_weight(c, &p, c->R, c->s[PP_S_PATCH_DY], c->s[PP_S_PATCH_X]);
    add_rows_of(c, PP_P_CLASS, c->mb->input_ids);
    add_rows_of(c, PP_P_POSITIONS, c->mb->positions);
}

const struct pp_layer_ops pp_layer_patches = {
    .fwd = patches_fwd,
    .bwd_input = patches_bwd_input,
    .bwd_weight = patches_bwd_weight,
    .x = PP_NO_SLOT,
    .dy = PP_S_PATCH_DY,
};
