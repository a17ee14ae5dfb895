#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# pppack_balance - padding of sequences and rows, bins of equal cost and their
# order, and the manifest.

bats_require_minimum_version 1.5.0
load pack_helpers

# many prints two hundred documents of 1 to 200 tokens.
many() {
    # shellcheck disable=SC2046 # one word each
    documents $(awk 'BEGIN { srand(7)
        for (i = 0; i < 200; i++) print int(1 + 200 * rand() ^ 2) }')
}

# plan KIND M [DP] writes plan.json of a small model in two stages.
plan() {
    mkdir -p model
    jq -n '{architectures: ["LlamaForCausalLM"], model_type: "llama",
        vocab_size: 64, hidden_size: 16, num_hidden_layers: 4,
        num_attention_heads: 2, num_key_value_heads: 1, intermediate_size: 40,
        hidden_act: "silu", max_position_embeddings: 4096, rms_norm_eps: 1e-5,
        rope_theta: 10000.0, tie_word_embeddings: false}' >model/config.json
    ppsplit -q -p 2 model | ppsched -q -s "$1" -m "$2" |
        jq ".mesh.dp = ${3:-1}" >plan.json
}

# stats JQ OPTION... prints a figure of the lengths.
stats() {
    local what=$1
    shift
    run --separate-stderr pppack --lengths --stats "$@" lengths
    [ "$status" -eq 0 ]
    jq -c "$what" <<<"$output"
}

@test "--fp8 pads the part of each rank" {
    lengths 5 7 40 3
    [ "$(stats '[.align, .row, .padding]' -l 64 --fp8 tensorwise)" = \
        '[1,16,9]' ]
    [ "$(stats '[.align, .row, .padding]' -l 64 --fp8 mxfp8)" = '[1,32,9]' ]
    [ "$(stats '[.align, .row]' -l 8192 --cp 8 --tp 8 --fp8 blockwise)" = \
        '[64,8192]' ]
    # NeMo-RL pads to the product of both kinds of parallelism.
    [ "$(stats '[.align, .row]' -l 16384 --cp 8 --tp 8 --fp8 blockwise \
        --compat nemo-rl-ffd)" = '[128,16384]' ]
    [ "$(stats .align -l 64 --cp 4 --tp 2)" = 8 ]
    [ "$(stats .align -l 64 --cp 4 --tp 2 --compat nemo-rl-mffd)" = 16 ]
    [ "$(stats .align -l 64 --tp 2)" = 2 ]
    refused "-l: '100' is not a multiple of 16 (--fp8); try 96 or 112" \
        -l 100 --fp8 tensorwise --stats lengths
    refused "-l: '100' is not a multiple of 128 (--fp8); the least is 128" \
        -l 100 --fp8 blockwise --stats lengths
    refused "-l: '10' is not a multiple of 4 (2 x cp); try 8 or 12" \
        -l 10 --cp 2 --stats lengths
}

@test "the shortest sequence of a row gets its padding" {
    documents 5 7 40 3 >in.jsonl
    pppack -l 64 --fp8 mxfp8 --pad-to 2 -o out in.jsonl
    pppack --check out
    [ "$(pppack -l 64 --fp8 mxfp8 --pad-to 2 --stats in.jsonl |
        jq -c '[.bins, .padding, .lower_bound]')" = '[1,9,1]' ]
    # Padded lengths are 40, 8, 6 and 10: the last is 3 tokens, padded to 4, and
    # gets the rest of 64.
    [ "$(od -An -v -t d4 -w4 -j $((4 * 57)) -N 16 out/input_ids |
        tr -d ' ' | paste -sd,)" = 0,0,0,0 ]
    [ "$(stat -c %s out/input_ids)" -eq 256 ]
}

@test "--per-rank keeps a sequence that is longer than the part of a rank" {
    lengths 5 30 3 40
    refused "sequence 1 has '30' tokens, more than the 16 of a bin; see\
 --oversize" --lengths -l 16 --cp 4 lengths
    [ "$(stats '[.capacity, .bins, .dropped]' -l 16 --cp 4 --per-rank)" = \
        '[64,2,0]' ]
    lengths 65
    refused "sequence 0 has '65' tokens, more than the 64 of a bin; see\
 --oversize" --lengths -l 16 --cp 4 --per-rank lengths
}

@test "--seed changes the order of first-fit-shuffle" {
    lengths 5 3 2 7 6 1 4 4 8 2
    run --separate-stderr pppack --lengths -l 10 -a first-fit-shuffle lengths
    [ "$status" -eq 0 ]
    first=$output
    [ "$(pppack --lengths -l 10 --compat nemo-rl-ffs --seed 42 lengths)" = \
        "$first" ]
    [ "$(pppack --lengths -l 10 --compat nemo-rl-ffs --seed 7 lengths)" != \
        "$first" ]
    # Python: random.seed(42), then random.shuffle of ten gives 7 3 2 8 5 6 9 4 0 1.
    [ "$(tr -d ' ' <<<"$first" | paste -sd ' ')" = \
        '[7,2,5,9] [3,1] [8] [6,4] [0]' ]
    refused '--seed has no effect: bfd is deterministic' --lengths -l 10 -a bfd --seed 1 lengths
}

@test "--balance evens the bins and keeps their number" {
    lengths 90 10 10 10 10 10 10 10 10 10 10 10
    [ "$(stats '[.bins, .imbalance, .imbalance_before]' -l 100 \
        --bins-multiple 2)" = '[2,1,null]' ]
    lengths 60 40 50 30
    [ "$(stats '[.bins, .imbalance_before, .imbalance]' -l 110 -a bfd \
        --balance tokens)" = \
        '[2,1.2222222222222223,1]' ]
    refused '--balance flops needs --manifest' --lengths -l 100 \
        --balance flops lengths
    refused "--shuffle and --balance tokens exclude each other" \
        --lengths -l 100 --balance tokens --shuffle 1 lengths
    refused '--dp needs --balance tokens, flops or --export' --lengths -l 100 --dp 2 lengths
    refused "'3' bins cannot be divided equally among 2 data-parallel ranks (--dp);\
 try --bins-multiple 4" \
        --lengths -l 100 --balance tokens --dp 2 --bins-multiple 3 lengths
}

@test "--balance flops evens the cost of the model" {
    plan 1f1b 2
    many >in.jsonl
    run --separate-stderr pppack -l 600 --stats --bins-multiple 32 \
        --balance flops --manifest plan.json in.jsonl
    [ "$status" -eq 0 ]
    [ -z "$stderr" ]
    [ "$(jq '.bins % 32 == 0 and .imbalance < 1.01 and
        .imbalance < .imbalance_before and
        .step_time < 1.01 * .step_time_before' <<<"$output")" = true ]
    # The schedule gives the number of bins of a step.
    plan 1f1b 6 2
    run --separate-stderr pppack -l 600 --stats --balance flops \
        --manifest plan.json in.jsonl
    [ "$(jq '.bins % 12' <<<"$output")" -eq 0 ]
}

@test "step_time is that of ppsched" {
    plan zb-h1 4
    many >in.jsonl
    time=$(pppack -q -l 600 --stats --bins-multiple 4 --balance tokens \
        --manifest plan.json -o out in.jsonl | jq .step_time)
    steps=$(jq '.data.n_bins / 4' plan.json)
    for ((k = 1; k <= steps; k++)); do
        ppsched --stats --data out --step "$k" plan.json | jq .at_depth.makespan
    done >"times"
    [ "$(jq -s --argjson time "$time" \
        '(add / length - $time | fabs) < 1e-9 * $time' times)" = true ]
}

# step_of DIR prints the time of the first step on a directory's bins.
step_of() {
    ppsched --stats --data "$1" plan.json | jq .at_depth.makespan
}

@test "microbatches are ordered by simulation" {
    plan 1f1b 8
    documents 600 $(seq 20 59) >in.jsonl
    args=(-q -l 600 --bins-multiple 8 --balance tokens)
    pppack "${args[@]}" -o dealt in.jsonl
    pppack "${args[@]}" --manifest plan.json --stats -o ordered in.jsonl >stats
    # Only the order of the bins differs.
    diff <(pppack "${args[@]}" --lengths <(jq '.input_ids | length' in.jsonl) |
        jq -c sort | sort) \
        <(pppack "${args[@]}" --lengths --manifest plan.json \
            <(jq '.input_ids | length' in.jsonl) | jq -c sort | sort)
    dealt=$(step_of dealt) ordered=$(step_of ordered)
    jq -n --argjson dealt "$dealt" --argjson ordered "$ordered" \
        '$ordered < 0.98 * $dealt' | grep true
    [ "$(jq --argjson t "$ordered" '(.step_time / $t - 1 | fabs) < 1e-9' \
        stats)" = true ]
}

@test "--manifest gets the data section" {
    plan 1f1b 2
    many >in.jsonl
    pppack -l 400 --manifest plan.json -o out in.jsonl
    [ "$(jq -c '[.data.path, .data.capacity, .history[-1].tool,
        (.schedule | length > 0)]' plan.json)" = '["out",400,"pppack",true]' ]
    jq 'del(.data)' plan.json | ppsched -s 1f1b -m 2 --data out |
        jq .data >theirs
    jq .data plan.json | diff theirs -
    # It also works as a filter.
    jq 'del(.data)' plan.json |
        pppack -l 400 --manifest - -o out2 in.jsonl >plan2.json
    [ "$(jq -r .data.path plan2.json)" = out2 ]
    # Without a directory the manifest stays as it is.
    cp plan.json before.json
    pppack -l 200 --stats --manifest plan.json in.jsonl >stats.json
    cmp plan.json before.json
    refused "--manifest - needs input files, and excludes --stats and\
 --lengths" -l 400 --manifest - -o out3 <plan.json
    run --separate-stderr pppack -l 400 --manifest none.json -o out3 in.jsonl
    [ "$status" -eq 2 ]
    [ "$stderr" = 'pppack: none.json: No such file or directory' ]
    [ ! -e out3 ]
}
