#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Output files: runs at the same time, links in the way, killed runs, full disks.

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
    for option in trace dump-grads save svg; do
        run --separate-stderr pprun -q plan.json --data packed --init 1 \
            --steps 4 --$option none/file
        echo "$option: $stderr"
        [ "$status" -eq 3 ]
        [ -z "$output" ]
        [ "$stderr" = 'pprun: none/file: No such file or directory' ]
    done
    run --separate-stderr ppscore -q plan.json --data packed --init 1 \
        --logprobs -o none/file
    [ "$status" -eq 3 ]
    [ "$stderr" = 'ppscore: none/file: No such file or directory' ]
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

# full DIR COMMAND...: runs a command in copies of DIR, on a disk that becomes
# full at its first writes, in the middle and at its last ones. The command ends
# with one line, and leaves only whole files.
full() {
    local from=$1 n k
    shift
    rm -rf whole written
    cp -r "$from" whole
    (cd whole && LD_PRELOAD=$FULL_DISK PP_WRITES=1000000 PP_WRITTEN=../written \
        "$@" >/dev/null)
    n=$(wc -c <written)
    echo "$n writes: $*"
    for k in $(printf '%d\n' 0 1 2 $((n / 2)) $((n - 2)) $((n - 1)) | sort -nu); do
        ((k >= 0 && k < n)) || continue
        rm -rf tried
        cp -r "$from" tried
        cd tried
        LD_PRELOAD=$FULL_DISK PP_WRITES=$k \
            run --separate-stderr "$@"
        cd ..
        echo "after $k writes: $status: $stderr"
        find tried -type f
        [ "$status" -eq 3 ]
        # A run goes on without pictures, and says so in a line of its own.
        stderr=$(grep -v 'no more pictures' <<<"$stderr")
        [ "$(wc -l <<<"$stderr")" -eq 1 ]
        [[ $stderr == *': No space left on device'* ]]
        [ -z "$(find tried -name '*.tmp*')" ]
        # Runs measure times.
        [ "$1" = pprun ] || (cd tried && find . -type f) | while read -r file; do
            cmp "tried/$file" "whole/$file" || cmp "tried/$file" "$from/$file"
        done
    done
}

@test "a full disk leaves whole files, whatever a program writes beside them" {
    [ -n "$FULL_DISK" ] || skip 'sanitizers must be the first library'
    BATS_FILE_TMPDIR=$PWD set_up_run
    jq -c 'del(.loss_mask)' data.jsonl | pppack -q -l 48 -o unmasked
    ppsplit -q -p 2 "$PWD/model-llama" | ppsched -q -s 1f1b -m 4 >plan.json
    model qwen2-moe false
    ppsplit -q -p 2 "$PWD/model-qwen2-moe" | ppsched -q -s 1f1b -m 4 >experts.json
    mkdir empty planned
    cp plan.json planned
    local train=(pprun -q ../plan.json --data ../packed --init 1 --steps 3)
    full empty ppsched -q -p 4 -s 1f1b -m 8 --svg a.svg --trace t.json -o o.json
    full empty ppsched -q --compare 1f1b,gpipe -p 4 -m 8 --svg a.svg -o o
    full empty ppsplit -q -p 2 ../model-llama --svg a.svg -o plan.json
    full empty ppsplit -q -p 2 ../model-llama -m 4 --compare 1f1b,gpipe --svg a.svg -o o
    full empty pppack -q -l 48 --svg a.svg -o packed ../data.jsonl
    full planned pppack -q -l 48 --svg a.svg --manifest plan.json -o packed \
        ../data.jsonl
    full empty pppack -q -l 48 --split 5,3,2 -o parts ../data.jsonl
    full empty pppack -q --export megatron -o out ../unmasked
    full empty pppack -q --export safetensors -o out ../packed
    full empty pppack -q --realign ../packed --cp 4 -o out
    full empty "${train[@]}" --svg a.svg --trace t.json --profile p.json
    full empty "${train[@]}" --svg a.svg --profile p.json --dump-grads g
    ppsplit -q -p 2 "$PWD/model-llama" |
        ppsched -q -s gpipe -m 4 --max-in-flight 2 --offload auto >offload.json
    full empty "${train[@]/plan.json/offload.json}" --offload-dir .
    full empty "${train[@]}" --save ckpt -o log --trace t.json --svg a.svg
    local score=(ppscore -q ../experts.json --data ../packed --init 1)
    full empty "${score[@]}" --record-routing r --logprobs -o l
    full empty "${score[@]}" --logprobs -o o
    full empty "${score[@]}" --generate 2 -o o
}
