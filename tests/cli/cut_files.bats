#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# cut_files - a mapped file that is cut short under a program ends it with one
# message, and loses no checkpoint.

bats_require_minimum_version 1.5.0
load ../parity/helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    model llama false
    data 1 20 | jq -c 'del(.loss_mask)' >data.jsonl
    pppack -q -l 48 -o packed data.jsonl
    pppack -q --export megatron -o m packed
    pppack -q --export safetensors -o arrays.safetensors packed
    ppsplit -q -p 2 model-llama | ppsched -q -s 1f1b -m 4 >plan.json
    pprun -q plan.json --data packed --init 1 --steps 1 --save saved \
        --shard-size 150kB -o log
}

setup() {
    cd "$BATS_FILE_TMPDIR"
    rm -rf out err ckpt
    for name in packed saved m.bin m.idx arrays.safetensors \
        model-llama; do
        rm -rf "kept-$name"
        cp -r "$name" "kept-$name"
    done
}

teardown() {
    cd "$BATS_FILE_TMPDIR"
    [ -z "${pid-}" ] || kill -KILL "$pid" 2>/dev/null || true
    for name in packed saved m.bin m.idx arrays.safetensors \
        model-llama; do
        rm -rf "$name"
        mv "kept-$name" "$name"
    done
}

# emptied FILE COMMAND...: runs the command, which empties the file when it maps it.
emptied() {
    local kept
    kept=$(mktemp)
    cp "$1" "$kept"
    run --separate-stderr env PP_CUT="/$1" LD_PRELOAD="$CUT_MAPPED" "${@:2}"
    cp "$kept" "$1"
    echo "$1: ${*:2}: $status: $stderr"
    [ "$status" -eq 3 ]
    [ "$stderr" = "$2: $PWD/$1: was cut short, or cannot be read, while it was in\
 use" ]
    [ -z "$output" ]
}

@test "every mapped file that is cut short is named" {
    [ -n "$CUT_MAPPED" ] || skip 'this build cannot load a library first'
    emptied packed/index pppack --check packed
    emptied packed/labels pppack --check packed
    emptied packed/input_ids pppack -q -l 64 -o out packed
    emptied packed/labels pppack -q --export megatron -o out packed
    emptied m.idx pppack -q -l 64 -o out m
    emptied m.bin pppack -q -l 64 -o out m
    emptied arrays.safetensors pppack -q -l 64 -o out arrays.safetensors
    emptied packed/index ppsched -q --data packed -s gpipe -m 4 plan.json
    emptied model-llama/config.json ppsplit -q -p 2 model-llama
    local train=(pprun -q plan.json --init 1 --steps 1)
    emptied packed/index "${train[@]}" --data packed
    emptied packed/input_ids "${train[@]}" --data packed
    train=(pprun -q plan.json --data packed --steps 2)
    emptied saved/step-00000001/optimizer/state.safetensors "${train[@]}" \
        --resume saved
    emptied saved/step-00000001/model-00001-of-00002.safetensors "${train[@]}" \
        --weights saved/latest/model.safetensors.index.json
    [ ! -e out ]
}

@test "data that are cut short under a run lose no checkpoint" {
    pprun -q plan.json --data packed --init 1 --steps 1000000 --save ckpt \
        --save-every 1 --keep 2 >out 2>err &
    pid=$!
    # --keep removes a step soon after it was saved.
    until [[ $(readlink ckpt/latest) > step-00000002 ]] || ! kill -0 "$pid"; do
        sleep 0.02
    done
    truncate -s 0 packed/input_ids
    local status=0
    wait "$pid" || status=$?
    cat err
    [ "$status" -eq 3 ]
    [ "$(cat err)" = "pprun: $PWD/packed/input_ids: was cut short, or cannot be\
 read, while it was in use" ]
    [ "$(ls -d ckpt/step-????????| wc -l)" -ge 1 ]
    rm -r packed
    cp -r kept-packed packed
    local step
    step=$(readlink ckpt/latest)
    step=$((10#${step#step-} + 1))
    pprun plan.json --data packed --steps "$step" --resume ckpt -q --save ckpt \
        -o log
    [ ! -e "$(echo ckpt/*.tmp)" ]
}

@test "SIGBUS from elsewhere ends a program as it would without a handler" {
    pprun -q plan.json --data packed --init 1 --steps 1000000 >out 2>err &
    pid=$!
    until [ -s out ] || ! kill -0 "$pid"; do sleep 0.02; done
    kill -BUS "$pid"
    local status=0
    wait "$pid" || status=$?
    cat err
    [ "$status" -eq 135 ]
    [ ! -s err ]
}
