/* SPDX-License-Identifier: MIT */
/* bridge_subject - a small model with images of test_bridges, and packed data
 * for it in memory. */
#ifndef PP_TESTS_BRIDGE_SUBJECT_H
#define PP_TESTS_BRIDGE_SUBJECT_H

#include <math.h>

#include "data/tensors/safetensors.h"
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

/* The clips of each sequence for a model with two encoders. Bins have both,
 * images alone, clips alone, or none. */
static const uint32_t clips[SEQUENCES] = {0, 1, 2, 0, 0, 0, 3, 0, 0,
                                          2, 1, 0, 1, 0, 2, 1, 0, 0};

struct subject {
    struct pp_model m;
    struct pp_tensors *weights;
    struct pp_packed data;
};

/* --- data --- */

static const uint32_t *items_of(size_t encoder)
{
    return encoder ? clips : images;
}

static struct pp_grid grid_of(const struct pp_vision *v, size_t image)
{
    if (v->fixed_size)
        return (struct pp_grid){1, 2, 2};
    if (v->chunk)
        return pp_clip_grid(3 + 5 * (uint32_t)(image % 4));
    if (pp_vision_hears(v))
        return (struct pp_grid){1, 1, 2 + 3 * (uint32_t)(image % 4) / 2};
    return (struct pp_grid){1, 2 + 2 * (uint32_t)(image % 3),
                            2 + 2 * (uint32_t)(image / 2 % 2)};
}

/* Writes an item of an encoder and a word. */
static size_t write_item(const struct pp_vision *v, size_t item, size_t word,
                         int32_t *ids)
{
    const struct pp_grid g = grid_of(v, item);
    size_t n = 0;
    size_t features = pp_image_rows(v, pp_grid_size(&g), PP_ROWS_FEATURES);
    while (n < features)
        ids[n++] = (int32_t)v->image_token;
    ids[n++] = 2 + (int32_t)(word % 20);
    return n;
}

/* Writes a sequence: words, then its images, and between them its clips. */
static uint32_t write_sequence(const struct pp_model *m, size_t i,
                               size_t item[PP_MAX_ENCODERS], int32_t *ids)
{
    size_t n = 0, words = 2 + i % 4;
    for (size_t k = 0; k < words; k++)
        ids[n++] = 2 + (int32_t)((7 * i + 3 * k) % 20);
    for (uint32_t k = 0; k < images[i] || k < clips[i]; k++)
        for (size_t e = 0; e < PP_MAX_ENCODERS; e++)
            if (m->encoders[e].kind != PP_VISION_NONE && k < items_of(e)[i])
                n += write_item(&m->encoders[e], item[e]++, 5 * i + k + 7 * e,
                                ids + n);
    return (uint32_t)n;
}

static int write_tokens(const struct subject *s, const char *dir,
                        struct pp_err *err)
{
    static int32_t ids[SEQUENCES * CAPACITY];
    struct pp_piece pieces[SEQUENCES] = {0};
    uint32_t items[SEQUENCES];
    size_t n = 0, item[PP_MAX_ENCODERS] = {0};
    for (uint32_t i = 0; i < SEQUENCES; i++) {
        uint32_t length = write_sequence(&s->m, i, item, ids + n);
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

static int add_images(struct subject *s, size_t encoder, struct pp_err *err)
{
    const struct pp_vision *v = &s->m.encoders[encoder];
    struct pp_grid grids[IMAGES];
    size_t n = 0, patches = 0;
    float *pixels = NULL;
    if (v->kind == PP_VISION_NONE)
        return 0;
    for (size_t i = 0; i < SEQUENCES; i++)
        n += items_of(encoder)[i];
    for (size_t k = 0; k < n; k++) {
        grids[k] = grid_of(v, k);
        patches += pp_grid_size(&grids[k]);
    }
    const struct pp_item_content c = {
        .kind = image_kind(v), .n = items_of(encoder), .grids = grids};
    if (pp_packed_set_items(&s->data, &c, &pixels, err))
        return -1;
    for (size_t i = 0; i < patches * v->patch_inputs; i++)
        pixels[i] = (float)(2 * pp_rng_uniform(3 + encoder, i) - 1);
    return 0;
}

/* Makes twice as many heads of half the width, so that four ranks can divide
 * them. No weight changes its shape. */
static void divide_heads(struct pp_model *m)
{
    for (size_t k = 0; k < PP_MAX_ENCODERS; k++)
        if (m->encoders[k].kind != PP_VISION_NONE)
            m->encoders[k].n_heads = 4;
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
        pp_packed_take(&mapped, BINS, &s->data, &err) ||
        add_images(s, 0, &err) || add_images(s, 1, &err))
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
