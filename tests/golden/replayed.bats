#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# replayed - pprun against transformers whose routers take given experts, as
# --replay-routing gives, or whose experts have a capacity. scripts/gen-routed
# wrote the expected values.

bats_require_minimum_version 1.5.0

setup() {
    GOLDEN=$SRCDIR/tests/golden
    cd "$BATS_TEST_TMPDIR"
    pppack -q -l 48 -o packed "$GOLDEN/data.jsonl"
    bins=$(pppack -l 48 --stats "$GOLDEN/data.jsonl" | jq .bins)
}

# compare FILE: loss, norm and every gradient of a step are those of the files.
compare() {
    jq -e --slurpfile want "$1.json" '$want[0] as $w |
        def near($x; $y): ($x - $y | fabs) <= 1e-10 * $y;
        near(.loss; $w.loss) and near(.grad_norm; $w.grad_norm) and
        .dropped == $w.dropped' \
        steps.jsonl || { cat steps.jsonl "$1.json"; return 1; }
    "$BUILDDIR/tests/golden/compare_tensors" 1e-6 1e-9 grads.safetensors \
        "$1.safetensors"
}

# capped CASE POLICY: compares a step whose experts have a capacity for each
# sequence, on one rank and on four.
capped() {
    local want=$GOLDEN/$1/capped split n
    [ "$2" = position ] || want=$want-$2
    n=$(wc -l <"$GOLDEN/data.jsonl")
    pppack -q -l 200 -a none --rows 1 --no-shuffle --cp 2 -o rows \
        "$GOLDEN/data.jsonl"
    for split in '-p 1' '-p 2 --cp 2 --recompute full'; do
        # shellcheck disable=SC2086
        ppsplit -q $split --expert-capacity "$(jq .factor "$want.json")" \
            --expert-drop "$2" "$GOLDEN/$1/model" | ppsched -q -s 1f1b -m "$n" >plan.json
        pprun -q --data rows --weights "$GOLDEN/$1/model" --steps 1 \
            --dtype fp64 --dump-grads grads.safetensors plan.json >steps.jsonl
        compare "$want"
    done
}

# one_step CASE EXPERTS LAYERS K: compares loss, norm and every gradient of a
# step in fp64 with given experts, on one rank and on two that recompute.
one_step() {
    local want=$GOLDEN/$1/replayed split
    "$BUILDDIR/tests/golden/choose_experts" packed "$2" "$3" "$4" routes
    for split in '-p 1' '-p 2 --recompute full'; do
        # shellcheck disable=SC2086
        ppsplit -q $split "$GOLDEN/$1/model" |
            ppsched -q -s 1f1b -m "$bins" >plan.json
        pprun -q --data packed --weights "$GOLDEN/$1/model" --steps 1 \
            --dtype fp64 --replay-routing routes --record-routing again \
            --dump-grads grads.safetensors plan.json >steps.jsonl
        cmp routes again
        compare "$want"
    done
}

@test "softmax: the experts that are given" { one_step qwen2-moe 5 2 3; }
@test "weights that add up to 1: the experts that are given" {
    one_step qwen3-moe 9 1 2
}
@test "sigmoids in groups: the experts that are given" {
    one_step deepseek-v3 8 1 3
}
@test "logits with biases: the experts that are given" { one_step gpt-oss 8 3 2; }

@test "softmax and a shared expert: the first tokens" {
    capped qwen2-moe position
}
@test "softmax and a shared expert: the most probable tokens" {
    capped qwen2-moe probs
}
@test "sigmoids in groups: the first tokens" { capped deepseek-v3 position; }
@test "sigmoids in groups: the most probable tokens" {
    capped deepseek-v3 probs
}
@test "logits with biases: the first tokens" { capped gpt-oss position; }
@test "logits with biases: the most probable tokens" { capped gpt-oss probs; }

@test "the comparison sees a router that chooses itself" {
    ppsplit -q -p 1 "$GOLDEN/qwen3-moe/model" |
        ppsched -q -s 1f1b -m "$bins" >plan.json
    pprun -q --data packed --weights "$GOLDEN/qwen3-moe/model" --steps 1 \
        --dtype fp64 --dump-grads grads.safetensors plan.json >/dev/null
    run -1 "$BUILDDIR/tests/golden/compare_tensors" 1e-6 1e-9 \
        grads.safetensors "$GOLDEN/qwen3-moe/replayed.safetensors"
}
