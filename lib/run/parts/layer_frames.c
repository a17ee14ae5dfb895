/* SPDX-License-Identifier: MIT */
/* layer_frames - the first unit of an encoder of audio: two convolutions over
 * time with GELU behind each, whose form is the exact one whatever the layers
 * have, and positions.
 *
 * A window has three frames or outputs, one frame apart in the first
 * convolution and two in the second one. So a row of the encoder is the window
 * of the second one around an even frame. It reads the first one's outputs at
 * that frame and at the odd ones before and behind it, and the one before is
 * the row's before. Windows are copied to matrices, as a product reads them.
 * Rows come with the frame behind the odd one, so that what follows the end of
 * a clip may be given. An encoder that works on chunks of a clip takes zeros
 * there, and also in place of the first convolution's outputs. */
#include "run/parts/layer_impl.h"

#include <string.h>

#include "base/elements.h"
#include "base/modality.h"

/* WINDOWS: of the first convolution for a row. GROUPS: frequencies that are
 * converted at a time. */
enum { WINDOWS = 2, TAPS = PP_AUDIO_FRAMES, GROUPS = 64 };

/* A row of a clip. The convolutions see no other rows than those of its run:
 * of a chunk of the clip, which has zeros behind it, or of the whole clip. */
struct row {
    const float *frames;
    bool begins; /* it is the first row of its run */
    bool cut;    /* the frame behind it counts as zero */
    bool half;   /* so does its odd one */
};

static struct row clip_row(const struct pp_layer *l,
                           const struct pp_microbatch *mb, size_t k, size_t i)
{
    const struct pp_vision *v = pp_layer_encoder(l);
    size_t n = (size_t)(mb->host_cu[k + 1] - mb->host_cu[k]);
    size_t run = v->chunk ? v->chunk : n;
    bool last = i + 1 == n, ends = last || (i + 1) % run == 0;
    return (struct row){.frames = mb->pixels[k] + i * v->patch_inputs,
                        .begins = i % run == 0,
                        .cut = v->chunk && ends,
                        .half = v->chunk && last && mb->n_frames[k] % 2};
}

/* Writes the windows of the first convolution for a row, `width` inputs each:
 * around its even frame, and around the odd one. Before a run is silence. */
static void fill_windows(const struct row *r, size_t width, char *to,
                         size_t bytes)
{
    float window[WINDOWS][GROUPS * TAPS];
    size_t n;
    for (size_t from = 0; from < width; from += n) {
        const float *x = r->frames + from, *before = x - width;
        n = width - from < GROUPS * TAPS ? width - from : GROUPS * TAPS;
        for (size_t j = 0; j < n; j += TAPS) {
            float odd = r->half ? 0 : x[j + 1];
            window[0][j] = r->begins ? 0 : before[j + 1];
            window[0][j + 1] = window[1][j] = x[j];
            window[0][j + 2] = window[1][j + 1] = odd;
            window[1][j + 2] = r->cut ? 0 : x[j + 2];
        }
        for (size_t w = 0; w < WINDOWS; w++)
            pp_elements_convert(to + (w * width + from) * bytes, bytes,
                                window[w], sizeof **window, n);
    }
}

/* Writes the windows of n rows from `at` on. */
static void fill_frames(const struct pp_layer *l,
                        const struct pp_microbatch *mb, void *to, size_t at,
                        size_t n)
{
    size_t width = pp_layer_encoder(l)->patch_inputs, end = at + n;
    size_t bytes = l->env->kernels->element_bytes;
    memset(to, 0, n * WINDOWS * width * bytes);
    for (size_t k = 0; k < mb->n_sequences; k++) {
        size_t first = (size_t)mb->host_cu_padded[k];
        size_t last = first + (size_t)(mb->host_cu[k + 1] - mb->host_cu[k]);
        size_t t = first > at ? first : at;
        for (; t < last && t < end; t++) {
            const struct row r = clip_row(l, mb, k, t - first);
            fill_windows(&r, width,
                         (char *)to + (t - at) * WINDOWS * width * bytes,
                         bytes);
        }
    }
}

/* Finds a table of positions: the stored one, or sines and cosines in the
 * scratch (as in Vaswani et al., "Attention Is All You Need", 2017, but first
 * all sines). No row is at a higher place than there are rows. */
static int find_positions(const struct pp_layer *l,
                          const struct pp_microbatch *mb, void *scratch,
                          const void **table, struct pp_err *err)
{
    size_t chunk = pp_layer_encoder(l)->chunk;
    *table = l->w[PP_P_POSITIONS];
    if (*table)
        return 0;
    *table = scratch;
    PP_LAYER_RUN(l->env->kernels->sinusoids(
        scratch, chunk < mb->tokens ? chunk : mb->tokens, l->env->model->hidden,
        l->env->stream));
    return 0;
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
    const void *positions;
    pp_layer_saved(l, R, PP_IN_FORWARD, b, s);
    if (pp_layer_put_rows(l, mb, s[PP_S_PATCH_X], WINDOWS * P, fill_frames,
                          err))
        return -1;
    PP_LAYER_RUN(k->linear_fwd(s[PP_S_CONV1], s[PP_S_PATCH_X], l->w[PP_P_PATCH],
                               l->w[PP_P_CONV1_BIAS], NULL, WINDOWS * R, P, C,
                               C, P, stream));
    PP_LAYER_RUN(k->gelu_fwd(scratch, s[PP_S_CONV1], WINDOWS * R * C,
                             PP_GELU_ERF, stream));
    PP_LAYER_RUN(
        k->taps_fwd(s[PP_S_CONV2_X], scratch, mb->row_kinds, R, C, stream));
    PP_LAYER_RUN(k->linear_fwd(s[PP_S_CONV2], s[PP_S_CONV2_X], l->w[PP_P_CONV2],
                               l->w[PP_P_CONV2_BIAS], NULL, R, TAPS * C, C, C,
                               TAPS * C, stream));
    PP_LAYER_RUN(k->gelu_fwd(y, s[PP_S_CONV2], R * C, PP_GELU_ERF, stream));
    if (find_positions(l, mb, scratch, &positions, err))
        return -1;
    PP_LAYER_RUN(k->embedding_add(y, mb->positions, positions, R, C, stream));
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
    void *s[PP_MAX_SAVED], *stream = l->env->stream;
    pp_layer_saved(l, R, PP_IN_BACKWARD, b, s);
    void *d1 = s[PP_S_DCONV1], *d2 = s[PP_S_PATCH_DY];
    PP_LAYER_RUN(
        k->gelu_bwd(d2, dy, s[PP_S_CONV2], R * C, PP_GELU_ERF, stream));
    PP_LAYER_RUN(k->linear_bwd_input(scratch, d2, l->w[PP_P_CONV2], R, TAPS * C,
                                     C, TAPS * C, C, stream));
    PP_LAYER_RUN(k->taps_bwd(d1, scratch, mb->row_kinds, R, C, stream));
    PP_LAYER_RUN(k->gelu_bwd(d1, d1, s[PP_S_CONV1], WINDOWS * R * C,
                             PP_GELU_ERF, stream));
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
