#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# power - a power cut at any instant leaves the last checkpoint whole. The disks
# that it may leave are made from a record of what pprun did to files. DRAWS and
# KEEP are larger in the suite slow.

bats_require_minimum_version 1.5.0
load ../parity/helpers

setup_file() {
    # Thousands of small trees are made and removed.
    local memory=/dev/shm
    [ -w "$memory" ] || memory=$BATS_FILE_TMPDIR
    DISKS=$(mktemp -d "$memory/pp-power.XXXXXX")
    export DISKS
    cd "$BATS_FILE_TMPDIR"
    export DRAWS=${DRAWS-2} KEEP=${KEEP-4}
    model llama false
    jq '.num_hidden_layers = 2 | .hidden_size = 8 | .intermediate_size = 8 |
        .num_attention_heads = 2 | .head_dim = 4' model-llama/config.json >config
    mv config model-llama/config.json
    echo '{}' >model-llama/tokenizer_config.json
    data 1 20 >data.jsonl
    pppack -q -l 48 -o packed data.jsonl
    ppsplit -q -p 2 model-llama | ppsched -q -s 1f1b -m 2 >plan.json
}

teardown_file() { rm -rf "$DISKS"; }

setup() {
    [ -n "$RECORD_WRITES" ] || skip 'sanitizers must be the first library'
    cd "$BATS_FILE_TMPDIR"
    rm -rf root record "${DISKS:?}/"*
    mkdir root
}

# recorded COMMAND...: runs it, and appends what it does below root to record.
recorded() {
    LD_PRELOAD=$RECORD_WRITES PP_RECORD=$PWD/record PP_RECORD_ROOT=$PWD/root \
        "$@"
}

# record_train ARGUMENTS...
record_train() {
    recorded pprun plan.json -q --data packed --init 5 --save "$@" >/dev/null
}

cuts() { "$BUILDDIR/tests/power/power_cut" record "$DISKS" ckpt "$@"; }

# resume_all STEPS OPTION...: runs on from the disks that were kept, and demands
# that each comes to the same end from where it must, and that no litter stays.
resume_all() {
    local i=0 least steps=$1
    shift
    while read -r least; do
        pprun plan.json -q --data packed --init 5 --steps "$steps" \
            --save "$DISKS/$i/ckpt" --resume "$DISKS/$i/ckpt" "$@" >log
        [ "$(wc -l <log)" -le $((steps - (least > 0 ? least : 0))) ]
        diff -r "$DISKS/$i/ckpt/latest" root/ckpt/latest
        [ -z "$(find "$DISKS/$i" -name '*.tmp' -o -name owner)" ]
        i=$((i + 1))
    done <"$DISKS/steps"
    [ "$i" -gt 0 ]
}

@test "checkpoints survive a power cut at any instant" {
    record_train root/ckpt --steps 3 --save-every 1
    run cuts "$DRAWS" "$KEEP"
    echo "$output"
    echo "# ${lines[-1]}" >&3
    [ "$status" -eq 0 ]
    resume_all 3
}

@test "so do those that --keep leaves, in files of limited size" {
    local options=(--keep 1 --shard-size 4K)
    record_train root/ckpt --steps 3 --save-every 1 "${options[@]}"
    run cuts "$DRAWS" "$KEEP"
    echo "$output"
    echo "# ${lines[-1]}" >&3
    [ "$status" -eq 0 ]
    resume_all 3 "${options[@]}"
}

@test "so do those that are written while training goes on" {
    local options=(--keep 1 --save-background)
    record_train root/ckpt --steps 6 --save-every 2 "${options[@]}"
    run cuts "$DRAWS" "$KEEP"
    echo "$output"
    echo "# ${lines[-1]}" >&3
    [ "$status" -eq 0 ]
    resume_all 6 --save-every 2 "${options[@]}"
}

@test "a checkpoint takes the place of a damaged one of the same step" {
    record_train root/ckpt --steps 2 --save-every 1
    printf x | dd of=root/ckpt/latest/model.safetensors bs=1 seek=900 \
        conv=notrunc status=none
    # The record does not know of the damage: every checkpoint is whole there.
    record_train root/ckpt --resume root/ckpt --fall-back --steps 3 \
        --save-every 1 2>err
    grep -q exchange record
    run cuts "$DRAWS" "$KEEP"
    echo "$output"
    echo "# ${lines[-1]}" >&3
    [ "$status" -eq 0 ]
}
