#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# replayed - pprun --replay-routing against transformers whose routers take the
# same experts. scripts/gen-routed wrote the expected values.

bats_require_minimum_version 1.5.0

setup() {
    GOLDEN=$SRCDIR/tests/golden
    cd "$BATS_TEST_TMPDIR"
    pppack -q -l 48 -o packed "$GOLDEN/data.jsonl"
    bins=$(pppack -l 48 --stats "$GOLDEN/data.jsonl" | jq .bins)
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
        jq -e --slurpfile want "$want.json" '$want[0] as $w |
            def near($x; $y): ($x - $y | fabs) <= 1e-10 * $y;
            near(.loss; $w.loss) and near(.grad_norm; $w.grad_norm)' \
            steps.jsonl || { cat steps.jsonl "$want.json"; return 1; }
        "$BUILDDIR/tests/golden/compare_tensors" 1e-6 1e-9 grads.safetensors \
            "$want.safetensors"
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

@test "the comparison sees a router that chooses itself" {
    ppsplit -q -p 1 "$GOLDEN/qwen3-moe/model" |
        ppsched -q -s 1f1b -m "$bins" >plan.json
    pprun -q --data packed --weights "$GOLDEN/qwen3-moe/model" --steps 1 \
        --dtype fp64 --dump-grads grads.safetensors plan.json >/dev/null
    run -1 "$BUILDDIR/tests/golden/compare_tensors" 1e-6 1e-9 \
        grads.safetensors "$GOLDEN/qwen3-moe/replayed.safetensors"
}
