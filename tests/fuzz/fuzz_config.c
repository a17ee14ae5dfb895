/* SPDX-License-Identifier: MIT */
/* fuzz_config - reads any bytes as a config.json, and as the configuration of
 * an image processor. They are refused with one line, or every unit of the
 * model has a name and finite sizes, and pixels stay finite. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "manifest/config_json.h"
#include "manifest/processor_json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* Looks at the first and the last units: there may be many thousands. */
static void walk(const struct pp_model *m)
{
    struct pp_tensor_info params[PP_N_LAYER_PARAMS];
    size_t n = pp_model_n_units(m);
    if (n == 0)
        abort();
    for (size_t i = 0; i < n; i += i == 8 && n > 16 ? n - 16 : 1) {
        struct pp_unit_id u = pp_model_unit(m, i);
        char name[PP_FQN_TEXT];
        pp_unit_fqn(u, name);
        if (!*name || pp_unit_params(m, u, params) > PP_N_LAYER_PARAMS)
            abort();
    }
}

static void check_map(const struct pp_pixel_map *map)
{
    if (map->n < 1 || map->n > PP_MOST_CHANNELS)
        abort();
    for (size_t k = 0; k < map->n; k++)
        if (!isfinite((255 * map->factor - map->mean[k]) / map->deviation[k]))
            abort();
}

static void check_error(const struct pp_err *err)
{
    if (err->code != PP_EXIT_INPUT || !*err->text || strchr(err->text, '\n'))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char path[64];
    struct pp_model m = {0};
    struct pp_image_processor images;
    struct pp_err err = {0};
    int fd = memfd_create("config.json", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, n) != (ssize_t)n)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (pp_model_read(path, &m, &err) == 0)
        walk(&m);
    else
        check_error(&err);
    err = (struct pp_err){0};
    if (pp_processor_read(path, &images, &err) == 0)
        check_map(&images.map);
    else
        check_error(&err);
    close(fd);
    return 0;
}
