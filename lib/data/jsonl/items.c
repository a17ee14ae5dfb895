/* SPDX-License-Identifier: MIT */
/* items - the images of a line: .npy files or arrays in the line, as
 * channels of pixels or as patches with their grid. Or its clips of audio: the
 * frames of a spectrogram, of which a rest may be padding. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "data/jsonl/sequence.h"
#include "data/readers.h"

/* One image while it is read. */
struct line_image {
    struct pp_array array;
    struct pp_grid grid; /* zeros if the line does not give it */
    int32_t frames;      /* of audio, without padding; 0: all */
    float *own;          /* the numbers of an array in the line */
    const void *map;     /* the file */
    size_t map_bytes;
};

/* Reads an array in the line: numbers, or arrays of the same shape. The first
 * number decides how deep they are. */
static int scan_nested(struct pp_scan *s, int level, struct line_image *im,
                       struct pp_err *err)
{
    struct pp_array *a = &im->array;
    size_t n = 0;
    int more;
    if (pp_scan_expect(s, '[', err) != 0)
        return -1;
    while ((more = pp_scan_more(s, ']', &n, err)) > 0) {
        bool deeper = pp_scan_peek(s) == '[';
        bool wrong = (deeper && level + 1 >= PP_ARRAY_MAX_DIMS) ||
                     (a->n_dims && deeper != (level + 1 < a->n_dims));
        if (wrong)
            return pp_scan_unexpected(s, "an array of two or three dimensions",
                                      err);
        if (!deeper)
            a->n_dims = level + 1;
        if (deeper ? scan_nested(s, level + 1, im, err)
                   : pp_scan_float(s, &im->own[a->n++], err))
            return -1;
    }
    if (more < 0)
        return -1;
    if (n == 0)
        return pp_scan_fail(s, err, "an array of numbers must not be empty");
    if (a->dims[level] && a->dims[level] != n)
        return pp_scan_fail(s, err, "'%zu' elements, but others have %zu", n,
                            a->dims[level]);
    a->dims[level] = n;
    return 0;
}

/* Returns the path of a file beside that of the lines; the caller frees it. */
static char *join_folder(const char *lines, const char *name)
{
    const char *slash = strrchr(lines, '/');
    size_t folder = slash && *name != '/' ? (size_t)(slash - lines) + 1 : 0;
    size_t n = folder + strlen(name) + 1;
    char *path = pp_calloc(n, 1);
    snprintf(path, n, "%.*s%s", (int)folder, lines, name);
    return path;
}

static int map_image(struct pp_scan *s, struct line_image *im,
                     struct pp_err *err)
{
    struct pp_arena names = {0};
    const char *name = NULL;
    char *path = NULL;
    int rc = pp_scan_string(s, &names, &name, err);
    if (rc == 0) {
        path = join_folder(s->name, name);
        rc = pp_file_map(path, &im->map, &im->map_bytes, err);
    }
    if (rc == 0)
        rc = pp_npy_parse(path, im->map, im->map_bytes, &im->array, err);
    if (rc == 0 && !pp_array_is_real(&im->array))
        rc = pp_fail(err, PP_EXIT_INPUT,
                     "%s: numbers must be float32 or float64", path);
    free(path);
    pp_arena_finish(&names);
    return rc;
}

/* Reads a path or an array. */
static int scan_pixels(struct pp_scan *s, struct line_image *im,
                       struct pp_err *err)
{
    if (pp_scan_peek(s) == '"')
        return map_image(s, im, err);
    /* A number takes two characters at least. */
    im->own = pp_realloc(NULL, s->n / 2 + 1, sizeof *im->own);
    im->array = (struct pp_array){.type = PP_TOKEN_F32, .data = im->own};
    return scan_nested(s, 0, im, err);
}

static int scan_grid(struct pp_scan *s, struct pp_grid *g, struct pp_err *err)
{
    int32_t v[3];
    size_t n = 0;
    int more;
    if (pp_scan_expect(s, '[', err) != 0)
        return -1;
    while ((more = pp_scan_more(s, ']', &n, err)) > 0)
        if (n > 3 || pp_scan_int32(s, 1, INT32_MAX, "a number of patches",
                                   &v[n - 1], err) != 0)
            break;
    if (more < 0)
        return -1;
    if (more > 0 || n != 3)
        return pp_scan_fail(s, err, "a grid is frames, rows and columns");
    *g = (struct pp_grid){(uint32_t)v[0], (uint32_t)v[1], (uint32_t)v[2]};
    return 0;
}

static const char *const array_keys[PP_N_MODALITIES] = {"pixels", "features"};

/* Reads the value of a key of an object. */
static int scan_member(struct pp_scan *s, const char *key,
                       enum pp_modality modality, struct line_image *im,
                       struct pp_err *err)
{
    bool audio = modality == PP_MODALITY_AUDIO;
    if (!audio && !strcmp(key, "grid"))
        return scan_grid(s, &im->grid, err);
    if (audio && !strcmp(key, "frames"))
        return pp_scan_int32(s, 1, INT32_MAX, "a number of frames", &im->frames,
                             err);
    return !strcmp(key, array_keys[modality]) && !im->array.n_dims
               ? scan_pixels(s, im, err)
               : pp_scan_skip(s, err);
}

static int scan_image_object(struct pp_scan *s, enum pp_modality modality,
                             struct line_image *im, struct pp_err *err)
{
    char key[16];
    size_t n = 0, bytes;
    int more;
    s->at++;
    while ((more = pp_scan_more(s, '}', &n, err)) > 0) {
        if (pp_scan_text(s, key, sizeof key - 1, &bytes, err) != 0 ||
            pp_scan_expect(s, ':', err) != 0)
            return -1;
        key[bytes < sizeof key ? bytes : 0] = '\0';
        if (scan_member(s, key, modality, im, err) != 0)
            return -1;
    }
    if (more == 0 && !im->array.n_dims)
        return pp_scan_fail(s, err, "%s needs '%s'",
                            modality == PP_MODALITY_AUDIO ? "audio"
                                                          : "an image",
                            array_keys[modality]);
    return more;
}

/* Returns the frames of a patch. */
static uint32_t frames_of(const struct pp_jsonl_stream *o)
{
    return o->frames ? o->frames : 1;
}

/* Copies the pixels of a patch: channel by channel, all frames of each. */
static float *cut_patch(const struct pp_array *a,
                        const struct pp_jsonl_stream *o, size_t row,
                        size_t column, float *to)
{
    size_t C = a->dims[0], H = a->dims[1], W = a->dims[2], P = o->patch;
    const struct pp_pixel_map *map = o->map;
    for (size_t k = 0; k < C; k++) {
        size_t m = map && map->n > 1 ? k : 0;
        float *first = to;
        for (size_t y = row * P; y < (row + 1) * P; y++)
            for (size_t x = column * P; x < (column + 1) * P; x++) {
                float value = pp_array_real(a, (k * H + y) * W + x);
                *to++ = map ? (value * map->factor - map->mean[m]) /
                                  map->deviation[m]
                            : value;
            }
        for (size_t t = 1; t < o->frames; t++, to += P * P)
            memcpy(to, first, P * P * sizeof *to);
    }
    return to;
}

/* Copies an image to rows of patches: square by square of the patches of a
 * feature, and row by row in each square, as the processor of Qwen2-VL does. */
static void cut_patches(const struct pp_array *a, const struct pp_grid *g,
                        const struct pp_jsonl_stream *o, float *to)
{
    uint32_t side = o->merge;
    for (uint32_t top = 0; top < g->rows; top += side)
        for (uint32_t left = 0; left < g->columns; left += side)
            for (uint32_t i = 0; i < side * side; i++)
                to = cut_patch(a, o, top + i / side, left + i % side, to);
}

/* Finds the grid of an image of channels, rows and columns. */
static int find_grid(struct line_image *im, const struct pp_jsonl_stream *o,
                     struct pp_err *err)
{
    const size_t *dims = im->array.dims;
    if (im->array.n_dims != 3)
        return pp_fail(err, PP_EXIT_INPUT,
                       "an image of '%d' dimensions needs a grid",
                       im->array.n_dims);
    if (!o->patch)
        return pp_fail_setting(err, PP_EXIT_INPUT, "patch", NULL,
                               "an image of '%zu x %zu x %zu' pixels, without "
                               "a grid, needs the size of its patches",
                               dims[0], dims[1], dims[2]);
    if (dims[1] % o->patch || dims[2] % o->patch || dims[1] > INT32_MAX ||
        dims[2] > INT32_MAX ||
        dims[0] > INT32_MAX / o->patch / o->patch / frames_of(o))
        return pp_fail(err, PP_EXIT_INPUT,
                       "an image of '%zu x %zu x %zu' pixels cannot be cut "
                       "into patches of %" PRIu32 " x %" PRIu32,
                       dims[0], dims[1], dims[2], o->patch, o->patch);
    if (o->map && o->map->n > 1 && o->map->n != dims[0])
        return pp_fail(err, PP_EXIT_INPUT,
                       "an image of '%zu' channels, but the processor "
                       "normalises %zu",
                       dims[0], o->map->n);
    im->grid = (struct pp_grid){1, (uint32_t)(dims[1] / o->patch),
                                (uint32_t)(dims[2] / o->patch)};
    return 0;
}

/* Fails unless all numbers of an item are finite. */
static int check_finite(const float *at, size_t n, const char *what,
                        struct pp_err *err)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(at[i]))
            return pp_fail(err, PP_EXIT_INPUT,
                           "%s '%g' must be a finite number", what,
                           (double)at[i]);
    return 0;
}

/* Copies the frames of a clip to rows: two each, and the next one. Behind the
 * array are zeros, as in a convolution. */
static void cut_frames(const struct pp_array *a, uint32_t n_rows, float *to)
{
    size_t n = a->dims[1];
    for (size_t i = 0; i < n_rows; i++)
        for (size_t m = 0; m < a->dims[0]; m++)
            for (size_t t = 2 * i; t < 2 * i + PP_AUDIO_FRAMES; t++)
                *to++ = t < n ? pp_array_real(a, m * n + t) : 0;
}

/* Loads a clip of audio that was read. */
static int load_audio(const struct line_image *im,
                      const struct pp_jsonl_stream *o, struct pp_documents *d,
                      struct pp_err *err)
{
    const struct pp_array *a = &im->array;
    if (a->n_dims != 2 || a->dims[0] > INT32_MAX / PP_AUDIO_FRAMES ||
        a->dims[1] > INT32_MAX)
        return pp_fail(err, PP_EXIT_INPUT,
                       "audio of '%d' dimensions; it needs two: frequencies "
                       "and frames",
                       a->n_dims);
    if ((size_t)im->frames > a->dims[1])
        return pp_fail(err, PP_EXIT_INPUT, "audio has '%zu' frames, not %d",
                       a->dims[1], (int)im->frames);
    const struct pp_grid grid =
        pp_clip_grid(im->frames ? (uint32_t)im->frames : (uint32_t)a->dims[1]);
    uint32_t rows = pp_grid_size(&grid);
    const struct pp_item_kind kind = {(uint32_t)a->dims[0] * PP_AUDIO_FRAMES,
                                      o->token, o->merge, PP_MODALITY_AUDIO,
                                      false};
    float *to = pp_items_load(&d->items[PP_MODALITY_AUDIO], &kind, &grid,
                              d->spill, d->spill_bytes, err);
    if (!to)
        return -1;
    cut_frames(a, rows, to);
    return check_finite(to, (size_t)rows * kind.width, "a value of audio", err);
}

/* Loads an image that was read. */
static int load_image(struct line_image *im, const struct pp_jsonl_stream *o,
                      struct pp_documents *d, struct pp_err *err)
{
    const struct pp_array *a = &im->array;
    bool is_cut = im->grid.frames > 0;
    if (!is_cut && find_grid(im, o, err) != 0)
        return -1;
    if (is_cut && (a->n_dims != 2 || a->dims[1] > INT32_MAX ||
                   a->dims[0] != pp_grid_size(&im->grid)))
        return pp_fail(
            err, PP_EXIT_INPUT,
            "'%zu' rows of %d dimensions do not fit the grid %" PRIu32
            " x %" PRIu32 " x %" PRIu32,
            a->dims[0], a->n_dims, im->grid.frames, im->grid.rows,
            im->grid.columns);
    const struct pp_item_kind kind = {
        is_cut ? (uint32_t)a->dims[1]
               : (uint32_t)a->dims[0] * frames_of(o) * o->patch * o->patch,
        o->token, o->merge, PP_MODALITY_IMAGES, o->class_out};
    float *to = pp_items_load(&d->items[PP_MODALITY_IMAGES], &kind, &im->grid,
                              d->spill, d->spill_bytes, err);
    if (!to)
        return -1;
    for (size_t i = 0; is_cut && i < a->n; i++)
        to[i] = pp_array_real(a, i);
    if (!is_cut)
        cut_patches(a, &im->grid, o, to);
    return check_finite(to, (size_t)pp_grid_size(&im->grid) * kind.width,
                        "pixel", err);
}

/* Reads and loads the item that is next. */
static int read_item(struct pp_scan *s, enum pp_modality m,
                     const struct pp_jsonl_stream *o, struct pp_documents *d,
                     struct pp_err *err)
{
    struct line_image im = {0};
    int rc = pp_scan_peek(s) == '{' ? scan_image_object(s, m, &im, err)
                                    : scan_pixels(s, &im, err);
    if (rc == 0)
        rc = m == PP_MODALITY_AUDIO ? load_audio(&im, o, d, err)
                                    : load_image(&im, o, d, err);
    free(im.own);
    if (im.map)
        pp_file_unmap(im.map, im.map_bytes);
    return rc;
}

/* Reads and loads the items of the field that is next: one, or an array. */
static int read_items(struct pp_scan *s, enum pp_modality m,
                      const struct pp_jsonl_stream *o, struct pp_documents *d,
                      struct pp_err *err)
{
    size_t n = 0;
    int more;
    if (pp_scan_peek(s) != '[')
        return read_item(s, m, o, d, err);
    s->at++;
    while ((more = pp_scan_more(s, ']', &n, err)) > 0)
        if (read_item(s, m, o, d, err) != 0)
            return -1;
    return more;
}

int pp_line_load_items(
    struct pp_scan *s, const struct pp_fields *f,
    const struct pp_jsonl_stream *const streams[PP_N_MODALITIES],
    struct pp_documents *d, struct pp_err *err)
{
    static const char *const settings[PP_N_MODALITIES] = {"image-token",
                                                          "audio-token"};
    for (int m = 0; m < PP_N_MODALITIES; m++) {
        pp_items_begin(&d->items[m]);
        if (f->has[PP_FIELD_IMAGES + m] && !streams[m])
            return pp_fail_setting(
                err, PP_EXIT_INPUT, settings[m], NULL,
                "the line has %s, but the id of their placeholders is not "
                "known",
                pp_modality_words((enum pp_modality)m).items);
    }
    for (int m = 0; m < PP_N_MODALITIES; m++) {
        if (!f->has[PP_FIELD_IMAGES + m])
            continue;
        s->at = f->at[PP_FIELD_IMAGES + m];
        if (read_items(s, (enum pp_modality)m, streams[m], d, err) != 0)
            return -1;
    }
    return 0;
}

int pp_line_check_placeholders(
    const struct pp_jsonl_stream *const streams[PP_N_MODALITIES],
    const struct pp_documents *d, const int32_t *ids, int32_t *labels, size_t n,
    struct pp_err *err)
{
    for (int m = 0; m < PP_N_MODALITIES; m++) {
        if (!streams[m])
            continue;
        struct pp_item_list items = pp_items_list_loaded(&d->items[m]);
        items.kind.token = streams[m]->token;
        items.kind.modality = (enum pp_modality)m;
        if (pp_items_check_places(&items, ids, n, PP_EXIT_INPUT, err) != 0)
            return -1;
        if (labels)
            pp_items_unlabel(streams[m]->token, ids, labels, n);
    }
    return 0;
}
