#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# shapes - pprun --message-size: a test for each row of the table in pp-schedules(7),
# and microbatches that are larger than declared.

bats_require_minimum_version 1.5.0
load helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    model llama false
    model qwen3-tied true
    data 1 40 >data.jsonl
    # No bin is full, so padding to the capacity makes a difference.
    pppack -q -l 44 -o packed data.jsonl
    jq -c . data.jsonl | pppack -q -l 132 -a none --rows 3 -o padded -
    data 2 11 >eval.jsonl
    pppack -q -l 60 -o eval eval.jsonl
    ppsplit -q -p 3 model-llama | ppsched -q -s gpipe -m 5 >three.json
}

setup() { cd "$BATS_FILE_TMPDIR"; }

# slots DIR M: prints the tokens of the first M bins, one a line: the second of
# the six u32 of a bin (pp-pack(5)).
slots() {
    local at
    at=$(od -An -t u8 -j 456 -N 8 "$1/index")
    for ((i = 0; i < $2; i++)); do
        od -An -t u4 -j $((at + 24 * i + 4)) -N 4 "$1/index"
    done
}

# messages FILE: prints the messages of a step and their bytes, from the output
# of -v.
messages() {
    sed -n 's/^pprun: a step sends \([0-9]*\) messages of \([0-9]*\) .*/\1 \2/p' \
        "$1"
}

# row DATA M SLICES KIND SPLIT...: all three settings give the same bits, and
# messages of the sizes in the table.
row() {
    local data=$1 m=$2 k=$3 kind=$4 how
    shift 4
    ppsplit -q "$@" | ppsched -q -s "$kind" -m "$m" --slices "$k" >plan.json
    for how in planned exchange max; do
        rm -rf $how
        mkdir $how
        pprun plan.json --data "$data" --init 5 --steps 2 --lr 1e-2 -v \
            --save $how/ckpt --eval eval --dump-grads $how/grads \
            --message-size $how -o $how/log 2>$how/err
    done
    same exchange planned
    same max planned

    # Every microbatch sends the same number of messages for each of k slices.
    # A row is 32 numbers of 4 bytes.
    local n each tokens=0 slot capacity
    n=$(jq -r '.schedule.actions[]' plan.json | grep -o SEND_ | wc -l)
    each=$((n / m / k))
    [ $((each * m * k)) -eq "$n" ]
    while read -r slot; do
        tokens=$((tokens + slot))
    done < <(slots "$data" $((2 * m)) | tail -n "$m")
    capacity=$(od -An -t u4 -j 92 -N 4 "$data/index")
    [ "$(messages planned/err)" = "$n $((each * tokens * 32 * 4))" ]
    [ "$(messages exchange/err)" = "$(messages planned/err)" ]
    [ "$(messages max/err)" = "$n $((n * ((capacity + k - 1) / k) * 32 * 4))" ]
    [ "$(messages max/err)" != "$(messages planned/err)" ]
}

@test "gpipe, 1f1b, eager-1f1b" {
    row packed 5 1 gpipe -p 3 model-llama
    row packed 5 1 1f1b -p 3 model-qwen3-tied
    row packed 5 1 eager-1f1b -p 3 model-llama
}
@test "interleaved, looped-bfs" {
    row packed 4 1 interleaved -p 2 -c 2 model-llama
    row packed 5 1 looped-bfs -p 2 -c 2 model-qwen3-tied
}
@test "backward split: zb-h1, zb-h2, zb-interleaved" {
    row packed 5 1 zb-h1 -p 3 model-llama
    row packed 5 1 zb-h2 -p 2 model-qwen3-tied
    row packed 4 1 zb-interleaved -p 2 -c 2 model-llama
}
@test "V: zbv, v-half, v-min, dualpipev, hanayo" {
    row packed 5 1 zbv -p 2 -c 2 --placement v model-qwen3-tied
    row packed 5 1 v-half -p 2 -c 2 --placement v model-llama
    row packed 5 1 v-min -p 2 -c 2 --placement v model-llama
    row packed 5 1 dualpipev -p 2 -c 2 --placement v model-llama
    row packed 5 1 hanayo -p 2 -c 4 --placement v model-llama
}
@test "slices: seq1f1b, gpipe" {
    row packed 5 3 seq1f1b -p 2 model-llama
    row packed 5 7 gpipe -p 3 model-qwen3-tied
}
@test "copies: dualpipe" {
    row packed 4 1 dualpipe -p 2 --placement both-ways model-llama
}
@test "padded rows" {
    row padded 3 1 1f1b -p 3 model-llama
    row padded 3 4 seq1f1b -p 2 model-llama
}

@test "rendezvous, and channels that hold several messages" {
    for depth in 0 3; do
        ppsplit -q -p 3 model-llama |
            ppsched -q -s gpipe -m 5 --depth $depth >deep.json
        for how in planned exchange max; do
            pprun deep.json --data packed --init 5 --steps 2 --message-size $how |
                jq -c '[.loss, .grad_norm]' >"$how-$depth"
        done
    done
    cmp planned-0 exchange-0
    cmp planned-0 max-0
    cmp planned-0 exchange-3
    cmp planned-0 max-3
}

@test "padding costs memory, as planned" {
    pprun three.json --data packed --steps 1 --init 1 --print-memory >small
    pprun three.json --data packed --steps 1 --init 1 --print-memory --message-size exchange |
        cmp small -
    pppack -q -l 2000 -o roomy data.jsonl
    pprun three.json --data roomy --steps 1 --init 1 --print-memory >small
    pprun three.json --data roomy --steps 1 --init 1 --print-memory --message-size max >large
    jq -e --slurpfile s small '[.[].activations, $s[0][].activations] |
        .[0] > .[3] and .[1] > .[4] and .[2] > .[5]' large
}

@test "the padding of a message has no effect" {
    for data in packed padded; do
        run --separate-stderr env PP_INJECT=padding \
            "$BUILDDIR/tests/parity/pprun_inject" --verify --init 1 \
            --data "$data" --message-size max three.json
        echo "$output"
        [ "$status" -eq 0 ]
        [ -z "$stderr" ]
    done
}

# refuses FAULT STATUS TEXT ARGS...: the run fails with one line, before any
# step.
refuses() {
    local fault=$1 want=$2 text=$3
    shift 3
    run --separate-stderr env PP_INJECT="$fault" timeout 200 \
        "$BUILDDIR/tests/parity/pprun_inject" --data packed --init 1 \
        --steps 1 "$@" three.json
    echo "status $status: $output $stderr"
    [ "$status" -eq "$want" ]
    [ -z "$output" ]
    # shellcheck disable=SC2053
    [[ "$stderr" == $text ]]
}

@test "a microbatch larger than declared, in the index of every rank" {
    for how in planned exchange max; do
        refuses bins-too-large 2 "pprun: microbatch 2: rank 0: bin 2 has 51\
 tokens, but the plan has room for 44" --message-size $how
    done
}

@test "a microbatch larger than declared, in the index of one rank" {
    for how in planned exchange max; do
        refuses bin-too-large 2 "pprun: microbatch 2: rank 2: bin 2 has 51\
 tokens, but the plan has room for 44" --message-size $how
    done
}

@test "a message larger than planned" {
    bytes=$(($(slots packed 3 | tail -n 1) * 32 * 4))
    refuses bin-smaller 3 "pprun: microbatch 2: rank 2: forward message from\
 rank 1 has $bytes bytes, expected $((bytes - 1024))"
    refuses bin-smaller 3 "pprun: microbatch 2: rank 2: the message from rank 1\
 has $bytes bytes, but by the index it has $((bytes - 1024))" \
        --message-size exchange
}

@test "padded rows train the same as packed ones" {
    for way in "44" "132 -a none --rows 3" "44 -a none --rows 1"; do
        # shellcheck disable=SC2086
        {
            m=$(pppack -q -l $way --stats data.jsonl | jq .bins)
            rm -rf p
            pppack -q -l $way -o p data.jsonl
        }
        ppsplit -q -p 2 model-qwen3-tied | ppsched -q -s 1f1b -m "$m" |
            pprun --data p --init 5 --steps 1 --dtype fp64 --message-size max \
                --dump-grads "grads-${way// /}" -o "log-${way// /}"
    done
    for way in "132-anone--rows3" "44-anone--rows1"; do
        "$BUILDDIR/tests/golden/compare_tensors" 1e-6 1e-9 "grads-$way" grads-44
        paste <(jq '.loss, .grad_norm, .tokens' "log-$way") \
            <(jq '.loss, .grad_norm, .tokens' log-44) |
            awk '($1 - $2) ^ 2 > 1e-24 * $2 ^ 2 { bad = 1 }
                END { exit bad || NR != 3 }'
    done
}

@test "the verification compares padded rows with unpadded ones" {
    for how in planned max; do
        pprun --verify --data padded --init 1 --message-size $how three.json >table
        pprun --verify --data padded --init 1 --dtype fp64 --message-size $how \
            three.json >table
    done
}
