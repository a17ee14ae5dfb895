/* SPDX-License-Identifier: MIT */
/* layer_patches - the first unit of an encoder of images: a product of the
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
static ptrdiff_t source_of(const struct pp_layer *l,
                           const struct pp_microbatch *mb, size_t first,
                           size_t i)
{
    size_t merge = pp_layer_encoder(l)->merge;
    if (!mb->sources)
        return (ptrdiff_t)i;
    ptrdiff_t feature =
        (ptrdiff_t)mb->sources[first + i / merge] - (ptrdiff_t)first;
    return feature * (ptrdiff_t)merge + (ptrdiff_t)(i % merge);
}

/* Writes the pixels of rows from `at` on, in the type of the layer. */
static void fill_pixels(const struct pp_layer *l,
                        const struct pp_microbatch *mb, void *to, size_t at,
                        size_t n)
{
    const struct pp_vision *v = pp_layer_encoder(l);
    size_t P = v->patch_inputs, bytes = l->env->kernels->element_bytes;
    size_t skipped = l->w[PP_P_CLASS] ? 1 : 0, end = at + n;
    memset(to, 0, n * P * bytes);
    for (size_t k = 0; k < mb->n_sequences; k++) {
        size_t begin = (size_t)mb->host_cu_padded[k], first = begin + skipped;
        size_t last = begin + (size_t)(mb->host_cu[k + 1] - mb->host_cu[k]);
        size_t row = first > at ? first : at;
        for (; row < last && row < end; row++)
            pp_elements_convert((char *)to + (row - at) * P * bytes, bytes,
                                mb->pixels[k] + source_of(l, mb,
                                                          first / v->merge,
                                                          row - first) *
                                                    (ptrdiff_t)P,
                                sizeof(float), P);
    }
}

int pp_layer_put_rows(const struct pp_layer *l, const struct pp_microbatch *mb,
                      void *to, size_t width, pp_layer_fill_fn *fill,
                      struct pp_err *err)
{
    size_t row = width * l->env->kernels->element_bytes;
    size_t most = PP_PIXEL_ROOM > row ? PP_PIXEL_ROOM / row : 1, n;
    if (pp_env_is_host(l->env)) {
        fill(l, mb, to, 0, mb->tokens);
        return 0;
    }
    for (size_t at = 0; at < mb->tokens; at += n) {
        n = mb->tokens - at < most ? mb->tokens - at : most;
        fill(l, mb, l->env->pixel_room, at, n);
        if (pp_layer_put(l, (char *)to + at * row, l->env->pixel_room, n * row,
                         err))
            return -1;
    }
    return 0;
}

static int patches_fwd(const struct pp_layer *l, const struct pp_microbatch *mb,
                       void *y, const void *x, const struct pp_layer_blocks *b,
                       void *scratch, struct pp_err *err)
{
    (void)x, (void)scratch;
    const struct pp_kernels *k = l->env->kernels;
    size_t R = pp_layer_rows(l, mb), first = pp_layer_first_row(l, mb);
    size_t C = l->env->model->hidden, P = pp_layer_encoder(l)->patch_inputs;
    void *s[PP_MAX_SAVED];
    pp_layer_saved(l, mb->tokens, PP_IN_FORWARD, b, s);
    if (pp_layer_put_rows(l, mb, s[PP_S_PATCH_X], P, fill_pixels, err))
        return -1;
    PP_LAYER_RUN(k->linear_fwd(y, s[PP_S_PATCH_X], l->w[PP_P_PATCH], NULL, NULL,
                               R, P, C, C, P, l->env->stream));
    if (!l->w[PP_P_CLASS])
        return 0;
    PP_LAYER_RUN(k->embedding_add(y, mb->input_ids + first, l->w[PP_P_CLASS], R,
                                  C, l->env->stream));
    PP_LAYER_RUN(k->embedding_add(y, mb->positions + first,
                                  l->w[PP_P_POSITIONS], R, C, l->env->stream));
    return 0;
}

static int patches_bwd_input(const struct pp_layer *l,
                             const struct pp_microbatch *mb, void *dx,
                             const void *dy, const struct pp_layer_blocks *b,
                             void *scratch, struct pp_err *err)
{
    (void)dx, (void)scratch;
    size_t C = l->env->model->hidden;
    void *s[PP_MAX_SAVED];
    pp_layer_saved(l, mb->tokens, PP_IN_BACKWARD, b, s);
    PP_LAYER_RUN(l->env->kernels->copy(
        s[PP_S_PATCH_DY], dy, pp_layer_rows(l, mb), C, C, C, l->env->stream));
    return 0;
}

/* Adds the gradients of rows of a table: the class token, or the positions. */
static int add_rows_of(const struct pp_layer *l, const struct pp_microbatch *mb,
                       size_t slot, const int32_t *ids, const void *dy,
                       struct pp_err *err)
{
    if (l->g[slot])
        PP_LAYER_RUN(l->env->kernels->embedding_bwd_weight(
            l->g[slot], dy, ids + pp_layer_first_row(l, mb),
            pp_layer_rows(l, mb), l->env->model->hidden, l->env->stream));
    return 0;
}

static int patches_bwd_weight(const struct pp_layer *l,
                              const struct pp_microbatch *mb,
                              const struct pp_layer_blocks *b, void *scratch,
                              struct pp_err *err)
{
    (void)scratch;
    size_t C = l->env->model->hidden, P = pp_layer_encoder(l)->patch_inputs;
    void *s[PP_MAX_SAVED];
    pp_layer_saved(l, mb->tokens, PP_IN_BACKWARD, b, s);
    const void *dy = s[PP_S_PATCH_DY];
    if (l->g[PP_P_PATCH])
        PP_LAYER_RUN(l->env->kernels->linear_bwd_weight(
            l->g[PP_P_PATCH], NULL, dy, s[PP_S_PATCH_X], pp_layer_rows(l, mb),
            P, C, C, P, l->env->stream));
    return add_rows_of(l, mb, PP_P_CLASS, mb->input_ids, dy, err) ||
                   add_rows_of(l, mb, PP_P_POSITIONS, mb->positions, dy, err)
               ? -1
               : 0;
}

const struct pp_layer_ops pp_layer_patches = {
    .fwd = patches_fwd,
    .bwd_input = patches_bwd_input,
    .bwd_weight = patches_bwd_weight,
};
