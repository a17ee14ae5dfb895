#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# When memory runs out a program ends with status 3 and one line. The old output
# stays, and the next run removes what is left beside it.

bats_require_minimum_version 1.5.0
load ../parity/helpers

setup() {
    cd "$BATS_TEST_TMPDIR"
    [ -n "$REFUSE_MEMORY" ] || skip 'sanitizers must be loaded first'
}

# try OUT NAME OPTION...: runs the program with -o OUT, whose allocations are
# refused from the nth on, for more and more n until they suffice.
try() {
    local out=$1 name=$2 n=0 refused=0
    "$name" "${@:3}" -o "$out"
    cp -r "$out" old
    for (( ; n < 1000000; n += n / 4 + 1)); do
        run --separate-stderr env LD_PRELOAD="$REFUSE_MEMORY" \
            PP_ALLOCATION="$n" "$name" "${@:3}" -o "$out"
        ((status)) || break
        if ! { ((status == 3)) && [[ "$stderr" == "$name: "*'out of memory' ]] &&
            [ -z "$output" ] && diff -r old "$out"; }; then
            echo "$name, allocation $n: status $status, '$stderr'"
            return 1
        fi
        refused=$((refused + 1))
    done
    echo "$name: $refused runs, the last with $n allocations"
    ((status == 0 && refused > 5))
    "$name" "${@:3}" -o "$out"
    [ -z "$(find . -name '*.tmp')" ]
    rm -r old "$out"
}

@test "ppsched" {
    try a.json ppsched -q -p 4 -s 1f1b -m 8
    try a.json ppsched -q -p 2 --compare all -m 4
    try a.txt ppsched -q -p 2 -s zb-h1 -m 4 -t --svg b.svg --trace b.json
}

@test "ppsplit" {
    local model="$SRCDIR/tests/golden/llama/model"
    try a.json ppsplit -q -p 2 --memory 2400K --recompute auto "$model"
    try a.json ppsplit -q -p 2 -m 4 --method joint "$model"
    try a.txt ppsplit -q -p 2 -m 4 --compare all --svg b.svg "$model"
    ppsplit -q -p 2 "$model" >plan.json
    try a.txt ppsplit -q -t --svg b.svg plan.json
}
