/* SPDX-License-Identifier: MIT */
#include "manifest/config_text.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"

int pp_config_text(const char *path, const char *dtype, char **text,
                   struct pp_err *err)
{
    char file[4096];
    json_error_t where;
    *text = NULL;
    snprintf(file, sizeof file, pp_file_is_dir(path) ? "%s/config.json" : "%s",
             path);
    json_t *config = json_load_file(file, JSON_REJECT_DUPLICATES, &where);
    if (!json_is_object(config)) {
        json_decref(config);
        return pp_fail(err, PP_EXIT_INPUT, "%s: not a JSON object", file);
    }
    /* transformers 5 writes dtype, earlier versions torch_dtype. */
    bool is_new = json_object_get(config, "dtype") != NULL;
    int failed = 0;
    if (is_new)
        failed = json_object_set_new(config, "dtype", json_string(dtype));
    if (!is_new || json_object_get(config, "torch_dtype"))
        failed |=
            json_object_set_new(config, "torch_dtype", json_string(dtype));
    if (!failed)
        *text = json_dumps(config, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    json_decref(config);
    return *text ? 0 : pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
}
