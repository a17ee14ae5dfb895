#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# metadata - every rank of a lane is given the same packed sequences, and pprun
# --print-metadata-hash tells.

bats_require_minimum_version 1.5.0
load helpers

lengths=(5 11 8 3 7 12 2 9)

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    model llama false
    for n in "${lengths[@]}"; do
        echo "{\"input_ids\":[$(seq -s, 1 "$n")]}"
    done >data.jsonl
    # Two documents in each bin, padded to the longer of them and to 4.
    pppack -q -l 32 -a none --rows 2 --no-shuffle --cp 2 -o packed data.jsonl
}

setup() { cd "$BATS_FILE_TMPDIR"; }

# add_words WORD...: adds 32-bit little-endian numbers to the FNV-1a in h.
add_words() {
    local word shift
    for word; do
        for shift in 0 8 16 24; do
            h=$(((h ^ (word >> shift & 255)) * 0x100000001b3))
        done
    done
}

# expected BIN...: prints the hash of the sequences of these bins.
expected() {
    h=$((0xcbf29ce484222325))
    local bin a b padded
    for bin; do
        a=${lengths[2 * bin]} b=${lengths[2 * bin + 1]}
        padded=$((((a > b ? a : b) + 3) / 4 * 4))
        add_words 2 0 "$a" $((a + b)) 0 $padded $((2 * padded)) $padded
    done
    printf '%016x\n' $h
}

# hashes KIND M SPLIT...: prints the lines of one step.
hashes() {
    local kind=$1 m=$2
    shift 2
    ppsplit -q --zero 0 "$@" model-llama | ppsched -q -s "$kind" -m "$m" |
        pprun -q --data packed --init 1 --steps 1 --print-metadata-hash |
        jq -c 'select(.hash)'
}

@test "all ranks have one hash, which is that of the sequences" {
    for mesh in '-p 1' '-p 3' '-p 2 --cp 2' '-p 2 --cp 2 --cp-exchange a2a' \
        '-p 2 --tp 2' '-p 1 --tp 4' '-p 2 --cp 2 --tp 2'; do
        # shellcheck disable=SC2086
        hashes 1f1b 4 $mesh >lines
        [ "$(jq -r .hash lines | sort -u)" = "$(expected 0 1 2 3)" ]
    done
    [ "$(jq -c '[.rank, .row, .dp, .cp, .tp, .stages, .step]' lines |
        tail -n 1)" = '[7,1,0,1,1,[1],1]' ]
    hashes zbv 4 -p 2 -c 2 --placement v >lines
    [ "$(jq -r .hash lines | sort -u)" = "$(expected 0 1 2 3)" ]
    [ "$(jq -c .stages lines | head -n 1)" = '[0,3]' ]
}

@test "each replica has the hash of its own microbatches" {
    hashes 1f1b 2 -p 2 --dp 2 >lines
    [ "$(jq -r 'select(.dp == 0).hash' lines | sort -u)" = "$(expected 0 2)" ]
    [ "$(jq -r 'select(.dp == 1).hash' lines | sort -u)" = "$(expected 1 3)" ]
}

@test "a stage that loses the bounds of its sequences is named" {
    ppsplit -q -p 3 model-llama | ppsched -q -s 1f1b -m 4 >three.json
    run -1 --separate-stderr env PP_INJECT=bounds \
        "$BUILDDIR/tests/parity/pprun_inject" -q --data packed --init 1 \
        --steps 1 --print-metadata-hash three.json
    [[ $stderr == *"step 1: rank 1 is given other packed sequences than rank 0" ]]
    [ "$(jq -r 'select(.hash) | .hash' <<<"$output" | sort -u | wc -l)" -eq 2 ]
}

# sliced N: prints the hash of N slices of each microbatch: each has rows of one
# sequence, and the number of its tokens in earlier slices.
sliced() {
    h=$((0xcbf29ce484222325))
    local bin slice a b padded rows start real
    for bin in 0 1 2 3; do
        a=${lengths[2 * bin]} b=${lengths[2 * bin + 1]}
        padded=$((((a > b ? a : b) + 3) / 4 * 4)) rows=$((2 * padded / $1))
        for ((slice = 0; slice < $1; slice++)); do
            start=$((slice * rows % padded))
            real=$(((slice * rows < padded ? a : b) - start))
            real=$((real < 0 ? 0 : real > rows ? rows : real))
            add_words 1 0 $real 0 $rows $rows $((real ? start : 0))
        done
    done
    printf '%016x\n' $h
}

@test "slices have hashes of the sequences in each" {
    local mesh
    for mesh in '-p 2' '-p 2 --tp 2'; do
        for n in 2 4; do
            # shellcheck disable=SC2086
            ppsplit -q $mesh model-llama |
                ppsched -q -s seq1f1b -m 4 --slices $n >s.json
            pprun -q --data packed --init 1 --steps 1 --print-metadata-hash \
                s.json | jq -r 'select(.hash).hash' | sort -u >got
            diff got <(sliced $n)
        done
    done
    run -1 --separate-stderr env PP_INJECT=bounds \
        "$BUILDDIR/tests/parity/pprun_inject" -q --data packed --init 1 \
        --steps 1 --print-metadata-hash s.json
    [[ $stderr == *"is given other packed sequences than rank 0" ]]
}
