/* SPDX-License-Identifier: MIT */
/* test_model_planned - architectures whose layers differ: parameters of
 * published configurations, and of small ones that take every branch, against
 * transformers. Buffers of transformers that we count as parameters
 * (DeepSeek's score correction) are added. */
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "manifest/config_json.h"
#include "model/cost.h"
#include "model/inventory.h"
#include "model/shard.h"
#include "tap.h"

static char dir[] = "/tmp/pp-planned-XXXXXX";
static char path[PATH_MAX];

static struct pp_flops flops_of(const struct pp_model *m, struct pp_unit_id u)
{
    const struct pp_shard s = pp_shard_whole(m);
    return pp_unit_fwd_flops(&s, u);
}

static struct pp_cost cost_of(const struct pp_model *m, struct pp_unit_id u,
                              enum pp_recompute r, double seq_len)
{
    const struct pp_shard s = pp_shard_whole(m);
    return pp_unit_cost(&s, u, r, seq_len);
}

static struct pp_flops again_of(const struct pp_model *m, struct pp_unit_id u,
                                enum pp_recompute r)
{
    const struct pp_shard s = pp_shard_whole(m);
    return pp_unit_recompute_flops(&s, u, r);
}

static bool read_text(const char *text, struct pp_model *m, const char *want)
{
    struct pp_err err = {0};
    FILE *f = fopen(path, "w");
    if (!f || fputs(text, f) < 0 || fclose(f))
        abort();
    int rc = pp_model_read(path, m, &err);
    if (rc && !want)
        printf("# %s\n", err.text);
    if (want)
        is_str(rc ? err.text + strlen(path) + 2 : "", want, want);
    return rc == 0;
}

#define LLAMA(arch, v, h, i, l, nh, nkv)                             \
    "{\"architectures\": [\"" arch "\"], \"vocab_size\": " #v        \
    ", \"hidden_size\": " #h ", \"intermediate_size\": " #i          \
    ", \"num_hidden_layers\": " #l ", \"num_attention_heads\": " #nh \
    ", \"num_key_value_heads\": " #nkv ", \"hidden_act\": \"silu\", "

#define QWEN(h, i, l, nh, e)                                               \
    LLAMA("Qwen3MoeForCausalLM", 151936, h, i, l, nh, 4)                   \
    "\"head_dim\": 128, \"num_experts\": 128, \"num_experts_per_tok\": 8," \
    "\"moe_intermediate_size\": " #e ", \"mlp_only_layers\": [],"          \
    "\"decoder_sparse_step\": 1, \"use_sliding_window\": false,"           \
    "\"sliding_window\": null, \"tie_word_embeddings\": false}"
#define QWEN_30B QWEN(2048, 6144, 48, 32, 768)

#define MIXTRAL_8X7B                                           \
    LLAMA("MixtralForCausalLM", 32000, 4096, 14336, 32, 32, 8) \
    "\"num_local_experts\": 8, \"num_experts_per_tok\": 2,"    \
    "\"sliding_window\": null}"

#define OSS(l, e)                                                           \
    LLAMA("GptOssForCausalLM", 201088, 2880, 2880, l, 64, 8)                \
    "\"head_dim\": 64, \"num_local_experts\": " #e ","                      \
    "\"num_experts_per_tok\": 4, \"attention_bias\": true,"                 \
    "\"sliding_window\": 128, \"rope_scaling\": {\"rope_type\": \"yarn\"}," \
    "\"quantization_config\": {\"quant_method\": \"mxfp4\"}}"

#define DEEPSEEK_V3                                                   \
    LLAMA("DeepseekV3ForCausalLM", 129280, 7168, 18432, 61, 128, 128) \
    "\"q_lora_rank\": 1536, \"kv_lora_rank\": 512,"                   \
    "\"qk_nope_head_dim\": 128, \"qk_rope_head_dim\": 64,"            \
    "\"v_head_dim\": 128, \"n_routed_experts\": 256,"                 \
    "\"n_shared_experts\": 1, \"moe_intermediate_size\": 2048,"       \
    "\"num_experts_per_tok\": 8, \"first_k_dense_replace\": 3,"       \
    "\"moe_layer_freq\": 1, \"num_nextn_predict_layers\": 1,"         \
    "\"quantization_config\": {\"quant_method\": \"fp8\"}}"
#define MOONLIGHT                                                   \
    LLAMA("DeepseekV3ForCausalLM", 163840, 2048, 11264, 27, 16, 16) \
    "\"q_lora_rank\": null, \"kv_lora_rank\": 512,"                 \
    "\"qk_nope_head_dim\": 128, \"qk_rope_head_dim\": 64,"          \
    "\"v_head_dim\": 128, \"n_routed_experts\": 64,"                \
    "\"n_shared_experts\": 2, \"moe_intermediate_size\": 1408,"     \
    "\"num_experts_per_tok\": 6, \"first_k_dense_replace\": 1}"

#define GPT2(l, h, nh)                                                     \
    "{\"architectures\": [\"GPT2LMHeadModel\"], \"model_type\": \"gpt2\"," \
    "\"vocab_size\": 50257, \"n_embd\": " #h ", \"n_layer\": " #l          \
    ", \"n_head\": " #nh ", \"n_positions\": 1024}"

/* Small configurations, for branches that no published one takes. */
#define SMALL(arch, l)                \
    LLAMA(arch, 100, 32, 48, l, 4, 2) \
    "\"head_dim\": 16, "
#define SMALL_QWEN                                             \
    SMALL("Qwen3MoeForCausalLM", 3)                            \
    "\"num_experts\": 4, \"num_experts_per_tok\": 2,"          \
    "\"moe_intermediate_size\": 24, \"mlp_only_layers\": [1]," \
    "\"attention_bias\": true}"
#define SMALL_OSS                 \
    SMALL("GptOssForCausalLM", 1) \
    "\"num_local_experts\": 4, \"num_experts_per_tok\": 4}"
#define SMALL_DEEPSEEK                                                      \
    LLAMA("DeepseekV3ForCausalLM", 100, 32, 48, 2, 4, 4)                    \
    "\"attention_bias\": true, \"n_routed_experts\": 8,"                    \
    "\"moe_intermediate_size\": 8, \"num_experts_per_tok\": 8,"             \
    "\"q_lora_rank\": 12, \"kv_lora_rank\": 10, \"qk_nope_head_dim\": 128," \
    "\"qk_rope_head_dim\": 64, \"v_head_dim\": 128, \"n_group\": 1,"        \
    "\"topk_group\": 1, \"first_k_dense_replace\": 1}"
#define SMALL_GPT2                                                    \
    "{\"model_type\": \"gpt2\", \"vocab_size\": 100, \"n_embd\": 32," \
    "\"n_layer\": 1, \"n_head\": 2, \"n_inner\": 50}"

static void test_totals(void)
{
    static const struct {
        const char *name, *config;
        long long params;
    } cases[] = {
        {"Qwen3-30B-A3B", QWEN_30B, 30532122624},
        {"Qwen3-235B-A22B", QWEN(4096, 12288, 94, 64, 1536), 235093634560},
        {"Mixtral-8x7B", MIXTRAL_8X7B, 46702792704},
        {"Mixtral-8x22B",
         LLAMA("MixtralForCausalLM", 32000, 6144, 16384, 56, 48,
               8) "\"num_local_experts\": 8, \"num_experts_per_tok\": 2}",
         140620634112},
        {"GPT-OSS 20b", OSS(24, 32), 20914757184},
        {"GPT-OSS 120b", OSS(36, 128), 116829156672},
        {"DeepSeek-V3", DEEPSEEK_V3, 671026404352 + 58 * 256},
        {"Moonlight-16B-A3B", MOONLIGHT, 15960108544 + 26 * 64},
        {"GPT-2", GPT2(12, 768, 12), 124439808},
        {"GPT-2 XL", GPT2(48, 1600, 25), 1557611200},
        {"a dense layer among experts, biases", SMALL_QWEN, 48928},
        {"sinks, biased experts", SMALL_OSS, 31880},
        {"biases of low ranks", SMALL_DEEPSEEK, 95800 + 8},
        {"an MLP of its own width", SMALL_GPT2, 43666},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct pp_model m;
        ok(read_text(cases[i].config, &m, NULL), "%s", cases[i].name);
        is_int((long long)pp_model_n_params(&m), cases[i].params,
               "its parameters");
    }
}

/* A token is multiplied by some of the experts only. */
static void test_flops(void)
{
    struct pp_model m;
    struct pp_unit_id layer = {PP_UNIT_LAYER, 5, PP_LANGUAGE};
    read_text(MIXTRAL_8X7B, &m, NULL);
    struct pp_flops f = flops_of(&m, layer);
    is_near(f.per_token,
            2.0 * (4096 * (2 * 4096 + 2 * 1024) + 8 * 4096 +
                   2 * 3 * 4096.0 * 14336),
            0, "two experts of eight, and the router");
    read_text(DEEPSEEK_V3, &m, NULL);
    is_near(flops_of(&m, layer).per_pair, 2.0 * 128 * (192 + 128), 0,
            "scores are wider than values");
    is_near(flops_of(&m, layer).per_token,
            2.0 * (7168 * 1536 + 1536 * 24576 + 7168 * 576 + 512 * 32768 +
                   16384 * 7168 + 256 * 7168 + 9 * 3 * 7168.0 * 2048),
            0, "low-rank products, eight experts and the shared one");
    struct pp_unit_id dense = {PP_UNIT_LAYER, 2, PP_LANGUAGE};
    is_int((long long)(pp_unit_n_params(&m, dense)), 583483392,
           "the first layers are dense");
    read_text(OSS(24, 32), &m, NULL);
    struct pp_unit_id even = {PP_UNIT_LAYER, 4, PP_LANGUAGE};
    is_int((long long)flops_of(&m, even).window, 128, "a window");
    is_int((long long)flops_of(&m, layer).window, 0,
           "every second layer has no window");
    /* Positions 1, 2 and 3 attend 1, 2 and 3; the other five attend 3 each. */
    is_near(pp_attended_pairs(3, 8), (1 + 2 + 3 + 5 * 3) / 8.0, 0,
            "pairs in a window");
    is_near(pp_attended_pairs(8, 8), 4.5, 0,
            "a window as long as the sequence");
    is_near(pp_attended_pairs(0, 8), 4.5, 0, "no window");
    double wide = pp_cost_total(cost_of(&m, layer, 0, 65536));
    double narrow = pp_cost_total(cost_of(&m, even, 0, 65536));
    ok(wide > 2 * narrow, "long sequences cost little in a window");
}

static void test_shares(void)
{
    struct pp_model m;
    struct pp_weight_group w[PP_N_LAYER_PARAMS];
    uint64_t s[PP_N_SHARES] = {0};
    read_text(QWEN_30B, &m, NULL);
    size_t n = pp_unit_inventory(
        &m, (struct pp_unit_id){PP_UNIT_LAYER, 0, PP_LANGUAGE}, w);
    for (size_t i = 0; i < n; i++)
        s[w[i].share] += (uint64_t)w[i].rows * w[i].cols * w[i].count;
    is_int((long long)s[PP_SHARE_EXPERTS], 128LL * 3 * 2048 * 768, "experts");
    is_int((long long)s[PP_SHARE_TENSOR], 2048LL * (2 * 4096 + 2 * 512),
           "attention is divided");
    is_int((long long)s[PP_SHARE_NONE], 2 * 2048 + 2 * 128 + 128 * 2048,
           "norms and router are not");
}

static size_t saved_width(const struct pp_model *m, struct pp_unit_id u,
                          enum pp_recompute r, enum pp_saved_block block)
{
    const struct pp_shard s = pp_shard_whole(m);
    return pp_unit_saved_width(&s, u, r, block);
}

/* Recomputed tensors are not saved; what the router chose is. */
static void test_recompute(void)
{
    struct pp_model m;
    struct pp_unit_id layer = {PP_UNIT_LAYER, 3, PP_LANGUAGE};
    read_text(MIXTRAL_8X7B, &m, NULL);
    is_int((long long)saved_width(&m, layer, PP_RECOMPUTE_SELECTIVE,
                                  PP_SAVED_ACT_W),
           2 * 4096 + 2 * 4, "x, mid, and where tokens went");
    is_int((long long)saved_width(&m, layer, PP_RECOMPUTE_FULL, PP_SAVED_ACT_W),
           4096 + 2 * 4, "the input, and where tokens went");
    is_int((long long)saved_width(&m, layer, PP_RECOMPUTE_FULL, PP_SAVED_ACT_I),
           8, "the router's probabilities until I");
    struct pp_flops all = flops_of(&m, layer);
    struct pp_flops again = again_of(&m, layer, PP_RECOMPUTE_FULL);
    ok(again.per_token == all.per_token - 2.0 * 4096 * (2 * 14336 + 8) &&
           again.per_pair == all.per_pair,
       "neither the router nor the last products of experts");
    again = again_of(&m, layer, PP_RECOMPUTE_SELECTIVE);
    ok(again.per_token == 0 && again.per_pair == all.per_pair,
       "selective makes attention again");
}

/* A token has activations for each of its experts. */
static void test_saved(void)
{
    struct pp_model m;
    struct pp_unit_id layer = {PP_UNIT_LAYER, 3, PP_LANGUAGE};
    read_text(MIXTRAL_8X7B, &m, NULL);
    is_int((long long)saved_width(&m, layer, 0, PP_SAVED_ACT_I),
           6144 + 32 + 2 * 2 * 14336 + 8, "until I");
    is_int((long long)saved_width(&m, layer, 0, PP_SAVED_ACT_W),
           5 * 4096 + 2 + 2 * 14336 + 2 * 4, "until W");
    is_int((long long)saved_width(
               &m, (struct pp_unit_id){PP_UNIT_NORM, 0, PP_LANGUAGE}, 0,
               PP_SAVED_ACT_W),
           4097, "the norm is not affected");
}

static void test_dense(void)
{
    struct pp_model m;
    struct pp_unit_id layer = {PP_UNIT_LAYER, 1, PP_LANGUAGE};
    size_t planned[PP_N_RECOMPUTES][PP_N_UNIT_BLOCKS];
    read_text(SMALL_QWEN, &m, NULL);
    for (int r = 0; r < PP_N_RECOMPUTES; r++)
        for (int b = 0; b < PP_N_UNIT_BLOCKS; b++)
            planned[r][b] = saved_width(&m, layer, pp_recompute_levels[r], b);
    m.architecture = PP_QWEN3;
    for (int r = 0; r < PP_N_RECOMPUTES; r++)
        for (int b = 0; b < PP_N_UNIT_BLOCKS; b++)
            is_int((long long)planned[r][b],
                   (long long)saved_width(&m, layer, pp_recompute_levels[r], b),
                   "a dense layer keeps what Qwen3's does");
}

static void test_refused(void)
{
    struct pp_model m;
    read_text(SMALL("MixtralForCausalLM", 2) "\"num_local_experts\": 4}", &m,
              "'num_experts_per_tok' is missing");
    read_text(SMALL("MixtralForCausalLM", 2) "\"num_experts_per_tok\": 5,"
                                             "\"num_local_experts\": 4}",
              &m,
              "/num_experts_per_tok: '5' is more than there are experts, 4");
    read_text(SMALL("GptOssForCausalLM", 2) "\"num_experts_per_tok\": 1,"
                                            "\"num_local_experts\": 4,"
                                            "\"layer_types\": [\"chunked\","
                                            "\"full_attention\"]}",
              &m,
              "/layer_types/0: 'chunked' is not one of: "
              "sliding_attention, full_attention");
    read_text(SMALL("GptOssForCausalLM", 2) "\"num_experts_per_tok\": 1,"
                                            "\"num_local_experts\": 4,"
                                            "\"layer_types\": []}",
              &m, "/layer_types: 0 types for 2 layers");
    read_text(SMALL("MixtralForCausalLM", 1025) "\"num_experts_per_tok\": 1,"
                                                "\"num_local_experts\": 4}",
              &m, "/num_hidden_layers: '1025' layers are too many");
    read_text("{\"model_type\": \"gpt2\", \"vocab_size\": 9, \"n_embd\": 10,"
              "\"n_layer\": 1, \"n_head\": 3}",
              &m, "/n_embd: '10' is not a multiple of n_head, 3");
}

int main(void)
{
    if (!mkdtemp(dir))
        return 1;
    snprintf(path, sizeof path, "%s/config.json", dir);
    test_totals();
    test_flops();
    test_shares();
    test_saved();
    test_recompute();
    test_dense();
    test_refused();
    unlink(path);
    rmdir(dir);
    return done();
}
