#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# memory - ppsplit computes the bytes that pprun plans to allocate: a limit of
# exactly so many bytes passes, and one of a byte less fails.

bats_require_minimum_version 1.5.0
load helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    model llama false
    model qwen3-tied true
    data 1 90 >data.jsonl
    pppack -q -l 48 -o packed data.jsonl
}

setup() { cd "$BATS_FILE_TMPDIR"; }

# agree MODEL KIND ARGS...: compares them for a uniform split of 8 microbatches.
agree() {
    local model=$1 kind=$2 need tokens
    shift 2
    ppsplit -q --method uniform "$@" "model-$model" |
        ppsched -q -s "$kind" -m 8 --data packed -o plan.json
    tokens=$(jq .data.max_tokens plan.json)
    need=$(pprun --plan --data packed --init 5 --steps 1 plan.json |
        jq 'map(.total) | max')
    split() {
        ppsplit -q --method uniform --for "$kind" -m 8 \
            --micro-batch-tokens "$tokens" --memory "$1" "${@:2}" \
            "model-$model"
    }
    echo "$model $kind $*: $need"
    run -0 split "$need" "$@"
    run -1 split $((need - 1)) "$@"
}

@test "one stage a rank" {
    for kind in gpipe 1f1b eager-1f1b zb-h1 zb-h2; do
        agree llama $kind -p 3
        agree qwen3-tied $kind -p 2
    done
}

@test "several stages a rank" {
    for kind in interleaved looped-bfs zb-interleaved; do
        agree llama $kind -p 2 -c 2
        agree qwen3-tied $kind -p 2 -c 3
    done
    for kind in zbv v-half v-min dualpipev hanayo; do
        agree llama $kind -p 2 -c 2 --placement v
    done
}

@test "copies, slices and recomputation" {
    agree llama dualpipe -p 2 --placement both-ways
    agree llama seq1f1b -p 2
    agree llama dualpipev -p 2 -c 2 --placement v --recompute full
    agree qwen3-tied zbv -p 2 -c 2 --placement v --recompute selective
}
