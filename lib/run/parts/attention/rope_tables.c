/* SPDX-License-Identifier: MIT */
/* rope_tables - cosines and sines of every position. The frequencies are as in
 * modeling_rope_utils.py of transformers. */
#include "run/parts/layer.h"

#include <math.h>

/* Llama 3.1: divides the frequency of long waves by factor, keeps short waves,
 * and blends the waves between. */
static double llama3(const struct pp_rope *r, double frequency)
{
    double wave = 2 * M_PI / frequency;
    double slow = frequency / r->factor;
    if (wave > r->original_max_position / r->low_freq_factor)
        return slow;
    if (wave < r->original_max_position / r->high_freq_factor)
        return frequency;
    double smooth = (r->original_max_position / wave - r->low_freq_factor) /
                    (r->high_freq_factor - r->low_freq_factor);
    return (1 - smooth) * slow + smooth * frequency;
}

/* YaRN: the number of the frequency that turns so often in the original
 * positions; it need not be whole. */
static double turning(const struct pp_rope *r, size_t rotary, double turns)
{
    return (double)rotary * log(r->original_max_position / (turns * 2 * M_PI)) /
           (2 * log(r->theta));
}

/* Keeps fast frequencies, divides slow ones by factor, and blends frequencies
 * between. */
static double yarn(const struct pp_rope *r, size_t rotary, double frequency,
                   size_t i)
{
    double first = turning(r, rotary, r->beta_fast);
    double last = turning(r, rotary, r->beta_slow);
    if (r->truncate) {
        first = floor(first);
        last = ceil(last);
    }
    first = fmax(first, 0);
    last = fmin(last, (double)rotary - 1);
    double width = last - first;
    if (fabs(width) <= 0)
        width = 0.001;
    double slow = fmin(fmax(((double)i - first) / width, 0), 1);
    return frequency / r->factor * slow + frequency * (1 - slow);
}

double pp_rope_frequency(const struct pp_rope *r, size_t rotary, size_t i)
{
    rotary -= r->odd;
    double f = pow(r->theta, -2 * (double)i / (double)rotary);
    switch (r->type) {
    case PP_ROPE_LINEAR:
        return f / r->factor;
    case PP_ROPE_LLAMA3:
        return llama3(r, f);
    case PP_ROPE_YARN:
        return yarn(r, rotary, f, i);
    case PP_ROPE_LONGROPE:
        return f / r->divisors[i];
    case PP_ROPE_DEFAULT:
    case PP_ROPE_DYNAMIC:
        break;
    }
    return f;
}

static void store(void *table, size_t value_bytes, size_t at, double x)
{
    if (value_bytes == sizeof(float))
        ((float *)table)[at] = (float)x;
    else
        ((double *)table)[at] = x;
}

void pp_rope_tables(const struct pp_rope *r, size_t rotary, size_t positions,
                    size_t value_bytes, void *cos_table, void *sin_table)
{
    size_t half = rotary / 2;
    double scale = r->attention_factor;
    for (size_t i = 0; i < half; i++) {
        double f = pp_rope_frequency(r, rotary, i);
        for (size_t t = 0; t < positions; t++) {
            double angle = (double)t * f;
            store(cos_table, value_bytes, t * half + i, scale * cos(angle));
            store(sin_table, value_bytes, t * half + i, scale * sin(angle));
        }
    }
}

void pp_rope_scale(const struct pp_model *m, size_t positions,
                   size_t value_bytes, void *cos_table, void *sin_table)
{
    size_t half = pp_model_rotary(m, false) / 2;
    for (size_t i = 0; i < positions * half; i++) {
        size_t position = i / half + (m->unrotated_queries ? 1 : 0);
        double by =
            1 + m->query_beta * log1p((double)(position / m->query_period));
        if (m->unrotated_queries) {
            store(cos_table, value_bytes, i, by);
            store(sin_table, value_bytes, i, 0);
        } else if (value_bytes == sizeof(float)) {
            ((float *)cos_table)[i] *= (float)by;
            ((float *)sin_table)[i] *= (float)by;
        } else {
            ((double *)cos_table)[i] *= by;
            ((double *)sin_table)[i] *= by;
        }
    }
}
