#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# ppsplit and architectures whose layers differ: mixtures of experts, latent
# attention, windows, GPT-2. Unit tests compare the totals.

bats_require_minimum_version 1.5.0

# config TYPE KEYS: writes a config.json of a published model's size into the
# directory m, with KEYS added.
config() {
    mkdir -p m
    cat >m/config.json <<END
{"model_type": "$1", "vocab_size": 129280, "hidden_size": 7168,
 "intermediate_size": 18432, "num_hidden_layers": 61,
 "num_attention_heads": 128, "num_key_value_heads": 128,
 "hidden_act": "silu", "num_experts_per_tok": 8, $2}
END
}

deepseek() {
    config deepseek_v3 '"n_routed_experts": 256, "n_shared_experts": 1,
        "moe_intermediate_size": 2048, "first_k_dense_replace": 3,
        "moe_layer_freq": 1, "q_lora_rank": 1536, "kv_lora_rank": 512,
        "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
        "num_nextn_predict_layers": 1,
        "rope_scaling": {"type": "yarn", "factor": 40},
        "quantization_config": {"quant_method": "fp8"}'
}

gpt2() {
    mkdir -p m
    echo '{"architectures": ["GPT2LMHeadModel"], "vocab_size": 50257,
        "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024}' \
        >m/config.json
}

setup() { cd "$BATS_TEST_TMPDIR"; }

@test "a published model has the published parameters" {
    deepseek
    ppsplit -p 16 m >plan.json
    jq -e '.model.params == 671026419200 and
        .model.architecture == "DeepseekV3ForCausalLM" and
        ([.model.units[].params] | add) == .model.params and
        (.model.units | length) == 64' plan.json
    # Three layers are dense. The others have a router, a shared expert and 256
    # routed experts.
    jq -e '.model.units[3].params == 583483392 and
        .model.units[4].params == 11507286272' plan.json
}

@test "Kimi K2 is a DeepSeek V3, with or without the name of its class" {
    local class
    deepseek
    ppsplit -p 4 m >plan.json
    for class in '["DeepseekV3ForCausalLM"]' null; do
        jq --argjson c "$class" '.model_type = "kimi_k2" | .architectures = $c' \
            m/config.json >kimi.json
        ppsplit -p 4 kimi.json |
            jq -e --slurpfile v plan.json '.model.units == $v[0].model.units'
    done
}

@test "only the first layers are dense" {
    deepseek
    ppsplit -p 2 m | jq -e '[.model.units[1:62][].params] |
        .[2] < .[3] and .[0] == .[2] and .[3] == .[60]'
    ppsplit -p 8 -t m >table
    grep -q '^m: DeepseekV3ForCausalLM, 61 layers, 671 B parameters' table
}

@test "a window makes long sequences cheap" {
    config gpt_oss '"num_local_experts": 32, "head_dim": 64,
        "sliding_window": 128'
    ppsplit -p 2 --seq-len 8192 m | jq -e '.model.units as $u |
        $u[2].fwd_flops[1] == 4 * 128 * 64 and
        $u[1].fwd_flops[1] < $u[2].fwd_flops[1] / 30 and
        $u[1].params == $u[2].params'
    ppsplit -p 2 --seq-len 128 m | jq -e '.model.units as $u |
        $u[1].fwd_flops[1] == $u[2].fwd_flops[1]'
}

@test "GPT-2 has a tied head and a table of positions" {
    gpt2
    ppsplit -p 2 m | jq -e '.model.tied and .model.params == 124439808 and
        .model.units[0].params == (50257 + 1024) * 768 and
        .model.units[1].fqn == "model.layers.0" and
        .model.units[1].params == 7087872'
    [ "$(ppsplit -p 2 --method type:gpt2block --export deepspeed m)" = \
        '[0, 7, 15]' ]
}

@test "rules of other systems count layers of any architecture" {
    deepseek
    [ "$(ppsplit -p 8 --method weights m |
        jq -c '[.stages[].units | map(select(test("layers"))) | length]')" = \
        '[7,8,8,8,8,8,8,6]' ]
    [ "$(ppsplit -p 2 --layers 30,31 --export megatron m)" = \
        'Et*30|t*31L' ]
}

@test "a config without a key that the architecture needs is refused" {
    config mixtral '"head_dim": 64'
    run --separate-stderr ppsplit -p 2 m
    [ "$status" -eq 2 ]
    [ "$stderr" = \
        "ppsplit: m/config.json: 'num_local_experts' is missing" ]
}

# sparse ARGS...: prints 1 for each layer with experts and 0 for the others.
sparse() {
    ppsplit -p 1 "$@" m | jq -c '[.model.units[1:-2][].params] |
        map(if . > 1e10 then 1 else 0 end) | map(tostring) | add'
}

@test "--moe-layer-freq sets the layers with experts as Megatron does" {
    deepseek
    sed -i 's/: 61/: 6/' m/config.json
    [ "$(sparse)" = '"000111"' ]
    [ "$(sparse --moe-layer-freq 1)" = '"111111"' ]
    [ "$(sparse --moe-layer-freq 2)" = '"101010"' ]
    [ "$(sparse --moe-layer-freq '([0]*1+[1]*5)')" = '"011111"' ]
    run --separate-stderr ppsplit -p 1 --moe-layer-freq '[0]*3' m
    [ "$status" -eq 2 ]
    [ "$stderr" = \
        "ppsplit: --moe-layer-freq: '[0]*3' is for 3 layers, not 6" ]
    gpt2
    run --separate-stderr ppsplit -p 1 --moe-layer-freq 1 m
    [ "$status" -eq 2 ]
    [ "$stderr" = "ppsplit: --moe-layer-freq: 'm' has no experts" ]
}

@test "--mtp adds the layers for multi-token prediction" {
    deepseek
    ppsplit -p 16 --mtp m >plan.json
    # DeepSeek publishes 684,489,845,504 parameters. Its files also have copies
    # of embedding and head.
    jq -e '.model.params == 671026419200 + 11610068224 and
        .model.params + 2 * 129280 * 7168 == 684489845504 and
        (.model.units | map(.fqn) | .[-3:]) ==
            ["model.norm", "model.layers.61", "lm_head"]' plan.json
    # The head runs for both; the stage of the layer has a copy of the embedding.
    jq -e '.model.units[-1].fwd_flops[0] == 2 * 2 * 129280 * 7168 and
        .model.units[-2].state_bytes == 16 * (11610068224 + 129280 * 7168)' \
        plan.json
    # A layout and a list of names are exported and read again.
    layout='Et*2|(tt|)*29,t|mL'
    ppsplit -p 16 --mtp --layout "$layout" --export fqns m >fqns.json
    jq -e '.[30] == ["model.layers.60", "model.norm"] and
        .[31] == ["model.layers.61", "lm_head"]' fqns.json
    ppsplit -p 16 -c 2 --mtp --fqns fqns.json --export megatron m >layout
    ppsplit -p 16 --mtp --layout "$(cat layout)" --export fqns m |
        cmp fqns.json -
    ppsplit -p 16 --mtp --layout 'Et*3|(tt|)*29,m|L' m |
        jq -e '.stages[30].units == ["model.layers.61"]'
    ppsplit -p 4 --mtp -t m | grep -q 'norm, mtp, head'
}

@test "multi-token prediction is refused without its layers" {
    deepseek
    run --separate-stderr ppsplit -p 16 --layout 'Et*2|(tt|)*29,t|mL' m
    [ "$status" -eq 2 ]
    [ "$stderr" = "ppsplit: --layout: 'm' occurs 1 times, but the model has 0 layers for multi-token prediction" ]
    run --separate-stderr ppsplit -p 2 --mtp --layout 'Et*30|t*29|t*2|m|L|' m
    [ "$status" -eq 2 ]
    gpt2
    run --separate-stderr ppsplit -p 2 --mtp m
    [ "$status" -eq 2 ]
    [ "$stderr" = "ppsplit: --mtp: 'm' has no layers for multi-token prediction" ]
}

@test "a large plan that does not fit is refused" {
    # Half of the model, or less: the search reaches its limit as with all of it.
    local ranks=8 layers=31
    deepseek
    sed -i "s/: 61/: $layers/" m/config.json
    run --separate-stderr ppsplit -p $ranks -c 2 --placement v \
        --mtp --recompute auto --ep 64 --dp 64 --dtype bf16 --memory 40G m
    echo "$stderr"
    [ "$status" -eq 1 ]
    [ "${stderr_lines[0]}" = \
        'ppsplit: the search stopped early; another split may fit' ]
    [[ "$stderr" == *"ppsplit: rank "*" more than the limit of 40.00 GiB "* ]]
}

# rules: prints KEY|ACCEPTED of each rule of pp-models(7) or ppsplit --models.
rules() {
    case $1 in
    *.7) sed -n '/^\.Ss Values that are refused/,/^\.El/p' "$1" |
        sed -n '/^\.Bl/,/^\.El/p' | sed '/^\.[BE]l/d; /^\.It Li /!s/^/    /
            s/^\.It Li //' ;;
    *) sed '1,/are refused:$/d' "$1" ;;
    esac | awk '/^ / { sub(/^ +/, ""); text = text (text ? " " : "") $0; next }
        { if (key) print key "|" text; key = $0; text = "" }
        END { print key "|" text }'
}

@test "pp-models(7) has the table of what is refused" {
    ppsplit --models >models
    awk 'length > 79 { exit 1 }' models
    diff <(rules "$SRCDIR/man/pp-models.7") <(rules models)
    [ "$(rules models | wc -l)" -gt 30 ]
    rules models | grep -Fx \
        'clip_qkv|null (olmo, olmoe)'
    ppsplit --models --json >models.json
    # Both forms have the same rules.
    diff <(jq -r '[.[].refused[].key] | unique[]' models.json) \
        <(rules models | cut -d'|' -f1 | LC_ALL=C sort -u)
    jq -e 'all(.[]; .plans and .trains.cpu == .trains.cuda) and
        (map(select(.trains.cpu | not)) | all(.refused == [])) and
        (map(select(.model_type == "gpt2")) | length) == 1 and
        any(.[]; .architecture == "Qwen2VLForConditionalGeneration")' models.json
    run -2 --separate-stderr ppsplit --models m
    run -2 --separate-stderr ppsplit --json -p 2 m
}

@test "a value that the table does not accept is refused" {
    local type key model
    ppsplit --models --json >models.json
    while read -r type model; do
        while IFS=$'\t' read -r key; do
            jq --arg k "$key" 'del(.rope_scaling) |
                setpath($k | split("."); "wrong")' \
                "$SRCDIR/tests/golden/$model/config.json" >wrong.json
            run -2 --separate-stderr ppsplit -p 1 wrong.json
            [[ $stderr == "ppsplit: wrong.json: /${key//.//}: "* ]] || {
                echo "$type: $stderr"; return 1; }
        done < <(jq -r --arg t $type '.[] | select(.model_type == $t) |
            .refused[].key' models.json | sort -u)
    done <<'END'
gpt2 gpt2/model
olmo olmo/model
deepseek_v2 deepseek-v2/model
mixtral mixtral/model
gemma2 gemma2/model
llava llava
qwen2_vl qwen2-vl
END
}
