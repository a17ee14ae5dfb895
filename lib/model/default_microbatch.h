/* SPDX-License-Identifier: MIT */
/* assumed - a microbatch where there is no data yet: sequences of the
 * same length, as many as make up its tokens. */
#ifndef PP_MODEL_DEFAULT_MICROBATCH_H
#define PP_MODEL_DEFAULT_MICROBATCH_H

#include <stdint.h>

struct pp_default_microbatch {
    int64_t tokens, seq_len;         /* at least 1 each */
    int64_t n_images, image_patches; /* of a sequence, and of each of them; 0
                                        where there is no encoder of images */
};

/* What a microbatch is where nothing else is known: one sequence. */
struct pp_default_microbatch pp_default_microbatch_of(int64_t seq_len);

/* Tokens and attended pairs of slice q of n. Slices are equal to a token. Every
 * token of a whole microbatch has (seq_len + 1) / 2 pairs on average, also
 * where sequences do not divide it. */
struct pp_default_microbatch_part {
    double tokens, pairs;
};
struct pp_default_microbatch_part
pp_default_microbatch_slice(const struct pp_default_microbatch *mb, int64_t q,
                            int64_t n);

#endif
