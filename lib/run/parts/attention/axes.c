/* SPDX-License-Identifier: MIT */
/* axes - rotary positions on several axes: row and column of a patch, and
 * time, row and column of a token (M-RoPE; Wang et al., "Qwen2-VL", 2024).
 *
 * The axes of a language model divide its frequencies, whose angles are in the
 * tables. The axes of an encoder have the same frequencies, of half a head. */
#include "run/parts/attention/attention.h"

/* Fills the frequencies of an encoder's axes. */
static void fill_frequencies(const struct pp_model *m, double *frequency)
{
    for (size_t a = 0; a < PP_ROPE_AXES; a++)
        for (size_t i = 0; i < m->rope_axes[a]; i++)
            *frequency++ = pp_rope_frequency(&m->rope, m->head_dim / 2, i);
}

void pp_rotate_axes(const struct pp_call *c, void *qkv, int direction)
{
    const struct pp_model *m = c->m;
    const struct pp_qkv_widths w = pp_qkv_widths(c);
    double frequency[PP_MOST_AXES_HEAD / 2];
    struct pp_rope_axes axes = {.frequency = frequency};
    for (; axes.n < PP_ROPE_AXES && m->rope_axes[axes.n]; axes.n++)
        axes.width[axes.n] = m->rope_axes[axes.n];
    if (pp_model_is_tower(m)) {
        fill_frequencies(m, frequency);
    } else {
        axes.cos = c->env->rope_cos;
        axes.sin = c->env->rope_sin;
    }
    PP_RUN(c, rope_axes, qkv, &axes, c->mb->axes, c->T, w.of.n + w.of.n_kv,
           m->head_dim, w.row, m->head_dim, direction);
}
