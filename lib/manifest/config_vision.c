/* SPDX-License-Identifier: MIT */
/* config_vision - config.json of encoders with a language model: LLaVA,
 * Qwen2-VL, Qwen2.5-VL, Qwen2-Audio, and the thinker of Qwen2.5-Omni.
 *
 * Published files leave out keys that have their class's default. Older files
 * of Qwen have the language model's keys beside their own; newer ones have them
 * in text_config. */
#include <string.h>

#include "manifest/config_values.h"
#include "model/vision.h"

/* A language model: its model_type, the model_type with the same tensors that
 * it is read as, and the defaults of its class in transformers 5. */
struct language {
    const char *type, *as;
    int hidden, intermediate, layers, heads, kv_heads, vocab;
    double theta, norm_eps; /* 0: as of the other model_type */
};
static const struct language languages[] = {
    {"llama", "llama", 4096, 11008, 32, 32, 0, 32000, 0, 0},
    {"mistral", "mistral", 4096, 14336, 32, 32, 8, 32000, 0, 0},
    {"qwen2", "qwen2", 4096, 22016, 32, 32, 32, 151936, 0, 0},
    {"qwen3", "qwen3", 4096, 22016, 32, 32, 32, 151936, 0, 0},
    {"qwen2_vl", "qwen2", 8192, 29568, 80, 64, 8, 152064, 1e6, 1e-5},
    {"qwen2_vl_text", "qwen2", 8192, 29568, 80, 64, 8, 152064, 1e6, 1e-5},
    {"qwen2_5_vl", "qwen2", 8192, 29568, 80, 64, 8, 152064, 1e6, 1e-5},
    {"qwen2_5_vl_text", "qwen2", 8192, 29568, 80, 64, 8, 152064, 1e6, 1e-5},
    {"qwen2_5_omni_text", "qwen2", 3584, 18944, 28, 28, 4, 152064, 1e6, 0},
};

/* The model_type of a thinker with what speaks. */
#define WHOLE_OMNI "qwen2_5_omni"

enum { N_LANGUAGES = sizeof languages / sizeof *languages };

static const char *const model_types[PP_N_VISIONS] = {
    [PP_VISION_LLAVA] = "llava",
    [PP_VISION_QWEN2] = "qwen2_vl",
    [PP_VISION_QWEN2_5] = "qwen2_5_vl",
    [PP_VISION_QWEN2_AUDIO] = "qwen2_audio",
    [PP_VISION_OMNI] = "qwen2_5_omni_thinker",
};

const char *pp_config_vision_type(enum pp_vision_kind kind)
{
    return model_types[kind];
}

static bool is_text(const json_t *value, const char *text)
{
    return json_is_string(value) && !strcmp(json_string_value(value), text);
}

bool pp_config_find_thinker(const struct pp_value *root,
                            struct pp_value *thinker)
{
    return is_text(json_object_get(root->value, "model_type"), WHOLE_OMNI) &&
           pp_config_find_set(root, "thinker_config", thinker);
}

bool pp_config_has_vision(const struct pp_value *root,
                          enum pp_vision_kind *kind)
{
    const json_t *list = json_object_get(root->value, "architectures");
    if (json_is_null(list))
        list = NULL;
    const json_t *name = json_array_get(list, 0);
    const json_t *type = json_object_get(root->value, "model_type");
    /* The thinker in a published file has a class that transformers lacks. */
    if (is_text(type, model_types[PP_VISION_OMNI])) {
        *kind = PP_VISION_OMNI;
        return true;
    }
    for (int k = PP_VISION_NONE + 1; k < PP_N_VISIONS; k++) {
        *kind = (enum pp_vision_kind)k;
        if (json_array_size(list) == 1 ? is_text(name, pp_vision_name(*kind))
                                       : !list && is_text(type, model_types[k]))
            return true;
    }
    *kind = PP_VISION_NONE;
    return false;
}

static bool is_set(const json_t *o, const char *key)
{
    const json_t *given = json_object_get(o, key);
    return given && !json_is_null(given);
}

/* Sets a default if the key is not set. */
static void imply(json_t *o, const char *key, int value)
{
    if (value && !is_set(o, key))
        pp_put(o, key, json_integer(value));
}

static void imply_real(json_t *o, const char *key, double value)
{
    if (value > 0 && !is_set(o, key))
        pp_put(o, key, json_real(value));
}

static void complete(json_t *o, const struct language *l)
{
    (void)json_object_del(o, "architectures");
    pp_put(o, "model_type", json_string(l->as));
    imply(o, "hidden_size", l->hidden);
    imply(o, "intermediate_size", l->intermediate);
    imply(o, "num_hidden_layers", l->layers);
    imply(o, "num_attention_heads", l->heads);
    imply(o, "num_key_value_heads", l->kv_heads);
    imply(o, "vocab_size", l->vocab);
    imply_real(o, "rope_theta", l->theta);
    imply_real(o, "rms_norm_eps", l->norm_eps);
}

/* The language model is in text_config, if there is one, or else in the whole
 * object. Its model_type may be missing. */
static int read_language(const struct pp_value *root, struct pp_model *m)
{
    struct pp_value text, at;
    bool needs = !pp_vision_merges(&m->encoders[0]);
    const char *type = m->encoders[0].kind == PP_VISION_LLAVA ? "llama"
                       : m->encoders[0].kind == PP_VISION_OMNI
                           ? "qwen2_5_omni_text"
                       : needs ? "qwen2"
                               : model_types[m->encoders[0].kind];
    if (!pp_config_find_set(root, "text_config", &text)) {
        if (needs)
            return pp_value_fail(root, "'text_config' is missing");
        text = *root;
    } else if (pp_value_is_object(&text)) {
        return -1;
    }
    if (pp_config_find_set(&text, "model_type", &at) &&
        pp_value_text(&at, &type))
        return -1;
    const char *types[N_LANGUAGES + 1] = {NULL};
    for (int i = 0; i < N_LANGUAGES; i++)
        types[i] = languages[i].type;
    int place = pp_config_word(&at, type, types);
    if (place < 0)
        return -1;
    json_t *whole = json_copy(text.value);
    complete(whole, &languages[place]);
    struct pp_value language = text;
    language.value = whole;
    int rc = pp_config_read_language(&language, m);
    if (!rc)
        rc = pp_config_read_details(&language, m) ||
             (pp_vision_merges(&m->encoders[0]) &&
              pp_config_read_axes(&language, m));
    json_decref(whole);
    return rc;
}

/* The key outside text_config overrides the key inside, which a thinker does
 * not read. */
static int read_tied(const struct pp_value *root, struct pp_model *m)
{
    if (m->encoders[0].kind == PP_VISION_OMNI)
        m->tied = false;
    return pp_config_opt_bool(root, "tie_word_embeddings", &m->tied);
}

/* Placeholders of images and of audio must differ. */
static int check_tokens(const struct pp_value *root, const struct pp_model *m)
{
    const struct pp_vision *v = m->encoders;
    if (pp_model_n_encoders(m) < 2 || v[0].image_token != v[1].image_token)
        return 0;
    return pp_value_fail(root,
                         "token '%zu' cannot stand for both images and audio",
                         v[0].image_token);
}

int pp_config_read_vision(const struct pp_value *root, struct pp_model *m)
{
    struct pp_vision *v = m->encoders;
    if (v[0].kind == PP_VISION_OMNI)
        v[1].kind = PP_VISION_OMNI_AUDIO;
    if (pp_config_only_text(root, "model_type", model_types[v->kind]) ||
        read_language(root, m) || read_tied(root, m))
        return -1;
    for (size_t i = 0; i < pp_model_n_encoders(m); i++)
        if (pp_config_read_encoder(root, m, &v[i]))
            return -1;
    return check_tokens(root, m);
}
