/* SPDX-License-Identifier: MIT */
/* packed_images - reads and checks the images of a packed set. */
#include "data/packed_images.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/num.h"
#include "data/packed.h"
#include "data/packed_format.h"

void pp_packed_bin_images(const struct pp_packed *p, size_t b,
                          struct pp_bin_images *out)
{
    const struct pp_packed_record *bins = p->sections[PP_SECTION_BINS];
    const struct pp_packed_image_record *r = p->sections[PP_SECTION_IMAGE_BINS];
    *out = (struct pp_bin_images){0};
    if (!pp_images_exist(&p->images))
        return;
    const int32_t *cu_images = p->sections[PP_SECTION_CU_IMAGES];
    const int32_t *cu_patches = p->sections[PP_SECTION_CU_PATCHES];
    const struct pp_grid *grids = p->sections[PP_SECTION_GRIDS];
    const float *pixels = p->map[PP_PACKED_PIXELS];
    out->first = r[b].first_image;
    out->cu_images = cu_images + bins[b].first_sequence + b;
    out->cu_patches = cu_patches + out->first + b;
    out->grids = grids + out->first;
    out->n = (uint32_t)out->cu_images[bins[b].n_sequences];
    out->patches = (uint32_t)out->cu_patches[out->n];
    if (pixels)
        out->pixels = pixels + r[b].first_patch * p->images.patch_inputs;
}

/* An image belongs to the rank that its middle falls to. */
uint32_t pp_images_part(const struct pp_bin_images *b, size_t size, size_t rank)
{
    uint64_t end = 2 * (uint64_t)b->patches * rank;
    uint32_t low = 0, high = b->n;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        uint64_t twice =
            (uint64_t)b->cu_patches[mid] + (uint64_t)b->cu_patches[mid + 1];
        if (twice * size < end)
            low = mid + 1;
        else
            high = mid;
    }
    return rank < size ? low : b->n;
}

/* The order of bins differs between epochs, so any may come together. The
 * middles of a rank's images are in an equal part of the patches; at both ends
 * half an image may be outside. */
static uint32_t most_of_lanes(const struct pp_packed_images *s, size_t size,
                              size_t lanes)
{
    uint64_t all = (uint64_t)s->max_patches * lanes;
    uint64_t grain = pp_modality_rows(s->modality, s->merge);
    uint64_t most = all / size / grain * grain + grain + s->max_image;
    return (uint32_t)(all == 0 || size == 1 || all < most ? all : most);
}

/* Returns the most patches that one of `size` ranks gets of a bin. */
static uint32_t most_of_bins(const struct pp_packed *p, size_t size)
{
    uint32_t most = 0;
    struct pp_bin_images b;
    if (size == 1)
        return p->images.max_patches;
    for (size_t i = 0; i < p->n_bins; i++) {
        pp_packed_bin_images(p, i, &b);
        for (size_t rank = 0; b.n && rank < size; rank++)
            pp_raise(
                &most,
                (uint32_t)(b.cu_patches[pp_images_part(&b, size, rank + 1)] -
                           b.cu_patches[pp_images_part(&b, size, rank)]));
    }
    return most;
}

uint32_t pp_images_most(const struct pp_packed *p, size_t size, size_t lanes)
{
    const struct pp_packed_images *s = &p->images;
    if (!pp_images_exist(s))
        return 0;
    uint32_t most =
        lanes > 1 ? most_of_lanes(s, size, lanes) : most_of_bins(p, size);
    return (uint32_t)pp_round_up(most, pp_modality_rows(s->modality, s->merge));
}

struct pp_image_share pp_images_largest(const struct pp_bin_images *b,
                                        size_t size)
{
    struct pp_image_share most = {0, 0};
    for (size_t rank = 0; b->n && rank < size; rank++) {
        struct pp_image_share here = {0, 0};
        uint32_t end = pp_images_part(b, size, rank + 1);
        for (uint32_t k = pp_images_part(b, size, rank); k < end; k++) {
            double patches = b->cu_patches[k + 1] - b->cu_patches[k];
            here.patches += patches;
            here.squares += patches * patches;
        }
        if (here.patches > most.patches)
            most = here;
    }
    return most;
}

struct pp_image_share pp_images_largest_of(const struct pp_packed *p,
                                           uint64_t first, size_t lanes,
                                           size_t size)
{
    struct pp_image_share most = {0, 0}, here = {0, 0};
    uint64_t total = 0, before = 0, rank = 0;
    struct pp_bin_images b;
    for (size_t lane = 0; lane < lanes; lane++) {
        pp_packed_bin_images(p, pp_packed_place(p, first + lane), &b);
        total += b.patches;
    }
    for (size_t lane = 0; lane < lanes; lane++) {
        pp_packed_bin_images(p, pp_packed_place(p, first + lane), &b);
        for (uint32_t k = 0; k < b.n; k++) {
            uint64_t n = (uint64_t)(b.cu_patches[k + 1] - b.cu_patches[k]);
            uint64_t now = (2 * before + n) * size / (2 * total);
            if (now != rank)
                here = (struct pp_image_share){0, 0};
            rank = now;
            before += n;
            here.patches += (double)n;
            here.squares += (double)n * (double)n;
            most = here.patches > most.patches ? here : most;
        }
    }
    return most;
}

int pp_packed_find_images(struct pp_packed *p, struct pp_err *err)
{
    const struct pp_packed_header *h = p->map[PP_PACKED_INDEX];
    uint64_t n_cu = h->n_sequences + h->n_bins, n_pixels, n_cu_patches;
    bool audio = h->version == PP_PACKED_AUDIO;
    p->images =
        (struct pp_packed_images){.modality = (enum pp_modality)h->modality,
                                  .patch_inputs = h->patch_inputs,
                                  .token = h->image_token,
                                  .merge = h->merge,
                                  .capacity = h->patch_capacity,
                                  .max_images = h->max_images,
                                  .max_patches = h->max_patches,
                                  .max_image = h->max_image,
                                  .n = h->n_images,
                                  .n_patches = h->n_patches};
    if (!h->patch_inputs || !h->merge || h->merge > INT16_MAX ||
        h->image_token >= h->vocab || !h->n_images || h->token_files ||
        h->patch_capacity > INT32_MAX ||
        h->modality != (audio ? PP_MODALITY_AUDIO : PP_MODALITY_IMAGES) ||
        (audio && (h->ranks || h->cp || h->max_rank_tokens)) ||
        __builtin_mul_overflow(h->n_patches, h->patch_inputs, &n_pixels) ||
        __builtin_add_overflow(h->n_images, h->n_bins, &n_cu_patches))
        return pp_fail(err, PP_EXIT_INPUT,
                       "index: the header's images are impossible");
    return pp_packed_find_section(p, PP_SECTION_IMAGE_BINS, h->image_bins,
                                  h->n_bins,
                                  sizeof(struct pp_packed_image_record), err) ||
                   pp_packed_find_section(p, PP_SECTION_CU_IMAGES, h->cu_images,
                                          n_cu, 4, err) ||
                   pp_packed_find_section(p, PP_SECTION_CU_PATCHES,
                                          h->cu_patches, n_cu_patches, 4,
                                          err) ||
                   pp_packed_find_section(p, PP_SECTION_GRIDS, h->grids,
                                          h->n_images, sizeof(struct pp_grid),
                                          err)
               ? -1
               : 0;
}

static int fail_images(size_t b, struct pp_err *err, const char *what)
{
    return pp_fail(err, PP_EXIT_INPUT, "index: bin %zu: %s", b, what);
}

/* Checks the images of one sequence: their grids, and that its placeholders can
 * be among its tokens. */
static int check_sequence_images(const struct pp_packed *p, size_t b,
                                 uint32_t i, const struct pp_bin_images *at,
                                 struct pp_err *err)
{
    const struct pp_packed_record *r = p->sections[PP_SECTION_BINS];
    const int32_t *cu = p->sections[PP_SECTION_CU];
    const struct pp_modality_words words =
        pp_modality_words(p->images.modality);
    uint64_t features = 0;
    cu += r[b].first_sequence + b + i;
    for (int32_t k = at->cu_images[i]; k < at->cu_images[i + 1]; k++) {
        const struct pp_grid *g = &at->grids[k];
        uint32_t patches = pp_grid_patches(g);
        if (!patches || patches > p->images.max_image ||
            !pp_grid_merges(p->images.modality, p->images.merge, g))
            return pp_fail(err, PP_EXIT_INPUT,
                           "index: bin %zu: one of the %s cannot have '%" PRIu32
                           " x %" PRIu32 " x %" PRIu32 "' %s",
                           b, words.items, g->frames, g->rows, g->columns,
                           words.rows);
        if ((int64_t)at->cu_patches[k + 1] - at->cu_patches[k] != patches)
            return fail_images(b, err, "cu_patches do not match the grids");
        features += pp_image_features(&p->images, patches);
    }
    if (features > (uint64_t)(cu[1] - cu[0]))
        return pp_fail(err, PP_EXIT_INPUT,
                       "index: bin %zu: a sequence of '%" PRId32
                       "' tokens cannot have %" PRIu64 " features of %s",
                       b, cu[1] - cu[0], features, words.items);
    return 0;
}

/* Checks the images of bin b, which begin where *images and *patches say, and
 * adds them to these. */
static int check_bin_images(const struct pp_packed *p, size_t b,
                            uint64_t *images, uint64_t *patches,
                            struct pp_err *err)
{
    const struct pp_packed_record *r = p->sections[PP_SECTION_BINS];
    const struct pp_packed_image_record *at =
        p->sections[PP_SECTION_IMAGE_BINS];
    const int32_t *cu = p->sections[PP_SECTION_CU_IMAGES];
    struct pp_bin_images bin;
    uint32_t n = r[b].n_sequences;
    cu += r[b].first_sequence + b;
    if (at[b].first_image != *images || at[b].first_patch != *patches)
        return fail_images(b, err, "its images do not follow the bin before");
    if (cu[0] != 0)
        return fail_images(b, err, "cu_images must begin with 0");
    for (uint32_t i = 0; i < n; i++)
        if (cu[i + 1] < cu[i])
            return fail_images(b, err, "cu_images must not decrease");
    if ((uint64_t)cu[n] > p->images.n - *images)
        return fail_images(b, err, "has more images than there are");
    pp_packed_bin_images(p, b, &bin);
    if (bin.cu_patches[0] != 0)
        return fail_images(b, err, "cu_patches must begin with 0");
    for (uint32_t i = 0; i < n; i++)
        if (check_sequence_images(p, b, i, &bin, err) != 0)
            return -1;
    *images += bin.n;
    *patches += bin.patches;
    return 0;
}

/* The largest bin and image, as the index should have them. */
struct image_maxima {
    uint32_t images, patches, image;
};

static void find_maxima(const struct pp_packed *p, size_t b,
                        struct image_maxima *m)
{
    struct pp_bin_images bin;
    pp_packed_bin_images(p, b, &bin);
    pp_raise(&m->images, bin.n);
    pp_raise(&m->patches, bin.patches);
    for (uint32_t k = 0; k < bin.n; k++)
        pp_raise(&m->image, pp_grid_patches(&bin.grids[k]));
}

int pp_packed_check_images(const struct pp_packed *p, struct pp_err *err)
{
    const struct pp_packed_images *s = &p->images;
    struct image_maxima m = {0};
    uint64_t images = 0, patches = 0;
    if (!pp_images_exist(s))
        return 0;
    for (size_t b = 0; b < p->n_bins; b++) {
        if (check_bin_images(p, b, &images, &patches, err) != 0)
            return -1;
        find_maxima(p, b, &m);
    }
    if (images != s->n || patches != s->n_patches ||
        m.images != s->max_images || m.patches != s->max_patches ||
        m.image != s->max_image || (s->capacity && m.patches > s->capacity))
        return pp_fail(err, PP_EXIT_INPUT,
                       "index: the images do not match the header's counts");
    return 0;
}
