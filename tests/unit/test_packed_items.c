/* SPDX-License-Identifier: MIT */
/* test_packed_items - items of sets in memory, and how ranks divide them. */
#include <stdlib.h>
#include <string.h>

#include "data/packed/packed.h"
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
    const struct pp_item_content c = {
        .kind = {INPUTS, 9, 2}, .n = n, .grids = grids};
    if (pp_packed_set_items(p, &c, &pixels, err) != 0)
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
        struct pp_bin_items at;
        struct pp_bin bin;
        pp_packed_bin(p, b, &bin);
        pp_packed_bin_items(p, PP_MODALITY_IMAGES, b, &at);
        images &= at.first == image && at.cu_items[0] == 0;
        for (uint32_t i = 0; i < bin.n_sequences; i++, sequence++)
            images &=
                at.cu_items[i + 1] - at.cu_items[i] == (int32_t)(sequence % 3);
        for (uint32_t k = 0; k < at.n; k++, image++)
            grids &= at.cu_rows[k + 1] - at.cu_rows[k] ==
                         (int32_t)(4 + 4 * (image % 2)) &&
                     at.grids[k].columns == 2 + 2 * (image % 2);
        for (size_t i = 0; i < (size_t)at.rows * INPUTS; i++)
            pixels &= at.values[i] == (float)(patch * INPUTS + i);
        patch += at.rows;
        most = at.rows > most ? at.rows : most;
    }
    ok(images, "each sequence has its images");
    ok(grids, "each image has its grid and its patches");
    ok(pixels, "each bin has its pixels");
    ok(image == p->streams[PP_MODALITY_IMAGES].n &&
           patch == p->streams[PP_MODALITY_IMAGES].n_rows,
       "and all of them");
    is_int(p->streams[PP_MODALITY_IMAGES].max_rows, most,
           "patches of the largest bin");
    is_int(p->streams[PP_MODALITY_IMAGES].max_item, 8,
           "patches of the largest image");
    is_int(pp_item_features(&p->streams[PP_MODALITY_IMAGES], 8), 2,
           "merged by fours");
}

/* Parts of a bin follow each other, and none is far from its share. */
static void test_parts(void)
{
    int32_t cu[14] = {0};
    bool tile = true, balanced = true, equal = true;
    for (uint32_t n = 0; n < 14; n++)
        for (size_t size = 1; size <= 6; size++) {
            struct pp_bin_items b = {.n = n, .cu_rows = cu};
            for (uint32_t k = 0; k < n; k++)
                cu[k + 1] = cu[k] + 4 * (1 + (int32_t)(k * k % 5));
            b.rows = (uint32_t)cu[n];
            tile &= pp_items_part(&b, size, 0) == 0 &&
                    pp_items_part(&b, size, size) == n;
            for (size_t r = 0; r < size; r++) {
                uint32_t first = pp_items_part(&b, size, r);
                uint32_t end = pp_items_part(&b, size, r + 1);
                tile &= first <= end;
                /* At most half an image more at each end, of 20 patches. */
                balanced &=
                    end < first ||
                    (size_t)(cu[end] - cu[first]) * size <= b.rows + 20 * size;
            }
            for (uint32_t k = 0; k < n; k++)
                cu[k + 1] = cu[k] + 4;
            b.rows = (uint32_t)cu[n];
            for (size_t r = 0; r < size; r++)
                equal &= pp_items_part(&b, size, r + 1) -
                             pp_items_part(&b, size, r) <=
                         (n + size - 1) / size;
        }
    ok(tile, "the images of ranks follow each other");
    ok(balanced, "no rank has an image more than its share of patches");
    ok(equal, "images of one size are divided as equally as can be");
}

static void test_memory(void)
{
    struct pp_packed p;
    struct pp_bin_items at;
    struct pp_err err = {0};
    if (!make_set(&p))
        return;
    pp_packed_bin_items(&p, PP_MODALITY_IMAGES, 0, &at);
    ok(!pp_stream_exists(&p.streams[PP_MODALITY_IMAGES]) && at.n == 0 &&
           !at.cu_items,
       "a set has no images at first");
    float *pixels = add_images(&p, &err);
    if (ok(pixels != NULL, "images are added %s", err.text)) {
        size_t n = (size_t)p.streams[PP_MODALITY_IMAGES].n_rows * INPUTS;
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
    const struct pp_item_content c = {
        .kind = {INPUTS, 9, 2}, .n = n, .grids = grids};
    ok(pp_packed_set_items(&p, &c, &pixels, &err) != 0 &&
           err.code == PP_EXIT_INPUT && strstr(err.text, word),
       "refused with '%s': %s", word, err.text);
    free(n);
    free(grids);
    pp_packed_finish(&p);
}

static void test_grids(void)
{
    const struct pp_grid large = {UINT32_MAX, UINT32_MAX, UINT32_MAX};
    ok(pp_grid_size(&large) == 0, "a grid cannot be too large");
    refuse_grid((struct pp_grid){1, 3, 2}, "'1 x 3 x 2'");
    refuse_grid((struct pp_grid){0, 2, 2}, "'0 x 2 x 2'");
    refuse_grid((struct pp_grid){1, 64, 64}, "1024 features");
}

/* The rank that has most patches, here the first or the last one. */
static void test_largest(void)
{
    static const int32_t falling[] = {0, 8, 10, 13}, rising[] = {0, 4, 12, 15};
    const struct pp_bin_items before = {.n = 3, .rows = 13, .cu_rows = falling};
    const struct pp_bin_items last = {.n = 3, .rows = 15, .cu_rows = rising};
    const struct pp_bin_items none = {.cu_rows = falling};
    struct pp_item_share a = pp_items_largest(&before, 2),
                         b = pp_items_largest(&last, 2),
                         all = pp_items_largest(&before, 1),
                         nothing = pp_items_largest(&none, 2);
    is_near(a.rows, 8, 0, "the first rank has most patches");
    is_near(a.squares, 64, 0, "  their pairs");
    is_near(b.rows, 11, 0, "the last rank has most patches");
    is_near(b.squares, 64 + 9, 0, "  their pairs");
    is_near(all.rows, 13, 0, "one rank has all");
    is_near(all.squares, 64 + 4 + 9, 0, "  their pairs");
    is_near(nothing.rows + nothing.squares, 0, 0, "no images");
}

int main(void)
{
    test_largest();
    test_memory();
    test_parts();
    test_grids();
    return done();
}
