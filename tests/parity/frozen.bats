#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# frozen - units that are not trained keep their bits, and the others have the
# gradients that they have if all are trained. A rank that allocates other bytes
# than its plan fails, in every test.

bats_require_minimum_version 1.5.0
load helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    model llama false
    model qwen3-tied true
    model qwen2-moe false
    data 1 40 >data.jsonl
    pppack -q -l 48 -o packed data.jsonl
    for name in llama qwen3-tied qwen2-moe; do
        ppsplit -q -p 1 "model-$name" | ppsched -q -s gpipe -m 6 >whole.json
        train "whole-$name" whole.json --steps 1 --lr 0 --weight-decay 0
    done
}

setup() { cd "$BATS_FILE_TMPDIR"; }

# freeze NAME LIST SCHED... -- SPLIT...: writes plan.json.
freeze() {
    local name=$1 list=$2 sched=()
    shift 2
    while [ "$1" != -- ]; do
        sched+=("$1")
        shift
    done
    shift
    ppsplit -q --freeze "$list" --method uniform "$@" "model-$name" |
        ppsched -q -m 6 "${sched[@]}" >plan.json
}

# partial NAME TENSORS ARGS...: trains plan.json, whose units with these tensors
# are frozen. Slices, and copies of the weights, add up gradients in an order of
# their own: they have a tolerance in $near.
partial() {
    local name=$1 tensors=$2
    shift 2
    rm -rf run one
    train one plan.json --steps 1 "$@"
    "$BUILDDIR/tests/golden/compare_tensors" "${near:-0}" 0 \
        "whole-$name/grads" one/grads '*'
    train run plan.json --steps 3 "$@"
    compare run/ckpt/latest "whole-$name/ckpt/latest" "$tensors"
    run -1 compare "whole-$name/grads" one/grads
}

@test "a prefix" {
    for kind in 1f1b zb-h1; do
        freeze llama 'embedding,model.layers.[0-3]' -s $kind -- -p 3
        partial llama 'model.layers.[0-3].*' --eval packed
    done
    jq -re '.schedule.actions[0]' plan.json >row
    run -1 grep -E 'I|B|W' row
}

@test "layers after trained ones" {
    for kind in gpipe zb-h2; do
        freeze llama 'model.layers.[2-5],head' -s $kind -- -p 3
        partial llama 'model.layers.[2-5].*'
    done
    jq -re '.schedule.actions[1]' plan.json >row
    run -1 grep -E '1[BW]' row
    grep 1I row
}

@test "some layers of every stage, in V and in two copies" {
    freeze llama 'embedding,model.layers.[135]' -s zbv -- \
        -p 2 -c 2 --placement v
    partial llama 'model.layers.[135].*'
    freeze llama 'model.layers.[0135]' -s dualpipe -- -p 2 --placement both-ways
    near=1e-5 partial llama 'model.layers.[0135].*'
}

@test "the norm before a trained head" {
    for kind in gpipe zb-h1; do
        freeze llama 'model.norm' -s $kind -- -p 2
        partial llama 'model.norm.*'
    done
}

@test "experts beside dense layers, whose workspaces have other tensors" {
    for mode in none full; do
        freeze qwen2-moe 'model.layers.[1-4],model.norm' -s gpipe -- \
            -p 1 --recompute $mode
        partial qwen2-moe 'model.layers.[1-4].*'
    done
}

@test "slices and recomputation" {
    freeze llama 'embedding,model.layers.[0245]' -s seq1f1b -- -p 2
    near=1e-5 partial llama 'model.layers.[0245].*'
    for mode in selective full; do
        freeze llama 'embedding,model.layers.[0245]' -s 1f1b -- \
            -p 2 --recompute $mode
        partial llama 'model.layers.[0245].*'
    done
}

@test "a tied embedding" {
    freeze qwen3-tied 'embedding,model.layers.[03]' -s 1f1b -- -p 2
    partial qwen3-tied 'model.embed_tokens.weight'
    jq -e '[.model.units[] | select(.frozen).fqn] |
        . == ["model.embed_tokens", "model.layers.0", "model.layers.3",
              "lm_head"]' plan.json
}

@test "a mesh agrees with one rank" {
    freeze llama 'embedding,model.layers.[0134]' -s 1f1b -- \
        -p 2 --dp 2 --tp 2 --seq-len 128
    pppack -q -l 48 --tp 2 -o aligned data.jsonl
    pprun plan.json --data aligned --init 5 --verify
}

@test "a run resumes with frozen units, and another phase begins" {
    freeze llama 'embedding,model.layers.[01]' -s 1f1b -- -p 2
    train straight plan.json --steps 4
    train stopped plan.json --steps 2
    pprun plan.json --data packed --steps 4 --lr 1e-2 --clip 0.5 \
        --weight-decay 0.1 --resume stopped/ckpt --save stopped/ckpt -o log
    compare straight/ckpt/latest stopped/ckpt/latest
    ppsplit -q -p 2 model-llama | ppsched -q -s 1f1b -m 6 >all.json
    run -2 --separate-stderr pprun all.json --data packed --steps 6 \
        --resume stopped/ckpt -o log
    [[ "$stderr" == *exp_avg*"no tensor 'model.embed_tokens.weight'"* ]]
    pprun all.json --data packed --steps 1 --weights stopped/ckpt/latest -o log
}

@test "a rank without trained units resumes from the exact weights too" {
    freeze llama 'embedding,model.layers.[01]' -s 1f1b -- -p 3
    jq -e '.model.units[:3] | all(.frozen)' plan.json
    local options=(--dtype fp64 --save-dtype fp32)
    rm -rf straight stopped
    train straight plan.json --steps 4 "${options[@]}"
    train stopped plan.json --steps 2 "${options[@]}"
    pprun plan.json --data packed --steps 4 --lr 1e-2 --clip 0.5 \
        --weight-decay 0.1 --resume stopped/ckpt --save stopped/ckpt \
        -o stopped/log "${options[@]}"
    diff <(numbers straight/log) <(numbers stopped/log)
}

@test "memory is planned to the byte" {
    local need
    freeze llama 'embedding,model.layers.[0-2]' -s 1f1b -- -p 3
    ppsched -q --data packed -s 1f1b -m 6 plan.json -o sized.json
    pprun --print-memory --data packed --init 5 --steps 1 sized.json >need.json
    ppsched --stats sized.json |
        jq -e --slurpfile need need.json '.rank_bytes == [$need[0][].total]'
    need=$(jq 'map(.total) | max' need.json)
    split() {
        ppsplit -q --freeze 'embedding,model.layers.[0-2]' --method uniform \
            --schedule 1f1b -m 6 --seq-len "$(longest packed)" -p 3 --memory "$1" \
            --micro-batch-tokens "$(jq .data.max_tokens sized.json)" \
            model-llama
    }
    run -0 split "$need"
    run -1 split $((need - 1))
}
