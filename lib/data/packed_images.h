/* SPDX-License-Identifier: MIT */
/* packed_images - the images of a packed set, or its clips of audio
 * (base/modality.h): a second stream beside the tokens, whose rows are patches.
 *
 * An image is a grid of patches, a row of pixels each. It belongs to a sequence
 * and stands for placeholders in it: tokens with the id `token`, in the order
 * of the images. A sequence has as many placeholders as its images have
 * features. pp-images(5) has the byte layout. */
#ifndef PP_DATA_PACKED_IMAGES_H
#define PP_DATA_PACKED_IMAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "data/images.h"

struct pp_packed;

/* The images of all bins. */
struct pp_packed_images {
    enum pp_modality modality;
    uint32_t patch_inputs; /* pixels of a patch: channel, row, column, as in the
                              weight of a patch embedding. 0: the set has no
                              images, and all of this is 0 */
    uint32_t token;        /* the id of placeholders */
    uint32_t merge;        /* see base/modality.h */
    uint32_t capacity;     /* most patches of a bin when it was packed; 0: no
                              limit */
    uint32_t max_images, max_patches; /* of a bin */
    uint32_t max_image;               /* patches of the largest image */
    uint64_t n, n_patches;            /* of all bins */
};

/* Returns whether the set has a stream of images; a bin may still have none. */
static inline bool pp_images_exist(const struct pp_packed_images *s)
{
    return s->patch_inputs > 0;
}

/* Returns the features of an image of that many patches. */
static inline uint32_t pp_image_features(const struct pp_packed_images *s,
                                         uint32_t patches)
{
    return patches / (uint32_t)pp_modality_rows(s->modality, s->merge);
}

/* The images of one bin. Sequence i has images cu_images[i]..cu_images[i + 1],
 * and image k has the rows cu_patches[k]..cu_patches[k + 1] of the pixels. If
 * the set has no images, all is 0 and NULL. */
struct pp_bin_images {
    uint32_t n, patches;
    uint64_t first;              /* images in the bins before it */
    const int32_t *cu_images;    /* n_sequences + 1 */
    const int32_t *cu_patches;   /* n + 1 */
    const struct pp_grid *grids; /* n */
    const float *pixels;         /* (patches, patch_inputs) */
};

/* Fills *out with the images of bin b, which is below n_bins. */
void pp_packed_bin_images(const struct pp_packed *p, size_t b,
                          struct pp_bin_images *out);

/* Returns the first of the images of a rank, among `size` that divide those of
 * a bin: each has consecutive whole images, with as equal numbers of patches as
 * can be. Rank `size` begins at the end. */
uint32_t pp_images_part(const struct pp_bin_images *b, size_t size,
                        size_t rank);

/* The images of the rank, among `size` that divide those of a bin, that has
 * most patches: these, and the sum of the squares of those of each image. */
struct pp_image_share {
    double patches, squares;
};
struct pp_image_share pp_images_largest(const struct pp_bin_images *b,
                                        size_t size);

/* The same of the microbatches at `lanes` places from `first` on, whose images
 * the ranks divide as if of one bin. */
struct pp_image_share pp_images_largest_of(const struct pp_packed *p,
                                           uint64_t first, size_t lanes,
                                           size_t size);

/* Returns the most patches that one of `size` ranks gets: of a bin, or at most
 * of any `lanes` bins if they divide the images of several as if of one. It is
 * rounded up to whole features, of which plans assume a number in proportion.
 */
uint32_t pp_images_most(const struct pp_packed *p, size_t size, size_t lanes);

/* Images for a set in memory, in the order of its sequences. */
struct pp_image_content {
    struct pp_image_kind kind;
    const uint32_t *n;           /* (n_sequences) images of each sequence */
    const struct pp_grid *grids; /* of all images */
};

/* Gives images to a set in memory that has none. *pixels is room for the caller
 * to fill: (patches, patch_inputs) of all images, zeros so far, which
 * pp_packed_finish frees. Fails with PP_EXIT_INPUT if a grid is impossible, or
 * if the features of a sequence are more than its tokens. */
int pp_packed_set_images(struct pp_packed *p, const struct pp_image_content *c,
                         float **pixels, struct pp_err *err) PP_MUST_USE;

#endif
