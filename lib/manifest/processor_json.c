/* SPDX-License-Identifier: MIT */
/* processor_json - reads the sizes of patches, and how pixels are rescaled and
 * normalised. Other keys, such as keys of resizing, are left alone: pixels are
 * given in the size that the model gets. */
#include "manifest/processor_json.h"

#include <stdio.h>

#include "base/file.h"
#include "manifest/config_values.h"

/* The largest size of a patch, and the largest factor, mean or deviation. */
enum { MOST_SIZE = 1024 };
static const double most_pixel = 1e6;

/* Reads a number for all channels, or a number for each. */
static int read_channels(const struct pp_value *root, const char *key,
                         double least, size_t *n, double *out)
{
    struct pp_value at;
    *n = 1;
    if (!pp_config_find_set(root, key, &at))
        return pp_value_fail(root, "'%s' is missing, which do_normalize needs",
                             key);
    if (!json_is_array(at.value))
        return pp_value_real(&at, least, most_pixel, out);
    if (pp_value_array(&at, n))
        return -1;
    if (*n == 0 || *n > PP_MOST_CHANNELS)
        return pp_value_fail(&at, "'%zu' channels; there must be 1 to %d", *n,
                             PP_MOST_CHANNELS);
    return pp_value_reals(&at, least, most_pixel, *n, out);
}

/* Reads mean and deviation. Mean and deviation of rescaled pixels are rescaled
 * back, in fp32, as transformers does it: so one pass has the same bits. */
static int read_normal(const struct pp_value *root, double factor,
                       struct pp_pixel_map *map)
{
    double mean[PP_MOST_CHANNELS], deviation[PP_MOST_CHANNELS];
    const float back = (float)(1 / factor);
    size_t n;
    if (read_channels(root, "image_mean", -most_pixel, &map->n, mean) ||
        read_channels(root, "image_std", 1 / most_pixel, &n, deviation))
        return -1;
    if (n != map->n)
        return pp_value_fail(
            root, "image_mean has '%zu' channels and image_std %zu", map->n, n);
    for (size_t k = 0; k < n; k++) {
        map->mean[k] = (float)mean[k] * back;
        map->deviation[k] = (float)deviation[k] * back;
    }
    return 0;
}

static int read_map(const struct pp_value *root, struct pp_pixel_map *map)
{
    bool rescales = true, normalises = true;
    struct pp_value at;
    double factor = 1 / 255.0;
    *map = (struct pp_pixel_map){.n = 1, .factor = 1, .deviation = {1}};
    if (pp_config_opt_bool(root, "do_rescale", &rescales) ||
        pp_config_opt_bool(root, "do_normalize", &normalises) ||
        (pp_config_find_set(root, "rescale_factor", &at) &&
         pp_value_real(&at, 1 / most_pixel, most_pixel, &factor)))
        return -1;
    if (normalises)
        return read_normal(root, rescales ? factor : 1, map);
    map->factor = rescales ? (float)factor : 1;
    return 0;
}

static int read_size(const struct pp_value *root, const char *key,
                     uint32_t *size)
{
    struct pp_value at;
    int64_t n;
    if (!pp_config_find_set(root, key, &at))
        return 0;
    if (json_is_object(at.value)) /* of a processor that has two of them */
        return pp_value_fail(&at, "must be one number");
    if (pp_value_int(&at, 1, MOST_SIZE, &n))
        return -1;
    *size = (uint32_t)n;
    return 0;
}

static int read_processor(const struct pp_value *whole,
                          struct pp_image_processor *p)
{
    struct pp_value images;
    if (pp_value_is_object(whole))
        return -1;
    if (!pp_config_find_set(whole, "image_processor", &images))
        images = *whole;
    else if (pp_value_is_object(&images))
        return -1;
    return read_size(&images, "patch_size", &p->patch) ||
                   read_size(&images, "merge_size", &p->merge) ||
                   read_size(&images, "temporal_patch_size", &p->frames) ||
                   read_map(&images, &p->map)
               ? -1
               : 0;
}

int pp_processor_read(const char *path, struct pp_image_processor *p,
                      struct pp_err *err)
{
    static const char *const names[] = {"preprocessor_config.json",
                                        "processor_config.json"};
    char file[4096];
    json_t *value;
    *p = (struct pp_image_processor){0};
    snprintf(file, sizeof file, "%s", path);
    for (size_t i = 0; i < 2 && pp_file_is_dir(path); i++) {
        snprintf(file, sizeof file, "%s/%s", path, names[i]);
        if (pp_file_exists(file))
            break;
    }
    if (pp_value_read(file, &value, err))
        return -1;
    const struct pp_value_source source = {file, err};
    const struct pp_value root = {.source = &source, .value = value};
    int rc = read_processor(&root, p);
    json_decref(value);
    return rc;
}
