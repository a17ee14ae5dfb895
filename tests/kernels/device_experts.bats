#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Mixtures of experts on the emulated device. Gradients are those of the CPU
# within rounding errors, and bits do not depend on the number of pipeline ranks.

bats_require_minimum_version 1.5.0
load ../parity/helpers
load device_helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    data 1 10 >data.jsonl
    pppack -q -l 32 --cp 2 --tp 2 -o packed data.jsonl
}

setup() { cd "$BATS_FILE_TMPDIR"; }

# plan FILE FAMILY KIND M SPLIT...: plans for a model of tests/golden.
plan() {
    local file=$1 family=$2 kind=$3 m=$4
    shift 4
    ppsplit -q "$@" "$SRCDIR/tests/golden/$family/model" |
        ppsched -q -s "$kind" -m "$m" >"$file"
}

# losses A B: fails unless two runs have the same losses of routers, and some.
losses() {
    paste <(jq -c '[.aux_loss, .z_loss, .expert_load]' "$1/log") \
        <(jq -c '[.aux_loss, .z_loss, .expert_load]' "$2/log") |
        jq -se '[range(0; length; 2) as $i | [.[$i], .[$i + 1]] | transpose[]]
            | length == 6 and all(.[]; .[0] > 0 and
                (.[0] - .[1] | fabs) < 1e-6 * .[0])' >/dev/null
}

@test "experts of every family: the CPU's gradients" {
    for family in mixtral qwen2-moe qwen3-moe deepseek-v2 gpt-oss; do
        echo "# $family"
        golden one.json $family 1
        cpu host one.json --optimizer sgd
        gpu one one.json --optimizer sgd
        near 1e-4 one host
    done
}

@test "losses of routers, and biases that follow loads" {
    plan one.json deepseek-v3 gpipe 2 -p 1
    for rule in tokens documents; do
        more=(--optimizer sgd --aux-loss 0.3 --z-loss 0.2 --aux-rule "$rule"
            --bias-rate 0.01)
        cpu host one.json "${more[@]}"
        gpu one one.json "${more[@]}"
        near 1e-4 one host
        losses one host
    done
    gpu without one.json --optimizer sgd
    run ! near 1e-4 without host
}

@test "experts in bf16: near the CPU, and the same bits on more ranks" {
    plan one.json qwen2-moe gpipe 2 -p 1
    cpu host one.json --optimizer sgd --steps 1
    gpu one one.json --optimizer sgd --steps 1 --dtype bf16
    near 0.1 one host
    plan two.json qwen2-moe zb-h1 2 -p 2 --recompute full
    PP_EMULATED_JITTER=3 gpu ranks two.json --optimizer sgd --steps 1 \
        --dtype bf16
    same ranks one
}

@test "experts on other ranks, and of parts of sequences and tensors" {
    plan one.json mixtral gpipe 2 -p 1
    gpu one one.json --optimizer sgd --aux-loss 0.3
    plan lanes.json deepseek-v2 1f1b 1 -p 2 --dp 2 --ep 2
    gpu ranks lanes.json --optimizer sgd
    cpu host lanes.json --optimizer sgd
    near 1e-4 ranks host
    plan parts.json mixtral 1f1b 2 -p 2 --cp 2 --ep 2 --recompute selective
    plan tensors.json mixtral gpipe 2 -p 1 --tp 2
    for plan in parts tensors; do
        PP_EMULATED_JITTER=2 gpu ranks $plan.json --optimizer sgd --aux-loss 0.3
        near 1e-4 ranks one
        losses ranks one
    done
}

@test "whole experts on ranks of parts of tensors" {
    for family in mixtral deepseek-v3 gpt-oss; do
        echo "# $family"
        plan one.json $family gpipe 2 -p 1
        gpu one one.json --optimizer sgd --aux-loss 0.3 --z-loss 0.2
        for split in '1f1b 2 -p 2 --tp 2 --ep 2 --recompute selective' \
            'gpipe 1 -p 1 --tp 2 --dp 2 --ep 4 --zero 3'; do
            # shellcheck disable=SC2086
            plan whole.json $family $split --experts-over-tp
            rm -rf ranks
            PP_EMULATED_JITTER=2 gpu ranks whole.json --optimizer sgd \
                --aux-loss 0.3 --z-loss 0.2
            near 1e-4 ranks one
            losses ranks one
        done
    done
}

# zero FILE PATTERN: sets tensors of a safetensors file to 0.
zero() {
    local n
    n=$(od -An -tu8 -N8 "$1" | tr -d ' ')
    tail -c +9 "$1" | head -c "$n" |
        jq -r --arg name "$2" 'to_entries[] | select(.key | test($name))
            | .value.data_offsets | "\(.[0]) \(.[1] - .[0])"' |
        while read -r at bytes; do
            dd if=/dev/zero of="$1" bs=1 seek=$((8 + n + at)) count="$bytes" \
                conv=notrunc status=none
        done
}

@test "a rank whose experts get no token" {
    plan one.json mixtral gpipe 2 -p 1
    plan two.json mixtral gpipe 1 -p 1 --dp 2 --ep 2
    pprun -q one.json --data packed --init 5 --steps 1 --lr 0 --save first
    cp first/latest/model.safetensors equal.safetensors
    # All logits are equal: every token chooses the first two experts of four.
    zero equal.safetensors gate
    for name in one two; do
        rm -rf "$name"
        mkdir "$name"
        "$EMULATED" "$name.json" --data packed --weights equal.safetensors \
            --device cuda --steps 1 --lr 1e-2 --optimizer sgd --aux-loss 0.1 \
            --save "$name/ckpt" --dump-grads "$name/grads" -o "$name/log"
    done
    near 1e-4 two one
    [ "$(jq .expert_load one/log)" = 2 ]
}

@test "a GPU has no replay of routing, no capacity, no small steps in bf16" {
    plan one.json deepseek-v3 gpipe 2 -p 1
    plan kept.json deepseek-v3 gpipe 2 -p 1 --expert-capacity 1.5
    check() {
        run --separate-stderr "$EMULATED" "${1%%:*}" --data packed --init 5 \
            --steps 1 --device cuda "${@:2}"
        [ "$status" -eq 2 ]
        [ "${stderr_lines[0]}" = "pprun: $1" ]
    }
    check 'one.json: --record-routing needs --device cpu' --record-routing routes
    check 'one.json: --bias-rate needs --dtype fp32: bf16 would round its steps away' \
        --bias-rate 0.001 --dtype bf16
    check "kept.json: /mesh/expert_capacity: '1.5', but experts have a capacity \
only with --device cpu; plan without --expert-capacity"
}
