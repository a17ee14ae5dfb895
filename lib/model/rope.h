/* SPDX-License-Identifier: MIT */
/* rope - the parameters of a rotary embedding. */
#ifndef PP_MODEL_ROPE_H
#define PP_MODEL_ROPE_H

#include <stdbool.h>

#include "kernel_sizes.h"

enum pp_rope_type {
    PP_ROPE_DEFAULT,
    PP_ROPE_LINEAR,
    PP_ROPE_LLAMA3,
    PP_ROPE_YARN,    /* Peng et al., "YaRN", 2023 */
    PP_ROPE_DYNAMIC, /* the default up to max_position */
    PP_ROPE_LONGROPE /* Ding et al., "LongRoPE", 2024; up to
                        original_max_position */
};

/* Most frequencies of a longrope. */
#define PP_ROPE_DIVISORS 128

struct pp_rope {
    enum pp_rope_type type;
    double theta;
    bool odd;      /* exponents count one element less than rotate */
    double factor; /* linear, llama3, yarn */
    double low_freq_factor, high_freq_factor; /* llama3 */
    double original_max_position;             /* llama3, yarn, longrope */
    double attention_factor; /* of cosines and sines; not 1: yarn, longrope */
    double beta_fast, beta_slow; /* yarn: turns in the original positions,
                                    between which frequencies are blended */
    bool truncate;               /* yarn: blend between whole frequencies */
    double divisors[PP_ROPE_DIVISORS]; /* longrope: of each frequency */
};

#endif
