/* SPDX-License-Identifier: MIT */
/* config_encoder - an encoder of images or of audio in config.json: CLIP's,
 * Qwen's, and Whisper's. */
#include <limits.h>
#include <string.h>

#include "manifest/config_values.h"
#include "model/vision.h"

enum {
    MAX_IMAGE = 1 << 15,
    USUAL_IMAGE_TOKEN = 32000, /* of LLaVA */
    USUAL_QWEN_TOKEN = 151655,
    USUAL_AUDIO_TOKEN = 151646
};

/* Reads a size that has one of two names, or sets its default. */
static int get_named(const struct pp_value *o, const char *key,
                     const char *other, size_t value, size_t *out)
{
    struct pp_value at;
    *out = value;
    if (other && !pp_config_find_set(o, key, &at))
        key = other;
    return pp_config_opt_size(o, key, out);
}

static int check_heads(const struct pp_value *o, const char *key,
                       const struct pp_vision *v)
{
    struct pp_value at;
    bool given = pp_config_find_set(o, key, &at);
    if (v->hidden % v->n_heads == 0)
        return 0;
    return pp_value_fail(given ? &at : o,
                         "'%zu' heads do not divide the encoder's width, %zu",
                         v->n_heads, v->hidden);
}

static int get_layers(const struct pp_value *o, const char *key, size_t value,
                      struct pp_vision *v)
{
    struct pp_value at;
    if (get_named(o, key, NULL, value, &v->n_layers))
        return -1;
    v->n_run = v->n_layers;
    if (v->n_layers <= PP_SET_LAYERS)
        return 0;
    pp_value_find(o, key, &at);
    return pp_value_fail(&at, "'%zu' layers are more than %d", v->n_layers,
                         PP_SET_LAYERS);
}

/* Reads the number of a hidden state: 0 is the first layer's input, and
 * negative numbers count from the end. */
static int read_hidden_state(const struct pp_value *at,
                             const struct pp_vision *v, size_t *state)
{
    int64_t layer, n = (int64_t)v->n_layers;
    if (pp_value_int(at, -n - 1, n, &layer))
        return -1;
    *state = (size_t)(layer < 0 ? n + 1 + layer : layer);
    return 0;
}

/* Returns how many of n numbers are smaller than one of them. */
static size_t n_smaller(const size_t *of, size_t n, size_t than)
{
    size_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += of[i] < than;
    return sum;
}

/* Reads a list of hidden states. The last one of the encoder comes first in a
 * message. */
static int read_states(const struct pp_value *at, struct pp_vision *v)
{
    size_t states[PP_MOST_STATES], n;
    if (pp_value_array(at, &n))
        return -1;
    if (n == 0 || n > PP_MOST_STATES)
        return pp_value_fail(at, "'%zu' layers; there must be 1 to %d", n,
                             PP_MOST_STATES);
    v->n_run = 0;
    for (size_t i = 0; i < n; i++) {
        struct pp_value item = pp_value_item(at, i);
        if (read_hidden_state(&item, v, &states[i]))
            return -1;
        for (size_t k = 0; k < i; k++)
            if (states[k] == states[i])
                return pp_value_fail(&item, "state '%zu' is in the list twice",
                                     states[i]);
        v->n_run = states[i] > v->n_run ? states[i] : v->n_run;
    }
    v->n_states = n;
    for (size_t i = 0; i < n; i++)
        if (states[i] < v->n_run) {
            pp_layer_set_add(&v->kept, states[i]);
            v->state[i] = (unsigned char)(1 + n_smaller(states, n, states[i]));
        }
    return 0;
}

/* Reads the hidden states that the projector gets, and their rows. */
static int read_feature(const struct pp_value *root, struct pp_vision *v)
{
    struct pp_value at;
    const char *strategy = "default";
    v->n_run = v->n_layers ? v->n_layers - 1 : 0;
    if (pp_config_find_set(root, "vision_feature_layer", &at) &&
        (json_is_array(at.value) ? read_states(&at, v)
                                 : read_hidden_state(&at, v, &v->n_run)))
        return -1;
    if (pp_config_find_set(root, "vision_feature_select_strategy", &at) &&
        pp_value_text(&at, &strategy))
        return -1;
    v->class_out = !strcmp(strategy, "full");
    return 0;
}

/* Reads the name of an activation, or sets its default. */
static int read_gelu(const struct pp_value *o, const char *key,
                     const char *usual, enum pp_gelu *out)
{
    static const enum pp_gelu forms[] = {PP_GELU_ERF, PP_GELU_SIGMOID,
                                         PP_GELU_TANH, PP_GELU_TANH};
    struct pp_value at;
    const char *text = usual;
    if (pp_config_find_set(o, key, &at) && pp_value_text(&at, &text))
        return -1;
    int i = pp_config_word(&at, text, pp_gelu_words);
    if (i < 0)
        return -1;
    *out = forms[i];
    return 0;
}

static int read_clip(const struct pp_value *root, const struct pp_value *o,
                     struct pp_vision *v)
{
    size_t image, patch, channels;
    struct pp_value at;
    if (get_named(o, "hidden_size", NULL, 768, &v->hidden) ||
        get_named(o, "intermediate_size", NULL, 3072, &v->intermediate) ||
        get_layers(o, "num_hidden_layers", 12, v) ||
        get_named(o, "num_attention_heads", NULL, 12, &v->n_heads) ||
        check_heads(o, "num_attention_heads", v) ||
        read_gelu(root, "projector_hidden_act", "gelu", &v->projector_gelu) ||
        read_gelu(o, "hidden_act", "quick_gelu", &v->gelu) ||
        pp_config_opt_positive(o, "layer_norm_eps", 1, &v->norm_eps) ||
        get_named(o, "image_size", NULL, 224, &image) ||
        get_named(o, "patch_size", NULL, 32, &patch) ||
        get_named(o, "num_channels", NULL, 3, &channels))
        return -1;
    if (image > MAX_IMAGE || patch > image || channels > MAX_IMAGE) {
        bool given = pp_config_find_set(o, "image_size", &at);
        return pp_value_fail(given ? &at : o,
                             "an image of '%zu' pixels has no patches of %zu, "
                             "or is too large",
                             image, patch);
    }
    v->channels = channels;
    v->patch_size = patch;
    v->patch_inputs = channels * patch * patch;
    v->patches = (image / patch) * (image / patch);
    v->fixed_size = v->class_token = true;
    v->merge = 1;
    return read_feature(root, v);
}

/* Reads the layers that attend to the whole image. The other layers attend to a
 * window of pixels. */
static int read_windows(const struct pp_value *o, size_t merge,
                        struct pp_vision *v)
{
    static const int64_t usual[] = {7, 15, 23, 31};
    size_t n = sizeof usual / sizeof *usual, window;
    struct pp_layer_set whole = {0};
    struct pp_value list;
    bool given = pp_config_find_set(o, "fullatt_block_indexes", &list);
    if (get_named(o, "window_size", NULL, 112, &window) ||
        (given && pp_value_array(&list, &n)))
        return -1;
    for (size_t i = 0; i < n; i++) {
        int64_t layer = given ? 0 : usual[i];
        struct pp_value item;
        if (given) {
            item = pp_value_item(&list, i);
            if (pp_value_int(&item, 0, PP_SET_LAYERS - 1, &layer))
                return -1;
        }
        pp_layer_set_add(&whole, (size_t)layer);
    }
    v->window = window / merge / v->patch_size;
    if (v->window == 0) {
        given = pp_config_find_set(o, "window_size", &list);
        return pp_value_fail(given ? &list : o,
                             "a window of '%zu' pixels has no feature, which "
                             "is %zu patches of %zu pixels each way",
                             window, merge, v->patch_size);
    }
    for (size_t i = 0; i < v->n_layers; i++)
        if (!pp_layer_set_has(&whole, i))
            pp_layer_set_add(&v->windowed, i);
    return 0;
}

/* The merger's output must be as wide as the language model. */
static int check_out(const struct pp_value *o, const char *key, size_t out,
                     size_t hidden)
{
    struct pp_value at;
    if (out == hidden || !pp_config_find_set(o, key, &at))
        return 0;
    return pp_value_fail(&at, "'%zu' is not the language model's width, %zu",
                         out, hidden);
}

/* Reads what only training depends on: the activation, and the rotary positions
 * of rows and columns. Norms and merger have fixed values. */
static int read_qwen_details(const struct pp_value *o, struct pp_vision *v)
{
    struct pp_value rope, at;
    size_t width = v->hidden / v->n_heads;
    v->norm_eps = 1e-6;
    v->projector_gelu = PP_GELU_ERF;
    if (v->kind == PP_VISION_QWEN2 &&
        read_gelu(o, "hidden_act", "quick_gelu", &v->gelu))
        return -1;
    if (width % 4 || width > PP_MOST_AXES_HEAD) {
        bool given = pp_config_find_set(o, "num_heads", &at);
        return pp_value_fail(given ? &at : o,
                             "'%zu' heads of %zu elements: row and column "
                             "rotate a multiple of 4, up to %d",
                             v->n_heads, width, (int)PP_MOST_AXES_HEAD);
    }
    if (!pp_config_find_set(o, "rope_parameters", &rope))
        return 0;
    if (pp_value_is_object(&rope))
        return -1;
    return pp_config_check(&rope, pp_vision_architecture(v->kind),
                           PP_IN_ENCODER_ROPE);
}

static int read_qwen(const struct pp_value *o, const struct pp_model *m,
                     struct pp_vision *v)
{
    bool newer = v->kind != PP_VISION_QWEN2;
    size_t patch, merge, frames, channels, ratio, out;
    const char *key = newer ? "out_hidden_size" : "hidden_size";
    if (get_layers(o, "depth", 32, v) ||
        get_named(o, newer ? "hidden_size" : "embed_dim", NULL,
                  newer ? 3584 : 1280, &v->hidden) ||
        get_named(o, key, NULL, 3584, &out) ||
        get_named(o, "mlp_ratio", NULL, 4, &ratio) ||
        get_named(o, "intermediate_size", NULL, 3420, &v->intermediate) ||
        get_named(o, "num_heads", NULL, 16, &v->n_heads) ||
        check_heads(o, "num_heads", v) ||
        get_named(o, "in_chans", "in_channels", 3, &channels) ||
        get_named(o, "patch_size", NULL, 14, &patch) ||
        get_named(o, "spatial_merge_size", NULL, 2, &merge) ||
        get_named(o, "temporal_patch_size", NULL, 2, &frames))
        return -1;
    if (patch > MAX_IMAGE || merge > MAX_IMAGE || channels > MAX_IMAGE ||
        frames > MAX_IMAGE || ratio > MAX_IMAGE)
        return pp_value_fail(o, "the sizes of a patch are too large");
    if (!newer)
        v->intermediate = ratio * v->hidden;
    v->patch_inputs = channels * frames * patch * patch;
    v->channels = channels;
    v->patch_size = patch;
    v->frames = frames;
    v->merge = merge * merge;
    v->patches = pp_round_up(PP_USUAL_PATCHES, v->merge);
    if (check_out(o, key, out, m->hidden))
        return -1;
    return read_qwen_details(o, v) || (newer && read_windows(o, merge, v)) ? -1
                                                                           : 0;
}

/* Reads the chunks of Qwen2.5-Omni's encoder of audio. Its positions count
 * within a chunk, so that a clip may be longer than the table of positions. */
static int read_chunks(const struct pp_value *o, const struct pp_model *m,
                       struct pp_vision *v)
{
    struct pp_value at;
    size_t out;
    if (get_named(o, "n_window", NULL, 100, &v->chunk) ||
        get_named(o, "output_dim", NULL, 3584, &out) ||
        check_out(o, "output_dim", out, m->hidden))
        return -1;
    if (v->chunk > v->most) {
        bool given = pp_config_find_set(o, "n_window", &at);
        return pp_value_fail(given ? &at : o,
                             "a chunk of '%zu' rows has more than the %zu "
                             "positions (max_source_positions)",
                             v->chunk, v->most);
    }
    if (v->hidden % 2) {
        bool given = pp_config_find_set(o, "d_model", &at);
        return pp_value_fail(given ? &at : o,
                             "'%zu' is odd, but positions have as many sines "
                             "as cosines",
                             v->hidden);
    }
    v->most = 0;
    for (size_t i = 0; i < v->n_layers; i++)
        pp_layer_set_add(&v->windowed, i); /* all attend to their chunk */
    return 0;
}

/* Reads Whisper's encoder. */
static int read_whisper(const struct pp_value *o, struct pp_model *m,
                        struct pp_vision *v)
{
    bool omni = v->kind == PP_VISION_OMNI_AUDIO;
    struct pp_value at;
    if (get_named(o, "d_model", NULL, 1280, &v->hidden) ||
        get_named(o, "encoder_ffn_dim", NULL, 5120, &v->intermediate) ||
        get_layers(o, "encoder_layers", 32, v) ||
        get_named(o, "encoder_attention_heads", NULL, 20, &v->n_heads) ||
        check_heads(o, "encoder_attention_heads", v) ||
        read_gelu(o, "activation_function", "gelu", &v->gelu) ||
        get_named(o, "num_mel_bins", NULL, 128, &v->channels) ||
        get_named(o, "max_source_positions", NULL, 1500, &v->most))
        return -1;
    if (v->most < PP_AUDIO_MERGE) {
        pp_value_find(o, "max_source_positions", &at);
        return pp_value_fail(&at,
                             "'%zu' is below %d, the positions of a feature",
                             v->most, (int)PP_AUDIO_MERGE);
    }
    if (v->channels > MAX_IMAGE || v->most > INT_MAX)
        return pp_value_fail(o,
                             "'%zu' frequencies or '%zu' positions are too "
                             "many",
                             v->channels, v->most);
    v->patch_size = PP_AUDIO_FRAMES;
    v->patch_inputs = PP_AUDIO_FRAMES * v->channels;
    v->merge = PP_AUDIO_MERGE;
    v->patches = v->most / v->merge * v->merge;
    return omni ? read_chunks(o, m, v) : 0;
}

/* Reads the id of placeholders. */
static int read_token(const struct pp_value *root, struct pp_vision *v)
{
    if (pp_vision_hears(v))
        return get_named(root, "audio_token_index", "audio_token_id",
                         USUAL_AUDIO_TOKEN, &v->image_token);
    return get_named(root, "image_token_index", "image_token_id",
                     v->kind == PP_VISION_LLAVA ? USUAL_IMAGE_TOKEN
                                                : USUAL_QWEN_TOKEN,
                     &v->image_token);
}

int pp_config_read_encoder(const struct pp_value *root, struct pp_model *m,
                           struct pp_vision *v)
{
    struct pp_value encoder;
    bool llava = v->kind == PP_VISION_LLAVA;
    v->projector_bias = true;
    v->norm_eps = 1e-5;
    if (pp_value_member(root,
                        pp_vision_hears(v) ? "audio_config" : "vision_config",
                        &encoder) ||
        pp_value_is_object(&encoder))
        return -1;
    if (llava && pp_config_opt_bool(root, "multimodal_projector_bias",
                                    &v->projector_bias))
        return -1;
    const enum pp_architecture tower = pp_vision_architecture(v->kind);
    if (read_token(root, v) || pp_config_check(root, tower, PP_IN_WHOLE) ||
        pp_config_check(&encoder, tower, PP_IN_ENCODER) ||
        pp_config_read_dropout(&encoder, m))
        return -1;
    if (pp_vision_hears(v))
        return read_whisper(&encoder, m, v);
    return llava ? read_clip(root, &encoder, v) : read_qwen(&encoder, m, v);
}
