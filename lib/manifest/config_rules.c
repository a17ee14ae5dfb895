/* SPDX-License-Identifier: MIT */
#include "manifest/config_rules.h"

#include <string.h>

#include "manifest/config_values.h"
#include "model/vision.h"

#define OF(family) (UINT64_C(1) << PP_##family)

enum { N_PLACES = PP_IN_ENCODER_ROPE + 1 };

#define ALL (OF(N_ARCHITECTURES) - 1)
#define ROTARY (ALL & ~OF(GPT2))
/* The families from this one of model.h on. */
#define FROM(family) (ALL & ~(OF(family) - 1))
#define LINEAR (OF(QWEN3_5) | OF(QWEN3_5_MOE) | OF(QWEN3_NEXT))
#define PARTIAL                                                      \
    (OF(PHI3) | OF(GLM) | OF(GLM4) | OF(GLM4_MOE) | OF(SOLAR_OPEN) | \
     OF(MINIMAX_M2) | OF(MIMO_V2_FLASH) | LINEAR)
#define GEMMAS (OF(GEMMA) | OF(GEMMA2) | OF(GEMMA3))
#define V2_AND_V3 (OF(DEEPSEEK_V2) | OF(DEEPSEEK_V3))
#define VL (OF(QWEN2_VIT) | OF(QWEN2_5_VIT) | OF(OMNI_VIT))
#define WITH_EXPERTS                                                         \
    (OF(QWEN3_MOE) | OF(QWEN2_MOE) | OF(MIXTRAL) | OF(GPT_OSS) | V2_AND_V3 | \
     FROM(OLMOE))
/* The other families with windows have one in every layer. */
#define TYPED                                                            \
    (OF(QWEN2) | OF(QWEN3) | OF(QWEN2_MOE) | OF(GPT_OSS) | OF(SMOLLM3) | \
     OF(GEMMA2) | OF(GEMMA3) | (FROM(OLMO3) & ~(LINEAR | OF(LLAMA4))))

const char *const pp_gelu_words[] = {"gelu", "quick_gelu", "gelu_new",
                                     "gelu_pytorch_tanh", NULL};
const char *const pp_rope_words[] = {
    [PP_ROPE_DEFAULT] = "default", [PP_ROPE_LINEAR] = "linear",
    [PP_ROPE_LLAMA3] = "llama3",   [PP_ROPE_YARN] = "yarn",
    [PP_ROPE_DYNAMIC] = "dynamic", NULL,
};
/* Older files of Phi-3 have other names of longrope. */
const char *const pp_longrope_words[] = {"default", "longrope", "su", "yarn",
                                         NULL};

static const char *const
    silu[] = {"silu", NULL},
    *const xielu[] = {"xielu", NULL}, *const relu2[] = {"relu2", NULL},
    *const softmax[] = {"softmax", NULL}, *const sigmoid[] = {"sigmoid", NULL},
    *const noaux[] = {"noaux_tc", NULL},
    *const strategies[] = {"default", "full", NULL},
    *const tanh_gelu[] = {"gelu_pytorch_tanh", NULL},
    *const first_gelu[] = {"gelu_pytorch_tanh", "gelu", NULL},
    *const fp8[] = {"fp8", NULL}, *const mxfp4[] = {"mxfp4", NULL},
    *const axial[] = {"axial", NULL}, *const mrope[] = {"default", "linear",
                                                        "llama3",  "yarn",
                                                        "dynamic", "mrope",
                                                        NULL},
    *const clip[] = {"clip_vision_model", NULL},
    *const audio[] = {"qwen2_audio_encoder", NULL},
    *const omni_audio[] = {"qwen2_5_omni_audio_encoder", NULL},
    *const recurrent_types[] = {"linear_attention", "full_attention", NULL},
    *const layer_types[] = {"sliding_attention", "full_attention", NULL},
    *const chunk_types[] = {"chunked_attention", "full_attention", NULL},
    *const gpt2_gelu[] = {"gelu", "gelu_new", "gelu_pytorch_tanh", NULL},
    *const selections[] = {"softmax", "sigmoid", NULL},
    *const combinations[] = {"average", "sum", NULL},
    *const topk_methods[] = {"greedy", "group_limited_greedy", NULL};

/* clang-format off */
const struct pp_config_rule pp_config_rules[] = {
    {ROTARY & ~(GEMMAS | OF(ARCEE) | OF(STARCODER2) | OF(APERTUS)), PP_IN_MODEL,
     "hidden_act", PP_WORD, silu},
    {OF(APERTUS), PP_IN_MODEL, "hidden_act", PP_WORD, xielu},
    {OF(ARCEE), PP_IN_MODEL, "hidden_act", PP_WORD, relu2},
    {OF(STARCODER2), PP_IN_MODEL, "hidden_act", PP_WORD, tanh_gelu},
    {OF(ERNIE4_5) | OF(ERNIE4_5_MOE), PP_IN_MODEL, "use_bias", PP_FALSE},
    {OF(COHERE), PP_IN_MODEL, "use_qk_norm", PP_FALSE},
    {OF(AFMOE) | LINEAR, PP_IN_MODEL, "attention_bias", PP_FALSE},
    {LINEAR, PP_IN_MODEL, "layer_types", PP_WORD, recurrent_types},
    {OF(GEMMA), PP_IN_MODEL, "hidden_act", PP_WORD, first_gelu},
    {GEMMAS, PP_IN_MODEL, "hidden_activation", PP_WORD, tanh_gelu},
    {GEMMAS, PP_IN_MODEL, "use_bidirectional_attention", PP_FALSE},
    {OF(GEMMA3), PP_IN_MODEL, "attn_logit_softcapping", PP_NULL},
    {OF(GPT2), PP_IN_MODEL, "activation_function", PP_WORD,
     gpt2_gelu},
    {OF(GPT2), PP_IN_MODEL, "scale_attn_weights", PP_TRUE},
    {OF(GPT2), PP_IN_MODEL, "scale_attn_by_inverse_layer_idx", PP_FALSE},
    {OF(GPT2), PP_IN_MODEL, "add_cross_attention", PP_FALSE},
    {OF(OLMO) | OF(OLMOE), PP_IN_MODEL, "clip_qkv", PP_NULL},
    {OF(COHERE2_MOE), PP_IN_MODEL, "rms_norm_eps", PP_NULL},
    {OF(MIMO_V2_FLASH), PP_IN_MODEL, "rope_theta", PP_NUMBER, NULL, 5e6},
    {OF(MIMO_V2_FLASH), PP_IN_MODEL, "partial_rotary_factor", PP_NUMBER, NULL,
     0.334},
    {OF(COHERE2_MOE), PP_IN_MODEL, "expert_selection_fn", PP_WORD, selections},
    {OF(COHERE2_MOE), PP_IN_MODEL, "shared_expert_combination_strategy", PP_WORD,
     combinations},
    {TYPED, PP_IN_MODEL, "layer_types", PP_WORD, layer_types},
    {OF(LLAMA4), PP_IN_MODEL, "layer_types", PP_WORD, chunk_types},
    {WITH_EXPERTS, PP_IN_MODEL, "router_jitter_noise", PP_NUMBER, NULL, 0},
    {WITH_EXPERTS, PP_IN_MODEL, "output_router_logits", PP_FALSE,
     .unless = "router_aux_loss_coef",
     .advice = " asks for a loss that balances the experts; set it to false: "
               "the trainer takes its factor as an option"},
    {V2_AND_V3, PP_IN_MODEL, "moe_layer_freq", PP_NUMBER, NULL, 1},
    {OF(DEEPSEEK_V2), PP_IN_MODEL, "scoring_func", PP_WORD, softmax},
    {OF(DEEPSEEK_V2), PP_IN_MODEL, "norm_topk_prob", PP_FALSE},
    {OF(DEEPSEEK_V2), PP_IN_MODEL, "topk_method", PP_WORD,
     topk_methods},
    {OF(DEEPSEEK_V3), PP_IN_MODEL, "scoring_func", PP_WORD, sigmoid},
    {OF(DEEPSEEK_V3), PP_IN_MODEL, "topk_method", PP_WORD, noaux},
    {ROTARY & ~PARTIAL, PP_IN_MODEL, "partial_rotary_factor", PP_NUMBER, NULL,
     1},
    {ROTARY & ~PARTIAL, PP_IN_ROPE, "partial_rotary_factor", PP_NUMBER, NULL,
     1},
    {ROTARY & ~OF(PHI3), PP_IN_ROPE, "rope_type", PP_WORD, pp_rope_words,
     .old = "type"},
    {OF(PHI3), PP_IN_ROPE, "rope_type", PP_WORD, pp_longrope_words,
     .old = "type"},
    {VL, PP_IN_MROPE, "partial_rotary_factor", PP_NUMBER, NULL, 1},
    {VL, PP_IN_MROPE, "rope_type", PP_WORD, mrope, .old = "type"},
    {ALL & ~OF(GPT_OSS), PP_IN_QUANTIZATION, "quant_method", PP_WORD, fp8},
    {OF(GPT_OSS), PP_IN_QUANTIZATION, "quant_method", PP_WORD, mxfp4},
    {ALL, PP_IN_QUANTIZATION, "weight_block_size", PP_NUMBER, NULL, 128},
    {OF(CLIP), PP_IN_WHOLE, "projector_hidden_act", PP_WORD, pp_gelu_words},
    {OF(CLIP), PP_IN_WHOLE, "vision_feature_select_strategy", PP_WORD,
     strategies},
    {OF(CLIP), PP_IN_ENCODER, "model_type", PP_WORD, clip},
    {OF(CLIP) | OF(QWEN2_VIT), PP_IN_ENCODER, "hidden_act", PP_WORD,
     pp_gelu_words},
    {OF(QWEN2_5_VIT) | OF(OMNI_VIT), PP_IN_ENCODER, "hidden_act", PP_WORD,
     silu},
    {VL, PP_IN_ENCODER_ROPE,
     "rope_type", PP_WORD, axial},
    {VL, PP_IN_ENCODER_ROPE,
     "rope_theta", PP_NUMBER, NULL, PP_VISION_THETA},
    {OF(WHISPER), PP_IN_ENCODER, "model_type", PP_WORD, audio},
    {OF(OMNI_AUDIO), PP_IN_ENCODER, "model_type", PP_WORD, omni_audio},
    {OF(WHISPER) | OF(OMNI_AUDIO), PP_IN_ENCODER, "activation_function",
     PP_WORD, pp_gelu_words},
    {OF(OMNI_AUDIO), PP_IN_ENCODER, "scale_embedding", PP_FALSE},
    {0, PP_IN_MODEL, NULL, PP_NULL},
};
/* clang-format on */

void pp_config_accepted(const struct pp_config_rule *r,
                        char text[PP_ACCEPTED_TEXT])
{
    static const char *const constants[] = {
        [PP_TRUE] = "true", [PP_FALSE] = "false", [PP_NULL] = "null"};
    size_t n = 0;
    if (r->form == PP_NUMBER)
        snprintf(text, PP_ACCEPTED_TEXT, "%g", r->number);
    else if (r->form != PP_WORD)
        snprintf(text, PP_ACCEPTED_TEXT, "%s%s%s", constants[r->form],
                 r->unless ? ", or 0 as " : "", r->unless ? r->unless : "");
    for (size_t i = 0; r->form == PP_WORD && r->words[i]; i++)
        n += (size_t)snprintf(text + n, PP_ACCEPTED_TEXT - n, "%s%s",
                              i == 0            ? ""
                              : r->words[i + 1] ? ", "
                                                : " or ",
                              r->words[i]);
}

void pp_config_rule_key(const struct pp_config_rule *r,
                        char text[PP_RULE_KEY_TEXT])
{
    static const char *const objects[N_PLACES] = {
        [PP_IN_MODEL] = "",
        [PP_IN_ROPE] = "rope_parameters.",
        [PP_IN_MROPE] = "text_config.rope_parameters.",
        [PP_IN_QUANTIZATION] = "quantization_config.",
        [PP_IN_WHOLE] = "",
        [PP_IN_ENCODER] = "vision_config.",
        [PP_IN_ENCODER_ROPE] = "vision_config.rope_parameters.",
    };
    bool hears = r->families & (OF(WHISPER) | OF(OMNI_AUDIO));
    snprintf(text, PP_RULE_KEY_TEXT, "%s%s",
             hears ? "audio_config." : objects[r->place], r->key);
}

static int fail_constant(const struct pp_value *at,
                         const struct pp_config_rule *r)
{
    const char *advice = r->advice ? r->advice : " is not supported";
    bool is;
    if (r->form != PP_NULL)
        return pp_value_bool(at, &is) ? -1
               : is == (r->form == PP_TRUE)
                   ? 0
                   : pp_value_fail(at, "'%s'%s", is ? "true" : "false", advice);
    if (json_is_number(at->value))
        return pp_value_fail(at, "'%.9g' is not supported, only null",
                             json_number_value(at->value));
    return pp_value_fail(at, "only null is supported");
}

static int check_value(const struct pp_value *at,
                       const struct pp_config_rule *r)
{
    const char *text;
    double v;
    if (r->form == PP_NUMBER) {
        if (pp_value_real(at, -1e300, 1e300, &v))
            return -1;
        return v < r->number || v > r->number
                   ? pp_value_fail(at, "'%.9g' is not supported, only %g", v,
                                   r->number)
                   : 0;
    }
    if (r->form != PP_WORD)
        return fail_constant(at, r);
    if (pp_value_text(at, &text))
        return -1;
    if (r->words[1])
        return pp_config_word(at, text, r->words) < 0 ? -1 : 0;
    return strcmp(text, r->words[0])
               ? pp_value_fail(at, "'%.*s' is not supported, only '%s'",
                               PP_VALUE_QUOTE, text, r->words[0])
               : 0;
}

/* Reports whether a key with the number 0 makes a rule void. */
static bool is_void(const struct pp_value *object,
                    const struct pp_config_rule *r)
{
    struct pp_value at;
    return r->unless && pp_config_find_set(object, r->unless, &at) &&
           json_is_number(at.value) && json_number_value(at.value) <= 0;
}

int pp_config_check(const struct pp_value *object, enum pp_architecture family,
                    enum pp_config_place place)
{
    for (const struct pp_config_rule *r = pp_config_rules; r->key; r++) {
        struct pp_value at;
        if (!(r->families >> family & 1) || r->place != place ||
            is_void(object, r) ||
            (!pp_config_find_set(object, r->key, &at) &&
             !(r->old && pp_config_find_set(object, r->old, &at))))
            continue;
        bool list = json_is_array(at.value) && r->form <= PP_NUMBER;
        size_t n = list ? json_array_size(at.value) : 1;
        for (size_t i = 0; i < n; i++) {
            struct pp_value item = list ? pp_value_item(&at, i) : at;
            if (check_value(&item, r))
                return -1;
        }
    }
    return 0;
}
