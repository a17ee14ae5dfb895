#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# golden - compares pprun with transformers and PyTorch: losses, gradients, ten
# AdamW steps and log-probabilities of tiny models. scripts/gen-golden
# wrote the expected values; the bounds are the promise of the project.

bats_require_minimum_version 1.5.0
load helpers

LOSS=1e-5 GRADIENT=1e-4 TEN_LOSSES=1e-4
# A gradient that is truly zero may differ by this much in norm.
FLOOR=1e-7

setup() {
    cd "$BATS_TEST_TMPDIR"
    pppack -q -l 48 -o packed "$GOLDEN/data.jsonl"
}

# first_loss CASE: compares the loss of step 1.
first_loss() {
    agree "$GOLDEN/$1/expected.json" $LOSS 'map(.loss)' '.losses[:1]'
}

# one_step CASE: compares loss, gradient norm and every gradient of step 1.
one_step() {
    plan "$GOLDEN/$1/model" 2
    train "$1" "$GOLDEN/$1/model" 1 --dump-grads grads.safetensors
    agree "$GOLDEN/$1/expected.json" $LOSS 'map(.loss)' '.losses[:1]' \
        $GRADIENT 'map(.grad_norm)' '.grad_norms[:1]'
    "$COMPARE" $GRADIENT $FLOOR grads.safetensors \
        "$GOLDEN/$1/grads.safetensors"
}

# A sanitizer watches one step of every model.
ten_steps() {
    skip_some
    plan "$GOLDEN/$1/model" 3
    train "$1" "$GOLDEN/$1/model" 10
    agree "$GOLDEN/$1/expected.json" $LOSS 'map(.loss)[:1]' '.losses[:1]' \
        $TEN_LOSSES 'map(.loss)' .losses 1e-3 'map(.grad_norm)' .grad_norms
}

# logprobs CASE: compares scored positions only; the others have no defined
# value.
logprobs() {
    skip_some
    plan "$GOLDEN/$1/model" 2
    ppscore -q --data packed --weights "$GOLDEN/$1/model" \
        --logprobs -o logprobs.jsonl plan.json
    jq -se --slurpfile data "$GOLDEN/data.jsonl" \
        --slurpfile want "$GOLDEN/$1/expected.json" --argjson tolerance $LOSS \
        "$CLOSE"' ($data | map(.labels // .input_ids | map(. != -100))) as $s
        | def scored: [range(length) as $i | range(.[$i] | length) as $t
              | select($t > 0 and $s[$i][$t]) | .[$i][$t]];
        (map(.logprobs) | scored) as $got
        | ($want[0].logprobs | scored) as $all
        | ($all | length) == $want[0].scored
          and close($tolerance; $got; $all; 1)' logprobs.jsonl ||
        { cat logprobs.jsonl "$GOLDEN/$1/expected.json"; return 1; }
}

@test "llama: loss and every gradient of one step" { one_step llama; }
@test "qwen2: loss and every gradient of one step" { one_step qwen2; }
@test "qwen3: loss and every gradient of one step" { one_step qwen3; }
@test "mistral: loss and every gradient of one step" { one_step mistral; }
@test "qwen2-window: loss and every gradient of one step" {
    one_step qwen2-window
}

@test "gpt2: loss and every gradient of one step" { one_step gpt2; }
@test "mixtral: loss and every gradient of one step" { one_step mixtral; }
@test "qwen2-moe: loss and every gradient of one step" { one_step qwen2-moe; }
@test "qwen3-moe: loss and every gradient of one step" { one_step qwen3-moe; }
@test "smollm3: loss and every gradient of one step" { one_step smollm3; }
@test "phi3: loss and every gradient of one step" { one_step phi3; }
@test "phi3-longrope: loss and every gradient of one step" {
    one_step phi3-longrope
}
@test "phi3-partial: loss and every gradient of one step" {
    one_step phi3-partial
}

@test "olmo: loss and every gradient of one step" { one_step olmo; }
@test "olmo2: loss and every gradient of one step" { one_step olmo2; }
@test "gemma: loss and every gradient of one step" { one_step gemma; }
@test "gemma2: loss and every gradient of one step" { one_step gemma2; }
@test "gemma3: loss and every gradient of one step" { one_step gemma3; }

@test "gpt-oss: loss and every gradient of one step" { one_step gpt-oss; }
@test "deepseek-v2: loss and every gradient of one step" {
    one_step deepseek-v2
}

@test "deepseek-v3: loss and every gradient of one step" {
    one_step deepseek-v3
}

@test "deepseek-mtp: losses and every gradient, with multi-token prediction" {
    local want=$GOLDEN/deepseek-mtp
    ppsplit -q -p 2 --mtp "$want/model" | ppsched -q -s 1f1b -m "$(bins)" \
        >plan.json
    set -- --loss mtp="$(jq .weight "$want/expected.json")"
    train deepseek-mtp "$want/model" 1 --dump-grads grads.safetensors "$@"
    train deepseek-mtp "$want/model" 10 "$@"
    "$COMPARE" $GRADIENT $FLOOR grads.safetensors "$want/grads.safetensors"
    agree "$want/expected.json" $LOSS 'map(.loss)[:1]' '.losses[:1]' \
        $LOSS 'map(.mtp_loss)[:1]' '.mtp_losses[:1]' \
        $TEN_LOSSES 'map(.loss)' .losses $TEN_LOSSES 'map(.mtp_loss)' .mtp_losses \
        1e-3 'map(.grad_norm)' .grad_norms
}

@test "qwen3-moe: every gradient with the losses of its router" {
    local want=$GOLDEN/qwen3-moe/balanced
    pppack -q -l 256 -o one "$GOLDEN/data.jsonl"
    ppsplit -q -p 2 "$GOLDEN/qwen3-moe/model" | ppsched -q -s 1f1b -m 1 \
        >plan.json
    pprun -q --data one --weights "$GOLDEN/qwen3-moe/model" --steps 1 \
        --router aux="$(jq .aux "$want.json")",z="$(jq .z "$want.json")" \
        --dump-grads grads.safetensors plan.json >steps.jsonl
    local numbers='[.loss, .grad_norm, .aux_loss, .z_loss]'
    agree "$want.json" $LOSS ".[0] | $numbers" "$numbers"
    "$COMPARE" $GRADIENT $FLOOR grads.safetensors "$want.safetensors"
}

@test "llama: the losses of ten AdamW steps" { ten_steps llama; }
@test "qwen2: the losses of ten AdamW steps, with decay" { ten_steps qwen2; }
@test "qwen3: the losses of ten AdamW steps" { ten_steps qwen3; }
@test "mistral: the losses of ten AdamW steps" { ten_steps mistral; }
@test "gpt2: the losses of ten AdamW steps, with decay" { ten_steps gpt2; }
@test "mixtral: the losses of ten AdamW steps" { ten_steps mixtral; }
@test "qwen2-moe: the losses of ten AdamW steps, with decay" {
    ten_steps qwen2-moe
}

@test "qwen3-moe: the losses of ten AdamW steps" { ten_steps qwen3-moe; }

@test "deepseek-v2: the losses of ten AdamW steps" { ten_steps deepseek-v2; }
@test "deepseek-v3: the losses of ten AdamW steps, with decay" {
    ten_steps deepseek-v3
}

# bias DIR: prints the numbers of the bias of the one router, in a JSON array.
bias() {
    local file=$1/model.safetensors size at
    size=$(od -An -t u8 -N 8 "$file")
    at=$(head -c $((8 + size)) "$file" | tail -c "$size" | jq 'to_entries[]
        | select(.key | endswith("e_score_correction_bias"))
        | .value.data_offsets[0]')
    tail -c +$((9 + size + at)) "$file" | head -c 32 | od -An -t f4 | jq -s .
}

# follows RULE OPTION...: ten steps in which the bias of the router follows the
# loads of experts.
follows() {
    local rule=$1 m=$GOLDEN/deepseek-v3
    shift
    train deepseek-v3 "$m/model" 10 --save saved \
        --router bias-rule="$rule",bias-rate="$(jq .rate "$m/biased.json")" "$@"
    bias saved/latest >bias.json
    rm -r saved
    agree "$m/biased.json" $TEN_LOSSES 'map(.loss)' ".$rule.losses"
    jq -e --slurpfile want "$m/biased.json" \
        "$CLOSE close(1e-6; .; \$want[0].$rule.bias; 0.1)" bias.json
}

@test "deepseek-v3: the bias of its router follows the loads by both rules" {
    local rule followed
    for rule in megatron torchtitan; do
        plan "$GOLDEN/deepseek-v3/model" 3
        follows $rule
        ppsplit -q -p 2 --recompute full "$GOLDEN/deepseek-v3/model" |
            ppsched -q -s 1f1b -m "$(bins)" >plan.json
        follows $rule
    done
    followed=$(cat bias.json)
    run ! follows megatron --router bias-rate=0.05
    [ "$followed" != "$(cat bias.json)" ]
}

@test "gpt-oss: the losses of ten AdamW steps, with decay" {
    ten_steps gpt-oss
}

@test "olmo: the losses of ten AdamW steps, with decay" { ten_steps olmo; }
@test "olmo2: the losses of ten AdamW steps" { ten_steps olmo2; }
@test "gemma: the losses of ten AdamW steps" { ten_steps gemma; }
@test "gemma2: the losses of ten AdamW steps, with decay" { ten_steps gemma2; }
@test "gemma3: the losses of ten AdamW steps" { ten_steps gemma3; }

@test "llama: log-probabilities" { logprobs llama; }
@test "qwen2: log-probabilities" { logprobs qwen2; }
@test "qwen3: log-probabilities" { logprobs qwen3; }
@test "gpt2: log-probabilities" { logprobs gpt2; }
@test "mixtral: log-probabilities" { logprobs mixtral; }
@test "qwen2-moe: log-probabilities" { logprobs qwen2-moe; }
@test "qwen3-moe: log-probabilities" { logprobs qwen3-moe; }

@test "gpt-oss: log-probabilities" { logprobs gpt-oss; }
@test "smollm3: log-probabilities" { logprobs smollm3; }
@test "phi3: log-probabilities" { logprobs phi3; }
@test "phi3-longrope: log-probabilities" { logprobs phi3-longrope; }
@test "phi3-partial: log-probabilities" { logprobs phi3-partial; }
@test "olmo: log-probabilities" { logprobs olmo; }
@test "olmo2: log-probabilities" { logprobs olmo2; }
@test "gemma: log-probabilities" { logprobs gemma; }
@test "gemma2: log-probabilities" { logprobs gemma2; }
@test "gemma3: log-probabilities" { logprobs gemma3; }

@test "a config.json of transformers 4 gives the same" {
    cp -r "$GOLDEN/llama/model" old
    jq '.rope_theta = .rope_parameters.rope_theta
        | .rope_scaling = (.rope_parameters | del(.rope_theta))
        | del(.rope_parameters)' "$GOLDEN/llama/model/config.json" \
        >old/config.json
    plan old 2
    train llama old 1
    first_loss llama
}

@test "the comparison sees another rope_theta" {
    cp -r "$GOLDEN/qwen3/model" other
    jq '.rope_parameters.rope_theta = 20000' \
        "$GOLDEN/qwen3/model/config.json" >other/config.json
    plan other 2
    train qwen3 other 1 --dump-grads grads.safetensors
    run -1 first_loss qwen3
    run -1 "$COMPARE" $GRADIENT $FLOOR grads.safetensors \
        "$GOLDEN/qwen3/grads.safetensors"
}

@test "the comparison sees RoPE without its llama3 scaling" {
    cp -r "$GOLDEN/llama/model" other
    jq '.rope_parameters = {rope_type: "default", rope_theta: 10000}' \
        "$GOLDEN/llama/model/config.json" >other/config.json
    plan other 2
    train llama other 1
    run -1 first_loss llama
}

@test "the comparison sees YaRN without its factor, and RoPE in every layer" {
    for change in '.rope_parameters.attention_factor = 1' \
        '.no_rope_layers = [1, 1, 1, 1]'; do
        rm -rf other
        cp -r "$GOLDEN/smollm3/model" other
        jq "$change" "$GOLDEN/smollm3/model/config.json" >other/config.json
        plan other 2
        train smollm3 other 1
        run -1 first_loss smollm3
    done
}

@test "the comparison sees longrope with its long factors" {
    cp -r "$GOLDEN/phi3-longrope/model" other
    jq '.rope_parameters.short_factor = .rope_parameters.long_factor' \
        "$GOLDEN/phi3-longrope/model/config.json" >other/config.json
    plan other 2
    train phi3-longrope other 1
    run -1 first_loss phi3-longrope
}

@test "the comparison sees GPT-OSS with another limit, window or RoPE" {
    for change in '.swiglu_limit = 7' '.swiglu_alpha = 1.702' \
        '.sliding_window = 7' '.rope_parameters.truncate = true'; do
        rm -rf other
        cp -r "$GOLDEN/gpt-oss/model" other
        jq "$change" "$GOLDEN/gpt-oss/model/config.json" >other/config.json
        plan other 2
        train gpt-oss other 1
        run -1 first_loss gpt-oss
    done
}

@test "longrope refuses sequences that need its long factors" {
    cp -r "$GOLDEN/phi3-longrope/model" other
    jq '.original_max_position_embeddings = 20
        | .rope_parameters.original_max_position_embeddings = 20' \
        "$GOLDEN/phi3-longrope/model/config.json" >other/config.json
    plan other 1
    run --separate-stderr pprun -q --data packed --weights other --steps 1 \
        plan.json
    [ "$status" -eq 2 ]
    [[ $stderr == *"tokens, but the model has 20 positions; pack with pppack \
-l 20 --oversize split" ]]
}

@test "the comparison sees a window that is off by one" {
    for window in 6 8; do
        rm -rf other
        cp -r "$GOLDEN/mistral/model" other
        jq ".sliding_window = $window" "$GOLDEN/mistral/model/config.json" \
            >other/config.json
        plan other 2
        train mistral other 1 --dump-grads grads.safetensors
        run -1 first_loss mistral
        run -1 "$COMPARE" $GRADIENT $FLOOR grads.safetensors \
            "$GOLDEN/mistral/grads.safetensors"
    done
}

@test "the comparison sees weights of experts that do not add up to 1" {
    cp -r "$GOLDEN/qwen3-moe/model" other
    jq '.norm_topk_prob = false' "$GOLDEN/qwen3-moe/model/config.json" \
        >other/config.json
    plan other 2
    train qwen3-moe other 1 --dump-grads grads.safetensors
    run -1 first_loss qwen3-moe
    run -1 "$COMPARE" $GRADIENT $FLOOR grads.safetensors \
        "$GOLDEN/qwen3-moe/grads.safetensors"
}

@test "the comparison sees one changed number in the gradients" {
    run -0 "$COMPARE" $GRADIENT $FLOOR "$GOLDEN/qwen2/grads.safetensors" \
        "$GOLDEN/qwen2/grads.safetensors"
    cp "$GOLDEN/qwen2/grads.safetensors" changed.safetensors
    # The last float becomes 2.0.
    truncate -s -4 changed.safetensors
    printf '\0\0\0\100' >>changed.safetensors
    run -1 "$COMPARE" $GRADIENT $FLOOR changed.safetensors \
        "$GOLDEN/qwen2/grads.safetensors"
}

@test "the comparison sees a missing gradient" {
    run -1 "$COMPARE" $GRADIENT $FLOOR "$GOLDEN/llama/grads.safetensors" \
        "$GOLDEN/qwen3/grads.safetensors"
}
