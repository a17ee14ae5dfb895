#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# pprun --verify at the command line: its output and its errors. tests/parity
# tests the faults that it must detect.

bats_require_minimum_version 1.5.0
load ../parity/helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    model llama false
    model qwen3-tied true
    data 1 20 >data.jsonl
    pppack -q -l 48 --pad-to 4 -o packed data.jsonl
    ppsplit -q -p 2 model-llama | ppsched -q -s 1f1b -m 4 >plan.json
    ppsplit -q -p 2 -c 2 --placement v model-qwen3-tied |
        ppsched -q -s zbv -m 5 >tied.json
}

setup() { cd "$BATS_FILE_TMPDIR"; }

refuses() {
    local want=$1
    shift
    run --separate-stderr pprun "$@"
    [ "$status" -eq 2 ]
    [ -z "$output" ]
    [ "${stderr_lines[0]}" = "pprun: $want" ]
}

@test "a plan is verified on its own data, in both types" {
    for dtype in fp32 fp64; do
        run --separate-stderr pprun --verify --data packed --init 1 \
            --dtype $dtype plan.json
        [ "$status" -eq 0 ]
        [ -z "$stderr" ]
        [ "${lines[-1]}" = "the same: 57 tensors" ]
        [ "$(grep -c ' ok$' <<<"$output")" -eq 60 ]
    done
}

@test "both uses of a tied weight are compared" {
    run --separate-stderr pprun --verify --data packed --init 1 tied.json
    [ "$status" -eq 0 ]
    [[ "$output" == *"model.embed_tokens.weight "*" 0    0 "* ]]
    [[ "$output" == *"lm_head.weight "*" 3    0 "* ]]
}

@test "the table begins with the worst parameter and has stage and rank" {
    pprun --verify --data packed --init 1 --json tied.json >out
    jq -e '.same and .hint == ""' out
    jq -e '[.parameters[] | [.gradient_error / .gradient_bound,
        .weights_error / .weights_bound] | max] | . == (sort | reverse)' out
    jq -e '[.parameters[].name] | index("model.layers.0.self_attn.q_norm.weight")' out
    jq -e 'all(.parameters[]; .rank == [0, 1, 1, 0][.stage])' out
    jq -e '[.scalars[].name] == ["loss of step 1", "gradient norm of step 1",
        "loss of step 5"]' out
}

@test "the loss is that of training" {
    pprun --verify --data packed --init 1 --json plan.json >out
    pprun --data packed --init 1 --steps 1 plan.json >step
    [ "$(jq '.scalars[0].found' out)" = "$(jq .loss step)" ]
    [ "$(jq '.scalars[1].found' out)" = "$(jq .grad_norm step)" ]
}

@test "evaluation after every step changes no other number" {
    data 3 9 | pppack -q -l 60 -o eval
    pprun --verify --data packed --init 1 --json plan.json >without
    pprun --verify --data packed --init 1 --eval eval --json plan.json >with
    jq -e '.same and (.scalars | length) == 4
        and .scalars[3].name == "evaluation after step 1"' with
    diff <(jq '[.scalars[:3], .parameters]' with) \
        <(jq '[.scalars, .parameters]' without)
    # Its rounding differs, so it was computed and not copied.
    jq -e '.scalars[3] | .error > 0 and .error <= .bound' with
    pprun --verify --data packed --init 1 --eval eval --dtype fp64 tied.json
    pprun --verify --shrink --eval eval --message-size exchange tied.json |
        grep -q '^evaluation after step 1 .* ok$'
}

@test "--shrink works without data, with data and with a seed" {
    for args in "" "--data packed" "--init 7" "--grad-accum 3" \
        "--dtype fp64"; do
        # shellcheck disable=SC2086
        run --separate-stderr pprun --verify --shrink $args tied.json
        echo "$args: $output"
        [ "$status" -eq 0 ]
    done
    pprun --verify --shrink --init 1 tied.json >one
    pprun --verify --shrink --init 2 tied.json >two
    run ! cmp one two
    pprun --verify --shrink tied.json | cmp - one
}

@test "--shrink verifies a model of full size" {
    mkdir -p large
    jq '. + {hidden_size: 8192, intermediate_size: 28672, vocab_size: 128256,
        num_hidden_layers: 32, num_attention_heads: 64,
        num_key_value_heads: 8, head_dim: 128, rope_theta: 500000.0}' \
        model-llama/config.json >large/config.json
    ppsplit -q -p 8 -c 2 large | ppsched -q -s interleaved -m 16 >large.json
    run --separate-stderr timeout 200 pprun --verify --shrink large.json
    [ "$status" -eq 0 ]
    [ "${lines[-1]}" = "the same: 291 tensors" ]
}

@test "data without scored tokens is refused" {
    # Four bins make the first step.
    for mask in 0 0 0 0 1; do
        echo "{\"input_ids\": [1, 2, 3], \"loss_mask\": [0, 0, $mask]}"
    done >masked.jsonl
    head -n 4 masked.jsonl | pppack -q -l 3 -o none
    refuses "none: none of its '12' tokens is scored; look at the masks and\
 labels of the documents, or pack with a larger -l" \
        --verify --data none --init 1 plan.json
    pppack -q -l 3 -o unscored masked.jsonl
    refuses "--verify: no token of the first step is scored: there is nothing\
 to compare" --verify --data unscored --init 1 plan.json
}

@test "options that exclude each other are refused" {
    for option in --shrink --json; do
        refuses "$option needs --verify" $option --steps 1 plan.json
    done
    for option in "--steps 1" "--save x" "--dump-grads x" \
        "--trace x" "--profile x" "--resume x" --print-memory; do
        # shellcheck disable=SC2086 # words
        refuses "--verify and ${option% *} exclude each other" --verify $option plan.json
    done
    refuses "--time-products needs --steps" --verify --time-products plan.json
    refuses "--shrink and --weights exclude each other" \
        --verify --shrink --weights w plan.json
    refuses "--verify needs --dtype fp32 or fp64: the rounding of bf16 would\
 hide errors" --verify --device cuda --dtype bf16 --init 1 plan.json
    refuses "no data: give --data DIR" --verify --init 1 plan.json
}
