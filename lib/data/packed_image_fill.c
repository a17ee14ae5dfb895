/* SPDX-License-Identifier: MIT */
/* packed_image_fill - fills the sections of images, for an index or for a set
 * in memory. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "data/packed.h"
#include "data/packed_format.h"
#include "data/packed_images.h"

void pp_image_open_bin(struct pp_image_cursor *c)
{
    c->records[c->next.bin] =
        (struct pp_packed_image_record){c->totals->n, c->totals->n_patches};
    c->next.images = c->next.patches = 0;
}

void pp_image_add(struct pp_image_cursor *c, const struct pp_grid *g)
{
    uint64_t at = c->totals->n + c->next.images;
    uint32_t patches = pp_grid_patches(g);
    c->grids[at] = *g;
    c->next.images++;
    c->next.patches += patches;
    c->cu_patches[at + c->next.bin + 1] = (int32_t)c->next.patches;
    pp_raise(&c->totals->max_image, patches);
}

void pp_image_end_sequence(struct pp_image_cursor *c)
{
    c->next.sequence++;
    c->cu_images[c->next.sequence + c->next.bin] = (int32_t)c->next.images;
}

void pp_image_close_bin(struct pp_image_cursor *c)
{
    struct pp_packed_images *s = c->totals;
    s->n += c->next.images;
    s->n_patches += c->next.patches;
    pp_raise(&s->max_images, c->next.images);
    pp_raise(&s->max_patches, c->next.patches);
    c->next.bin++;
}

void pp_image_begin(struct pp_image_cursor *c, struct pp_packed_header *h,
                    struct pp_packed_images *totals)
{
    char *at = (char *)h;
    *c = (struct pp_image_cursor){
        .records = (void *)(at + h->image_bins),
        .cu_images = (void *)(at + h->cu_images),
        .cu_patches = (void *)(at + h->cu_patches),
        .grids = (void *)(at + h->grids),
        .totals = totals,
    };
}

void pp_image_end(const struct pp_image_cursor *c, struct pp_packed_header *h)
{
    h->n_patches = c->totals->n_patches;
    h->max_images = c->totals->max_images;
    h->max_patches = c->totals->max_patches;
    h->max_image = c->totals->max_image;
}

int pp_image_add_part(struct pp_image_cursor *c,
                      const struct pp_packed_content *content,
                      const struct pp_part *p, const int32_t *ids,
                      struct pp_err *err)
{
    const struct pp_images *s = &content->docs->images;
    const struct pp_image *at;
    size_t n = pp_images_of(s, p->sequence, &at);
    uint64_t features = pp_images_features(s, at, n);
    size_t found = pp_images_placeholders(s->kind.token, ids, NULL, p->length);
    if (found != features)
        return pp_fail(err, PP_EXIT_INPUT,
                       "sequence %zu: '%zu' placeholders for %" PRIu64
                       " features of %s",
                       p->sequence, found, features,
                       pp_modality_words(s->kind.modality).items);
    for (size_t i = 0; i < n; i++) {
        if (at[i].patches > (uint32_t)INT32_MAX - c->next.patches)
            return pp_fail(err, PP_EXIT_INPUT,
                           "bin %zu: cannot have more than '%d' patches",
                           c->next.bin, INT32_MAX);
        pp_image_add(c, &at[i].grid);
    }
    pp_image_end_sequence(c);
    return 0;
}

static struct pp_image_kind kind_of(const struct pp_packed_images *s)
{
    return (struct pp_image_kind){s->patch_inputs, s->token, s->merge,
                                  s->modality};
}

int pp_packed_load_images(const struct pp_packed *p, size_t b, uint32_t i,
                          struct pp_documents *d, struct pp_err *err)
{
    struct pp_bin_images at;
    const struct pp_image_kind kind = kind_of(&p->images);
    pp_packed_bin_images(p, b, &at);
    pp_images_begin(&d->images);
    if (!at.cu_images)
        return 0;
    for (int32_t k = at.cu_images[i]; k < at.cu_images[i + 1]; k++) {
        size_t values = pp_grid_patches(&at.grids[k]);
        float *to = pp_images_load(&d->images, &kind, &at.grids[k], d->spill,
                                   d->spill_bytes, err);
        if (!to)
            return -1;
        values *= kind.patch_inputs;
        memcpy(to, at.pixels + (size_t)at.cu_patches[k] * kind.patch_inputs,
               values * sizeof *to);
    }
    return pp_images_attach(&d->images, d->n_sequences - 1, err);
}

/* Copies the images of the bins of p, as pp_packed_take copies bins. Counts
 * them only, while pixels is NULL. */
static void copy_images(const struct pp_packed *p, size_t n_bins, uint32_t *n,
                        struct pp_grid *grids, float *pixels)
{
    for (size_t b = 0; b < n_bins; b++) {
        struct pp_bin_images at;
        struct pp_bin bin;
        pp_packed_bin(p, b % p->n_bins, &bin);
        pp_packed_bin_images(p, b % p->n_bins, &at);
        size_t values = (size_t)at.patches * p->images.patch_inputs;
        if (pixels) {
            memcpy(pixels, at.pixels, values * sizeof *pixels);
            pixels += values;
            continue;
        }
        for (uint32_t i = 0; i < bin.n_sequences; i++)
            *n++ = (uint32_t)(at.cu_images[i + 1] - at.cu_images[i]);
        memcpy(grids, at.grids, at.n * sizeof *grids);
        grids += at.n;
    }
}

int pp_packed_copy_images(const struct pp_packed *p, size_t n_bins,
                          struct pp_packed *out, struct pp_err *err)
{
    uint64_t most = (uint64_t)p->images.max_images * n_bins;
    if (!pp_images_exist(&p->images))
        return 0;
    uint32_t *n = calloc(out->n_sequences + 1, sizeof *n);
    struct pp_grid *grids = calloc(most + 1, sizeof *grids);
    float *pixels;
    const struct pp_image_content c = {kind_of(&p->images), n, grids};
    int rc = -1;
    if (!n || !grids) {
        pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    } else {
        copy_images(p, n_bins, n, grids, NULL);
        rc = pp_packed_set_images(out, &c, &pixels, err);
        if (rc == 0)
            copy_images(p, n_bins, NULL, NULL, pixels);
    }
    free(n);
    free(grids);
    return rc;
}

/* Allocates the arrays of n images with that many patches as one block. */
static int alloc_images(struct pp_packed *p, uint64_t n, uint64_t patches,
                        struct pp_image_cursor *c, struct pp_err *err)
{
    size_t n_cu = p->n_sequences + p->n_bins;
    uint64_t n_cu_patches = n + p->n_bins, width = p->images.patch_inputs;
    size_t bytes = p->n_bins * sizeof *c->records;
    if (n > SIZE_MAX / 64 || patches > SIZE_MAX / 64 / width)
        return pp_fail(err, PP_EXIT_SYSTEM, "too many patches");
    size_t words = n_cu + n_cu_patches + 3 * n + patches * width;
    p->owned_images = calloc(1, bytes + words * sizeof(int32_t));
    if (!p->owned_images)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    c->records = p->owned_images;
    c->cu_images = (int32_t *)(c->records + p->n_bins);
    c->cu_patches = c->cu_images + n_cu;
    c->grids = (struct pp_grid *)(c->cu_patches + n_cu_patches);
    p->sections[PP_SECTION_IMAGE_BINS] = c->records;
    p->sections[PP_SECTION_CU_IMAGES] = c->cu_images;
    p->sections[PP_SECTION_CU_PATCHES] = c->cu_patches;
    p->sections[PP_SECTION_GRIDS] = c->grids;
    p->map[PP_PACKED_PIXELS] = c->grids + n;
    return 0;
}

int pp_packed_set_images(struct pp_packed *p, const struct pp_image_content *c,
                         float **pixels, struct pp_err *err)
{
    const struct pp_packed_record *bins = p->sections[PP_SECTION_BINS];
    const struct pp_grid *grid = c->grids;
    struct pp_image_cursor at = {.totals = &p->images};
    uint64_t n = 0, patches = 0;
    p->images = (struct pp_packed_images){.modality = c->kind.modality,
                                          .patch_inputs = c->kind.patch_inputs,
                                          .token = c->kind.token,
                                          .merge = c->kind.merge};
    for (size_t i = 0; i < p->n_sequences; i++)
        n += c->n[i];
    for (uint64_t k = 0; k < n; k++)
        patches += pp_grid_patches(&c->grids[k]);
    if (alloc_images(p, n, patches, &at, err) != 0)
        return -1;
    for (size_t b = 0; b < p->n_bins; b++) {
        pp_image_open_bin(&at);
        for (uint32_t i = 0; i < bins[b].n_sequences; i++) {
            for (uint32_t k = 0; k < c->n[bins[b].first_sequence + i]; k++)
                pp_image_add(&at, grid++);
            pp_image_end_sequence(&at);
        }
        pp_image_close_bin(&at);
    }
    *pixels = (float *)(at.grids + n);
    return pp_packed_check_images(p, err);
}
