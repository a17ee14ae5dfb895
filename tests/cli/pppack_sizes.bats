#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# pppack_sizes - --cp-sizes per-sequence: which context-parallel ranks have a
# sequence.

bats_require_minimum_version 1.5.0
load pack_helpers

# plan CP writes plan.json of a small model in two stages.
plan() {
    mkdir -p model
    jq -n '{architectures: ["LlamaForCausalLM"], model_type: "llama",
        vocab_size: 64, hidden_size: 16, num_hidden_layers: 4,
        num_attention_heads: 2, num_key_value_heads: 1, intermediate_size: 40,
        hidden_act: "silu", max_position_embeddings: 65536, rms_norm_eps: 1e-5,
        rope_theta: 10000.0, tie_word_embeddings: false}' >model/config.json
    ppsplit -q -p 2 --cp "$1" model | ppsched -q -s 1f1b -m 4 >plan.json
}

# draw N: writes N lengths, a few of them long.
draw() {
    awk -v n="$1" 'BEGIN { srand(3); for (i = 0; i < n; i++)
        print int(i % 40 ? 20 + 200 * rand() : 4000 + 4000 * rand()) }' >lengths
}

documents() {
    jq -c '{input_ids: [range(.) | . % 64]}' lengths
}

sized() { pppack -l 12K --per-rank --cp 4 --cp-sizes per-sequence "$@"; }

@test "long sequences are cut, short ones are whole, ranks are even" {
    plan 4
    draw 400
    sized --lengths --balance flops --manifest plan.json lengths >bins
    jq -se --slurpfile lengths lengths '
        [.[][] | {i: .[0], n: .[2], first: .[3], ranks: .[4]}] as $s |
        ($s | length) == 400 and ([$s[].i] | unique | length) == 400 and
        all($s[]; .n == $lengths[.i] and .first % .ranks == 0 and
            4 % .ranks == 0 and .first + .ranks <= 4) and
        all($s[] | select(.n >= 4000); .ranks == 4) and
        ([$s[] | select(.ranks == 1)] | length) > 300 and
        all(.[]; [.[] | .[4]] | . == (sort | reverse))' bins
    # Tokens of each rank of each bin, with padding to multiples of 8.
    jq -se 'all(.[]; [range(4) as $r | [.[] |
        select(.[3] <= $r and $r < .[3] + .[4]) |
        (.[2] + 7 - (.[2] + 7) % 8) / .[4]] | add] | max <= 12288)' bins
    sized --lengths --stats --balance flops --manifest plan.json lengths |
        jq -e '.imbalance < 1.003 and .rank_imbalance < 1.004 and
            .rank_tokens <= 12288 and .whole > 300'
}

@test "ranks may be even in tokens, without a plan" {
    draw 200
    sized --lengths --stats --balance tokens lengths |
        jq -e '.rank_imbalance < 1.004 and .rank_tokens <= 12288'
}

@test "the simulated step is that of the slowest rank" {
    plan 4
    draw 400
    sized --lengths --stats --balance flops --manifest plan.json lengths >sized
    pppack -l 12K --per-rank --cp 4 --lengths --stats --balance flops \
        --manifest plan.json lengths >fixed
    # Ranks that differ by at most 0.4 % make a step longer by as much.
    jq -se '.[0].step_time / .[1].step_time | . > 0.99 and . < 1.01' sized fixed
    draw 4
    sized -o packed --balance flops --manifest plan.json <(documents)
    time=$(ppsched --stats plan.json | jq .makespan)
    pppack -l 12K --per-rank --cp 4 -o rows --balance flops \
        --manifest plan.json <(documents)
    ppsched --stats plan.json | jq -e --argjson time "$time" \
        '.makespan / $time | . > 0.99 and . <= 1.0001'
}

@test "the directory has the ranks, and the plan its room" {
    plan 4
    draw 60
    sized -o packed --balance flops --manifest plan.json <(documents)
    pppack --check packed
    pppack --stats packed >figures
    jq -e '.cp == 4 and .rank_tokens <= 12288' figures
    [ "$(jq .data.max_tokens plan.json)" = \
        "$(jq '.cp * .rank_tokens' figures)" ]
    sized -o again --balance flops --manifest plan.json <(documents)
    cmp packed/index again/index
    # Packed anew without the option, all ranks share all sequences.
    pppack -l 48K --cp 4 -o fixed packed
    pppack --stats fixed | jq -e '.cp == null'
}

@test "the ranks of a group are those of all its sequences" {
    for i in $(seq 40); do
        jq -cn --argjson i "$i" '[range(5 + $i)] as $ids |
            {prompt: [1, 2, 3], chosen: $ids, rejected: ($ids + $ids)}'
    done >pairs
    pppack -q -l 512 --cp 4 --cp-sizes per-sequence --balance tokens -o packed \
        pairs
    pppack --check packed
    [ "$(pppack --stats packed | jq .groups)" = 40 ]
}

@test "safetensors carry the ranks, or refuse rows of fixed ranks" {
    draw 30
    sized -q -o packed --balance tokens <(documents)
    pppack --export safetensors -o packed.safetensors packed
    n=$(od -An -tu8 -N8 packed.safetensors | tr -d ' ')
    tail -c +9 packed.safetensors | head -c "$n" |
        jq -e '.cp_ranks.shape == [30, 2]'
    refused "rows.safetensors: cp_index of '4' ranks cannot hold sequences \
that have ranks of their own" --export safetensors --cp 4 -o rows.safetensors \
        packed
}

@test "options that contradict each other are refused" {
    draw 10
    refused "--cp-sizes per-sequence: --cp must be 2 to 1024, not '1'" \
        -l 8192 --lengths --balance tokens --cp-sizes per-sequence lengths
    refused "--cp-sizes per-sequence needs --balance tokens or flops" -l 8192 \
        --lengths --cp 4 --cp-sizes per-sequence lengths
    refused "--cp-sizes per-sequence and --fp8 exclude each other: ranks have \
different numbers of tokens" -l 8192 --lengths --cp 4 --balance tokens \
        --fp8 mxfp8 --cp-sizes per-sequence lengths
    plan 2
    refused "plan.json: the plan has '2' context-parallel ranks, but sequences \
would be placed on 4; give both the same --cp" -l 8192 --lengths --cp 4 \
        --balance flops --manifest plan.json --cp-sizes per-sequence lengths
    pppack -l 8192 --lengths --cp 4 --cp-sizes fixed lengths >bins
    pppack -l 8192 --lengths --cp 4 lengths | cmp - bins
}
