/* SPDX-License-Identifier: MIT */
/* config_json - config.json, read as transformers reads it.
 *
 * Defaults are as in the configuration classes of transformers 5, and null
 * is the same as absent. A model that this program would not compute as
 * transformers does is refused here, so that nobody checks again. */
#include "manifest/config_json.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
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

/* Returns the model_type that another one stands for: that of a repository with
 * code of its own for a class of transformers. */
static const char *known_type(const char *text)
{
    static const char *const aliases[][2] = {{"kimi_k2", "deepseek_v3"}};
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        if (!strcmp(text, aliases[i][0]))
            return aliases[i][1];
    return text;
}

/* Finds an architecture by its model_type or by its class. */
static int find_architecture(const struct pp_value *at, const char *text,
                             bool by_type, enum pp_architecture *out)
{
    for (int a = 0; a < PP_N_ARCHITECTURES; a++) {
        const struct pp_family *f = pp_family_of((enum pp_architecture)a);
        *out = (enum pp_architecture)a;
        if (!strcmp(text, by_type ? f->model_type : f->architecture))
            return 0;
    }
    return pp_value_fail(at, "'%.*s' is not a known model", PP_VALUE_QUOTE,
                         text);
}

/* Finds a reward model by its class. */
static bool find_scoring(const char *text, struct pp_model *m)
{
    for (int a = 0; a < PP_N_ARCHITECTURES; a++) {
        const char *name = pp_family_of((enum pp_architecture)a)->scoring;
        if (!name || strcmp(name, text) != 0)
            continue;
        m->architecture = (enum pp_architecture)a;
        m->scores = true;
    }
    return m->scores;
}

/* Checks that a reward model has one output. transformers counts the labels,
 * which are 2 unless the file says otherwise. */
static int check_labels(const struct pp_value *root, const char *class)
{
    struct pp_value at = *root;
    size_t n = 2;
    if (pp_config_find_set(root, "id2label", &at))
        n = json_object_size(at.value);
    else if (pp_config_find_set(root, "num_labels", &at) &&
             pp_config_get_size(root, "num_labels", INT_MAX, &n))
        return -1;
    return n == 1 ? 0
                  : pp_value_fail(&at,
                                  "'%zu' labels, but a reward is one number: "
                                  "load '%s' with num_labels=1 and save it",
                                  n, class);
}

static int read_architecture(const struct pp_value *root, struct pp_model *m)
{
    struct pp_value list, name;
    size_t n;
    const char *text;
    if (!pp_config_find_set(root, "architectures", &list)) {
        if (!pp_config_find_set(root, "model_type", &name))
            return pp_value_fail(root, "'architectures' is missing");
        if (pp_value_text(&name, &text))
            return -1;
        return find_architecture(&name, known_type(text), true,
                                 &m->architecture);
    }
    if (pp_value_array(&list, &n))
        return -1;
    if (n != 1)
        return pp_value_fail(&list, "%zu names, but one is needed", n);
    name = pp_value_item(&list, 0);
    if (pp_value_text(&name, &text))
        return -1;
    if (find_scoring(text, m)
            ? check_labels(root, text)
            : find_architecture(&name, text, false, &m->architecture))
        return -1;
    const char *type = pp_family_of(m->architecture)->model_type;
    if (!pp_config_find_set(root, "model_type", &name))
        return 0;
    if (pp_value_text(&name, &text))
        return -1;
    return strcmp(known_type(text), type)
               ? pp_config_only_text(root, "model_type", type)
               : 0;
}

/* Each size is below 2^31, but their products may be too large. */
static int check_total(const struct pp_value *root, const struct pp_model *m)
{
    double total = pp_model_estimate(m);
    if (total > MAX_PARAMS)
        return pp_value_fail(root, "'%.3g' parameters are too many", total);
    return 0;
}

int pp_config_read_language(const struct pp_value *root, struct pp_model *m)
{
    m->init_range = 0.02;
    return read_architecture(root, m) ||
                   pp_config_check(root, m->architecture, PP_IN_MODEL)
               ? -1
               : pp_config_read_family(root, m);
}

/* Returns our name of the type of the weights, or NULL. float16 counts as
 * bf16, which takes as many bytes. */
static const char *read_dtype(const struct pp_value *root)
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
    return pp_config_find_set(root, "text_config", &text) ? read_dtype(&text)
                                                          : NULL;
}

int pp_config_read_details(const struct pp_value *root, struct pp_model *m)
{
    if (pp_config_opt_positive(root, "initializer_range", 1, &m->init_range) ||
        pp_config_read_dropout(root, m))
        return -1;
    return pp_family_of(m->architecture)->names->positions ? 0
           : m->windowed_rope.theta > 0 ? pp_config_read_two_ropes(root, m)
                                        : pp_config_read_rope(root, m);
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
        m->dtype = m->dtype ? m->dtype : read_dtype(root);
        return 0;
    }
    bool vision = pp_config_has_vision(root, &m->encoders[0].kind);
    if (vision ? pp_config_read_vision(root, m)
               : pp_config_read_language(root, m))
        return -1;
    if (check_total(root, m))
        return -1;
    m->dtype = read_dtype(root);
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
