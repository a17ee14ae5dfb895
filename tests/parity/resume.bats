#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Stopped, killed, resumed: the same bits as a run that went through.

bats_require_minimum_version 1.5.0
load helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    model llama false
    model qwen2-tied true
    data 1 60 >data.jsonl
    pppack -l 48 -o packed data.jsonl
    for name in llama qwen2-tied; do
        ppsplit -p 2 "model-$name" | ppsched -s 1f1b -m 4 >"$name.json"
        pprun "$name.json" --data packed --init 5 --steps 12 --lr 1e-2 \
            --lr-schedule cosine --warmup 3 --save "whole-$name" \
            -o "whole-$name.log"
    done
}

setup() { cd "$BATS_FILE_TMPDIR"; }

again() {
    pprun "$1.json" --data packed --init 5 --steps 12 --lr 1e-2 \
        --lr-schedule cosine --warmup 3 --save ckpt --resume ckpt \
        --save-every 1 -q "${@:2}"
}

@test "a run killed again and again ends with the same bits" {
    for name in llama qwen2-tied; do
        rm -rf ckpt
        for i in 1 2 3 4 5 6 7 8; do
            again "$name" >/dev/null 2>err &
            pid=$!
            sleep "0.0$i"
            kill -9 "$pid" 2>/dev/null || true
            wait "$pid" || true
        done
        again "$name" >log
        compare ckpt/latest "whole-$name/latest"
        compare ckpt/latest/optimizer/exp_avg.safetensors.index.json \
            "whole-$name/latest/optimizer/exp_avg.safetensors.index.json"
    done
}

@test "the lines after a resume are those of the whole run" {
    rm -rf ckpt
    again llama --steps 5 --lr-schedule constant >first
    again llama >second
    [ "$(wc -l <second)" -eq 7 ]
    [ "$(head -n 1 second | jq .step)" -eq 6 ]
}

@test "a signal finishes the step, saves, and ends with 75" {
    rm -rf ckpt
    pprun llama.json --data packed --init 5 --steps 100000 --save ckpt \
        >log 2>err &
    pid=$!
    until [ -s log ]; do sleep 0.05; done
    kill -TERM "$pid"
    status=0
    wait "$pid" || status=$?
    [ "$status" -eq 75 ]
    last=$(tail -n 1 log | jq .step)
    [ -d "ckpt/step-$(printf %08d "$last")" ]
}

@test "another number of ranks continues where one stopped" {
    rm -rf ckpt
    ppsplit -p 4 model-qwen2-tied | ppsched -s 1f1b -m 4 >four.json
    again qwen2-tied --steps 12 >/dev/null &
    pid=$!
    until [ -e ckpt/latest ]; do sleep 0.02; done
    kill -9 "$pid"
    wait "$pid" || true
    cp four.json qwen2-four.json
    again qwen2-four >log
    compare ckpt/latest whole-qwen2-tied/latest
}

@test "a checkpoint of other data or another step size is refused" {
    rm -rf ckpt
    again llama --steps 12 >/dev/null
    pppack -l 64 -o other data.jsonl
    run --separate-stderr again llama --steps 14 --data other
    [ "$status" -eq 2 ]
    [[ "$stderr" == *"was made with other data"* ]]
    run --separate-stderr again llama --steps 14 --accumulate 2
    [ "$status" -eq 2 ]
    [[ "$stderr" == *"was made with 4 microbatches x 1 passes"* ]]
}

@test "a run that is done has nothing left to do" {
    rm -rf ckpt
    again llama >/dev/null
    run --separate-stderr again llama
    [ "$status" -eq 0 ]
    [ -z "$output" ]
}
