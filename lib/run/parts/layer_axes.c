/* SPDX-License-Identifier: MIT */
/* layer_axes - rotary positions on several axes: row and column of a patch, and
 * time, row and column of a token (M-RoPE; Wang et al., "Qwen2-VL", 2024).
 *
 * Every row has angles of its own, so some rows at a time get tables of their
 * own, in which row i has position i. The axes of a language model divide its
 * frequencies. Those of an encoder have the same ones, of half a head.
 * Positions are in the host's memory, so there are no axes on a device yet. */
#include "run/parts/layer_impl.h"

#include <math.h>
#include <string.h>

enum { VALUES = PP_MOST_AXES_HEAD / 2, ROWS = 64 };

/* The tables of some rows: doubles, or floats in the same memory. */
struct axes_tables {
    double cos[VALUES], sin[VALUES];
    int32_t rows[ROWS];
};

static size_t count_axes(const struct pp_model *m)
{
    size_t n = 0;
    while (n < PP_ROPE_AXES && m->rope_axes[n])
        n++;
    return n;
}

static void put_value(void *table, size_t value_bytes, size_t at, double x)
{
    if (value_bytes == sizeof(float))
        ((float *)table)[at] = (float)x;
    else
        ((double *)table)[at] = x;
}

/* Computes the angles of a patch: rows first, then columns. */
static void fill_patch(const struct pp_layer *l, struct axes_tables *t,
                       size_t at, const int32_t *positions)
{
    const struct pp_model *m = l->env->model;
    size_t bytes = l->env->kernels->accumulator_bytes;
    for (size_t a = 0; a < count_axes(m); a++)
        for (size_t i = 0; i < m->rope_axes[a]; i++, at++) {
            double angle =
                positions[a] * pp_rope_frequency(&m->rope, m->head_dim / 2, i);
            put_value(t->cos, bytes, at, cos(angle));
            put_value(t->sin, bytes, at, sin(angle));
        }
}

/* Copies the angles of a token from those of its positions. */
static void fill_token(const struct pp_layer *l, struct axes_tables *t,
                       size_t at, const int32_t *positions)
{
    const struct pp_env *e = l->env;
    size_t bytes = e->kernels->accumulator_bytes, half = e->model->head_dim / 2;
    size_t first = 0;
    for (size_t a = 0; a < count_axes(e->model); a++) {
        size_t n = e->model->rope_axes[a];
        size_t from = ((size_t)positions[a] * half + first) * bytes;
        memcpy((char *)t->cos + (at + first) * bytes,
               (const char *)e->rope_cos + from, n * bytes);
        memcpy((char *)t->sin + (at + first) * bytes,
               (const char *)e->rope_sin + from, n * bytes);
        first += n;
    }
}

int pp_layer_rotate_axes(const struct pp_layer *l,
                         const struct pp_microbatch *mb, void *qkv,
                         int direction, struct pp_err *err)
{
    const struct pp_model *m = l->env->model;
    size_t half = m->head_dim / 2, n_axes = count_axes(m);
    size_t most = VALUES / half < ROWS ? VALUES / half : ROWS, n;
    size_t width = pp_qkv_widths(m).qkv;
    struct axes_tables t;
    for (size_t row = 0; row < mb->tokens; row += n) {
        n = mb->tokens - row < most ? mb->tokens - row : most;
        for (size_t i = 0; i < n; i++) {
            const int32_t *positions = mb->axes + (row + i) * n_axes;
            t.rows[i] = (int32_t)i;
            (pp_model_is_tower(m) ? fill_patch : fill_token)(l, &t, i * half,
                                                             positions);
        }
        PP_LAYER_RUN(l->env->kernels->rope(
            pp_layer_at(l, qkv, row * width), t.cos, t.sin, t.rows, n,
            m->n_heads + m->n_kv_heads, m->head_dim, width, m->head_dim, false,
            direction, l->env->stream));
    }
    return 0;
}
