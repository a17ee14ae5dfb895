/* SPDX-License-Identifier: MIT */
/* encoder_rows - what the layers of an encoder read of its items in a
 * microbatch, and what the embedding of the language model reads of their
 * features. */
#ifndef PP_RUN_PARTS_ENCODER_ENCODER_ROWS_H
#define PP_RUN_PARTS_ENCODER_ENCODER_ROWS_H

#include <stddef.h>
#include <stdint.h>

/* How features go from the ranks that make them to the ranks that have their
 * tokens. The parts of each rank are bounds, as pp_all_to_all takes them. */
struct pp_feature_routes {
    const int32_t *order; /* the features that this rank sends, by destination
                           */
    const size_t *out, *in;
};

struct pp_encoder_rows {
    /* The rows whose features the language model gets, in its order:
     * (n_features, hidden states that make one); an encoder that merges patches
     * counts as many rows as make a feature as one. NULL: all, in order. */
    size_t n_features;
    const int32_t *feature_rows;
    const int32_t *sources;  /* (n_features) host memory, if they are in another
                                order in the encoder: the number of each, by its
                                place there; else NULL */
    const int32_t *n_frames; /* (n_sequences) of each clip, if the encoder works
                                on chunks; host memory */
    const int32_t *kinds;    /* (tokens) for an encoder of audio, as the kernel
                                taps takes them */
    /* If some layers attend to windows or chunks, not to images. */
    size_t n_windows;
    const int32_t *cu_windows;              /* (n_windows + 1) */
    const struct pp_feature_routes *routes; /* before a bridge: the order in
                                               which a projector sends; or NULL
                                             */
    const float *const *pixels; /* (n_sequences) of each image, (patches,
                                   patch_inputs); host memory */
};

/* The features of an encoder for the rows of this rank. */
struct pp_taken_features {
    size_t n;
    const int32_t *rows; /* (n) of this rank, by the rank that makes them; the
                            ids of these placeholders are -1 */
    const struct pp_feature_routes *routes; /* NULL: one rank has all, or there
                                               is a bridge */
};

#endif
