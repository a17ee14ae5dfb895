#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# context - context-parallel ranks: against one rank in fp64, so that only the
# order of sums differs. Sequences are uneven, and padding lies between them.

bats_require_minimum_version 1.5.0
load helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    model llama false
    model qwen3-tied true
    data 1 40 >data.jsonl
    pppack -l 64 --cp 4 -o packed data.jsonl
    data 2 9 >eval.jsonl
    pppack -l 64 --cp 4 -o eval eval.jsonl
    for name in llama qwen3-tied; do
        ppsplit -p 1 "model-$name" | ppsched -s gpipe -m 4 >"$name.json"
        train "base-$name" "$name.json" --eval eval --dtype fp64
    done
}

setup() { cd "$BATS_FILE_TMPDIR"; }

# context NAME KIND M SPLIT...: trains the split, and compares it with one rank.
context() {
    local name=$1 kind=$2 m=$3
    shift 3
    ppsplit --zero 0 "$@" "model-$name" | ppsched -s "$kind" -m "$m" >plan.json
    rm -rf run
    train run plan.json --eval eval --dtype fp64
    near run "base-$name"
}

@test "2 context-parallel ranks" { context llama gpipe 4 -p 1 --cp 2; }
@test "4 context-parallel ranks of 1f1b on 2 ranks" {
    context llama 1f1b 4 -p 2 --cp 4
}
@test "2 of zero-bubble V, tied, with recomputation" {
    context qwen3-tied zbv 4 -p 2 -c 2 --placement v --cp 2 --recompute full
}
@test "2 of interleaved on 2 replicas" {
    context llama interleaved 2 -p 2 -c 3 --cp 2 --dp 2 \
        --mesh-order dp-pp-cp-tp
}
