#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# mtp - a layer for multi-token prediction: its data, its files, and plans without
# it. multi_token.rows compares splits and meshes, golden.bats transformers.

bats_require_minimum_version 1.5.0
load helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    export MODEL=$SRCDIR/tests/golden/deepseek-mtp/model
    data 1 20 >data.jsonl
    pppack -q -l 64 -o packed data.jsonl
}

setup() { cd "$BATS_FILE_TMPDIR"; }

@test "no document sees the next one" {
    # A bin of many documents has the loss of bins of one each.
    pppack -q -l 64 -a none --rows 1 -o single data.jsonl
    local n name
    for name in packed single; do
        n=$(bins $name)
        ppsplit -q -p 1 --mtp "$MODEL" | ppsched -q -s gpipe -m "$n" >plan.json
        pprun -q plan.json --data $name --init 3 --steps 1 --dtype fp64 \
            --dump-grads $name.grads >$name.log
    done
    "$BUILDDIR/tests/golden/compare_tensors" 1e-6 1e-9 packed.grads single.grads
    jq -se '(.[0].mtp_loss - .[1].mtp_loss | fabs) < 1e-12 and
        .[0].mtp_loss > 1' packed.log single.log
}

@test "files have neither of the copies of embedding and head" {
    ppsplit -q -p 2 --mtp "$MODEL" | ppsched -q -s 1f1b -m 4 >plan.json
    pprun -q plan.json --data packed --init 5 --steps 1 --save saved >/dev/null
    run -1 grep -qa -e layers.2.embed_tokens -e shared_head.head \
        saved/latest/model.safetensors
    grep -qa layers.2.shared_head.norm.weight saved/latest/model.safetensors
}

@test "without its plan the layer is left alone" {
    ppsplit -q -p 2 "$MODEL" | ppsched -q -s 1f1b -m 4 >plan.json
    run --separate-stderr pprun -q plan.json --data packed --weights "$MODEL" \
        --steps 1
    [ "$status" -eq 0 ]
    [ "$(jq 'has("mtp_loss")' <<<"$output")" = false ]
}
