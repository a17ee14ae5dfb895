/* SPDX-License-Identifier: MIT */
/* test_packed_images - images beside the tokens of a packed set. */
#include "data/packed_images.h"

#include "data/packed.h"
#include "tap.h"

enum { INPUTS = 6 };

/* Four bins, whose sequences have 8 tokens or more. */
static bool make_set(struct pp_packed *p)
{
    const struct pp_synthetic_data l = {
        .tokens = 64, .max_sequences = 4, .vocab = 50, .seed = 6};
    struct pp_err err = {0};
    return ok(pp_packed_synthetic(NULL, 4, &l, p, &err) == 0,
              "a set in memory %s", err.text);
}

/* Gives image k of the set the grid (1, 2, 2 + 2 (k % 2)); sequence i has
 * i % 3 images. Returns the pixels. */
static float *add_images(struct pp_packed *p, struct pp_err *err)
{
    uint32_t *n = calloc(p->n_sequences, sizeof *n);
    struct pp_grid *grids = calloc(2 * p->n_sequences, sizeof *grids);
    float *pixels = NULL;
    for (size_t i = 0; i < p->n_sequences; i++)
        n[i] = i % 3;
    for (uint32_t k = 0; k < 2 * p->n_sequences; k++)
        grids[k] = (struct pp_grid){1, 2, 2 + 2 * (k % 2)};
    const struct pp_image_content c = {
        .patch_inputs = INPUTS, .token = 9, .merge = 2, .n = n, .grids = grids};
    if (pp_packed_set_images(p, &c, &pixels, err) != 0)
        pixels = NULL;
    free(n);
    free(grids);
    return pixels;
}

/* Compares every bin with the rule of add_images. */
static void check_images(const struct pp_packed *p)
{
    size_t sequence = 0, patch = 0;
    uint32_t image = 0, most = 0;
    bool images = true, grids = true, pixels = true;
    for (size_t b = 0; b < p->n_bins; b++) {
        struct pp_bin_images at;
        struct pp_bin bin;
        pp_packed_bin(p, b, &bin);
        pp_packed_bin_images(p, b, &at);
        images &= at.first == image && at.cu_images[0] == 0;
        for (uint32_t i = 0; i < bin.n_sequences; i++, sequence++)
            images &= at.cu_images[i + 1] - at.cu_images[i] ==
                      (int32_t)(sequence % 3);
        for (uint32_t k = 0; k < at.n; k++, image++)
            grids &= at.cu_patches[k + 1] - at.cu_patches[k] ==
                         (int32_t)(4 + 4 * (image % 2)) &&
                     at.grids[k].columns == 2 + 2 * (image % 2);
        for (size_t i = 0; i < (size_t)at.patches * INPUTS; i++)
            pixels &= at.pixels[i] == (float)(patch * INPUTS + i);
        patch += at.patches;
        most = at.patches > most ? at.patches : most;
    }
    ok(images, "each sequence has its images");
    ok(grids, "each image has its grid and its patches");
    ok(pixels, "each bin has its pixels");
    ok(image == p->images.n && patch == p->images.n_patches, "and all of them");
    is_int(p->images.max_patches, most, "patches of the largest bin");
    is_int(p->images.max_image, 8, "patches of the largest image");
    is_int(pp_image_features(&p->images, 8), 2, "merged by fours");
}

static void test_memory(void)
{
    struct pp_packed p;
    struct pp_bin_images at;
    struct pp_err err = {0};
    if (!make_set(&p))
        return;
    pp_packed_bin_images(&p, 0, &at);
    ok(!pp_images_exist(&p.images) && at.n == 0 && !at.cu_images,
       "a set has no images at first");
    float *pixels = add_images(&p, &err);
    if (ok(pixels != NULL, "images are added %s", err.text)) {
        size_t n = (size_t)p.images.n_patches * INPUTS;
        for (size_t i = 0; i < n; i++)
            pixels[i] = (float)i;
        check_images(&p);
    }
    pp_packed_finish(&p);
}

/* Every sequence has one image of that grid. */
static void refuse_grid(struct pp_grid grid, const char *word)
{
    struct pp_packed p;
    struct pp_err err = {0};
    float *pixels;
    if (!make_set(&p))
        return;
    uint32_t *n = calloc(p.n_sequences, sizeof *n);
    struct pp_grid *grids = calloc(p.n_sequences, sizeof *grids);
    for (size_t i = 0; i < p.n_sequences; i++) {
        n[i] = 1;
        grids[i] = grid;
    }
    const struct pp_image_content c = {
        .patch_inputs = INPUTS, .token = 9, .merge = 2, .n = n, .grids = grids};
    ok(pp_packed_set_images(&p, &c, &pixels, &err) != 0 &&
           err.code == PP_EXIT_INPUT && strstr(err.text, word),
       "refused with '%s': %s", word, err.text);
    free(n);
    free(grids);
    pp_packed_finish(&p);
}

static void test_grids(void)
{
    const struct pp_grid large = {UINT32_MAX, UINT32_MAX, UINT32_MAX};
    ok(pp_grid_patches(&large) == 0, "a grid cannot be too large");
    refuse_grid((struct pp_grid){1, 3, 2}, "'1 x 3 x 2'");
    refuse_grid((struct pp_grid){0, 2, 2}, "'0 x 2 x 2'");
    refuse_grid((struct pp_grid){1, 64, 64}, "1024 features");
}

int main(void)
{
    test_memory();
    test_grids();
    return done();
}
