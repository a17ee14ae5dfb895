/* SPDX-License-Identifier: MIT */
/* frames - the first unit of an encoder of audio: two convolutions over
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

/* A row of a clip. The convolutions see no rows outside its run:
 * of a chunk of the clip, which has zeros behind it, or of the whole clip. */
struct row {
    const float *frames;
    bool begins; /* it is the first row of its run */
    bool cut;    /* the frame behind it counts as zero */
    bool half;   /* so does its odd one */
};

static struct row clip_row(const struct pp_call *c, size_t k, size_t i)
{
    const struct pp_vision *v = pp_layer_encoder(c);
    const struct pp_microbatch *mb = &c->mb->host->of;
    size_t n = (size_t)(mb->cu_seqlens[k + 1] - mb->cu_seqlens[k]);
    size_t run = v->chunk ? v->chunk : n;
    bool last = i + 1 == n, ends = last || (i + 1) % run == 0;
    return (struct row){.frames = mb->encoder.pixels[k] + i * v->patch_inputs,
                        .begins = i % run == 0,
                        .cut = v->chunk && ends,
                        .half =
                            v->chunk && last && mb->encoder.n_frames[k] % 2};
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
static void fill_frames(const struct pp_call *c, void *to, size_t at, size_t n)
{
    const struct pp_microbatch *mb = &c->mb->host->of;
    size_t width = pp_layer_encoder(c)->patch_inputs, end = at + n;
    size_t bytes = c->k->element_bytes;
    memset(to, 0, n * WINDOWS * width * bytes);
    for (size_t k = 0; k < mb->n_sequences; k++) {
        size_t first = (size_t)mb->cu_seqlens_padded[k];
        size_t last =
            first + (size_t)(mb->cu_seqlens[k + 1] - mb->cu_seqlens[k]);
        size_t t = first > at ? first : at;
        for (; t < last && t < end; t++) {
            const struct row r = clip_row(c, k, t - first);
            fill_windows(&r, width,
                         (char *)to + (t - at) * WINDOWS * width * bytes,
                         bytes);
        }
    }
}

static struct pp_product conv1(const struct pp_call *c)
{
    return (struct pp_product){PP_P_PATCH, PP_P_CONV1_BIAS,
                               pp_layer_encoder(c)->patch_inputs, c->C};
}

static struct pp_product conv2(const struct pp_call *c)
{
    return (struct pp_product){PP_P_CONV2, PP_P_CONV2_BIAS, TAPS * c->C, c->C};
}

/* Finds a table of positions: the stored one, or sines and cosines in the
 * scratch (as in Vaswani et al., "Attention Is All You Need", 2017, but first
 * all sines). No row is at a higher place than there are rows. */
static const void *find_positions(const struct pp_call *c)
{
    size_t chunk = pp_layer_encoder(c)->chunk;
    if (c->w[PP_P_POSITIONS])
        return c->w[PP_P_POSITIONS];
    PP_RUN(c, sinusoids, c->scratch, chunk < c->T ? chunk : c->T, c->C);
    return c->scratch;
}

static void frames_fwd(const struct pp_call *c, void *y, const void *x)
{
    (void)x;
    const struct pp_product p1 = conv1(c), p2 = conv2(c);
    size_t R = c->T, C = c->C;
    void *const *s = c->s;
    pp_layer_put_rows(c, s[PP_S_PATCH_X], WINDOWS * p1.in, fill_frames);
    pp_product_fwd(c, &p1, WINDOWS * R, s[PP_S_CONV1], s[PP_S_PATCH_X], NULL);
    PP_RUN(c, gelu_fwd, c->scratch, s[PP_S_CONV1], WINDOWS * R * C,
           PP_GELU_ERF);
    PP_RUN(c, taps_fwd, s[PP_S_CONV2_X], c->scratch, c->mb->encoder.kinds, R,
           C);
    pp_product_fwd(c, &p2, R, s[PP_S_CONV2], s[PP_S_CONV2_X], NULL);
    PP_RUN(c, gelu_fwd, y, s[PP_S_CONV2], R * C, PP_GELU_ERF);
    const void *positions = find_positions(c);
    PP_RUN(c, embedding_add, y, c->mb->positions, positions, R, C);
}

static void frames_bwd_input(const struct pp_call *c, void *dx, const void *dy)
{
    (void)dx;
    const struct pp_product p2 = conv2(c);
    size_t R = c->T, C = c->C;
    void *const *s = c->s;
    void *d1 = s[PP_S_DCONV1], *d2 = s[PP_S_PATCH_DY];
    PP_RUN(c, gelu_bwd, d2, dy, s[PP_S_CONV2], R * C, PP_GELU_ERF);
    pp_product_bwd_input(c, &p2, R, c->scratch, d2);
    PP_RUN(c, taps_bwd, d1, c->scratch, c->mb->encoder.kinds, R, C);
    PP_RUN(c, gelu_bwd, d1, d1, s[PP_S_CONV1], WINDOWS * R * C, PP_GELU_ERF);
}

static void frames_bwd_weight(const struct pp_call *c)
{
    const struct pp_product p1 = conv1(c), p2 = conv2(c);
    void *const *s = c->s;
    pp_product_bwd_weight(c, &p2, c->T, s[PP_S_PATCH_DY], s[PP_S_CONV2_X]);
    pp_product_bwd_weight(c, &p1, WINDOWS * c->T, s[PP_S_DCONV1],
                          s[PP_S_PATCH_X]);
}

const struct pp_layer_ops pp_layer_frames = {
    .fwd = frames_fwd,
    .bwd_input = frames_bwd_input,
    .bwd_weight = frames_bwd_weight,
    .x = PP_NO_SLOT,
    .dy = PP_NO_SLOT,
};
