#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# families - compares pprun in fp64 with transformers: the loss and every gradient
# of one step, and ten AdamW steps, of a tiny model of each family that a table
# describes (scripts/gen-golden).

bats_require_minimum_version 1.5.0
load helpers

setup() {
    skip_some
    cd "$BATS_TEST_TMPDIR"
    pppack -q -l 48 -o packed "$GOLDEN/data.jsonl"
}

# run_family FAMILY MODEL STEPS [OPTION...]
run_family() {
    local family=$1 model=$2 steps=$3
    shift 3
    plan "$model" 2
    train "families/$family" "$model" "$steps" --dtype fp64 "$@"
}

# family FAMILY
family() {
    local want=$GOLDEN/families/$1
    run_family "$1" "$want/model" 1 --dump-grads grads.safetensors
    "$COMPARE" 1e-6 1e-7 grads.safetensors "$want/grads.safetensors"
    run_family "$1" "$want/model" 10
    agree "$want/expected.json" 1e-9 'map(.loss)' .losses \
        1e-7 'map(.grad_norm)' .grad_norms
}

# differs FAMILY CHANGE...: the comparison sees each change of config.json.
differs() {
    local family=$1 want=$GOLDEN/families/$1 change
    shift
    for change in "$@"; do
        rm -rf other
        cp -r "$want/model" other
        jq "$change" "$want/model/config.json" >other/config.json
        run_family "$family" other 1
        run ! agree "$want/expected.json" 1e-6 'map(.loss)' '.losses[:1]'
    done
}

@test "olmo3" { family olmo3; }
@test "exaone4" { family exaone4; }
@test "seed_oss" { family seed_oss; }
@test "ministral" { family ministral; }
@test "cwm" { family cwm; }
@test "glm" { family glm; }
@test "glm4" { family glm4; }
@test "ernie4_5" { family ernie4_5; }
@test "granite" { family granite; }
@test "arcee" { family arcee; }
@test "apertus" { family apertus; }
@test "starcoder2" { family starcoder2; }
@test "cohere" { family cohere; }
@test "cohere2" { family cohere2; }
@test "ministral3" { family ministral3; }
@test "hunyuan_v1_dense" { family hunyuan_v1_dense; }
@test "hunyuan_v1_moe" { family hunyuan_v1_moe; }
@test "ernie4_5_moe" { family ernie4_5_moe; }
@test "granitemoe" { family granitemoe; }
@test "granitemoeshared" { family granitemoeshared; }
@test "olmoe" { family olmoe; }
@test "flex_olmo" { family flex_olmo; }
@test "dots1" { family dots1; }
@test "exaone_moe" { family exaone_moe; }
@test "solar_open" { family solar_open; }
@test "hy_v3" { family hy_v3; }
@test "glm4_moe" { family glm4_moe; }
@test "afmoe" { family afmoe; }
@test "glm4_moe_lite" { family glm4_moe_lite; }
@test "cohere2_moe" { family cohere2_moe; }
@test "llama4_text" { family llama4_text; }
@test "mimo_v2_flash" { family mimo_v2_flash; }
@test "minimax_m2" { family minimax_m2; }
@test "qwen3_5" { family qwen3_5_text; }
@test "qwen3_5_moe" { family qwen3_5_moe_text; }
@test "qwen3_next" { family qwen3_next; }

@test "the comparison sees other windows, positions, routers and scales" {
    differs olmo3 '.rope_parameters.sliding_attention.rope_theta = 200' \
        '.sliding_window = 5' '.rope_parameters.full_attention.factor = 2'
    differs exaone4 '.sliding_window = null | .layer_types = null'
    differs granite '.residual_multiplier = 0.41' '.embedding_multiplier = 5' \
        '.attention_multiplier = 0.21' '.logits_scaling = 2.01'
    differs cohere2 '.layer_types[1] = "sliding_attention"' '.logit_scale = 0.07'
    differs ministral3 '.rope_parameters.llama_4_scaling_beta = 0.2'
    differs hunyuan_v1_dense '.rope_parameters.alpha = 11'
    differs afmoe '.route_scale = 1.4' '.mup_enabled = false' \
        '.layer_types[1] = "sliding_attention"'
    differs glm4_moe '.n_group = 1 | .topk_group = 1' \
        '.rope_parameters.partial_rotary_factor = 1' \
        '.routed_scaling_factor = 1' '.norm_topk_prob = false'
    differs qwen3_next '.norm_topk_prob = false' \
        '.rope_parameters.partial_rotary_factor = 1'
    differs cohere2_moe '.shared_expert_combination_strategy = "sum"' \
        '.expert_selection_fn = "softmax"' \
        '.prefix_dense_sliding_window_pattern = 2'
    differs llama4_text '.attention_chunk_size = 6' '.use_qk_norm = false' \
        '.attn_temperature_tuning = false' '.no_rope_layers = [1, 1, 1]' \
        '.layer_types[0] = "full_attention"'
    differs mimo_v2_flash '.attention_value_scale = 0.7' '.sliding_window = 5' \
        '.rope_parameters.sliding_attention.rope_theta = 31'
    differs minimax_m2 '.rotary_dim = 8 | del(.rope_parameters)'
}

# Statistics of the words of each stage of the head become those of all words.
@test "olmo3 with a head of several stages" {
    local want=$GOLDEN/families/olmo3
    for stages in 2 4; do
        ppsplit -q -p 2 --head-stages $stages "$want/model" |
            ppsched -q -s 1f1b -m "$(bins)" >plan.json
        train families/olmo3 "$want/model" 1 --dtype fp64 --dump-grads grads.safetensors
        "$COMPARE" 1e-6 1e-7 grads.safetensors "$want/grads.safetensors"
        train families/olmo3 "$want/model" 10 --dtype fp64
        agree "$want/expected.json" 1e-9 'map(.loss)' .losses \
            1e-7 'map(.grad_norm)' .grad_norms
    done
}
