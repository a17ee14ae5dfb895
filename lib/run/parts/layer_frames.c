/* SPDX-License-Identifier: MIT */
/* layer_frames - the first unit of an encoder of audio: two convolutions over
 * time with GELU behind each, and positions.
 *
 * A window has three frames or outputs, one frame apart in the first
 * convolution and two in the second one. So a row of the encoder is the window
 * of the second one around an even frame. It reads the first one's outputs at
 * that frame and at the odd ones before and behind it, and the one before is
 * the row's before. Windows are copied to matrices, as a product reads them.
 * Rows come with the frame behind the odd one, so that what follows the end of
 * a clip may be given. An encoder that works on chunks of a clip takes zeros
 * there, and also in place of the first convolution's outputs. Frames are in
 * the host's memory, so there is no such layer on a device yet. */
#include "run/parts/layer_impl.h"

#include <math.h>
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

/* A row of a clip. The convolutions see no other rows than those of its run:
 * of a chunk of the clip, which has zeros behind it, or of the whole clip. */
struct row {
    const float *frames;
    size_t at;    /* among the rows of the microbatch */
    size_t place; /* in its run */
    bool follows; /* the next row is in the same run */
    bool cut;     /* the frame behind it counts as zero */
    bool half;    /* so does its odd one, and what convolutions make of it */
};

static size_t clip_rows(const struct pp_microbatch *mb, size_t k)
{
    return (size_t)(mb->cu_seqlens[k + 1] - mb->cu_seqlens[k]);
}

static struct row clip_row(const struct pp_layer *l,
                           const struct pp_microbatch *mb, size_t k, size_t i)
{
    const struct pp_vision *v = pp_layer_encoder(l);
    size_t n = clip_rows(mb, k), run = v->chunk ? v->chunk : n;
    bool last = i + 1 == n, ends = last || (i + 1) % run == 0;
    return (struct row){.frames = mb->pixels[k] + i * v->patch_inputs,
                        .at = (size_t)mb->cu_seqlens_padded[k] + i,
                        .place = i % run,
                        .follows = !ends,
                        .cut = v->chunk && ends,
                        .half = v->chunk && last && mb->n_frames[k] % 2};
}

/* Writes the windows of the first convolution for a row: around its even frame,
 * and around the odd one. Before a run is silence. */
static void put_windows(const struct pp_layer *l, const struct row *r, void *to)
{
    size_t width = pp_layer_encoder(l)->patch_inputs;
    const float *x = r->frames, *before = r->place ? x - width : NULL;
    size_t even = r->at * WINDOWS * width, odd = even + width;
    bool wide = is_wide(l);
    for (size_t j = 0; j < width; j += TAPS) {
        double next = r->half ? 0 : (double)x[j + 1];
        put(to, even + j, wide, before ? (double)before[j + 1] : 0);
        put(to, even + j + 1, wide, (double)x[j]);
        put(to, even + j + 2, wide, next);
        put(to, odd + j, wide, (double)x[j]);
        put(to, odd + j + 1, wide, next);
        put(to, odd + j + 2, wide, r->cut ? 0 : (double)x[j + 2]);
    }
}

static void put_frames(const struct pp_layer *l, const struct pp_microbatch *mb,
                       void *to)
{
    size_t width = pp_layer_encoder(l)->patch_inputs;
    memset(to, 0,
           mb->tokens * WINDOWS * width * l->env->kernels->element_bytes);
    for (size_t k = 0; k < mb->n_sequences; k++)
        for (size_t i = 0; i < clip_rows(mb, k); i++) {
            const struct row r = clip_row(l, mb, k, i);
            put_windows(l, &r, to);
        }
}

/* Gathers what the second convolution reads from the first one's outputs x.
 * Before a run is 0. */
static void gather_windows(const struct pp_layer *l,
                           const struct pp_microbatch *mb, void *y,
                           const void *x)
{
    size_t C = l->env->model->hidden;
    bool wide = is_wide(l);
    memset(y, 0, mb->tokens * TAPS * C * l->env->kernels->element_bytes);
    for (size_t k = 0; k < mb->n_sequences; k++)
        for (size_t i = 0; i < clip_rows(mb, k); i++) {
            const struct row r = clip_row(l, mb, k, i);
            size_t even = r.at * WINDOWS * C, to = r.at * TAPS * C;
            for (size_t c = 0; c < C; c++, to += TAPS) {
                put(y, to, wide, r.place ? get(x, even - C + c, wide) : 0);
                put(y, to + 1, wide, get(x, even + c, wide));
                put(y, to + 2, wide, r.half ? 0 : get(x, even + C + c, wide));
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
        for (size_t i = 0; i < clip_rows(mb, k); i++) {
            const struct row r = clip_row(l, mb, k, i);
            size_t even = r.at * WINDOWS * C, at = r.at * TAPS * C;
            for (size_t c = 0; c < C; c++, at += TAPS) {
                double next = r.follows ? get(dy, at + TAPS * C, wide) : 0;
                double odd = r.half ? 0 : get(dy, at + 2, wide) + next;
                put(dx, even + c, wide, get(dy, at + 1, wide));
                put(dx, even + C + c, wide, odd);
            }
        }
}

/* Returns a table of positions: the stored one, or sines and cosines in the
 * scratch, the slowest of which has a wavelength of 2 pi times 10,000 rows (as
 * in Vaswani et al., "Attention Is All You Need", 2017, but first all sines).
 * No row is at a higher place than there are rows. */
static const void *positions_of(const struct pp_layer *l,
                                const struct pp_microbatch *mb, void *scratch)
{
    size_t C = l->env->model->hidden, half = C / 2;
    size_t chunk = pp_layer_encoder(l)->chunk;
    bool wide = is_wide(l);
    if (l->w[PP_P_POSITIONS])
        return l->w[PP_P_POSITIONS];
    for (size_t c = 0; c < half; c++) {
        double rate = exp(-log(10000) * (double)c / (double)(half - 1));
        for (size_t p = 0; p < chunk && p < mb->tokens; p++) {
            put(scratch, p * C + c, wide, sin((double)p * rate));
            put(scratch, p * C + half + c, wide, cos((double)p * rate));
        }
    }
    return scratch;
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
    PP_LAYER_RUN(k->embedding_add(y, mb->positions,
                                  positions_of(l, mb, scratch), R, C, stream));
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
