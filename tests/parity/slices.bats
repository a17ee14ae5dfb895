#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# slices - training on slices gives the same bits under every split, and differs
# from whole sequences by rounding alone.

bats_require_minimum_version 1.5.0
load helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    data 1 60 >data.jsonl
    pppack -l 48 -o packed data.jsonl
    data 2 11 >eval.jsonl
    pppack -l 48 -o eval eval.jsonl
    for name in llama qwen3-tied mistral; do
        model "$name" "$([ "$name" = qwen3-tied ] && echo true || echo false)"
        ppsplit -p 1 "model-$name" | ppsched -s gpipe -m 6 --slices 3 |
            tee "sliced-$name.json" | ppsched -s gpipe -m 6 --slices 1 \
            >"$name.json"
        train "sliced-$name" "sliced-$name.json" --eval eval
        train "whole-$name" "$name.json" --eval eval --dtype fp64
    done
}

setup() { cd "$BATS_FILE_TMPDIR"; }

# split NAME KIND SPLIT...: trains the split in three slices; the bits must be
# those of one rank.
split() {
    local name=$1 kind=$2
    shift 2
    ppsplit "$@" "model-$name" | ppsched -s "$kind" -m 6 --slices 3 >plan.json
    rm -rf run
    train run plan.json --eval eval
    same run "sliced-$name"
}

# close_to NAME SLICES ARGS...: in fp64 the run is near that on whole sequences.
close_to() {
    local name=$1 slices=$2
    shift 2
    ppsplit -p 2 "model-$name" |
        ppsched -s seq1f1b -m 6 --slices "$slices" >plan.json
    rm -rf run
    train run plan.json --eval eval --dtype fp64 "$@"
    paste <(numbers run/log | jq '.[]') \
        <(numbers "whole-$name/log" | jq '.[]') |
        awk '$1 != $2 && ($1 - $2) ^ 2 > 1e-20 * $2 ^ 2 {
            print; bad = 1 } END { exit bad || NR < 30 }'
    "$BUILDDIR/tests/golden/compare_tensors" 1e-9 1e-12 \
        run/ckpt/latest "whole-$name/ckpt/latest"
    "$BUILDDIR/tests/golden/compare_tensors" 1e-6 1e-12 \
        run/grads "whole-$name/grads"
}

@test "seq1f1b on 1 rank" { split llama seq1f1b -p 1; }
@test "seq1f1b on 2 ranks" { split llama seq1f1b -p 2; }
@test "seq1f1b on 4 ranks, tied" { split qwen3-tied seq1f1b -p 4; }
@test "gpipe in slices, V placement" {
    split llama gpipe -p 2 -c 2 --placement v
}
@test "other slices give other bits" {
    ppsplit -p 2 model-llama | ppsched -s seq1f1b -m 6 --slices 2 >plan.json
    rm -rf run
    train run plan.json --eval eval
    run ! same run sliced-llama
}

@test "slices train the same as whole sequences" {
    close_to llama 2
    close_to qwen3-tied 3
}
@test "windows that begin in earlier slices" { close_to mistral 5; }
@test "slices of one token, and empty slices" { close_to qwen3-tied 60; }

@test "slices that begin in padding, or cross it" {
    pppack -l 64 --pad-to 16 -o padded data.jsonl
    for slices in 1 7; do
        ppsplit -p 2 model-qwen3-tied |
            ppsched -s gpipe -m 6 --slices "$slices" >plan.json
        pprun plan.json --data padded --init 5 --steps 2 --lr 1e-2 \
            --dtype fp64 --save "padded-$slices" -o log
    done
    "$BUILDDIR/tests/golden/compare_tensors" 1e-9 1e-12 \
        padded-7/latest padded-1/latest
}

@test "slices score every token of every sequence once" {
    for slices in 1 5; do
        ppsplit -p 2 model-llama |
            ppsched -s gpipe -m 4 --slices "$slices" |
            ppscore --data packed --init 5 --dtype fp64 --logprobs -o "$slices.jsonl"
    done
    paste <(jq '.sequence, .logprobs[]' 1.jsonl) \
        <(jq '.sequence, .logprobs[]' 5.jsonl) |
        awk '($1 - $2) ^ 2 > 1e-20 { bad = 1 } END { exit bad || NR < 400 }'
}

@test "messages count slices, not microbatches" {
    pprun sliced-llama.json --data packed --init 5 --steps 1 -v 2>err >log
    grep -qx 'pprun: rank 0: at most 18 slices of microbatches were alive' err
    run --separate-stderr pprun sliced-llama.json --data packed --init 5 \
        --steps 1 --max-in-flight 17
    [ "$status" -eq 1 ]
    [ "$stderr" = "pprun: rank 0 keeps 18 slices of microbatches alive, but\
 --max-in-flight allows 17" ]
}

@test "slices need less memory, as planned" {
    pprun sliced-llama.json --data packed --init 5 --steps 1 --print-memory >sliced
    pprun llama.json --data packed --init 5 --steps 1 --print-memory >whole
    jq -e --slurpfile whole whole '.[0].slots == 3 * $whole[0][0].slots' sliced
    ppsplit -p 2 model-llama | tee split.json | ppsched -s 1f1b -m 6 |
        pprun --data packed --init 5 --steps 1 --print-memory >whole
    ppsched -s seq1f1b -m 6 --slices 6 split.json |
        pprun --data packed --init 5 --steps 1 --print-memory >sliced
    jq -e --slurpfile whole whole \
        '.[0].activations < 0.75 * $whole[0][0].activations' sliced
}
