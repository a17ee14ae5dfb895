#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# When memory runs out a program ends with status 3 and one line. The old output
# stays, and the next run removes what is left beside it.

bats_require_minimum_version 1.5.0
load ../parity/helpers

setup() {
    mkdir "$BATS_TEST_TMPDIR/here"
    cd "$BATS_TEST_TMPDIR/here" || return
    [ -n "$REFUSE_MEMORY" ] || skip 'sanitizers must be loaded first'
}

# try NAME OPTION...: runs the program, whose allocations are refused from the
# nth on, for more and more n until they suffice. A file that it changes without
# a failure must not change with one.
try() {
    local name=$1 n=0 refused=0 status stderr
    "$@"
    rm -rf ../old
    cp -r . ../old
    for (( ; n < 1000000; n += n / 16 + 1)); do
        status=0
        LD_PRELOAD="$REFUSE_MEMORY" PP_ALLOCATION="$n" "$@" >../out 2>../err ||
            status=$?
        ((status)) || break
        stderr=$(<../err)
        if ! { ((status == 3)) && [[ "$stderr" == "$name: "*'out of memory' ]] &&
            [[ "$stderr" != *$'\n'* ]] && ! [ -s ../out ] &&
            diff -r -x '*.tmp' . ../old; }; then
            echo "$name, allocation $n: status $status, '$stderr'"
            return 1
        fi
        refused=$((refused + 1))
    done
    echo "$name: $refused runs, the last with $n allocations"
    ((status == 0 && refused > 5))
    "$@"
    [ -z "$(find . -name '*.tmp')" ]
}

@test "ppsched" {
    try ppsched -q -p 4 -s 1f1b -m 8 -o a.json
    try ppsched -q -p 2 --compare all -m 4 -o a.json
    try ppsched -q -p 2 -s zb-h1 -m 4 -t --svg b.svg --trace b.json -o a.txt
    ppsched -q -p 2 -s gpipe -m 4 -o plan.json
    try ppsched -q -s 1f1b -m 4 plan.json -o a.json
}

@test "ppsplit" {
    local model="$SRCDIR/tests/golden/llama/model"
    try ppsplit -q -p 2 --memory 2400K --recompute auto "$model" -o a.json
    try ppsplit -q -p 2 -m 4 --method joint "$model" -o a.json
    try ppsplit -q -p 2 -m 4 --compare all --svg b.svg "$model" -o a.txt
    ppsplit -q -p 2 "$model" -o plan.json
    try ppsplit -q -t --svg b.svg plan.json -o a.txt
    model="$SRCDIR/tests/golden/qwen2.5-vl"
    ppsplit -q -p 2 --encoder-mesh pp=1 "$model" -o plan.json
    try ppsplit -q --combine vision=plan.json,language=plan.json -o a.json
}

@test "pppack" {
    seq 40 | jq -c '{input_ids: [range(. % 9 + 1)]}' >in.jsonl
    ppsplit -q -p 2 "$SRCDIR/tests/golden/llama/model" |
        ppsched -q -s 1f1b -m 4 -o plan.json
    try pppack -q -l 16 --balance flops --manifest plan.json -o data in.jsonl
    try pppack -q --realign data --pad-to 4 -o wide
    try pppack -q --export megatron -o megatron data
    try pppack -q --export safetensors -o data.safetensors data
    try pppack -q -l 16 --stats --svg b.svg -o other megatron.bin
}

@test "pprun with four ranks and checkpoints beside its steps" {
    local n refused=0 status
    # CUDA's runtime, which is in pprun, crashes without memory: this one has none.
    export PP_INJECT=none
    local run=("$BUILDDIR/tests/parity/pprun_inject" -q plan.json --data packed
        --save-every 1 --save-background)
    seq 60 | jq -c '{input_ids: [range(. % 9 + 1)]}' >in.jsonl
    ppsplit -q -p 2 --dp 2 "$SRCDIR/tests/golden/llama/model" |
        ppsched -q -s 1f1b -m 4 -o plan.json
    pppack -q -l 16 --bins-multiple 8 -o packed in.jsonl
    "${run[@]}" --init 5 --steps 6 --save whole -o log
    "${run[@]}" --init 5 --steps 3 --save begun -o log
    for ((n = 0; n < 1000000; n += n / 4 + 1)); do
        rm -rf there
        cp -r begun there
        status=0
        LD_PRELOAD="$REFUSE_MEMORY" PP_ALLOCATION="$n" "${run[@]}" \
            --resume there --steps 6 --save there -o log >out 2>err ||
            status=$?
        ((status)) || break
        echo "allocation $n: status $status, $(<err)"
        ((status == 3))
        [ "$(wc -l <err)" -eq 1 ]
        [[ "$(<err)" == 'pprun'*': '*'out of memory'* ]]
        diff -r begun/step-00000003 there/step-00000003
        # It continues as if nothing had happened.
        "${run[@]}" --resume there --steps 6 --save there -o log
        diff -r whole/step-00000006 there/step-00000006
        refused=$((refused + 1))
    done
    ((status == 0 && refused > 15))
}
