/* SPDX-License-Identifier: MIT */
/* config_text - the config.json of a checkpoint, from that of the model that
 * was trained. */

#include "base/file.h"
#include "manifest/config_json.h"
#include "manifest/config_values.h"
#include "model/vision.h"

/* Gives a thinker the class and the type that transformers has for it. */
static void name_thinker(json_t *config)
{
    pp_put(config, "architectures",
           json_pack("[s]", pp_vision_name(PP_VISION_OMNI)));
    pp_put(config, "model_type",
           json_string(pp_config_vision_type(PP_VISION_OMNI)));
}

/* Replaces the configuration of a whole Qwen2.5-Omni by that of its thinker,
 * which is all that a checkpoint has. */
static void take_thinker(json_t **config)
{
    const struct pp_value root = {.value = *config};
    struct pp_value thinker;
    enum pp_vision_kind kind;
    bool found = pp_config_find_thinker(&root, &thinker) &&
                 json_is_object(thinker.value);
    if (found) {
        json_t *whole = *config;
        *config = json_incref(thinker.value);
        json_decref(whole);
    }
    if (found || (pp_config_has_vision(&root, &kind) && kind == PP_VISION_OMNI))
        name_thinker(*config);
}

/* transformers 5 writes dtype, earlier versions torch_dtype. */
static void set_dtype(json_t *config, const char *dtype, bool is_new)
{
    is_new |= json_object_get(config, "dtype") != NULL;
    if (is_new)
        pp_put(config, "dtype", json_string(dtype));
    if (!is_new || json_object_get(config, "torch_dtype"))
        pp_put(config, "torch_dtype", json_string(dtype));
}

int pp_config_text(const char *path, const char *dtype, char **text,
                   struct pp_err *err)
{
    char file[4096];
    *text = NULL;
    snprintf(file, sizeof file, pp_file_is_dir(path) ? "%s/config.json" : "%s",
             path);
    json_t *config = NULL;
    if (pp_value_read_python(file, &config, err))
        return -1;
    if (!json_is_object(config)) {
        json_decref(config);
        return pp_fail(err, PP_EXIT_INPUT, "%s: not a JSON object", file);
    }
    bool is_new = json_object_get(config, "dtype") != NULL;
    take_thinker(&config);
    set_dtype(config, dtype, is_new);
    /* Written weights are not quantized. */
    json_object_del(config, "quantization_config");
    *text = json_dumps(config, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    json_decref(config);
    return 0;
}
