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
        more=(--optimizer sgd --router "aux=0.3,z=0.2,rule=$rule,bias-rate=0.01")
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
    gpu one one.json --optimizer sgd --router aux=0.3
    plan lanes.json deepseek-v2 1f1b 1 -p 2 --dp 2 --ep 2
    gpu ranks lanes.json --optimizer sgd
    cpu host lanes.json --optimizer sgd
    near 1e-4 ranks host
    plan parts.json mixtral 1f1b 2 -p 2 --cp 2 --ep 2 --recompute selective
    plan tensors.json mixtral gpipe 2 -p 1 --tp 2
    for plan in parts tensors; do
        PP_EMULATED_JITTER=2 gpu ranks $plan.json --optimizer sgd --router aux=0.3
        near 1e-4 ranks one
        losses ranks one
    done
}

@test "whole experts on ranks of parts of tensors" {
    while read -r family split; do
        echo "# $family"
        plan one.json $family gpipe 2 -p 1
        gpu one one.json --optimizer sgd --router aux=0.3,z=0.2
        # shellcheck disable=SC2086
        plan whole.json $family $split --experts-over-tp
        PP_EMULATED_JITTER=2 gpu ranks whole.json --optimizer sgd \
            --router aux=0.3,z=0.2
        near 1e-4 ranks one
        losses ranks one
    done <<END
mixtral 1f1b 2 -p 2 --tp 2 --ep 2 --recompute selective
deepseek-v3 gpipe 1 -p 1 --tp 2 --dp 2 --ep 4 --zero 3
gpt-oss 1f1b 2 -p 2 --tp 2 --ep 2
END
}

@test "the host keeps rows of experts for microbatches in flight, as planned" {
    local kind
    for kind in gpipe 1f1b; do
        plan $kind.json deepseek-v2 $kind 4 -p 2 --dp 2 --ep 2 --device cuda
        "$EMULATED" --print-memory --device cuda --data packed $kind.json |
            jq '[.[] | .host * 2] | add' >host.$kind
        ppsched --stats $kind.json |
            jq -e --argjson host "$(cat host.$kind)" \
                '[.host_bytes[] * 2] | add == $host'
        PP_EMULATED_COUNTS=counts gpu $kind $kind.json --optimizer sgd
        sed -n 's/^locked //p' counts >locked.$kind
    done
    same gpipe 1f1b
    # Queues and sums have the same page-locked memory in both.
    echo "$(cat host.gpipe host.1f1b locked.gpipe locked.1f1b)"
    [ $(($(cat host.gpipe) - $(cat host.1f1b))) -gt 0 ]
    [ $(($(cat host.gpipe) - $(cat host.1f1b))) -eq \
        $(($(cat locked.gpipe) - $(cat locked.1f1b))) ]
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

# equal PATTERN DATA NAME...: makes a step on plans, of which the first has one
# rank, in which all logits of routers are equal, so that every token chooses the
# first two experts.
equal() {
    local pattern=$1 packed=$2 name
    shift 2
    rm -rf first
    pprun -q "$1.json" --data "$packed" --init 5 --steps 1 --lr 0 --save first
    cp first/latest/model.safetensors equal.safetensors
    zero equal.safetensors "$pattern"
    for name; do
        rm -rf "$name"
        mkdir "$name"
        "$EMULATED" "$name.json" --data "$packed" --weights equal.safetensors \
            --device cuda --steps 1 --lr 1e-2 --optimizer sgd --router aux=0.1 \
            --save "$name/ckpt" --dump-grads "$name/grads" -o "$name/log"
    done
}

@test "all rows of four ranks come to one, in four rounds" {
    local i
    for i in 1 2 3 4; do
        jq -nc "{input_ids: [range(32) | (. * (. + $i) * 3 + $i * 7) % 67]}"
    done >full.jsonl
    pppack -q -l 32 -a none --rows 1 -o full full.jsonl
    plan one.json gpt-oss gpipe 4 -p 1
    plan four.json gpt-oss zb-h1 1 -p 2 --dp 4 --ep 4 --expert-limit 1 \
        --recompute full
    plan whole.json gpt-oss 1f1b 1 -p 2 --dp 4 --ep 4 --expert-limit 4
    equal router full one four whole
    near 1e-4 four one
    near 1e-4 whole one
    [ "$(jq .expert_rounds four/log)" = 4 ]
    [ "$(jq .expert_rounds whole/log)" = 1 ]
}

@test "a rank whose experts get no token" {
    plan one.json mixtral gpipe 2 -p 1
    plan two.json mixtral gpipe 1 -p 1 --dp 2 --ep 2
    equal gate packed one two
    near 1e-4 two one
    [ "$(jq .expert_load one/log)" = 2 ]
}

# dropped A B: fails unless two runs drop the same choices, and some.
dropped() {
    diff <(jq .dropped "$1/log") <(jq .dropped "$2/log")
    jq -es 'all(.[]; .dropped > 10)' "$1/log" >/dev/null
}

# capped FAMILY POLICY SPLIT...: the CPU's gradients with a capacity.
capped() {
    local more=(--expert-capacity 0.5 --expert-drop "$2")
    echo "# $*"
    plan one.json "$1" gpipe 2 -p 1 "${more[@]}"
    cpu host one.json --optimizer sgd --router aux=0.3
    gpu one one.json --optimizer sgd --router aux=0.3
    near 1e-4 one host
    dropped one host
    losses one host
    for split in "${@:3}"; do
        echo "# $split"
        # shellcheck disable=SC2086
        plan ranks.json "$1" $split "${more[@]}"
        PP_EMULATED_JITTER=2 gpu ranks ranks.json --optimizer sgd --router aux=0.3
        near 1e-4 ranks one
        dropped ranks one
        losses ranks one
    done
}

@test "experts with a capacity: the first tokens" {
    capped deepseek-v2 position '1f1b 1 -p 2 --dp 2 --ep 2 --recompute full' \
        'gpipe 2 -p 1 --cp 2 --ep 2 --recompute selective'
    capped gpt-oss position 'gpipe 1 -p 1 --tp 2 --dp 2 --ep 4 --experts-over-tp'
    plan free.json gpt-oss gpipe 2 -p 1
    gpu free free.json --optimizer sgd --router aux=0.3
    run ! near 1e-4 one free
}

@test "experts with a capacity: the most probable tokens" {
    capped deepseek-v3 probs '1f1b 1 -p 2 --dp 2 --ep 2 --recompute full' \
        'gpipe 2 -p 1 --cp 2 --ep 2'
    plan first.json deepseek-v3 gpipe 2 -p 1 --expert-capacity 0.5
    gpu first first.json --optimizer sgd --router aux=0.3
    run ! near 1e-4 one first
}

@test "slices of experts with a capacity" {
    plan one.json mixtral gpipe 2 -p 1 --expert-capacity 0.5
    gpu one one.json --optimizer sgd
    plan sliced.json mixtral seq1f1b 2 -p 2 --expert-capacity 0.5
    gpu sliced sliced.json --optimizer sgd
    near 1e-4 sliced one
    dropped sliced one
}

@test "experts with a capacity in bf16: the same bits on more ranks" {
    for policy in position probs; do
        more=(--expert-capacity 0.7 --expert-drop "$policy")
        plan one.json qwen2-moe gpipe 2 -p 1 "${more[@]}"
        cpu host one.json --optimizer sgd --steps 1
        gpu one one.json --optimizer sgd --steps 1 --dtype bf16
        near 0.2 one host
        plan two.json qwen2-moe zb-h1 2 -p 2 --recompute full "${more[@]}"
        PP_EMULATED_JITTER=3 gpu ranks two.json --optimizer sgd --steps 1 \
            --dtype bf16
        same ranks one
        dropped ranks one
    done
}

@test "experts with padding: no number changes" {
    while read -r policy dtype; do
        more=(--expert-capacity 0.7 --expert-drop "$policy")
        plan plain.json mixtral gpipe 1 -p 1 --dp 2 --ep 2 "${more[@]}"
        plan padded.json mixtral gpipe 1 -p 1 --dp 2 --ep 2 "${more[@]}" \
            --expert-padding
        gpu plain plain.json --dtype $dtype
        PP_EMULATED_JITTER=2 gpu padded padded.json --dtype $dtype
        same padded plain
        dropped padded plain
    done <<END
position fp32
probs bf16
END
    plan parts.json deepseek-v3 1f1b 1 -p 2 --cp 2 --dp 2 --ep 4 \
        --expert-capacity 0.5 --expert-padding --recompute full
    cpu host parts.json --optimizer sgd
    PP_EMULATED_JITTER=2 gpu ranks parts.json --optimizer sgd
    near 1e-4 ranks host
    dropped ranks host
}

@test "experts are recorded and replayed as on the CPU" {
    plan one.json deepseek-v2 gpipe 2 -p 1
    cpu host one.json --optimizer sgd --record-routing routes
    gpu one one.json --optimizer sgd --record-routing again
    cmp routes again
    # Other weights choose other experts, unless these are given.
    plan two.json deepseek-v2 1f1b 1 -p 2 --cp 2 --dp 2 --ep 2 --recompute full
    more=(--init 6 --optimizer sgd --replay-routing routes)
    cpu host one.json "${more[@]}"
    gpu one one.json "${more[@]}" --record-routing again
    near 1e-4 one host
    cmp routes again
    PP_EMULATED_JITTER=2 gpu ranks two.json "${more[@]}" --record-routing again
    near 1e-4 ranks one
    cmp routes again
    gpu own one.json --init 6 --optimizer sgd --record-routing again
    run ! near 1e-4 own one
    run ! cmp routes again
}

# follow PROGRAM NAME PLAN ARGS...: biases of 0.5, and then steps that bf16 would
# round away. Other weights stay.
follow() {
    local program=$1 name=$2 plan=$3 more=(--optimizer sgd --lr 1e-30)
    shift 3
    "$program" "$name-first" "$plan" "${more[@]}" --router bias-rate=0.25 "$@"
    "$program" "$name" "$plan" "${more[@]}" --router bias-rate=1e-4 --steps 10 \
        --resume "$name-first/ckpt" --save-dtype fp32 "$@"
}

@test "biases in bf16 make small steps, on ranks that divide them too" {
    local compare=$BUILDDIR/tests/golden/compare_tensors
    plan one.json deepseek-v3 gpipe 2 -p 1
    plan lanes.json deepseek-v3 gpipe 1 -p 1 --dp 2
    follow cpu host one.json
    follow gpu one one.json --dtype bf16
    "$compare" 1e-6 1e-7 one/ckpt/latest host/ckpt/latest
    run ! "$compare" 1e-6 1e-7 one/ckpt/latest host-first/ckpt/latest
    follow gpu lanes lanes.json --dtype bf16
    "$compare" 0 0 lanes/ckpt/latest one/ckpt/latest
}
