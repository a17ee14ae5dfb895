/* SPDX-License-Identifier: MIT */
/* test_config_json - reads config.json of each architecture, old and new, and
 * compares with what transformers reads. tests/invalid holds the files that are
 * refused. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "manifest/config_json.h"
#include "tap.h"

#define SIZES                                                               \
    "\"vocab_size\": 1000, \"hidden_size\": 64, \"intermediate_size\": 96," \
    "\"num_hidden_layers\": 3, \"num_attention_heads\": 8"

static char dir[] = "/tmp/pp-model-XXXXXX";
static char path[PATH_MAX];

/* Reads a config.json with this text, by the name of its directory. */
static bool read_text(const char *text, struct pp_model *m)
{
    struct pp_err err = {0};
    FILE *f = fopen(path, "w");
    if (!f || fputs(text, f) < 0 || fclose(f))
        abort();
    if (pp_model_read(dir, m, &err))
        printf("# %s\n", err.text);
    return err.code == PP_EXIT_OK;
}

static void test_llama_defaults(void)
{
    struct pp_model m;
    ok(read_text("{\"architectures\": [\"LlamaForCausalLM\"], " SIZES "}", &m),
       "llama, sizes only");
    is_int(m.architecture, PP_LLAMA, "architecture");
    is_int((long long)m.vocab, 1000, "vocab");
    is_int((long long)m.hidden, 64, "hidden");
    is_int((long long)m.intermediate, 96, "intermediate");
    is_int((long long)m.n_layers, 3, "layers");
    is_int((long long)m.n_heads, 8, "heads");
    is_int((long long)m.n_kv_heads, 8, "as many key and value heads");
    is_int((long long)m.head_dim, 8, "head size is hidden / heads");
    is_int((long long)m.max_position, 2048, "positions");
    ok(m.norm_eps == 1e-6 && m.init_range == 0.02, "epsilon, range");
    ok(m.rope.type == PP_ROPE_DEFAULT && m.rope.theta == 10000, "rope");
    ok(!m.tied && !m.qkv_bias && !m.o_bias && !m.mlp_bias && !m.qk_norm,
       "no bias, nothing tied");
}

static void test_llama_switches(void)
{
    struct pp_model m;
    ok(read_text("{\"architectures\": [\"LlamaForCausalLM\"], " SIZES ","
                 "\"num_key_value_heads\": 2, \"head_dim\": 10,"
                 "\"attention_bias\": true, \"mlp_bias\": true,"
                 "\"tie_word_embeddings\": true, \"rms_norm_eps\": 1e-05,"
                 "\"rope_theta\": 500000.0, \"initializer_range\": 0.1,"
                 "\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 32,"
                 "\"low_freq_factor\": 1.5, \"high_freq_factor\": 4.0,"
                 "\"original_max_position_embeddings\": 8192},"
                 "\"max_position_embeddings\": 131072, \"pretraining_tp\": 2,"
                 "\"use_sliding_window\": true, \"torch_dtype\": \"bfloat16\"}",
                 &m),
       "llama 3, transformers 4");
    is_int((long long)m.n_kv_heads, 2, "key and value heads");
    is_int((long long)m.head_dim, 10, "an explicit head size");
    ok(m.qkv_bias && m.o_bias && m.mlp_bias && m.tied, "switches");
    ok(m.norm_eps == 1e-5 && m.init_range == 0.1, "epsilon, range");
    ok(m.rope.type == PP_ROPE_LLAMA3 && m.rope.theta == 500000, "rope type");
    ok(m.rope.factor == 32 && m.rope.low_freq_factor == 1.5 &&
           m.rope.high_freq_factor == 4 && m.rope.original_max_position == 8192,
       "rope factors");
    is_int((long long)m.max_position, 131072, "positions");
}

static void test_rope_parameters(void)
{
    struct pp_model m;
    ok(read_text("{\"architectures\": [\"LlamaForCausalLM\"], " SIZES ","
                 "\"rope_parameters\": {\"rope_type\": \"llama3\","
                 "\"rope_theta\": 20000, \"factor\": 8.0,"
                 "\"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0}}",
                 &m),
       "llama 3, transformers 5");
    ok(m.rope.theta == 20000, "theta is inside");
    ok(m.rope.original_max_position == 2048, "the original length's default");
    ok(read_text("{\"architectures\": [\"LlamaForCausalLM\"], " SIZES ","
                 "\"rope_theta\": 7, \"rope_scaling\": {\"type\": \"linear\","
                 "\"factor\": 2.5}, \"rope_parameters\": {\"rope_theta\": 9}}",
                 &m),
       "the older key of the type");
    ok(m.rope.type == PP_ROPE_LINEAR && m.rope.factor == 2.5, "linear");
    ok(m.rope.theta == 7, "rope_scaling comes before rope_parameters");
    ok(read_text("{\"architectures\": [\"LlamaForCausalLM\"], " SIZES ","
                 "\"rope_theta\": 7, \"rope_scaling\": {},"
                 "\"rope_parameters\": {\"rope_theta\": 9.5}}",
                 &m),
       "unless it is empty");
    ok(m.rope.theta == 9.5, "and the inner theta before the outer");
}

static void test_qwen(void)
{
    struct pp_model m;
    ok(read_text("{\"architectures\": [\"Qwen2ForCausalLM\"], " SIZES ","
                 "\"num_key_value_heads\": 4, \"use_sliding_window\": false,"
                 "\"sliding_window\": 4096, \"max_window_layers\": 1,"
                 "\"layer_types\": [\"full_attention\"],"
                 "\"attention_bias\": true, \"mlp_bias\": true}",
                 &m),
       "qwen2");
    is_int(m.architecture, PP_QWEN2, "architecture");
    ok(m.qkv_bias && !m.o_bias, "bias on q, k, v whatever the key says");
    ok(!m.mlp_bias, "none in the mlp");
    is_int((long long)m.head_dim, 8, "head size is hidden / heads");
    is_int((long long)m.max_position, 32768, "positions");

    ok(read_text("{\"architectures\": [\"Qwen3ForCausalLM\"], " SIZES ","
                 "\"num_key_value_heads\": null}",
                 &m),
       "qwen3");
    is_int((long long)m.n_kv_heads, 8, "null: as many as heads");
    is_int((long long)m.head_dim, 128, "head size's own default");
    ok(m.qk_norm && !m.qkv_bias && !m.o_bias, "QK-norm, no bias");
    ok(read_text("{\"architectures\": [\"Qwen3ForCausalLM\"], " SIZES ","
                 "\"num_key_value_heads\": 8, \"attention_bias\": true}",
                 &m),
       "qwen3 with bias");
    ok(m.qkv_bias && m.o_bias, "on q, k, v and o");
    ok(read_text("{\"model_type\": \"qwen3\", \"architectures\": null, " SIZES
                 ", \"num_key_value_heads\": 8}",
                 &m) &&
           m.architecture == PP_QWEN3,
       "the model type will do");
}

static void test_windows(void)
{
    struct pp_model m;
    const struct pp_unit_id layer[] = {{PP_UNIT_LAYER, 0, PP_LANGUAGE},
                                       {PP_UNIT_LAYER, 2, PP_LANGUAGE}};
    ok(read_text("{\"architectures\": [\"MistralForCausalLM\"], " SIZES ","
                 "\"use_sliding_window\": false,"
                 "\"layer_types\": [\"full_attention\"]}",
                 &m),
       "mistral");
    is_int(m.architecture, PP_MISTRAL, "architecture");
    is_int((long long)m.max_position, 131072, "positions");
    is_int((long long)pp_unit_window(&m, layer[0]), 4096, "the usual window");
    is_int((long long)pp_unit_window(&m, layer[1]), 4096, "in every layer");
    ok(read_text("{\"architectures\": [\"MistralForCausalLM\"], " SIZES ","
                 "\"sliding_window\": null}",
                 &m) &&
           pp_unit_window(&m, layer[0]) == 0,
       "null: no window");
    ok(read_text("{\"architectures\": [\"Qwen2ForCausalLM\"], " SIZES ","
                 "\"num_key_value_heads\": 4, \"use_sliding_window\": true,"
                 "\"sliding_window\": 9, \"max_window_layers\": 2}",
                 &m),
       "qwen2 with windows");
    is_int((long long)pp_unit_window(&m, layer[0]), 0, "not in the first");
    is_int((long long)pp_unit_window(&m, layer[1]), 9, "but in the last layer");
    ok(read_text("{\"architectures\": [\"Qwen3ForCausalLM\"], " SIZES ","
                 "\"num_key_value_heads\": 4, \"use_sliding_window\": true}",
                 &m) &&
           pp_unit_window(&m, layer[1]) == 0,
       "Qwen's first 28 layers have none unless it is set");
    ok(read_text("{\"architectures\": [\"Qwen3ForCausalLM\"], " SIZES ","
                 "\"num_key_value_heads\": 4, \"use_sliding_window\": true,"
                 "\"max_window_layers\": 0, \"layer_types\": ["
                 "\"sliding_attention\", \"full_attention\","
                 "\"full_attention\"]}",
                 &m) &&
           pp_unit_window(&m, layer[0]) == 4096 &&
           pp_unit_window(&m, layer[1]) == 0,
       "the list of types decides");
#define DEEP                                                            \
    "{\"architectures\": [\"MistralForCausalLM\"],"                     \
    "\"vocab_size\": 9, \"hidden_size\": 16, \"intermediate_size\": 8," \
    "\"num_attention_heads\": 8, \"num_hidden_layers\": 1025"
    ok(!read_text(DEEP "}", &m), "too many layers to have windows");
    ok(read_text(DEEP ", \"sliding_window\": null}", &m),
       "as many without windows");
}

static void test_yarn(void)
{
    struct pp_model m;
    ok(read_text("{\"architectures\": [\"Qwen2ForCausalLM\"], " SIZES ","
                 "\"num_key_value_heads\": 4, \"rope_theta\": 1e6,"
                 "\"max_position_embeddings\": 4096, \"rope_scaling\": {"
                 "\"type\": \"yarn\", \"factor\": 4.0,"
                 "\"original_max_position_embeddings\": 1024}}",
                 &m),
       "yarn");
    ok(m.rope.type == PP_ROPE_YARN && m.rope.beta_fast == 32 &&
           m.rope.beta_slow == 1 && m.rope.truncate,
       "its defaults");
    is_near(m.rope.attention_factor, 0.1 * log(4) + 1, 1e-15,
            "the factor of the attention");
    ok(read_text("{\"architectures\": [\"LlamaForCausalLM\"], " SIZES ","
                 "\"max_position_embeddings\": 4096, \"rope_scaling\": {"
                 "\"type\": \"yarn\", \"mscale\": 2, \"mscale_all_dim\": 0.5,"
                 "\"original_max_position_embeddings\": 1024}}",
                 &m),
       "yarn of DeepSeek");
    ok(m.rope.factor == 4, "the factor is a quotient of lengths");
    is_near(m.rope.attention_factor, (0.2 * log(4) + 1) / (0.05 * log(4) + 1),
            1e-15, "two scales");
}

/* The scores of latent attention have a scale of their own; a Llama's have not.
 */
static void test_latent(void)
{
    struct pp_model m;
    ok(read_text("{\"architectures\": [\"DeepseekV2ForCausalLM\"], " SIZES ","
                 "\"q_lora_rank\": null, \"kv_lora_rank\": 8,"
                 "\"qk_nope_head_dim\": 6, \"qk_rope_head_dim\": 4,"
                 "\"v_head_dim\": 5, \"n_routed_experts\": 6,"
                 "\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 4,"
                 "\"routed_scaling_factor\": 16, \"rope_scaling\": {"
                 "\"type\": \"yarn\", \"factor\": 40, \"mscale\": 0.707,"
                 "\"mscale_all_dim\": 0.707,"
                 "\"original_max_position_embeddings\": 4096}}",
                 &m),
       "DeepSeek-V2-Lite");
    is_near(m.mla.score_scale, pow(0.0707 * log(40) + 1, 2), 1e-15,
            "the scale of its scores");
    is_near(m.rope.attention_factor, 1, 1e-15, "cosines have none");
    ok(m.adjacent && !m.mla.q_rank && m.head_dim == 10 &&
           pp_model_rotary(&m, false) == 4 && pp_model_heads(&m, false).v == 5,
       "neighbours rotate, in a part of the heads");
    ok(m.moe.shared == 2 * 4 && !m.moe.shared_gate && !m.moe.score_bias &&
           m.moe.router.n_groups == 1 && m.moe.router.scale == 16 &&
           !m.moe.router.sigmoid && !m.moe.router.norm,
       "two shared experts, and a greedy router");
}

/* The default of eight groups needs 16 experts or more. */
static void test_default_groups(void)
{
    static const size_t experts[] = {8, 12, 16}, groups[] = {1, 1, 8};
    struct pp_model m;
    for (size_t i = 0; i < 3; i++) {
        char text[1024];
        snprintf(text, sizeof text,
                 "{\"architectures\": [\"DeepseekV3ForCausalLM\"], " SIZES ","
                 "\"q_lora_rank\": null, \"kv_lora_rank\": 8,"
                 "\"qk_nope_head_dim\": 6, \"qk_rope_head_dim\": 4,"
                 "\"v_head_dim\": 5, \"n_routed_experts\": %zu,"
                 "\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 4}",
                 experts[i]);
        ok(read_text(text, &m) && m.moe.router.n_groups == groups[i],
           "%zu experts are in %zu groups", experts[i], groups[i]);
    }
}

static void test_layers_without_rope(void)
{
    struct pp_model m;
    const struct pp_unit_id layer[] = {{PP_UNIT_LAYER, 0, PP_LANGUAGE},
                                       {PP_UNIT_LAYER, 1, PP_LANGUAGE}};
    ok(read_text("{\"architectures\": [\"SmolLM3ForCausalLM\"], " SIZES ","
                 "\"no_rope_layer_interval\": 2, \"sliding_window\": 5,"
                 "\"use_sliding_window\": true}",
                 &m),
       "smollm3");
    ok(pp_unit_rotates(&m, layer[0]) && !pp_unit_rotates(&m, layer[1]),
       "the second layer has no rotary positions");
    ok(!pp_unit_window(&m, layer[0]) && pp_unit_window(&m, layer[1]) == 5,
       "but a window");
    ok(m.tied && m.rope.theta == 2e6 && m.n_kv_heads == 4, "its defaults");
    ok(read_text("{\"architectures\": [\"Phi3ForCausalLM\"], " SIZES ","
                 "\"sliding_window\": 6, \"resid_pdrop\": 0.1}",
                 &m),
       "phi3");
    ok(m.norm_eps == 1e-5 && m.dropout && !m.tied &&
           pp_unit_window(&m, layer[0]) == 6,
       "a window in each layer");
    ok(pp_model_rotary(&m, false) == 8, "whole heads are rotated");
    ok(read_text("{\"architectures\": [\"Phi3ForCausalLM\"], " SIZES ","
                 "\"partial_rotary_factor\": 0.75}",
                 &m) &&
           pp_model_rotary(&m, false) == 6 && m.head_dim == 8,
       "or the first part of each");
}

/* Training goes on without dropout, whatever the family; one key is named. */
static void test_dropout(void)
{
    static const char *const texts[][2] = {
        {"LlamaForCausalLM", "attention_dropout"},
        {"OlmoForCausalLM", "attention_dropout"},
        {"Gemma2ForCausalLM", "attention_dropout"},
        {"Phi3ForCausalLM", "embd_pdrop"},
    };
    struct pp_model m;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char text[600];
        for (int p = 0; p < 2; p++) {
            snprintf(text, sizeof text,
                     "{\"architectures\": [\"%s\"], " SIZES ", \"%s\": 0.%d}",
                     texts[i][0], texts[i][1], p);
            ok(read_text(text, &m), "%s", texts[i][0]);
            is_str(m.dropout ? m.dropout : "none", p ? texts[i][1] : "none",
                   "dropout");
        }
    }
    ok(read_text("{\"model_type\": \"gpt2\", \"vocab_size\": 9, "
                 "\"n_embd\": 8, \"n_layer\": 1, \"n_head\": 2, "
                 "\"attn_pdrop\": 0}",
                 &m),
       "gpt2");
    is_str(m.dropout ? m.dropout : "none", "embd_pdrop", "asks by default");
}

/* Python writes numbers that JSON does not have, and transformers 5 objects. */
static void test_python(void)
{
    struct pp_model m;
    ok(read_text("{\"architectures\": [\"LlamaForCausalLM\"], " SIZES ","
                 "\"limits\": [0.0, Infinity], \"x\": -Infinity, \"y\":NaN, "
                 "\"z\": {\"__float__\": \"Infinity\"}, "
                 "\"s\": \"NaN \\\" Infinity\", \"rms_norm_eps\": 1e-4}",
                 &m) &&
           m.norm_eps == 1e-4,
       "keys that are not read may be NaN and Infinity");
    struct pp_err err = {0};
    char *text;
    ok(!pp_config_text(dir, "float32", &text, &err) &&
           strstr(text, "\"NaN \\\" Infinity\"") &&
           strstr(text, "\"__float__\": \"-Infinity\"") &&
           strstr(text, "\"__float__\": \"NaN\""),
       "a checkpoint has them as transformers writes them");
    free(text);
    ok(!read_text("{\"architectures\": [\"LlamaForCausalLM\"], " SIZES ","
                  "\"x\": NaN1}",
                  &m),
       "a word that begins like one is an error");
}

static void test_olmo(void)
{
    struct pp_model m;
    ok(read_text("{\"architectures\": [\"OlmoForCausalLM\"], " SIZES ","
                 "\"clip_qkv\": null, \"rms_norm_eps\": 0.1}",
                 &m),
       "olmo");
    ok(m.norm_eps == 1e-5 && !m.qk_norm && !m.o_bias && m.n_kv_heads == 8,
       "its norms have an epsilon of their own");
    ok(read_text("{\"architectures\": [\"Olmo2ForCausalLM\"], " SIZES ","
                 "\"rms_norm_eps\": 1e-6}",
                 &m),
       "olmo2");
    ok(m.norm_eps == 1e-6 && m.qk_norm && m.norms_all_heads,
       "a norm of all queries");
}

/* Files may leave out what is the default of the class in transformers. */
static void test_class_defaults(void)
{
    struct pp_model m;
    const struct pp_unit_id layer = {PP_UNIT_LAYER, 1, PP_LANGUAGE};
    ok(read_text("{\"architectures\": [\"MixtralForCausalLM\"], " SIZES ","
                 "\"num_local_experts\": 4, \"num_experts_per_tok\": 2}",
                 &m) &&
           m.rope.theta == 1e6 && m.norm_eps == 1e-5 && m.window == 0,
       "mixtral");
    ok(read_text("{\"architectures\": [\"MixtralForCausalLM\"], " SIZES ","
                 "\"num_local_experts\": 4, \"num_experts_per_tok\": 2,"
                 "\"sliding_window\": 3}",
                 &m) &&
           pp_unit_window(&m, layer) == 3,
       "a window in each of its layers");
    ok(read_text("{\"architectures\": [\"Qwen2VLForConditionalGeneration\"],"
                 "\"text_config\": {\"rope_scaling\": {\"type\": \"mrope\","
                 "\"mrope_section\": [1, 1, 2]}, " SIZES "},"
                 "\"vision_config\": {\"depth\": 1, \"hidden_size\": 64}}",
                 &m) &&
           m.rope.theta == 1e6 && m.norm_eps == 1e-5,
       "the language model of Qwen2-VL, which is not that of Qwen2");
}

static void test_gemma(void)
{
    struct pp_model m;
    const struct pp_unit_id layer[] = {{PP_UNIT_LAYER, 0, PP_LANGUAGE},
                                       {PP_UNIT_LAYER, 1, PP_LANGUAGE}};
    ok(read_text("{\"architectures\": [\"GemmaForCausalLM\"], " SIZES ","
                 "\"num_key_value_heads\": 1, \"hidden_act\": \"gelu\","
                 "\"hidden_activation\": null}",
                 &m),
       "gemma, as it was released");
    ok(m.score_cap == 0 && m.logit_cap == 0 && m.query_scalar == 0 &&
           m.head_dim == 256 && m.max_position == 8192 && m.tied,
       "its defaults");
    ok(read_text("{\"architectures\": [\"Gemma2ForCausalLM\"], " SIZES "}", &m),
       "gemma2");
    ok(m.score_cap == 50 && m.logit_cap == 30 && m.query_scalar == 256 &&
           m.head_dim == 256 && m.n_kv_heads == 4 && m.tied,
       "its defaults");
    ok(pp_unit_window(&m, layer[0]) == 4096 && !pp_unit_window(&m, layer[1]),
       "every other layer has a window");
    ok(pp_model_rope_width(&m) == 256, "one rotary embedding");
    ok(read_text("{\"architectures\": [\"Gemma2ForCausalLM\"], " SIZES ","
                 "\"final_logit_softcapping\": null,"
                 "\"attn_logit_softcapping\": null}",
                 &m) &&
           m.score_cap == 0 && m.logit_cap == 0,
       "null stands for no cap");
    ok(read_text("{\"architectures\": [\"Gemma3ForCausalLM\"], " SIZES ","
                 "\"rope_scaling\": {\"rope_type\": \"linear\","
                 "\"factor\": 8}, \"sliding_window_pattern\": 2,"
                 "\"rope_local_base_freq\": 500}",
                 &m),
       "gemma3, as released");
    ok(m.rope.theta == 1e6 && m.rope.factor == 8 &&
           m.windowed_rope.theta == 500 && m.windowed_rope.factor == 1 &&
           pp_model_rope_width(&m) == 512,
       "two rotary embeddings");
    ok(m.score_cap == 0 && m.logit_cap == 0 &&
           pp_unit_window(&m, layer[0]) == 4096 &&
           !pp_unit_window(&m, layer[1]),
       "no caps, and windows by the pattern");
    ok(read_text("{\"architectures\": [\"Gemma3ForCausalLM\"], " SIZES ","
                 "\"rope_parameters\": {\"full_attention\":"
                 "{\"rope_theta\": 7}, \"sliding_attention\":"
                 "{\"rope_type\": \"linear\", \"factor\": 3}}}",
                 &m) &&
           m.rope.theta == 7 && m.windowed_rope.theta == 10000 &&
           m.windowed_rope.factor == 3,
       "parameters for each type of layer");
}

static void test_paths(void)
{
    struct pp_model m;
    struct pp_err err = {0};
    ok(!pp_model_read(path, &m, &err), "the file itself");
    if (unlink(path))
        abort();
    char want[PATH_MAX + 64];
    snprintf(want, sizeof want, "%s: No such file or directory", path);
    ok(pp_model_read(dir, &m, &err) == -1, "a directory without it");
    is_str(err.text, want, "names what it looked for");
    is_int(err.code, PP_EXIT_INPUT, "with status 2");
}

int main(void)
{
    if (!mkdtemp(dir))
        return 1;
    snprintf(path, sizeof path, "%s/config.json", dir);
    test_llama_defaults();
    test_llama_switches();
    test_rope_parameters();
    test_qwen();
    test_windows();
    test_yarn();
    test_latent();
    test_default_groups();
    test_layers_without_rope();
    test_dropout();
    test_python();
    test_olmo();
    test_class_defaults();
    test_gemma();
    test_paths();
    rmdir(dir);
    return done();
}
