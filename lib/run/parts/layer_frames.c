/* SPDX-License-Identifier: MIT */
/* layer_frames - the first unit of an encoder of audio: two convolutions over
 * time with GELU behind each, and stored positions.
 *
 * A window has three frames or outputs, one frame apart in the first
 * convolution and two in the second one. So a row of the encoder is the window
 * of the second one around an even frame. It reads the first one's outputs at
 * that frame and at the odd ones before and behind it, and the one before is
 * the row's before. Windows are copied to matrices, as a product reads them.
 * Rows come with the frame behind the odd one, so that what follows the end of
 * a clip may be given. Frames are in the host's memory, so there is no such
 * layer on a device yet. */
#include "run/parts/layer_impl.h"

#include <string.h>

#include "base/modality.h"

enum { WINDOWS = 2, TAPS = PP_AUDIO_FRAMES }; /* of the first one for a row */

static double get(const void *at, size_t i, bool wide)
{
    return wide ? ((const double *)at)[i] : (double)((const float *)at)[i];
}

static void put(void *at, size_t i, bool wide, double x)
{
    if (wide)
        ((double *)at)[i] = x;
    else
        ((float *)at)[i] = (float)x;
}

static bool is_wide(const struct pp_layer *l)
{
    return l->env->kernels->element_bytes == sizeof(double);
}

/* Return the rows of clip k, and the first of them. */
static size_t clip_rows(const struct pp_microbatch *mb, size_t k)
{
    return (size_t)(mb->cu_seqlens[k + 1] - mb->cu_seqlens[k]);
}

static size_t clip_start(const struct pp_microbatch *mb, size_t k)
{
    return (size_t)mb->cu_seqlens_padded[k];
}

/* Writes the windows of the first convolution: around the even frame of each
 * row, and around the odd one. Before a clip is silence. */
static void put_frames(const struct pp_layer *l, const struct pp_microbatch *mb,
                       void *to)
{
    size_t M = pp_layer_encoder(l)->channels, width = M * TAPS;
    bool wide = is_wide(l);
    memset(to, 0,
           mb->tokens * WINDOWS * width * l->env->kernels->element_bytes);
    for (size_t k = 0; k < mb->n_sequences; k++)
        for (size_t i = 0; i < clip_rows(mb, k); i++) {
            const float *row = mb->pixels[k] + i * width;
            const float *before = i ? row - width : NULL;
            size_t at = (clip_start(mb, k) + i) * WINDOWS * width;
            for (size_t j = 0; j < width; j += TAPS, at += TAPS) {
                put(to, at, wide, before ? (double)before[j + 1] : 0);
                put(to, at + 1, wide, (double)row[j]);
                put(to, at + 2, wide, (double)row[j + 1]);
            }
            for (size_t j = 0; j < width; j++)
                put(to, at + j, wide, (double)row[j]);
        }
}

/* Gathers what the second convolution reads from the first one's outputs x.
 * Before a clip is 0. */
static void gather_windows(const struct pp_layer *l,
                           const struct pp_microbatch *mb, void *y,
                           const void *x)
{
    size_t C = l->env->model->hidden;
    bool wide = is_wide(l);
    memset(y, 0, mb->tokens * TAPS * C * l->env->kernels->element_bytes);
    for (size_t k = 0; k < mb->n_sequences; k++)
        for (size_t i = 0; i < clip_rows(mb, k); i++) {
            size_t r = clip_start(mb, k) + i;
            size_t even = r * WINDOWS * C, to = r * TAPS * C;
            for (size_t c = 0; c < C; c++, to += TAPS) {
                put(y, to, wide, i ? get(x, even - C + c, wide) : 0);
                put(y, to + 1, wide, get(x, even + c, wide));
                put(y, to + 2, wide, get(x, even + C + c, wide));
            }
        }
}

/* Adds up the gradients dy of what was gathered. */
static void scatter_windows(const struct pp_layer *l,
                            const struct pp_microbatch *mb, void *dx,
                            const void *dy)
{
    size_t C = l->env->model->hidden;
    bool wide = is_wide(l);
    memset(dx, 0, mb->tokens * WINDOWS * C * l->env->kernels->element_bytes);
    for (size_t k = 0; k < mb->n_sequences; k++)
        for (size_t i = 0, n = clip_rows(mb, k); i < n; i++) {
            size_t r = clip_start(mb, k) + i;
            size_t even = r * WINDOWS * C, at = r * TAPS * C;
            for (size_t c = 0; c < C; c++, at += TAPS) {
                double next = i + 1 < n ? get(dy, at + TAPS * C, wide) : 0;
                put(dx, even + c, wide, get(dy, at + 1, wide));
                put(dx, even + C + c, wide, get(dy, at + 2, wide) + next);
            }
        }
}

static int frames_fwd(const struct pp_layer *l, const struct pp_microbatch *mb,
                      void *y, const void *x, const struct pp_layer_blocks *b,
                      void *scratch, struct pp_err *err)
{
    (void)x;
    const struct pp_kernels *k = l->env->kernels;
    const struct pp_model *m = l->env->model;
    size_t R = mb->tokens, C = m->hidden, P = pp_layer_encoder(l)->patch_inputs;
    void *s[PP_MAX_SAVED], *stream = l->env->stream;
    pp_layer_saved(l, R, PP_IN_FORWARD, b, s);
    put_frames(l, mb, s[PP_S_PATCH_X]);
    PP_LAYER_RUN(k->linear_fwd(s[PP_S_CONV1], s[PP_S_PATCH_X], l->w[PP_P_PATCH],
                               l->w[PP_P_CONV1_BIAS], NULL, WINDOWS * R, P, C,
                               C, P, stream));
    PP_LAYER_RUN(
        k->gelu_fwd(scratch, s[PP_S_CONV1], WINDOWS * R * C, m->gelu, stream));
    gather_windows(l, mb, s[PP_S_CONV2_X], scratch);
    PP_LAYER_RUN(k->linear_fwd(s[PP_S_CONV2], s[PP_S_CONV2_X], l->w[PP_P_CONV2],
                               l->w[PP_P_CONV2_BIAS], NULL, R, TAPS * C, C, C,
                               TAPS * C, stream));
    PP_LAYER_RUN(k->gelu_fwd(y, s[PP_S_CONV2], R * C, m->gelu, stream));
    PP_LAYER_RUN(
        k->embedding_add(y, mb->positions, l->w[PP_P_POSITIONS], R, C, stream));
    return 0;
}

static int frames_bwd_input(const struct pp_layer *l,
                            const struct pp_microbatch *mb, void *dx,
                            const void *dy, const struct pp_layer_blocks *b,
                            void *scratch, struct pp_err *err)
{
    (void)dx;
    const struct pp_kernels *k = l->env->kernels;
    size_t R = mb->tokens, C = l->env->model->hidden;
    enum pp_gelu gelu = l->env->model->gelu;
    void *s[PP_MAX_SAVED], *stream = l->env->stream;
    pp_layer_saved(l, R, PP_IN_BACKWARD, b, s);
    void *d1 = s[PP_S_DCONV1], *d2 = s[PP_S_PATCH_DY];
    PP_LAYER_RUN(k->gelu_bwd(d2, dy, s[PP_S_CONV2], R * C, gelu, stream));
    PP_LAYER_RUN(k->linear_bwd_input(scratch, d2, l->w[PP_P_CONV2], R, TAPS * C,
                                     C, TAPS * C, C, stream));
    scatter_windows(l, mb, d1, scratch);
    PP_LAYER_RUN(
        k->gelu_bwd(d1, d1, s[PP_S_CONV1], WINDOWS * R * C, gelu, stream));
    return 0;
}

static int frames_bwd_weight(const struct pp_layer *l,
                             const struct pp_microbatch *mb,
                             const struct pp_layer_blocks *b, void *scratch,
                             struct pp_err *err)
{
    (void)scratch;
    const struct pp_kernels *k = l->env->kernels;
    const struct pp_model *m = l->env->model;
    size_t R = mb->tokens, C = m->hidden, P = pp_layer_encoder(l)->patch_inputs;
    void *s[PP_MAX_SAVED], *stream = l->env->stream;
    pp_layer_saved(l, R, PP_IN_BACKWARD, b, s);
    if (l->g[PP_P_CONV2])
        PP_LAYER_RUN(k->linear_bwd_weight(
            l->g[PP_P_CONV2], l->g[PP_P_CONV2_BIAS], s[PP_S_PATCH_DY],
            s[PP_S_CONV2_X], R, TAPS * C, C, C, TAPS * C, stream));
    if (l->g[PP_P_PATCH])
        PP_LAYER_RUN(k->linear_bwd_weight(
            l->g[PP_P_PATCH], l->g[PP_P_CONV1_BIAS], s[PP_S_DCONV1],
            s[PP_S_PATCH_X], WINDOWS * R, P, C, C, P, stream));
    return 0;
}

const struct pp_layer_ops pp_layer_frames = {
    .fwd = frames_fwd,
    .bwd_input = frames_bwd_input,
    .bwd_weight = frames_bwd_weight,
};
