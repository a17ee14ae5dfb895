/* SPDX-License-Identifier: MIT */
/* images - the images of documents: grids of patches, and the pixels of these,
 * in memory or, if there are many, in a mapped file without a name. Or their
 * clips of audio (base/modality.h).
 *
 * The images of a line are loaded first, and then attached to each of its
 * sequences, which share the pixels. */
#ifndef PP_DATA_IMAGES_H
#define PP_DATA_IMAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/modality.h"
#include "data/spill.h"

/* Patches of an image, from the slowest dimension to the fastest; 1, 1 and the
 * rows of a clip of audio. */
struct pp_grid {
    uint32_t frames, rows, columns;
};

/* Returns the patches of a grid, or 0 if there are none or more than 2^31 - 1.
 */
uint32_t pp_grid_patches(const struct pp_grid *g);

/* Reports whether the patches make features: rows and columns can be merged, or
 * a clip of audio has enough for one. */
bool pp_grid_merges(enum pp_modality modality, uint32_t merge,
                    const struct pp_grid *g);

/* The properties that all images of a set share. Zeroed: there are none. */
struct pp_image_kind {
    uint32_t patch_inputs; /* pixels of a patch: channel, row, column, as in the
                              weight of a patch embedding. Of audio: frequency,
                              then frame */
    uint32_t token;        /* the id of placeholders */
    uint32_t merge;        /* see base/modality.h */
    enum pp_modality modality;
};

struct pp_image {
    struct pp_grid grid;
    uint32_t patches;
    size_t row; /* its first patch among all pixels */
};

/* A zeroed struct is empty. */
struct pp_images {
    struct pp_image_kind kind; /* set by the first image */
    bool forget;               /* keep no pixels; set before loading */
    size_t n;                  /* attached to sequences */
    struct pp_image *at;
    float *pixels; /* rows of kind.patch_inputs */
    /* Private. */
    size_t n_sequences; /* that have an entry in first */
    size_t *first;      /* n_sequences + 1 */
    size_t n_loaded, n_rows;
    size_t released; /* rows at the last release */
    struct pp_image *loaded;
    struct pp_spill_array grow_at, grow_first, grow_loaded, grow_pixels;
};

/* Begins a line: forgets images that were loaded and not attached. */
void pp_images_begin(struct pp_images *s);

/* Loads one image and returns room for its pixels, (patches, patch_inputs), or
 * NULL with *err filled. spill and limit are those of pp_spill_grow. Fails with
 * PP_EXIT_INPUT if the grid makes no features, or if the kind is another than
 * that of the earlier images. */
float *pp_images_load(struct pp_images *s, const struct pp_image_kind *kind,
                      const struct pp_grid *grid, const char *spill,
                      size_t limit, struct pp_err *err) PP_MUST_USE;

/* Returns the features of the loaded images. */
uint64_t pp_images_loaded(const struct pp_images *s);

/* Returns the features of n images. */
uint64_t pp_images_features(const struct pp_images *s,
                            const struct pp_image *at, size_t n);

/* Attaches the loaded images to sequence number `sequence`, which has none and
 * is behind all that have. */
int pp_images_attach(struct pp_images *s, size_t sequence,
                     struct pp_err *err) PP_MUST_USE;

/* Returns how many images a sequence has, and the first of them. */
size_t pp_images_of(const struct pp_images *s, size_t sequence,
                    const struct pp_image **first);

/* Returns how many placeholders are among n ids, and takes their labels away,
 * unless labels is NULL: nothing should predict them. */
size_t pp_images_placeholders(int64_t token, const int32_t *ids,
                              int32_t *labels, size_t n);

/* Removes the images of all sequences from n_sequences on. */
void pp_images_truncate(struct pp_images *s, size_t n_sequences);

/* Lets the mapped pixels leave memory, since they will not be read soon. */
void pp_images_release(struct pp_images *s);

void pp_images_finish(struct pp_images *s);

#endif
