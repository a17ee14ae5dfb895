/* SPDX-License-Identifier: MIT */
/* modality - what a packed set can have beside its tokens, for an encoder:
 * images or audio. Pure.
 *
 * A stream has items: images, or clips of audio. An item has rows, which the
 * encoder reads, and a feature for each group of rows, which takes the place of
 * a token. A row of an image is a patch of pixels, and merge x merge patches
 * make a feature. A row of audio is two frames of a spectrogram and the next
 * one; merge rows make a feature, and a rest of a clip makes none. What is
 * called image and patch elsewhere is the item and the row of any stream. */
#ifndef PP_BASE_MODALITY_H
#define PP_BASE_MODALITY_H

#include <stddef.h>

/* Files have these numbers. */
enum pp_modality { PP_MODALITY_IMAGES, PP_MODALITY_AUDIO, PP_N_MODALITIES };

enum {
    PP_AUDIO_FRAMES = 3, /* of a row */
    PP_AUDIO_MERGE = 2   /* of every encoder of audio so far */
};

enum { PP_MOST_CHANNELS = 16 };

/* The normalisation of pixels: a model takes (x * factor - mean) / deviation,
 * with the mean and the deviation of the channel, in fp32. */
struct pp_pixel_map {
    size_t n; /* channels; 1: all are alike */
    float factor, mean[PP_MOST_CHANNELS], deviation[PP_MOST_CHANNELS];
};

/* Words for messages: one item, several, and their rows. */
struct pp_modality_words {
    const char *item, *items, *rows;
};

static inline struct pp_modality_words pp_modality_words(enum pp_modality s)
{
    return s == PP_MODALITY_AUDIO
               ? (struct pp_modality_words){"clip", "clips of audio", "rows"}
               : (struct pp_modality_words){"image", "images", "patches"};
}

/* Returns the rows of a feature. */
static inline size_t pp_modality_rows(enum pp_modality s, size_t merge)
{
    return s == PP_MODALITY_AUDIO ? merge : merge * merge;
}

#endif
