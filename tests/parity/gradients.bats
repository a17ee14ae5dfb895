#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# gradients - a step takes nothing from the gradients of the step before. Here
# they are not a number when a step begins, and the bits are those of a run whose
# gradients are not touched.

bats_require_minimum_version 1.5.0
load helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    model llama false
    model qwen3-tied true
    data 1 40 >data.jsonl
    pppack -q -l 64 --cp 2 --tp 2 -o packed data.jsonl
}

setup() { cd "$BATS_FILE_TMPDIR"; }

# spoiled MODEL KIND M SPLIT... [-- OPTION...]
spoiled() {
    local model=$1 kind=$2 m=$3 split=() name
    shift 3
    while [ $# -gt 0 ] && [ "$1" != -- ]; do
        split+=("$1")
        shift
    done
    shift || true
    echo "# $model $kind ${split[*]} $*"
    # shellcheck disable=SC2086
    ppsplit -q "${split[@]}" "$model" | ppsched -q -s $kind -m "$m" >plan.json
    for name in pprun tests/parity/pprun_inject; do
        rm -rf "${name##*/}"
        mkdir "${name##*/}"
        PP_INJECT=stale-gradients "$BUILDDIR/${name/#pprun/cmd/pprun}" -q plan.json \
            --data packed --init 5 --steps 2 --lr 1e-2 --dump-grads \
            "${name##*/}/grads" --save "${name##*/}/ckpt" -o "${name##*/}/log" "$@"
    done
    same pprun pprun_inject
}

@test "every family" {
    local family
    for family in gpt2 gemma3 qwen2-moe qwen3-moe gpt-oss deepseek-v3 deepseek-mtp; do
        spoiled "$SRCDIR/tests/golden/$family/model" 1f1b 3 -p 2
    done
}

@test "meshes, slices, passes, adapters, and microbatches without tokens" {
    spoiled model-llama zb-h1 3 -p 2 --tp 2
    spoiled model-qwen3-tied 1f1b 3 -p 2 --dp 2 --zero 3
    spoiled model-qwen3-tied gpipe 2 -p 1 --cp 2 --dp 2 -- --grad-accum 2
    spoiled model-llama "seq1f1b --slices 2" 2 -p 2
    spoiled model-llama 1f1b 2 -p 2 --lora rank=2,alpha=4
    spoiled "$SRCDIR/tests/golden/mixtral/model" 1f1b 20 -p 2 --dp 2 --ep 2
}
