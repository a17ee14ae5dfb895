#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Output files: runs at the same time, links in the way, killed runs.

bats_require_minimum_version 1.5.0
load ../parity/helpers

setup() { cd "$BATS_TEST_TMPDIR"; }

plan() { ppsched -q -p 4 -s 1f1b -m "$1" "${@:2}"; }

@test "a link or a file named FILE.tmp is not touched" {
    echo precious >target
    ln -s target a.json.tmp
    plan 4 -o a.json
    [ "$(cat target)" = precious ]
    [ -L a.json.tmp ]
    jq -e .schedule a.json >/dev/null
}

@test "two runs at once leave the whole output of one of them" {
    # The arguments are part of the output.
    plan 8 -o p.json
    grep -v '"args"' p.json >short
    plan 200 -o p.json
    grep -v '"args"' p.json >long
    for ((i = 0; i < 30; i++)); do
        plan 8 -o p.json &
        plan 200 -o p.json &
        wait
        grep -v '"args"' p.json >got
        cmp -s got short || cmp -s got long
    done
    [ -z "$(find . -name '*.tmp')" ]
}

@test "the next run removes the remains of a killed one, and nothing else" {
    local others=(a.json.tmp a.json.1.tmp b.json.0123456789ab.tmp
        a.json.0123456789aX.tmp a.json.ba9876543210.tmp)
    touch a.json.0123456789ab.tmp "${others[@]}"
    mkdir a.json.00000000000a.tmp
    # A live run holds a lock on its file.
    exec 9<a.json.ba9876543210.tmp
    flock 9
    plan 4 -o a.json
    [ ! -e a.json.0123456789ab.tmp ]
    for f in "${others[@]}" a.json.00000000000a.tmp; do
        [ -e "$f" ]
    done
}

@test "a killed run leaves a file, which the next run removes" {
    BATS_FILE_TMPDIR=$PWD set_up_run
    local options=(plan.json --data packed --init 1 -q -o log --trace t.json)
    pprun "${options[@]}" --steps 1000000 &
    for ((i = 0; i < 600; i++)); do
        [ -z "$(find . -name 't.json.*.tmp')" ] || break
        sleep 0.05
    done
    kill -9 $!
    wait $! || [ $? -eq 137 ]
    [ -n "$(find . -name 't.json.*.tmp')" ]
    [ ! -e t.json ]
    pprun "${options[@]}" --steps 1
    [ -e t.json ]
    [ -z "$(find . -name '*.tmp')" ]
}

@test "a file that cannot be written is known before the first step" {
    BATS_FILE_TMPDIR=$PWD set_up_run
    mkdir taken
    local option
    for option in trace dump-grads save logprobs svg; do
        local steps=(--steps 4)
        [ $option != logprobs ] || steps=()
        run --separate-stderr pprun -q plan.json --data packed --init 1 \
            "${steps[@]}" --$option none/file
        echo "$option: $stderr"
        [ "$status" -eq 3 ]
        [ -z "$output" ]
        [ "$stderr" = 'pprun: none/file: No such file or directory' ]
    done
    run --separate-stderr pprun -q plan.json --data packed --init 1 --steps 4 \
        --dump-grads taken
    [ "$status" -eq 3 ]
    [ -z "$output" ]
    [ "$stderr" = 'pprun: taken: Is a directory' ]
}

@test "a file that is opened after a step is no FIFO, which may have no reader" {
    BATS_FILE_TMPDIR=$PWD set_up_run
    mkfifo fifo
    local option
    for option in dump-grads svg; do
        run --separate-stderr timeout -s KILL 20 pprun -q plan.json --data packed \
            --init 1 --steps 4 --save ckpt --$option fifo
        [ "$status" -eq 2 ]
        [ -z "$output" ]
        [ "$stderr" = 'pprun: fifo: a FIFO may have no reader; give a file' ]
    done
}

@test "a disk that is full after the last step takes no checkpoint away" {
    BATS_FILE_TMPDIR=$PWD set_up_run
    run --separate-stderr pprun -q plan.json --data packed --init 1 --steps 2 \
        --save ckpt --dump-grads /dev/full
    [ "$status" -eq 3 ]
    [[ $stderr == 'pprun: '*'/dev/full'*': No space left on device' ]]
    [ "$(readlink ckpt/latest)" = step-00000002 ]
    pprun -q plan.json --data packed --resume ckpt --steps 2
}
