#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# resume - a run that was stopped or killed and then resumed gives the same bits
# as an uninterrupted run.

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

options=(--data packed --init 5 --steps 12 --lr 1e-2 --lr-schedule cosine
    --warmup 3 --save ckpt --resume ckpt --save-every 1 -q)

again() { pprun "$1.json" "${options[@]}" "${@:2}"; }

# kill_when CONDITION MODEL: starts a run, and kills it when the condition holds
# or the run has ended.
kill_when() {
    pprun "$2.json" "${options[@]}" >/dev/null 2>err &
    local pid=$!
    until eval "$1" || ! kill -0 "$pid" 2>/dev/null; do sleep 0.01; done
    kill -9 "$pid" 2>/dev/null || true
    wait "$pid" || true
}

@test "a run killed at any step ends with the same bits" {
    local killed=0 names=(llama qwen2-tied) steps=(1 2 3 5 8 10)
    for name in "${names[@]}"; do
        rm -rf ckpt
        kill_when 'sleep 0.01' "$name"
        for step in "${steps[@]}"; do
            kill_when "[ -e ckpt/step-$(printf %08d "$step") ]" "$name"
            [ -d "ckpt/step-$(printf %08d 12)" ] || killed=$((killed + 1))
        done
        again "$name" >log
        compare ckpt/latest "whole-$name/latest"
        for moment in exp_avg exp_avg_sq; do
            compare "ckpt/latest/optimizer/$moment.safetensors" \
                "whole-$name/latest/optimizer/$moment.safetensors"
        done
    done
    [ "$killed" -gt 0 ]
}

@test "the lines after a resume are those of the whole run" {
    rm -rf ckpt
    again llama --steps 5 --lr-schedule constant >first
    again llama >second
    [ "$(wc -l <second)" -eq 7 ]
    [ "$(head -n 1 second | jq .step)" -eq 6 ]
}

@test "a signal finishes the step, saves, and ends with 75" {
    for signal in TERM USR1; do
        rm -rf ckpt log
        run --separate-stderr bash -c 'pprun llama.json --data packed \
            --init 5 --steps 100000 --save ckpt >log &
            until [ -s log ]; do sleep 0.02; done
            kill -'$signal' $!
            wait $!'
        [ "$status" -eq 75 ]
        last=$(tail -n 1 log | jq .step)
        [[ "$stderr" == "pprun: stopped by SIG$signal after step $last; "* ]]
        [ -d "ckpt/step-$(printf %08d "$last")" ]
    done
}

@test "without --save a signal kills the run, like any program" {
    run --separate-stderr bash -c 'pprun llama.json --data packed \
        --init 5 --steps 100000 >log.unsaved &
        until [ -s log.unsaved ]; do sleep 0.02; done
        kill -TERM $!
        wait $!'
    [ "$status" -eq 143 ]
}

@test "another number of ranks continues where one stopped" {
    rm -rf ckpt
    ppsplit -p 4 model-qwen2-tied | ppsched -s 1f1b -m 4 >four.json
    kill_when '[ -e ckpt/latest ]' qwen2-tied
    cp four.json qwen2-four.json
    again qwen2-four >log
    compare ckpt/latest whole-qwen2-tied/latest
}

# steps FROM LOG...: the losses and norms of the steps from FROM on, in a table.
steps() { jq -c -s --argjson from "$1" \
    'map(select(.step >= $from) | [.step, .loss, .grad_norm])' "${@:2}"; }

# near A B: fails unless the tables have the same steps and nearly equal numbers.
near() {
    jq -n -e --argjson a "$1" --argjson b "$2" '
        ($a | length) > 0 and ($a | map(.[0])) == ($b | map(.[0])) and
        all([$a, $b] | transpose[] | transpose[];
            (.[0] - .[1] | fabs) <= 2e-5 * (.[0] | fabs))'
}

@test "a realigned directory continues a run on a mesh it was not padded for" {
    local o=(--init 5 --lr 1e-2 --save-every 1 -q)
    ppsplit -p 2 --cp 2 --tp 2 model-llama | ppsched -s 1f1b -m 4 >mesh.json
    rm -rf ckpt realigned
    cp -r packed realigned
    pprun llama.json --data packed --steps 8 --save unbroken "${o[@]}" \
        >whole.log
    pprun llama.json --data packed --steps 4 --save ckpt "${o[@]}" >/dev/null
    o+=(--save ckpt --resume ckpt --steps)
    run --separate-stderr pprun mesh.json --data realigned "${o[@]}" 8
    [ "$status" -eq 2 ]
    [[ $stderr == *"; pad it anew with pppack --realign realigned --cp 2 --tp 2" ]]
    pppack --realign realigned --cp 2 --tp 2
    pppack --check realigned
    pprun mesh.json --data realigned "${o[@]}" 8 >log
    near "$(steps 5 log)" "$(steps 5 whole.log)"
    # A run that had this padding from the start.
    pprun mesh.json --data realigned --init 5 --lr 1e-2 --steps 8 -q >start.log
    near "$(steps 5 log)" "$(steps 5 start.log)"
    # Its checkpoints fit the first directory too, and data realigned again:
    # the same tokens, in the same bins and order.
    pprun llama.json --data packed "${o[@]}" 9 >/dev/null
    pppack --realign realigned --pad-to 1 -o again
    cmp again/input_ids packed/input_ids
    cmp again/labels packed/labels
    pprun llama.json --data again "${o[@]}" 10 >/dev/null
    # The moments and the place count.
    pprun mesh.json --data realigned --weights unbroken/step-00000006 --lr 1e-2 \
        --steps 2 -q | jq -c '.step += 6' >anew
    [ "$(jq -s length anew)" -eq 2 ]
    run near "$(steps 7 anew)" "$(steps 7 whole.log)"
    [ "$status" -eq 1 ]
}

@test "resume refuses a checkpoint of other data or another step size" {
    rm -rf ckpt
    again llama --steps 12 >/dev/null
    pppack -l 64 -o other data.jsonl
    run --separate-stderr again llama --steps 14 --data other
    [ "$status" -eq 2 ]
    [[ "$stderr" == *": was made with other data; its weights and moments can go\
 on from the beginning of this; see --new-data" ]]
    run --separate-stderr again llama --steps 14 --grad-accum 2
    [ "$status" -eq 2 ]
    [[ "$stderr" == *": was made with 4 microbatches a step, not 8" ]]
}

@test "new data begins anew, with the moments and the step of the checkpoint" {
    local o=(--lr 1e-2 --resume ckpt -q)
    data 7 30 >new.jsonl
    pppack -q -l 48 -o new new.jsonl
    pprun llama.json --data packed --init 5 --steps 2 --lr 1e-2 --save old \
        -q >/dev/null
    rm -rf ckpt && cp -r old ckpt
    pprun llama.json --data new --new-data --steps 4 --save ckpt "${o[@]}" >log
    [ "$(jq -s -c 'map(.step)' log)" = "[3,4]" ]
    # Its first loss is that of the new data under the checkpoint's weights.
    pprun llama.json --data new --weights old/latest --steps 1 -q |
        jq -e --argjson loss "$(head -n 1 log | jq .loss)" '.loss == $loss'
    # Moments count: a run from the weights alone goes elsewhere.
    pprun llama.json --data new --weights old/latest --steps 2 --lr 1e-2 -q |
        tail -n 1 | jq -e --argjson loss "$(tail -n 1 log | jq .loss)" '.loss != $loss'
    # The new data goes on where a run on it stopped.
    pprun llama.json --data new --new-data --steps 5 --save ckpt "${o[@]}" >after
    rm -rf ckpt && cp -r old ckpt
    pprun llama.json --data new --new-data --steps 5 --save ckpt "${o[@]}" >whole
    diff <(numbers after) <(tail -n 1 whole >last && numbers last)
}

@test "resume refuses a checkpoint of another optimizer or other decay rates" {
    rm -rf ckpt adamw
    again llama --steps 2 --optimizer sgd >/dev/null
    # Without moments the decay rates do not matter.
    again llama --steps 3 --optimizer sgd >/dev/null
    run --separate-stderr again llama
    [ "$status" -eq 2 ]
    [ "$stderr" = "pprun: ckpt/step-00000003: was made with optimizer 'sgd',\
 not 'adamw'; try --optimizer sgd" ]
    rm -rf ckpt
    again llama --steps 2 >/dev/null
    run --separate-stderr again llama --optimizer sgd
    [ "$status" -eq 2 ]
    [[ "$stderr" == *"was made with optimizer 'adamw', not 'sgd';"* ]]
    run --separate-stderr again llama --betas 0.9,0.99
    [ "$status" -eq 2 ]
    [ "$stderr" = "pprun: ckpt/step-00000002: was made with decay rates\
 0.9,0.999, not 0.9,0.99; try --betas 0.9,0.999" ]
    # Settings that moments do not depend on may change. Weights can be read
    # alone.
    again llama --steps 3 --eps 1e-6 --weight-decay 0.1 --clip 2 >/dev/null
    ppscore -q llama.json --data packed --eval packed --resume ckpt |
        jq -e '.val_loss > 0'
}

@test "resuming a finished run does nothing" {
    rm -rf ckpt
    again llama >/dev/null
    run --separate-stderr again llama
    [ "$status" -eq 0 ]
    [ -z "$output" ]
}

@test "a second run into the same directory is refused" {
    rm -rf ckpt log
    pprun llama.json --data packed --init 5 --steps 100000 --save ckpt \
        >log 2>err &
    pid=$!
    until [ -s log ]; do sleep 0.05; done
    run --separate-stderr again llama
    kill -KILL "$pid"
    wait "$pid" || true
    [ "$status" -eq 3 ]
    [ "$stderr" = "pprun: ckpt: another run is writing checkpoints here" ]
}

@test "a note names the settings that a resumed run changes" {
    ppsplit -q -p 1 "$SRCDIR/tests/golden/mixtral/model" |
        ppsched -q -s gpipe -m 4 >experts.json
    go() { pprun experts.json --data packed --save changed --steps "$@" >/dev/null; }
    go 1 --init 5 --router aux=0.3
    [ "$(sed -n 2p changed/latest/optimizer/settings)" = "router \
aux=0.3,z=0,rule=tokens,bias-rate=0,bias-rule=megatron" ]
    run --separate-stderr go 2 --resume changed --router aux=0.3
    [[ $stderr != *'was made with'* ]]
    run --separate-stderr go 3 --resume changed --router z=0.1
    [ "$status" -eq 0 ]
    [[ $stderr == *"changed/step-00000002 was made with aux=0.3, z=0; \
the settings of this run apply from the next step"* ]]
    # A checkpoint without them is not complete.
    rm changed/step-00000003/optimizer/settings
    run -2 --separate-stderr go 4 --resume changed
    [[ $stderr == *"optimizer/settings"* ]]
}
