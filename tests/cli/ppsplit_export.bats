#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# ppsplit --export of balanced plans: the best plan that the form can express.

bats_require_minimum_version 1.5.0
load split_helpers

setup() {
    cd "$BATS_TEST_TMPDIR"
}

# model LAYERS DEPTHS: writes a small model with a heavy head and multi-token
# prediction.
model() {
    cat >model.json <<END
{"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3",
 "vocab_size": 8000, "hidden_size": 256, "intermediate_size": 1024,
 "moe_intermediate_size": 128, "num_hidden_layers": $1,
 "num_attention_heads": 4, "num_key_value_heads": 4, "n_routed_experts": 8,
 "num_experts_per_tok": 2, "n_shared_experts": 1, "first_k_dense_replace": 1,
 "q_lora_rank": 128, "kv_lora_rank": 64, "qk_nope_head_dim": 32,
 "qk_rope_head_dim": 16, "v_head_dim": 32, "max_position_embeddings": 512,
 "num_nextn_predict_layers": $2}
END
}

# step M ARGS...: prints the step of the plan, or nothing if there is no plan.
step() {
    local m=$1 kind=1f1b
    shift
    [[ " $* " == *' -c '* ]] && kind=interleaved
    ppsplit "$@" model.json >plan.json 2>/dev/null || return 0
    makespan $kind "$m" plan.json
}

# layouts SYMBOLS STAGES: prints all layouts without an empty stage.
layouts() {
    jq -nr --arg s "$1" --argjson n "$2" '
        def cut($s; $n): if $n == 1 then $s else range(1; ($s | length) - $n + 2)
            as $k | $s[:$k] + "|" + cut($s[$k:]; $n - 1) end;
        cut($s; $n)'
}

# best LAYERS DEPTHS M ARGS...: passes if no accepted layout has a shorter step
# than the exported one.
best() {
    local layers=$1 depths=$2 m=$3 symbols stages mtp='' best layout
    shift 3
    model "$layers" "$depths"
    [ "$depths" -eq 0 ] || mtp=--mtp
    symbols=E$(printf "%${layers}s" '' | tr ' ' t)
    symbols+=$(printf "%${depths}s" '' | tr ' ' m)L
    # shellcheck disable=SC2086
    layout=$(ppsplit "$@" $mtp -m "$m" --export megatron model.json)
    # shellcheck disable=SC2086
    stages=$(ppsplit "$@" $mtp --layout "$layout" model.json |
        jq '.stages | length')
    # shellcheck disable=SC2086
    layouts "$symbols" "$stages" | while read -r other; do
        step "$m" "$@" $mtp --layout "$other"
    done | jq -s min >shortest
    # shellcheck disable=SC2086
    best=$(step "$m" "$@" $mtp --layout "$layout")
    echo "$layers layers, $depths m, $*: $layout takes $best of $(cat shortest)"
    jq -e --argjson got "$best" '. == $got' shortest
}

@test "no layout that Megatron accepts is better" {
    best 5 0 4 -p 3
    best 4 0 4 -p 2 -c 2
}

@test "no layout with multi-token prediction is better" {
    best 4 1 4 -p 1
    best 4 1 4 -p 2
    best 4 2 4 -p 2
    best 5 1 4 -p 3
    best 4 2 6 -p 3
    best 5 2 4 -p 4
    best 4 1 4 -p 2 -c 2
    best 4 1 4 -p 1 -c 3
}

@test "every balanced plan can be exported in every form" {
    for depths in 1 2 3; do
        model 11 $depths
        for p in 1 2 3 4 6; do
            for c in 1 2; do
                layout=$(ppsplit -p $p -c $c --mtp --export megatron model.json)
                run -0 ppsplit -p $p -c $c --mtp --layout "$layout" \
                    --export megatron model.json
                [ "$output" = "$layout" ]
                for form in torchtitan deepspeed fqns; do
                    ppsplit -p $p -c $c --mtp --export $form model.json \
                        >$form.json
                done
                run -0 ppsplit -q -p $p -c $c --mtp --fqns fqns.json \
                    --export deepspeed model.json
                [ "$output" = "$(cat deepspeed.json)" ]
            done
        done
    done
}

@test "a layout keeps to the limit of memory" {
    model 8 1
    layout=$(ppsplit -p 3 --mtp -m 6 --memory 200M --export megatron model.json)
    run -0 ppsplit -p 3 --mtp -m 6 --memory 200M --layout "$layout" model.json
    need() {
        ppsplit -p 3 --mtp -m 6 --memory 1 "$@" model.json 2>&1 |
            sed 's/.*; \([0-9]*\) bytes).*/\1/' | jq '. + 1'
    }
    # The memory that the best layout needs is sufficient to find it. A layout
    # found with less memory fits into less.
    most=$(need --layout "$layout")
    run -0 ppsplit -p 3 --mtp -m 6 --memory "$most" --export megatron model.json
    less=$((most - 1))
    if ppsplit -p 3 --mtp -m 6 --memory $less --export megatron model.json \
        >layout 2>/dev/null; then
        run -0 ppsplit -p 3 --mtp -m 6 --memory $less \
            --layout "$(cat layout)" model.json
    fi
}

@test "more stages than a layout can separate are refused" {
    model 4 1
    run --separate-stderr ppsplit -p 7 --mtp --export megatron model.json
    echo "$stderr"
    [ "$status" -eq 0 ]
    run --separate-stderr ppsplit -p 8 --mtp --export megatron model.json
    [ "$status" -eq 2 ]
    [ "$stderr" = "ppsplit: 8 stages are too many for 4 layers: a layout keeps norm and last layer together" ]
}

@test "a manifest is printed in every form, as a table and as a picture" {
    model=$SRCDIR/tests/golden/llama/model
    for split in '-p 2 --schedule 1f1b' '-p 2 -c 2 --schedule interleaved' \
        '-p 2 -c 2 --placement v --recompute full,none,none,full --schedule zbv'; do
        # shellcheck disable=SC2086
        set -- $split -m 4 "$model"
        ppsplit -q "$@" | ppsched -q -s "${split##* }" -m 4 >plan.json
        for form in torchtitan torchtitan-output deepspeed fqns; do
            ppsplit -q --export $form "$@" >want
            ppsplit -q --export $form plan.json | cmp - want
        done
        # The lines break in other places.
        ppsplit -q -t "$@" | tr -s '\n ' '  ' |
            sed 's/balanced;/given;/; s/ No split takes [^A-Z]*less\.//' >want
        ppsplit -q -t - <plan.json | tr -s '\n ' '  ' >got
        grep -Fq "$(cat want)" got
        ppsplit -q --svg given.svg -t plan.json >got
        xmllint --noout given.svg
    done
    # It may come from a pipe, and have a layer for multi-token prediction.
    model 3 1
    ppsplit -q -p 2 --mtp --export fqns model.json >want
    ppsplit -q -p 2 --mtp model.json >plan.json
    ppsplit -q --export fqns <plan.json | cmp - want
    ppsplit -q -t <plan.json | grep -q 'layers 0-2, norm\.\.\. *8.19 M'
    # The model of a plan may have become another one.
    local n
    n=$(jq .model.params plan.json)
    model 4 1
    refuses "'model.json' has $(ppsplit -q -p 1 --mtp model.json |
        jq .model.params) parameters, but its plan has $n; if the plan was made \
with --moe-layer-freq, give it" -t plan.json
    run -2 --separate-stderr ppsplit plan.json
    [[ $stderr == *"give the number of ranks (-p)"* ]]
    run -2 --separate-stderr ppsplit -t -c 2 plan.json
    [[ $stderr == *"a manifest has its split"* ]]
    run -2 --separate-stderr ppsplit -t "$model/config.json"
    [[ $stderr == *"with a model give the number of ranks (-p)"* ]]
}
