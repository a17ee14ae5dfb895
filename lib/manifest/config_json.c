/* SPDX-License-Identifier: MIT */
/* config_json - config.json, read as transformers reads it.
 *
 * Defaults are those of the configuration classes of transformers 5, and null
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

/* The time of planning grows with the layers, and no model has so many. */
#define MAX_LAYERS 65536

/* Sums of parameter counts fit in 64 bits. */
#define MAX_PARAMS 0x1p60

/* The differences between the architectures. */
struct family {
    int64_t kv_heads;     /* default; 0: as many as heads */
    int64_t head_dim;     /* default; 0: hidden / heads */
    int64_t max_position; /* default */
    bool qkv_bias;        /* always, whatever attention_bias is */
    bool qkv_key;         /* unless this key is false */
    bool o_bias;          /* always, too */
    bool attention_bias;  /* the key is read */
    bool mlp_bias;        /* the key is read */
    bool qk_norm;
    bool norms_all_heads; /* QK-norm is of all heads */
    bool tied;            /* default */
    double theta;         /* default of rope_theta; 0: 10000 */
    bool no_rope;    /* the keys of layers without rotary positions are read */
    bool windows;    /* sliding_window is read */
    int64_t window;  /* its default; 0: none */
    double norm_eps; /* default; 0: 1e-6 */
    bool fixed_eps;  /* rms_norm_eps is not read */
    bool moe, mla;
    bool gemma; /* caps and scales are read */
    int (*read_moe)(const struct pp_value *root, struct pp_model *m);
};
static const struct family families[PP_N_ARCHITECTURES] = {
    [PP_LLAMA] = {.max_position = 2048,
                  .attention_bias = true,
                  .mlp_bias = true},
    [PP_QWEN2] = {.kv_heads = 32,
                  .max_position = 32768,
                  .qkv_bias = true,
                  .windows = true,
                  .window = 4096},
    [PP_QWEN3] = {.kv_heads = 32,
                  .head_dim = 128,
                  .max_position = 32768,
                  .attention_bias = true,
                  .qk_norm = true,
                  .windows = true,
                  .window = 4096},
    [PP_MISTRAL] = {.kv_heads = 8,
                    .max_position = 131072,
                    .windows = true,
                    .window = 4096},
    [PP_QWEN3_MOE] = {.kv_heads = 4,
                      .max_position = 32768,
                      .attention_bias = true,
                      .qk_norm = true,
                      .windows = true,
                      .window = 4096,
                      .moe = true},
    [PP_MIXTRAL] = {.kv_heads = 8,
                    .max_position = 131072,
                    .theta = 1e6,
                    .norm_eps = 1e-5,
                    .moe = true},
    [PP_GPT_OSS] = {.kv_heads = 8,
                    .head_dim = 64,
                    .max_position = 131072,
                    .qkv_bias = true,
                    .o_bias = true,
                    .attention_bias = true,
                    .theta = 150000,
                    .windows = true,
                    .window = 128,
                    .norm_eps = 1e-5,
                    .moe = true},
    [PP_DEEPSEEK_V3] = {.max_position = 4096,
                        .attention_bias = true,
                        .moe = true,
                        .mla = true,
                        .read_moe = pp_config_read_deepseek},
    [PP_DEEPSEEK_V2] = {.max_position = 2048,
                        .attention_bias = true,
                        .moe = true,
                        .mla = true,
                        .read_moe = pp_config_read_deepseek},
    [PP_QWEN2_MOE] = {.kv_heads = 16,
                      .max_position = 32768,
                      .qkv_bias = true,
                      .qkv_key = true,
                      .windows = true,
                      .window = 4096,
                      .moe = true},
    [PP_GPT2] = {.qkv_bias = true, .o_bias = true},
    [PP_SMOLLM3] = {.kv_heads = 4,
                    .max_position = 32768,
                    .attention_bias = true,
                    .mlp_bias = true,
                    .tied = true,
                    .theta = 2e6,
                    .no_rope = true,
                    .windows = true},
    [PP_PHI3] = {.max_position = 4096, .norm_eps = 1e-5, .windows = true},
    [PP_OLMO] = {.max_position = 2048,
                 .attention_bias = true,
                 .norm_eps = 1e-5,
                 .fixed_eps = true},
    [PP_OLMO2] = {.max_position = 2048,
                  .attention_bias = true,
                  .qk_norm = true,
                  .norms_all_heads = true,
                  .norm_eps = 1e-5},
    [PP_GEMMA] = {.kv_heads = 16,
                  .head_dim = 256,
                  .max_position = 8192,
                  .attention_bias = true,
                  .tied = true},
    [PP_GEMMA2] = {.kv_heads = 4,
                   .head_dim = 256,
                   .max_position = 8192,
                   .attention_bias = true,
                   .tied = true,
                   .windows = true,
                   .window = 4096,
                   .gemma = true},
    [PP_GEMMA3] = {.kv_heads = 4,
                   .head_dim = 256,
                   .max_position = 131072,
                   .attention_bias = true,
                   .qk_norm = true,
                   .tied = true,
                   .theta = 1e6,
                   .windows = true,
                   .window = 4096,
                   .gemma = true},
};

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

static int read_head_dim(const struct pp_value *root, const struct family *f,
                         struct pp_model *m)
{
    struct pp_value at;
    m->head_dim = (size_t)f->head_dim;
    /* If the class has a default of its own, null does not stand for it. */
    bool own_default = f->head_dim && pp_value_find(root, "head_dim", &at);
    if (own_default
            ? pp_config_get_size(root, "head_dim", INT_MAX, &m->head_dim)
            : pp_config_opt_size(root, "head_dim", &m->head_dim))
        return -1;
    if (!m->head_dim) {
        pp_value_find(root, "hidden_size", &at);
        if (m->hidden % m->n_heads)
            return pp_value_fail(&at,
                                 "'%zu' is not a multiple of "
                                 "num_attention_heads, %zu",
                                 m->hidden, m->n_heads);
        m->head_dim = m->hidden / m->n_heads;
    }
    if (m->head_dim % 2) {
        bool given = pp_config_find_set(root, "head_dim", &at);
        return pp_value_fail(given ? &at : root,
                             "'%zu', the size of a head, is odd", m->head_dim);
    }
    return 0;
}

static int read_heads(const struct pp_value *root, const struct family *f,
                      struct pp_model *m)
{
    struct pp_value at;
    bool there = pp_value_find(root, "num_key_value_heads", &at);
    m->n_kv_heads = f->kv_heads && !there ? (size_t)f->kv_heads : m->n_heads;
    if (pp_config_opt_size(root, "num_key_value_heads", &m->n_kv_heads))
        return -1;
    pp_value_find(root, "num_attention_heads", &at);
    if (m->n_heads % m->n_kv_heads)
        return pp_value_fail(&at,
                             "'%zu' is not a multiple of num_key_value_heads, "
                             "%zu",
                             m->n_heads, m->n_kv_heads);
    return read_head_dim(root, f, m);
}

static int read_sizes(const struct pp_value *root, const struct family *f,
                      struct pp_model *m)
{
    if (pp_config_get_size(root, "vocab_size", INT_MAX, &m->vocab) ||
        pp_config_get_size(root, "hidden_size", INT_MAX, &m->hidden) ||
        pp_config_get_size(root, "intermediate_size", INT_MAX,
                           &m->intermediate) ||
        pp_config_get_size(root, "num_hidden_layers",
                           f->moe ? PP_SET_LAYERS : MAX_LAYERS, &m->n_layers) ||
        pp_config_get_size(root, "num_attention_heads", INT_MAX, &m->n_heads))
        return -1;
    m->max_position = (size_t)f->max_position;
    m->window = (size_t)f->window;
    if (pp_config_opt_size(root, "max_position_embeddings", &m->max_position) ||
        (f->mla ? pp_config_read_mla(root, m) : read_heads(root, f, m)))
        return -1;
    if (f->read_moe)
        return f->read_moe(root, m);
    return f->moe ? pp_config_read_moe(root, m) : 0;
}

/* Each size is below 2^31, but their products may be too large. */
static int check_total(const struct pp_value *root, const struct pp_model *m)
{
    double total = pp_model_estimate(m);
    if (total > MAX_PARAMS)
        return pp_value_fail(root, "'%.3g' parameters are too many", total);
    return 0;
}

static int read_switches(const struct pp_value *root, const struct family *f,
                         struct pp_model *m)
{
    m->qk_norm = f->qk_norm;
    m->norms_all_heads = f->norms_all_heads;
    m->qkv_bias = f->qkv_bias;
    m->o_bias = f->o_bias;
    bool bias = f->o_bias;
    if (f->attention_bias) {
        if (pp_config_opt_bool(root, "attention_bias", &bias))
            return -1;
        m->qkv_bias = m->o_bias = bias;
    }
    if (f->qkv_key && pp_config_opt_bool(root, "qkv_bias", &m->qkv_bias))
        return -1;
    m->tied |= f->tied;
    if (f->mlp_bias && pp_config_opt_bool(root, "mlp_bias", &m->mlp_bias))
        return -1;
    if (pp_config_opt_bool(root, "tie_word_embeddings", &m->tied))
        return -1;
    m->tied &= !m->scores;
    return 0;
}

int pp_config_read_language(const struct pp_value *root, struct pp_model *m)
{
    if (read_architecture(root, m) ||
        pp_config_check(root, m->architecture, PP_IN_MODEL))
        return -1;
    const struct family *f = &families[m->architecture];
    m->init_range = 0.02;
    bool gpt2 = m->architecture == PP_GPT2;
    if (pp_family_of(m->architecture)->config)
        return pp_config_read_family(root, m);
    m->norm_eps = f->norm_eps > 0 ? f->norm_eps : 1e-6;
    if (gpt2 ? pp_config_read_gpt2(root, m) : read_sizes(root, f, m))
        return -1;
    return read_switches(root, f, m);
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
    if (m->architecture == PP_GPT2)
        return pp_config_read_gpt2_rest(root, m);
    if (pp_family_of(m->architecture)->config)
        return m->windowed_rope.theta > 0 ? pp_config_read_two_ropes(root, m)
                                          : pp_config_read_rope(root, m);
    const struct family *f = &families[m->architecture];
    if ((f->no_rope && pp_config_read_no_rope(root, m)) ||
        (f->windows && pp_config_read_window(root, m)) ||
        (f->gemma && pp_config_read_gemma(root, m)) ||
        (!f->fixed_eps &&
         pp_config_opt_positive(root, "rms_norm_eps", 1, &m->norm_eps)))
        return -1;
    m->rope.theta = f->theta > 0 ? f->theta : 10000;
    m->windowed_rope.theta = m->architecture == PP_GEMMA3 ? 10000 : 0;
    return m->architecture == PP_GEMMA3 ? pp_config_read_two_ropes(root, m)
                                        : pp_config_read_rope(root, m);
}

/* Checks that weights are quantized as those that are released. */
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
