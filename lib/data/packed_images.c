/* SPDX-License-Identifier: MIT */
/* packed_images - reads and checks the images of a packed set, and makes them
 * in memory. */
#include "data/packed_images.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/num.h"
#include "data/packed.h"
#include "data/packed_format.h"

uint32_t pp_grid_patches(const struct pp_grid *g)
{
    uint64_t n = (uint64_t)g->rows * g->columns;
    if (n > INT32_MAX || __builtin_mul_overflow(n, g->frames, &n) ||
        n > INT32_MAX)
        return 0;
    return (uint32_t)n;
}

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
    uint64_t merge = p->images.merge, features = 0;
    cu += r[b].first_sequence + b + i;
    for (int32_t k = at->cu_images[i]; k < at->cu_images[i + 1]; k++) {
        const struct pp_grid *g = &at->grids[k];
        uint32_t patches = pp_grid_patches(g);
        if (!patches || g->rows % merge || g->columns % merge ||
            patches > p->images.max_image)
            return pp_fail(err, PP_EXIT_INPUT,
                           "index: bin %zu: an image cannot have '%" PRIu32
                           " x %" PRIu32 " x %" PRIu32 "' patches",
                           b, g->frames, g->rows, g->columns);
        if ((int64_t)at->cu_patches[k + 1] - at->cu_patches[k] != patches)
            return fail_images(b, err, "cu_patches do not match the grids");
        features += patches / (merge * merge);
    }
    if (features > (uint64_t)(cu[1] - cu[0]))
        return pp_fail(err, PP_EXIT_INPUT,
                       "index: bin %zu: a sequence of '%" PRId32
                       "' tokens cannot have %" PRIu64 " features of images",
                       b, cu[1] - cu[0], features);
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

static void raise(uint32_t *most, uint32_t n)
{
    *most = n > *most ? n : *most;
}

static void find_maxima(const struct pp_packed *p, size_t b,
                        struct image_maxima *m)
{
    struct pp_bin_images bin;
    pp_packed_bin_images(p, b, &bin);
    raise(&m->images, bin.n);
    raise(&m->patches, bin.patches);
    for (uint32_t k = 0; k < bin.n; k++)
        raise(&m->image, pp_grid_patches(&bin.grids[k]));
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

/* The arrays of images in memory. */
struct image_room {
    struct pp_packed_image_record *records;
    int32_t *cu_images, *cu_patches;
    struct pp_grid *grids;
    float *pixels;
};

/* Counts the images, and their patches. */
static int count_images(struct pp_packed *p, const struct pp_image_content *c,
                        struct pp_err *err)
{
    struct pp_packed_images *s = &p->images;
    *s = (struct pp_packed_images){
        .patch_inputs = c->patch_inputs, .token = c->token, .merge = c->merge};
    for (size_t i = 0; i < p->n_sequences; i++)
        s->n += c->n[i];
    for (size_t k = 0; k < s->n; k++) {
        uint32_t patches = pp_grid_patches(&c->grids[k]);
        s->n_patches += patches;
        raise(&s->max_image, patches);
    }
    return s->n_patches > SIZE_MAX / 64 / c->patch_inputs
               ? pp_fail(err, PP_EXIT_SYSTEM, "too many patches")
               : 0;
}

/* Allocates all arrays as one block. */
static int alloc_images(struct pp_packed *p, struct image_room *r,
                        struct pp_err *err)
{
    const struct pp_packed_images *s = &p->images;
    size_t n_cu = p->n_sequences + p->n_bins, n_cu_patches = s->n + p->n_bins;
    size_t bytes = p->n_bins * sizeof *r->records;
    size_t words =
        n_cu + n_cu_patches + 3 * s->n + (size_t)s->n_patches * s->patch_inputs;
    p->owned_images = calloc(1, bytes + words * sizeof(int32_t));
    if (!p->owned_images)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    r->records = p->owned_images;
    r->cu_images = (int32_t *)(r->records + p->n_bins);
    r->cu_patches = r->cu_images + n_cu;
    r->grids = (struct pp_grid *)(r->cu_patches + n_cu_patches);
    r->pixels = (float *)(r->grids + s->n);
    p->sections[PP_SECTION_IMAGE_BINS] = r->records;
    p->sections[PP_SECTION_CU_IMAGES] = r->cu_images;
    p->sections[PP_SECTION_CU_PATCHES] = r->cu_patches;
    p->sections[PP_SECTION_GRIDS] = r->grids;
    p->map[PP_PACKED_PIXELS] = r->pixels;
    return 0;
}

static void fill_images(struct pp_packed *p, const struct pp_image_content *c,
                        const struct image_room *r)
{
    const struct pp_packed_record *bins = p->sections[PP_SECTION_BINS];
    struct pp_packed_images *s = &p->images;
    uint64_t image = 0, patch = 0;
    for (size_t b = 0; b < p->n_bins; b++) {
        int32_t *cu_images = r->cu_images + bins[b].first_sequence + b;
        int32_t *cu_patches = r->cu_patches + image + b;
        r->records[b] = (struct pp_packed_image_record){image, patch};
        for (uint32_t i = 0; i < bins[b].n_sequences; i++)
            cu_images[i + 1] =
                cu_images[i] + (int32_t)c->n[bins[b].first_sequence + i];
        uint32_t n = (uint32_t)cu_images[bins[b].n_sequences], patches = 0;
        for (uint32_t k = 0; k < n; k++) {
            r->grids[image + k] = c->grids[image + k];
            patches += pp_grid_patches(&c->grids[image + k]);
            cu_patches[k + 1] = (int32_t)patches;
        }
        raise(&s->max_images, n);
        raise(&s->max_patches, patches);
        image += n;
        patch += patches;
    }
}

int pp_packed_set_images(struct pp_packed *p, const struct pp_image_content *c,
                         float **pixels, struct pp_err *err)
{
    struct image_room r = {0};
    if (count_images(p, c, err) != 0 || alloc_images(p, &r, err) != 0)
        return -1;
    fill_images(p, c, &r);
    *pixels = r.pixels;
    return pp_packed_check_images(p, err);
}
