/* SPDX-License-Identifier: MIT */
/* layer_patches - the first unit of an encoder of images: a product of the
 * pixels of each patch, which is a convolution whose windows do not overlap;
 * and, with CLIP, the class token and learned positions.
 *
 * The row of a class token has pixels of 0, so that one product serves all
 * rows. Its W adds nothing to the product's weight for them. Pixels are in the
 * host's memory, so there is no such layer on a device yet. */
#include "run/parts/layer_impl.h"

#include <string.h>

/* Returns the row of patch number k in the order of features. */
static size_t row_of(const struct pp_layer *l, const struct pp_microbatch *mb,
                     size_t k)
{
    size_t merge = pp_layer_encoder(l)->merge;
    return merge > 1 && mb->feature_rows
               ? (size_t)mb->feature_rows[k / merge] * merge + k % merge
               : k;
}

/* Writes the pixels of patches, which are in the order of features, to their
 * rows, and zeros to the others. */
static void put_pixels(const struct pp_layer *l, const struct pp_microbatch *mb,
                       void *to)
{
    size_t P = pp_layer_encoder(l)->patch_inputs;
    size_t row = P * l->env->kernels->element_bytes;
    bool wide = l->env->kernels->element_bytes == sizeof(double);
    size_t skipped = l->w[PP_P_CLASS] ? 1 : 0;
    memset(to, 0, mb->tokens * row);
    for (size_t k = 0; k < mb->n_sequences; k++) {
        size_t real = (size_t)(mb->cu_seqlens[k + 1] - mb->cu_seqlens[k]);
        size_t first = (size_t)mb->cu_seqlens_padded[k] + skipped;
        for (size_t i = 0; i + skipped < real; i++) {
            const float *from = mb->pixels[k] + i * P;
            char *at = (char *)to + row_of(l, mb, first + i) * row;
            if (!wide)
                memcpy(at, from, P * sizeof *from);
            for (size_t j = 0; wide && j < P; j++)
                ((double *)at)[j] = (double)from[j];
        }
    }
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
    put_pixels(l, mb, s[PP_S_PATCH_X]);
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
