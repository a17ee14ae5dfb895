/* SPDX-License-Identifier: MIT */
/* experts on the CPU. */
#include "experts.h"

#include <math.h>

#include "real.h"

#define PP_DECLARE_EXPERT(name, type) static type name;
PP_EXPERT_KERNELS(PP_DECLARE_EXPERT)
#undef PP_DECLARE_EXPERT

#include "expert_capacity.h"
#include "expert_router.h"

/* --- rows and tokens --- */

PP_CLONES static void set_weighted(real *y, const real *x, real w, size_t C)
{
    for (size_t i = 0; i < C; i++)
        y[i] = w * x[i];
}

PP_CLONES static void add_weighted(real *restrict y, const real *restrict x,
                                   real w, size_t C)
{
    for (size_t i = 0; i < C; i++)
        y[i] += w * x[i];
}

PP_CLONES static void scale_row(real *y, real w, size_t C)
{
    for (size_t i = 0; i < C; i++)
        y[i] *= w;
}

static PP_SPREAD(spread)
{
    (void)stream;
    const real *in = x, *w = weight;
    real *out = y;
    for (size_t r = 0; r < R; r++) {
        if (token && token[r] < 0)
            continue;
        const real *from = in + (token ? (size_t)token[r] : r) * C;
        if (w)
            set_weighted(out + r * C, from, w[r], C);
        else
            memcpy(out + r * C, from, C * sizeof *out);
    }
    return 0;
}

static PP_COMBINE(combine)
{
    (void)stream;
    const real *in = x, *w = weight;
    real *out = y;
    for (size_t t = 0; t < N; t++, out += C) {
        if (row && row[t * K] < 0) {
            if (!add)
                memset(out, 0, C * sizeof *out);
            continue;
        }
        for (size_t j = 0; j < K; j++) {
            size_t i = row ? (size_t)row[t * K + j] : t;
            (j || add ? add_weighted : set_weighted)(out, in + i * C,
                                                     w ? w[i] : 1, C);
        }
    }
    return 0;
}

static PP_WEIGH_BWD(weigh_bwd)
{
    (void)stream;
    const real *in = y, *w = weight;
    real *d = dy, *dw = dweight;
    for (size_t r = 0; r < R; r++) {
        dw[r] = (real)dot_rows(d + r * C, in + r * C, C);
        scale_row(d + r * C, w[r], C);
    }
    return 0;
}

static PP_BIAS_DOT(bias_dot)
{
    (void)stream;
    const real *d = dy, *bias = b;
    real *dw = dweight;
    for (size_t r = 0; r < R; r++)
        dw[r] +=
            (real)dot_rows(d + r * C, bias + (size_t)expert[r] * stride, C);
    return 0;
}

static real clamp(real x, real lowest, real highest)
{
    return x < lowest ? lowest : x > highest ? highest : x;
}

static PP_CLAMPED_SWIGLU_FWD(clamped_swiglu_fwd)
{
    (void)stream;
    const real *in = gu;
    real *out = y, limit = (real)by->limit, gain = (real)by->gain;
    for (size_t i = 0; i < R * C; i++) {
        real g = clamp(in[2 * i], -(real)INFINITY, limit);
        real u = clamp(in[2 * i + 1], -limit, limit);
        out[i] = (u + 1) * (g / (1 + fast_exp(-gain * g)));
    }
    return 0;
}

/* d g s = s (1 + gain g (1 - s)), s = sigmoid(gain g). The slope at a limit is
 * 1, as in PyTorch. */
static PP_CLAMPED_SWIGLU_BWD(clamped_swiglu_bwd)
{
    (void)stream;
    const real *in = gu, *d = dy;
    real *out = dgu, limit = (real)by->limit, gain = (real)by->gain;
    for (size_t i = 0; i < R * C; i++) {
        real g = clamp(in[2 * i], -(real)INFINITY, limit);
        real u = clamp(in[2 * i + 1], -limit, limit);
        real s = 1 / (1 + fast_exp(-gain * g));
        bool above = in[2 * i] > limit,
             off = in[2 * i + 1] > limit || in[2 * i + 1] < -limit;
        out[2 * i] =
            above ? 0 : d[i] * (u + 1) * (s * (1 + gain * g * (1 - s)));
        out[2 * i + 1] = off ? 0 : d[i] * (g * s);
    }
    return 0;
}

static PP_SINKS_BWD_INPUT(sinks_bwd_input)
{
    (void)stream;
    const real *d = dout, *out = o, *l = lse, *sink = sinks;
    real *ds = dsinks;
    for (size_t i = 0; i < N * NH; i++) {
        size_t at = i / NH * ldo + i % NH * HD;
        ds[i] = -fast_exp(sink[i % NH] - l[i]) *
                (real)dot_rows(d + at, out + at, HD);
    }
    return 0;
}

static PP_ADD_ROWS(add_rows)
{
    (void)stream;
    const real *from = x;
    real *out = dw;
    for (size_t i = 0; i < N * NH; i++)
        out[i % NH] += from[i];
    return 0;
}

static PP_GATE_FWD(gate_fwd)
{
    (void)stream;
    const real *in = x;
    real *out = y;
    for (size_t i = 0; i < n; i++)
        out[i] = 1 / (1 + fast_exp(-in[i]));
    return 0;
}

static PP_GATE_BWD(gate_bwd)
{
    (void)stream;
    const real *d = dy, *s = y;
    real *out = dx;
    for (size_t i = 0; i < n; i++)
        out[i] = d[i] * s[i] * (1 - s[i]);
    return 0;
}

/* --- rows of ranks --- */

static PP_COUNT(count)
{
    (void)stream;
    memset(counts, 0, E * sizeof *counts);
    for (size_t i = 0; i < R && r->token[i] >= 0; i++)
        counts[r->expert[i]]++;
    return 0;
}

static PP_ARRIVALS(arrivals)
{
    (void)stream;
    size_t place = 0;
    for (size_t i = 0; i < n; i++) {
        size_t of_ranks = 0; /* arrivals of ranks before this one */
        for (size_t from = 0; from < P; from++) {
            const int32_t *of = counts + from * E + first;
            size_t at = of_ranks;
            for (size_t k = 0; k < n; k++) {
                at += k < i ? (size_t)of[k] : 0;
                of_ranks += (size_t)of[k];
            }
            for (int32_t left = of[i]; left > 0; left--) {
                arrival[place] = (int32_t)at++;
                expert[place++] = (int32_t)i;
            }
        }
    }
    return 0;
}

/* Returns the end of the kept rows of expert e, which begin at `first`. */
static size_t kept_end(const struct pp_routing *r, size_t R, size_t first,
                       size_t e)
{
    size_t end = first;
    while (end < R && r->token[end] >= 0 && (size_t)r->expert[end] == e)
        end++;
    return end;
}

static PP_PAD(pad)
{
    (void)stream;
    const real *from = x;
    real *to = y;
    memset(to, 0, E * P * C * sizeof *to);
    for (size_t e = 0, first = 0, end; e < E; e++, first = end) {
        end = kept_end(r, R, first, e);
        memcpy(to + e * P * C, from + first * C,
               (end - first) * C * sizeof *to);
    }
    return 0;
}

static PP_PAD(close_up)
{
    (void)stream;
    const real *from = x;
    real *to = y;
    memset(to, 0, R * C * sizeof *to);
    for (size_t e = 0, first = 0, end; e < E; e++, first = end) {
        end = kept_end(r, R, first, e);
        memcpy(to + first * C, from + e * P * C,
               (end - first) * C * sizeof *to);
    }
    return 0;
}

/* --- products --- */

static PP_SCORES(scores)
{
    return PP_KERNEL(linear_fwd)(logits, x, w, b, NULL, N, C, E, E, C, stream);
}

static PP_SCORES(scores_rows)
{
    return PP_KERNEL(linear_rows_fwd)(logits, x, w, b, NULL, N, C, E, E, C,
                                      stream);
}

/* Returns the end of the rows of the expert that row r has. */
static size_t rows_end(const struct pp_expert_rows *rows, size_t r)
{
    size_t end = r + 1;
    while (end < rows->n && rows->expert[end] == rows->expert[r])
        end++;
    return end;
}

/* Does the work of grouped_fwd with some linear. */
static int each_fwd(pp_linear_fwd_fn *linear, real *y, const real *x,
                    const real *w, const real *b,
                    const struct pp_expert_rows *rows, size_t C, size_t OC,
                    size_t stride)
{
    int rc = 0;
    for (size_t r = 0, end; !rc && r < rows->n; r = end) {
        size_t at = (size_t)rows->expert[r] * stride;
        end = rows_end(rows, r);
        rc = linear(y + r * OC, x + r * C, w + at, b ? b + at : NULL, NULL,
                    end - r, C, OC, OC, C, NULL);
    }
    return rc;
}

static int each_bwd_input(pp_linear_bwd_input_fn *linear, real *dx,
                          const real *dy, const real *w,
                          const struct pp_expert_rows *rows, size_t C,
                          size_t OC, size_t stride)
{
    int rc = 0;
    for (size_t r = 0, end; !rc && r < rows->n; r = end) {
        end = rows_end(rows, r);
        rc = linear(dx + r * C, dy + r * OC,
                    w + (size_t)rows->expert[r] * stride, NULL, end - r, C, OC,
                    C, OC, NULL);
    }
    return rc;
}

static PP_GROUPED_FWD(grouped_fwd)
{
    (void)stream;
    return each_fwd(PP_KERNEL(linear_fwd), y, x, w, b, rows, C, OC, stride);
}

static PP_GROUPED_BWD_INPUT(grouped_bwd_input)
{
    (void)stream;
    return each_bwd_input(PP_KERNEL(linear_bwd_input), dx, dy, w, rows, C, OC,
                          stride);
}

static PP_GROUPED_FWD(grouped_rows_fwd)
{
    (void)stream;
    return each_fwd(PP_KERNEL(linear_rows_fwd), y, x, w, b, rows, C, OC,
                    stride);
}

static PP_GROUPED_BWD_INPUT(grouped_rows_bwd_input)
{
    (void)stream;
    return each_bwd_input(PP_KERNEL(linear_rows_bwd_input), dx, dy, w, rows, C,
                          OC, stride);
}

static PP_GROUPED_BWD_WEIGHT(grouped_bwd_weight)
{
    (void)stream;
    const real *d = dy, *in = x;
    real *out = dw, *bias = db;
    int rc = 0;
    for (size_t r = 0, end; !rc && r < rows->n; r = end) {
        size_t at = (size_t)rows->expert[r] * stride;
        end = rows_end(rows, r);
        rc = PP_KERNEL(linear_bwd_weight)(out + at, bias ? bias + at : NULL,
                                          d + r * OC, in + r * C, end - r, C,
                                          OC, OC, C, writes, NULL);
    }
    return rc;
}

#define PP_ENTRY(name, type) .name = name,
const struct pp_expert_kernels PP_KERNEL(expert_kernels) = {
    PP_EXPERT_KERNELS(PP_ENTRY)};

/* The later initialisers replace the initialisers of the list. */
#if defined(__clang__)
#pragma clang diagnostic ignored "-Winitializer-overrides"
#else
#pragma GCC diagnostic ignored "-Woverride-init"
#endif
const struct pp_expert_kernels PP_KERNEL(expert_kernels_rows) = {
    PP_EXPERT_KERNELS(PP_ENTRY).scores = scores_rows,
    .grouped_fwd = grouped_rows_fwd,
    .grouped_bwd_input = grouped_rows_bwd_input,
};
#undef PP_ENTRY
