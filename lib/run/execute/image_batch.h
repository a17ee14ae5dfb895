/* SPDX-License-Identifier: MIT */
/* image_batch - the images of packed bins as the layers of an encoder see
 * them, and the places of their features among the tokens.
 *
 * An image is a sequence of the encoder: its patches, after a class token if
 * the encoder has one. Ranks divide images as wholes, whatever tokens they have
 * (image_places.h). As of batch.h, every action makes it again from the mapped
 * index. */
#ifndef PP_RUN_EXECUTE_IMAGE_BATCH_H
#define PP_RUN_EXECUTE_IMAGE_BATCH_H

#include "data/packed/packed.h"
#include "run/execute/batch.h"
#include "run/execute/image_places.h"

/* Buffers for the images of a microbatch of up to max_tokens, or of that many
 * features if they belong to several microbatches. */
struct pp_image_batch {
    size_t states;        /* hidden states in a feature */
    void *memory;         /* of the arrays below */
    const float **pixels; /* of each image */
    size_t *out, *in;     /* bounds by rank */
    int32_t
        *positions; /* on one axis; in the room of axes if rows are merged */
    int32_t *input_ids, *cu_seqlens;
    int32_t *feature_rows; /* among the rows of the encoder, of several the
                              first one; in each hidden state that the projector
                              reads; or the places of features if these come by
                              windows */
    int32_t *cu_windows;   /* or of chunks; if rows are merged */
    int32_t *n_frames;     /* of each clip of audio */
    int32_t *row_kinds;    /* of audio, in the room of token_axes */
    int32_t *token_rows;   /* among the tokens */
    int32_t
        *axes; /* positions of patches on two axes, if they are merged ... */
    int32_t *token_axes; /* ... and of tokens on three */
    int32_t *sources; /* of features in another order: the number of each among
                         the features of the images, by its place */
    int32_t *order, *takers; /* of the features of this rank: by destination,
                                and the destination of each; -1: another copy of
                                the maker sends it */
    struct pp_host_microbatch view; /* of the last bin */
    struct pp_feature_routes routes;
    struct pp_sent_arrays arrays;
    struct pp_microbatch sent;            /* the view of kernels, ... */
    struct pp_feature_routes sent_routes; /* ... and on a GPU its routes */
};

/* The device outlives b. */
int pp_image_batch_init(struct pp_image_batch *b, struct pp_device *d,
                        size_t max_tokens, const struct pp_image_counts *c,
                        struct pp_err *err) PP_MUST_USE;
void pp_image_batch_finish(struct pp_image_batch *b);

/* Fails with PP_EXIT_INPUT if the encoder cannot take the images of a packed
 * set: their patches or placeholders are not the model's. A set
 * without images is fine. A model without an encoder takes no images. */
int pp_images_check(const struct pp_model *m, const struct pp_packed *p,
                    struct pp_err *err) PP_MUST_USE;

/* Completes *host, a view of the tokens of the rank without slices, with the
 * images of an encoder: the places of features, which are no words any more,
 * and the view of the encoder. The latter points into b. Fails with
 * PP_EXIT_INPUT if a sequence has other numbers of placeholders and of
 * features.
 */
int pp_image_batch_view(struct pp_image_batch *b, struct pp_batch *tokens,
                        const struct pp_env *env, const struct pp_image_work *w,
                        struct pp_host_microbatch *host,
                        struct pp_err *err) PP_MUST_USE;

/* Copies the arrays of all encoders to their device, if it is a GPU, and points
 * *mb, which has their views, to the copies. */
int pp_image_batches_send(struct pp_image_batch b[PP_MAX_ENCODERS],
                          struct pp_microbatch *mb,
                          struct pp_err *err) PP_MUST_USE;

#endif
