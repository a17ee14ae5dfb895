/* SPDX-License-Identifier: MIT */
/* bridge_subject - a small model with images of test_bridges, and packed data
 * for it in memory. */
#ifndef PP_TESTS_BRIDGE_SUBJECT_H
#define PP_TESTS_BRIDGE_SUBJECT_H

#include <math.h>
#include <stdarg.h>

#include "data/safetensors.h"
#include "manifest/config_json.h"
#include "scratch.h"
#include "small_run.h"
#include "tap.h"

enum { BINS = 12, SEQUENCES = 18, IMAGES = 40, ALIGN = 8, CAPACITY = 64 };

/* The bins' first sequences, and images of each sequence. The first bins have
 * most images, so that a data-parallel rank has none in some actions; the last
 * three bins have none at all. */
static const size_t first[BINS + 1] = {0,  1,  3,  4,  6,  8, 9,
                                       11, 12, 14, 15, 17, 18};
static const uint32_t images[SEQUENCES] = {3, 2, 1, 0, 2, 0, 1, 1, 0,
                                           1, 2, 3, 0, 1, 0, 0, 0, 0};

__attribute__((format(printf, 1, 2), noreturn)) static void
give_up(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    printf("Bail out! ");
    vprintf(format, args);
    printf("\n");
    va_end(args);
    exit(1);
}

struct subject {
    struct pp_model m;
    struct pp_tensors *weights;
    struct pp_packed data;
};

/* --- data --- */

static struct pp_grid grid_of(const struct pp_model *m, size_t image)
{
    if (m->encoders[0].fixed_size)
        return (struct pp_grid){1, 2, 2};
    if (pp_vision_hears(&m->encoders[0]))
        return (struct pp_grid){1, 1, 2 + 3 * (uint32_t)(image % 4) / 2};
    return (struct pp_grid){1, 2 + 2 * (uint32_t)(image % 3),
                            2 + 2 * (uint32_t)(image / 2 % 2)};
}

/* Writes a sequence: words, then an image and a word for each of its images. */
static uint32_t write_sequence(const struct pp_model *m, size_t i,
                               size_t *image, int32_t *ids)
{
    size_t n = 0, words = 2 + i % 4;
    for (size_t k = 0; k < words; k++)
        ids[n++] = 2 + (int32_t)((7 * i + 3 * k) % 20);
    for (uint32_t k = 0; k < images[i]; k++) {
        const struct pp_grid g = grid_of(m, (*image)++);
        size_t features = pp_grid_size(&g) / m->encoders[0].merge;
        for (size_t f = 0; f < features; f++)
            ids[n++] = (int32_t)m->encoders[0].image_token;
        ids[n++] = 2 + (int32_t)((5 * i + k) % 20);
    }
    return (uint32_t)n;
}

static int write_tokens(const struct subject *s, const char *dir,
                        struct pp_err *err)
{
    static int32_t ids[SEQUENCES * CAPACITY];
    struct pp_piece pieces[SEQUENCES] = {0};
    uint32_t items[SEQUENCES];
    size_t n = 0, image = 0;
    for (uint32_t i = 0; i < SEQUENCES; i++) {
        uint32_t length = write_sequence(&s->m, i, &image, ids + n);
        pieces[i] =
            (struct pp_piece){.source = i,
                              .at = n,
                              .length = length,
                              .padded = (length + ALIGN - 1) / ALIGN * ALIGN};
        items[i] = i;
        n += length;
    }
    const struct pp_packed_content c = {.ids = ids,
                                        .pieces = pieces,
                                        .n_bins = BINS,
                                        .first = first,
                                        .items = items,
                                        .n_inputs = SEQUENCES,
                                        .capacity = 2 * CAPACITY,
                                        .align = ALIGN,
                                        .counts.tokens = n};
    return pp_packed_write(dir, &c, err);
}

static int add_images(struct subject *s, struct pp_err *err)
{
    struct pp_grid grids[IMAGES];
    size_t n = 0, patches = 0, width = s->m.encoders[0].patch_inputs;
    float *pixels = NULL;
    for (size_t i = 0; i < SEQUENCES; i++)
        n += images[i];
    for (size_t k = 0; k < n; k++) {
        grids[k] = grid_of(&s->m, k);
        patches += pp_grid_size(&grids[k]);
    }
    const struct pp_item_content c = {
        .kind = image_kind(&s->m.encoders[0]), .n = images, .grids = grids};
    if (pp_packed_set_items(&s->data, &c, &pixels, err))
        return -1;
    for (size_t i = 0; i < patches * width; i++)
        pixels[i] = (float)(2 * pp_rng_uniform(3, i) - 1);
    return 0;
}

/* Makes twice as many heads of half the width, so that four ranks can divide
 * them. No weight changes its shape. */
static void divide_heads(struct pp_model *m)
{
    m->encoders[0].n_heads = 4;
    m->n_heads *= 2;
    m->n_kv_heads *= 2;
    m->head_dim /= 2;
    for (int i = 0; i < PP_ROPE_AXES && m->rope_axes[i]; i++)
        m->rope_axes[i] = m->head_dim / 2 / PP_ROPE_AXES;
}

static void open_subject(struct subject *s, const char *name)
{
    const char *source = getenv("SRCDIR");
    char dir[4096], path[4200], scratch[SCRATCH_TEXT];
    struct pp_packed mapped = {0};
    struct pp_err err = {0};
    *s = (struct subject){.weights = NULL};
    snprintf(dir, sizeof dir, "%.4000s/tests/golden/%.40s",
             source ? source : ".", name);
    scratch_make(scratch);
    snprintf(path, sizeof path, "%s/packed", scratch);
    if (pp_model_read(dir, &s->m, &err) ||
        pp_tensors_open(dir, &s->weights, &err) ||
        write_tokens(s, path, &err) || pp_packed_open(path, &mapped, &err) ||
        pp_packed_take(&mapped, BINS, &s->data, &err) || add_images(s, &err))
        give_up("%s", err.text);
    divide_heads(&s->m);
    pp_packed_finish(&mapped);
    scratch_remove(scratch);
}

static void close_subject(struct subject *s)
{
    pp_packed_finish(&s->data);
    pp_tensors_close(s->weights);
}

#endif
