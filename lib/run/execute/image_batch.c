/* SPDX-License-Identifier: MIT */
/* image_batch - fills the arrays of the images of a packed bin. */
#include "run/execute/image_batch.h"

#include "model/vision.h"

int pp_image_batch_init(struct pp_image_batch *b, struct pp_device *d,
                        size_t max_tokens, struct pp_err *err)
{
    size_t n = max_tokens + 1;
    *b = (struct pp_image_batch){.device = d};
    b->positions = pp_device_alloc(d, 1, pp_image_batch_bytes(max_tokens),
                                   "arrays of images", err);
    if (!b->positions)
        return -1;
    b->input_ids = b->positions + 2 * n;
    b->cu_seqlens = b->input_ids + 2 * n;
    b->feature_rows = b->cu_seqlens + n;
    b->token_rows = b->feature_rows + n;
    return 0;
}

void pp_image_batch_finish(struct pp_image_batch *b)
{
    pp_device_free(b->device, b->positions);
    *b = (struct pp_image_batch){0};
}

int pp_images_check(const struct pp_model *m, const struct pp_packed *p,
                    struct pp_err *err)
{
    const struct pp_packed_images *s = &p->images;
    const struct pp_vision *v = &m->vision;
    if (!pp_images_exist(s))
        return 0;
    if (v->kind == PP_VISION_NONE)
        return pp_fail(err, PP_EXIT_INPUT,
                       "'%s' has no encoder for the %llu images",
                       pp_model_architecture(m), (unsigned long long)s->n);
    if (s->token != v->image_token)
        return pp_fail(err, PP_EXIT_INPUT,
                       "token '%u' stands for images, but %zu in the model; "
                       "pack them with this one",
                       s->token, v->image_token);
    if (s->patch_inputs != v->patch_inputs || s->merge != 1)
        return pp_fail(err, PP_EXIT_INPUT,
                       "a patch has '%u' pixels and %u of them make a feature, "
                       "but the model takes %zu and 1",
                       s->patch_inputs, s->merge * s->merge, v->patch_inputs);
    if (s->max_image > v->patches || s->n_patches != s->n * v->patches)
        return pp_fail(err, PP_EXIT_INPUT,
                       "images have up to '%u' patches, but the model takes "
                       "%zu of each",
                       s->max_image, v->patches);
    return 0;
}

size_t pp_images_of_bin(const struct pp_packed *p, size_t bin)
{
    struct pp_bin_images b = {0};
    if (bin != PP_NO_BIN)
        pp_packed_bin_images(p, bin, &b);
    return b.n;
}

/* Lists the rows of the encoder. */
static void view_images(struct pp_image_batch *b, const struct pp_model *m,
                        const struct pp_bin_images *images)
{
    size_t patches = m->vision.patches, rows = patches + 1;
    size_t n = images->n, features = 0;
    for (size_t i = 0; i < n; i++) {
        b->cu_seqlens[i] = (int32_t)(i * rows);
        for (size_t t = 0; t < rows; t++) {
            size_t at = i * rows + t;
            b->positions[at] = (int32_t)t;
            b->input_ids[at] = t ? -1 : 0;
            if (t)
                b->feature_rows[features++] = (int32_t)at;
        }
    }
    b->cu_seqlens[n] = (int32_t)(n * rows);
    b->view = (struct pp_microbatch){.tokens = n * rows,
                                     .n_sequences = n,
                                     .cu_seqlens = b->cu_seqlens,
                                     .cu_seqlens_padded = b->cu_seqlens,
                                     .positions = b->positions,
                                     .input_ids = b->input_ids,
                                     .n_features = features,
                                     .feature_rows = b->feature_rows,
                                     .pixels = images->pixels};
}

/* Lists the placeholders of sequence i, and takes their ids away. Returns their
 * number. */
static size_t view_places(struct pp_image_batch *b, struct pp_batch *tokens,
                          const struct pp_bin *bin, uint32_t i, int32_t token,
                          size_t found)
{
    /* The tokens of an index alone have been copied. */
    const int32_t *ids = bin->input_ids ? bin->input_ids : tokens->ids;
    int32_t first = bin->cu_seqlens_padded[i];
    int32_t end = first + bin->cu_seqlens[i + 1] - bin->cu_seqlens[i];
    size_t before = found;
    for (int32_t t = first; t < end; t++)
        if (ids[t] == token) {
            b->token_rows[found++] = t;
            tokens->input_ids[t] = -1;
        }
    return found - before;
}

int pp_image_batch_view(struct pp_image_batch *b, struct pp_batch *tokens,
                        const struct pp_model *m, const struct pp_packed *p,
                        size_t bin, struct pp_microbatch *mb,
                        struct pp_err *err)
{
    struct pp_bin_images images = {0};
    struct pp_bin v = {0};
    if (bin != PP_NO_BIN) {
        pp_packed_bin(p, bin, &v);
        pp_packed_bin_images(p, bin, &images);
    }
    view_images(b, m, &images);
    mb->n_features = 0;
    for (uint32_t i = 0; i < v.n_sequences; i++) {
        size_t n = images.cu_images
                       ? (size_t)(images.cu_images[i + 1] - images.cu_images[i])
                       : 0;
        size_t places = view_places(
            b, tokens, &v, i, (int32_t)m->vision.image_token, mb->n_features);
        if (places != n * m->vision.patches)
            return pp_fail(err, PP_EXIT_INPUT,
                           "packed data: bin %zu: sequence %u has '%zu' tokens "
                           "for images, but its %zu images have %zu features",
                           bin, i, places, n, n * m->vision.patches);
        mb->n_features += places;
    }
    mb->feature_rows = b->token_rows;
    mb->images = &b->view;
    return 0;
}
