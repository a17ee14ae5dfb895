/* SPDX-License-Identifier: MIT */
/* image_batch - the images of a packed bin as the layers of an encoder see
 * them, and the places of their features among the tokens.
 *
 * An image is a sequence of the encoder: a class token, then its patches. As of
 * batch.h, every action makes it again from the mapped index. */
#ifndef PP_RUN_EXECUTE_IMAGE_BATCH_H
#define PP_RUN_EXECUTE_IMAGE_BATCH_H

#include "data/packed.h"
#include "run/execute/batch.h"

/* Buffers for the images of a microbatch of up to max_tokens. */
struct pp_image_batch {
    int32_t *positions; /* this and the arrays below are one allocation */
    int32_t *input_ids, *cu_seqlens;
    int32_t *feature_rows; /* among the rows of the encoder */
    int32_t *token_rows;   /* among the tokens */
    struct pp_device *device;
    struct pp_microbatch view; /* of the last bin */
};

/* The device, whose memory is the host's, outlives b. */
int pp_image_batch_init(struct pp_image_batch *b, struct pp_device *d,
                        size_t max_tokens, struct pp_err *err) PP_MUST_USE;
void pp_image_batch_finish(struct pp_image_batch *b);

/* Fails with PP_EXIT_INPUT if the encoder cannot take the images of a packed
 * set: their patches or placeholders are others than those of the model. A set
 * without images is fine. A model without an encoder takes no images. */
int pp_images_check(const struct pp_model *m, const struct pp_packed *p,
                    struct pp_err *err) PP_MUST_USE;

/* Returns the images of a bin, which may be PP_NO_BIN. */
size_t pp_images_of_bin(const struct pp_packed *p, size_t bin);

/* Completes *mb, a view of the whole of a bin in `tokens`, with its images: the
 * places of features, which are no words any more, and the view of the encoder.
 * The latter points into b. Fails with PP_EXIT_INPUT if a sequence has other
 * numbers of placeholders and of features. */
int pp_image_batch_view(struct pp_image_batch *b, struct pp_batch *tokens,
                        const struct pp_model *m, const struct pp_packed *p,
                        size_t bin, struct pp_microbatch *mb,
                        struct pp_err *err) PP_MUST_USE;

#endif
