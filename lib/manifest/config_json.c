/* SPDX-License-Identifier: MIT */
/* config_json - config.json, read as transformers reads it.
 *
 * Defaults are as in the configuration classes of transformers 5, and null
 * is the same as absent. A model that this program would not compute as
 * transformers does is refused here, so that nobody checks again. */
#include "manifest/config_json.h"

#include <string.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/foreign.h"
#include "manifest/config_values.h"
#include "model/inventory.h"
#include "model/parts.h"
#include "model/precision.h"
#include "model/vision.h"

#define CONFIG_NAME "config.json"

/* Sums of parameter counts fit in 64 bits. */
#define MAX_PARAMS 0x1p60

/* Each size is below 2^31, but their products may be too large. */
static int check_total(const struct pp_value *root, const struct pp_model *m)
{
    double total = pp_model_estimate(m);
    if (total > MAX_PARAMS)
        return pp_value_fail(root, "'%.3g' parameters are too many", total);
    return 0;
}

const char *pp_config_dtype(const struct pp_value *root)
{
    static const char *const keys[] = {"dtype", "torch_dtype"};
    struct pp_value at, text;
    for (size_t k = 0; k < 2; k++) {
        const char *name = NULL;
        if (pp_config_find_set(root, keys[k], &at) && json_is_string(at.value))
            name = json_string_value(at.value);
        if (name && !strcmp(name, "float16"))
            name = "bfloat16";
        for (const struct pp_precision *p = pp_precisions; name && p->name; p++)
            if (!strcmp(name, p->hugging_face))
                return p->name;
    }
    return pp_config_find_set(root, "text_config", &text)
               ? pp_config_dtype(&text)
               : NULL;
}

/* Checks that weights are quantized as the published weights are. */
static int check_quantized(const struct pp_value *at, enum pp_architecture a)
{
    struct pp_value list;
    size_t n = 2;
    if (pp_config_check(at, a, PP_IN_QUANTIZATION) ||
        (pp_config_find_set(at, "weight_block_size", &list) &&
         pp_value_array(&list, &n)))
        return -1;
    return n == 2 ? 0
                  : pp_value_fail(&list, "'%zu' sizes, but two are needed", n);
}

static int read_config(const struct pp_value *root, struct pp_model *m)
{
    struct pp_value at;
    if (pp_value_is_object(root))
        return -1;
    if (pp_value_find(root, "format", &at))
        return pp_value_fail(&at, "this is not the configuration of a model; "
                                  "a table of units can be planned but not "
                                  "trained");
    struct pp_value thinker;
    if (pp_config_find_thinker(root, &thinker)) {
        if (read_config(&thinker, m))
            return -1;
        m->dtype = m->dtype ? m->dtype : pp_config_dtype(root);
        return 0;
    }
    bool vision = pp_config_has_vision(root, &m->encoders[0].kind);
    if (vision ? pp_config_read_vision(root, m)
               : pp_config_read_language(root, m))
        return -1;
    if (check_total(root, m))
        return -1;
    m->dtype = pp_config_dtype(root);
    if (vision)
        return 0;
    if (pp_config_find_set(root, "quantization_config", &at) &&
        check_quantized(&at, m->architecture))
        return -1;
    return pp_config_read_details(root, m);
}

static int read_file(const char *path, struct pp_model *m, struct pp_err *err)
{
    json_t *value;
    if (pp_value_read_python(path, &value, err))
        return -1;
    const struct pp_value_source source = {path, err};
    const struct pp_value root = {.source = &source, .value = value};
    *m = (struct pp_model){0};
    int rc = read_config(&root, m);
    json_decref(value);
    return rc;
}

int pp_model_read(const char *path, struct pp_model *m, struct pp_err *err)
{
    if (!pp_file_is_dir(path))
        return read_file(path, m, err);
    size_t n = strlen(path);
    const char *slash = n && path[n - 1] == '/' ? "" : "/";
    struct pp_arena arena = {0};
    char *config = pp_arena_printf(&arena, "%s%s" CONFIG_NAME, path, slash);
    const char *other = pp_file_exists(config) ? NULL : pp_foreign_dir(path);
    int rc = other ? pp_fail(err, PP_EXIT_INPUT, "%s: %s", path, other)
                   : read_file(config, m, err);
    pp_arena_finish(&arena);
    return rc;
}

/* The language models come first, then their reward models, then models with
 * encoders. */
bool pp_config_model(size_t i, struct pp_config_model *out)
{
    for (size_t a = 0; a < 2 * PP_N_ARCHITECTURES; a++) {
        const enum pp_architecture k =
            (enum pp_architecture)(a % PP_N_ARCHITECTURES);
        const char *name = a < PP_N_ARCHITECTURES ? pp_architecture_name(k)
                                                  : pp_family_of(k)->scoring;
        *out = (struct pp_config_model){pp_family_of(k)->model_type, name,
                                        UINT64_C(1) << k};
        if (name && i-- == 0)
            return true;
    }
    for (int k = PP_VISION_NONE + 1; k < PP_N_VISIONS; k++) {
        const enum pp_vision_kind v = (enum pp_vision_kind)k;
        *out = (struct pp_config_model){
            pp_config_vision_type(v), pp_vision_name(v),
            UINT64_C(1) << pp_vision_architecture(v) |
                (v == PP_VISION_OMNI ? UINT64_C(1) << PP_OMNI_AUDIO : 0)};
        if (i-- == 0)
            return true;
    }
    return false;
}
