#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# background - checkpoints that are written while the next steps train have the
# bits of those that are not, and do not hold up the steps.

bats_require_minimum_version 1.5.0
load helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    model qwen2-tied true
    eight_heads model-qwen2-tied
    data 1 40 >data.jsonl
    pppack -q -l 64 --cp 2 --tp 2 -o packed data.jsonl
    ppsplit -q -p 2 model-qwen2-tied | ppsched -q -s 1f1b -m 4 >plan.json
    pprun plan.json "${options[@]}" --save ahead -o ahead.log
}

setup() {
    cd "$BATS_FILE_TMPDIR"
    rm -rf beside beside.log gate err
}

teardown() {
    touch gate
    wait
}

options=(-q --data packed --init 5 --lr 1e-2 --steps 7 --save-every 3)

# same_as DIR: compares all files of all checkpoints with those of "beside".
same_as() {
    diff -r "$1" beside
    diff <(numbers "$1.log") <(numbers beside.log)
}

more=()

# held CALL SETTING...: begins a run whose CALLs for the checkpoint of step 3 are
# held, or fail.
held() {
    [ -n "$HOLD_WRITES" ] || skip 'sanitizers must be the first library'
    env LD_PRELOAD="$HOLD_WRITES" PP_HOLD="$1" PP_HOLD_IN=step-00000003.tmp \
        PP_HOLD_GATE="$PWD/gate" "${@:2}" \
        pprun plan.json "${options[@]}" --save beside --save-background \
        -o beside.log "${more[@]}" 2>err 3>&- &
    pid=$!
}

# lines N: waits until the run has reported N steps.
lines() {
    local i
    for ((i = 0; i < 6000; i++)); do
        [ "$(cat beside.log 2>/dev/null | wc -l)" -lt "$1" ] || return 0
        kill -0 "$pid"
        sleep 0.01
    done
    false
}

@test "on every mesh the files are those of a save that training waits for" {
    local row
    while read -r -a row; do
        rm -rf here beside
        plan_row $((8 / ${row[4]#dp})) model-qwen2-tied "${row[@]}" >mesh.json
        pprun mesh.json "${options[@]}" --save here -o here.log \
            --shard-size 9kB --save-dtype bf16
        pprun mesh.json "${options[@]}" --save beside -o beside.log \
            --shard-size 9kB --save-dtype bf16 --save-background
        same_as here
        [ "$(ls beside | wc -l)" -eq 4 ]
        [ -z "${FEWER-}" ] || break
    done <<END
1f1b:1:loop pp2 tp2 cp1 dp2 zero1 gather none
zbv:2:v pp2 tp1 cp1 dp2 zero0 gather none
interleaved:2:loop pp2 tp1 cp1 dp2 zero3 gather none
gpipe:1:loop pp1 tp1 cp2 dp2 zero1 ring none
END
}

@test "processes write it beside training too" {
    needs_mpirun
    ppsplit -q -p 2 --dp 2 --zero 1 model-qwen2-tied |
        ppsched -q -s 1f1b -m 2 >four.json
    pprun four.json "${options[@]}" --save threads -o threads.log
    mpirun --allow-run-as-root --oversubscribe -n 4 pprun four.json \
        --transport mpi "${options[@]}" --save beside --save-background \
        -o beside.log
    same_as threads
}

@test "steps go on while the disk takes the data" {
    held fsync
    lines 5
    [ -d beside/step-00000003.tmp ]
    [ ! -e beside/latest ]
    touch gate
    wait "$pid"
    same_as ahead
}

@test "an update waits until the weights before it are written" {
    held pwrite
    lines 3
    sleep 0.3
    [ "$(wc -l <beside.log)" -eq 3 ]
    touch gate
    wait "$pid"
    same_as ahead
}

@test "a write that fails ends the run" {
    local call number text
    for call in pwrite:28:'cannot write: No space left on device' \
        fsync:5:'cannot sync: Input/output error'; do
        IFS=: read -r call number text <<<"$call"
        rm -rf beside beside.log
        held "$call" PP_HOLD_ERRNO="$number"
        wait "$pid" && status=0 || status=$?
        cat err
        [ "$status" -eq 3 ]
        [[ "$(<err)" == \
            "pprun: beside/step-00000003.tmp/"*".safetensors: $text" ]]
        [ -z "$(ls beside)" ]
    done
}

@test "a stop request completes it first" {
    more=(--steps 100000)
    held fsync
    lines 4
    kill -TERM "$pid"
    sleep 0.1
    touch gate
    wait "$pid" && status=0 || status=$?
    [ "$status" -eq 75 ]
    diff -r ahead/step-00000003 beside/step-00000003
    last=$(tail -n 1 beside.log | jq .step)
    [ "$last" -gt 3 ]
    [ "$(readlink beside/latest)" = "$(printf step-%08d "$last")" ]
    [ -z "$(find beside -name '*.tmp')" ]
    pprun plan.json "${options[@]}" --steps "$last" --save whole -o whole.log
    diff -r whole/latest beside/latest
}

@test "it needs steps to save in" {
    run --separate-stderr pprun plan.json --data packed --init 1 --steps 2 \
        --save beside --save-background
    [ "$status" -eq 2 ]
    [[ "$stderr" == "pprun: --save-background needs --save-every"* ]]
}
