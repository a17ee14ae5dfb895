/* SPDX-License-Identifier: MIT */
/* frames on the CPU: the windows of the second convolution of audio, and
 * positions. */
#include "kernels.h"

#include <string.h>

#include "real.h"

enum { TAPS = 3, OUTPUTS = 2 };

/* Returns whether row t is not padding. */
static bool is_row(const int32_t *kind, size_t t)
{
    return kind[t] >= 0;
}

/* Returns whether the row behind t, if there is one, has the odd frame of t
 * before it. */
static bool is_followed(const int32_t *kind, size_t t, size_t N)
{
    return t + 1 < N && is_row(kind, t + 1) && !(kind[t + 1] & PP_ROW_BEGINS);
}

PP_TAPS(PP_KERNEL(taps_fwd))
{
    (void)stream;
    real *out = y;
    const real *in = x;
    for (size_t t = 0; t < N; t++, out += C * TAPS, in += C * OUTPUTS) {
        if (!is_row(kind, t)) {
            memset(out, 0, C * TAPS * sizeof *out);
            continue;
        }
        bool begins = kind[t] & PP_ROW_BEGINS, half = kind[t] & PP_ROW_HALF;
        for (size_t c = 0; c < C; c++) {
            out[TAPS * c] = begins ? 0 : *(in + c - C);
            out[TAPS * c + 1] = in[c];
            out[TAPS * c + 2] = half ? 0 : in[C + c];
        }
    }
    return 0;
}

PP_TAPS(PP_KERNEL(taps_bwd))
{
    (void)stream;
    real *out = y;
    const real *in = x;
    for (size_t t = 0; t < N; t++, out += C * OUTPUTS, in += C * TAPS) {
        if (!is_row(kind, t)) {
            memset(out, 0, C * OUTPUTS * sizeof *out);
            continue;
        }
        bool half = kind[t] & PP_ROW_HALF, next = is_followed(kind, t, N);
        for (size_t c = 0; c < C; c++) {
            real behind = next ? in[C * TAPS + TAPS * c] : 0;
            out[c] = in[TAPS * c + 1];
            out[C + c] = half ? 0 : in[TAPS * c + 2] + behind;
        }
    }
    return 0;
}

PP_SINUSOIDS(PP_KERNEL(sinusoids))
{
    (void)stream;
    real *out = y;
    size_t half = C / 2;
    for (size_t c = 0; c < half; c++) {
        double rate = exp(-log(10000) * (double)c / (double)(half - 1));
        for (size_t p = 0; p < N; p++) {
            out[p * C + c] = (real)sin((double)p * rate);
            out[p * C + half + c] = (real)cos((double)p * rate);
        }
    }
    return 0;
}
