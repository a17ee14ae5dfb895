#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# ppsplit's split against the rules of DeepSpeed, ColossalAI and torchtitan, on
# configurations of published models: ppsched simulates no longer step.

bats_require_minimum_version 1.5.0
load split_helpers

setup() {
    cd "$BATS_TEST_TMPDIR"
}

# config TYPE VOCAB HIDDEN INTERMEDIATE LAYERS HEADS KV_HEADS [KEYS]: writes a
# configuration into the directory m.
config() {
    mkdir -p m
    cat >m/config.json <<END
{"model_type": "$1", "vocab_size": $2, "hidden_size": $3,
 "intermediate_size": $4, "num_hidden_layers": $5,
 "num_attention_heads": $6, "num_key_value_heads": $7,
 "hidden_act": "silu", "max_position_embeddings": 4096${8:+, $8}}
END
}

# step KIND M ARGS...: prints the makespan of the plan.
step() {
    local kind=$1 m=$2
    shift 2
    ppsplit "$@" m | makespan "$kind" "$m"
}

# beats KIND M ARGS...: passes if no rule's step is shorter.
beats() {
    local kind=$1 m=$2 best other tried=0
    shift 2
    best=$(step "$kind" "$m" "$@" --schedule "$kind" -m "$m")
    for method in parameters type:layer\|block uniform-units colossalai \
        weights uniform; do
        # Some rules cannot make that many stages.
        ppsplit "$@" --method "$method" m >/dev/null 2>&1 || continue
        other=$(step "$kind" "$m" "$@" --method "$method")
        echo "$kind $*: $best, $method $other"
        holds "$best <= $other * (1 + 1e-12)"
        tried=$((tried + 1))
    done
    [ "$tried" -ge 4 ]
}

@test "no rule is better for Llama-3-8B" {
    config llama 128256 4096 14336 32 32 8
    beats 1f1b 16 -p 8
    beats zbv 16 -p 4 -c 2 --placement v
    beats v-half 12 -p 4 -c 2 --placement v
    beats zb-h2 16 -p 4
}

@test "no rule is better for Qwen3-0.6B, with a large head" {
    config qwen3 151936 1024 3072 28 16 8 '"tie_word_embeddings": true'
    beats 1f1b 8 -p 4
    beats interleaved 8 -p 4 -c 2
    beats looped-bfs 8 -p 2 -c 3
}

@test "no rule is better for Qwen3-30B-A3B" {
    config qwen3_moe 151936 2048 6144 48 32 4 '"head_dim": 128,
        "num_experts": 128, "num_experts_per_tok": 8,
        "moe_intermediate_size": 768, "norm_topk_prob": true'
    beats zb-h1 16 -p 8
}

@test "no rule is better for DeepSeek-V3" {
    config deepseek_v3 129280 7168 18432 61 128 128 '"n_routed_experts": 256,
        "num_experts_per_tok": 8, "n_shared_experts": 1,
        "moe_intermediate_size": 2048, "first_k_dense_replace": 3,
        "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64, "v_head_dim": 128'
    beats 1f1b 32 -p 16
    beats interleaved 16 -p 8 -c 2
}

@test "no rule is better for GPT-OSS-20b, with windows" {
    config gpt_oss 201088 2880 2880 24 64 8 '"head_dim": 64,
        "num_local_experts": 32, "num_experts_per_tok": 4'
    beats gpipe 12 -p 6
}
