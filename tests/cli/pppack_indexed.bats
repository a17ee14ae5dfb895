#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# pppack_indexed - packs indexed datasets of Megatron.

bats_require_minimum_version 1.5.0
load pack_helpers

# indexed PREFIX LENGTH... writes a dataset of 16-bit ids 1, 2, ... per document.
indexed() {
    local prefix=$1 n at=0
    shift
    for n; do
        # shellcheck disable=SC2046
        little 2 $(seq "$n")
    done >"$prefix.bin"
    {
        printf 'MMIDIDX\0\0'
        little 8 1
        little 1 8
        little 8 $# $(($# + 1))
        little 4 "$@"
        for n; do
            little 8 $at
            at=$((at + 2 * n))
        done
        # shellcheck disable=SC2046
        little 8 $(seq 0 $#)
    } >"$prefix.idx"
}

@test "an indexed dataset gives the same as JSON Lines of its documents" {
    indexed data 5 3 4 2
    documents 5 3 4 2 >data.jsonl
    pppack -l 8 -o want data.jsonl
    for name in data data.idx data.bin 'data.bin data.idx' 'data.idx data.bin'
    do
        # shellcheck disable=SC2086
        run --separate-stderr pppack -q -l 8 -o got $name
        [ "$status" -eq 0 ]
        [ -z "$output" ]
        [ -z "$stderr" ]
        diff -r want got
    done
    pppack --check got
}

@test "indexed datasets and JSON Lines can be mixed" {
    indexed a 5 3
    indexed b 2
    documents 4 >c.jsonl
    documents 5 3 4 2 | pppack -l 8 -o want
    pppack -l 8 -o got a c.jsonl b
    diff -r want got
    documents 5 3 2 | pppack -l 8 -o want
    pppack -l 8 -o got ./*.idx
    diff -r want got
}

@test "damaged datasets are refused before anything is written" {
    indexed data 5 3 4 2
    truncate -s -1 data.bin
    run --separate-stderr pppack -l 8 -o out data
    [ "$status" -eq 2 ]
    [ -z "$output" ]
    [ "$stderr" = "pppack: data.bin: cut short: '27' bytes, but sequence 3 of\
 data.idx ends at 28" ]
    [ ! -e out ]
    [ -z "$(find . -name "out*.tmp")" ]
    indexed data 5 3 4 2
    truncate -s -1 data.idx
    run --separate-stderr pppack -l 8 -o out data
    [ "$status" -eq 2 ]
    [ "$stderr" = "pppack: data.idx: cut short: '121' bytes are too few for 4\
 sequences and 5 document entries" ]
    rm data.idx
    run --separate-stderr pppack -l 8 -o out data.bin
    [ "$status" -eq 2 ]
    [ "$stderr" = 'pppack: data.idx: No such file or directory' ]
    [ ! -e out ]
}

@test "empty and long documents are handled as in JSON Lines" {
    indexed data 10 0 3
    run --separate-stderr pppack -l 4 --oversize split -o out data
    [ "$status" -eq 2 ]
    [ "$stderr" = 'pppack: data.idx: document 1 is empty; try --empty drop' ]
    run --separate-stderr pppack -l 4 --oversize split --empty drop --stats \
        -o out data
    [ "$status" -eq 0 ]
    [ "$(jq -c '[.inputs, .sequences, .tokens, .empty, .split]' \
        <<<"$output")" = '[3,4,13,1,1]' ]
    pppack --check out
}

@test "--modes chooses sequences and counts the others" {
    indexed data 5 3 4 2
    printf '\0\1\0\377' >>data.idx
    run --separate-stderr pppack -l 8 -o out data
    [ "$status" -eq 2 ]
    [ "$stderr" = "pppack: data.idx: sequence 1 has mode '1', so it may not\
 be text; see --modes" ]
    [ ! -e out ]
    documents 5 3 4 2 >all.jsonl
    pppack -l 8 -o want all.jsonl
    pppack -l 8 --modes -1,0,1 -o out data
    diff -r want out
    run --separate-stderr pppack -l 8 --modes 0 --empty drop --stats -o out \
        data.bin
    [ "$status" -eq 0 ]
    [ -z "$stderr" ]
    [ "$(jq -c '[.input_tokens, .tokens, .truncated_tokens, .truncated,
        .empty, .other_modes, .inputs]' <<<"$output")" = '[14,9,5,2,2,2,4]' ]
    run --separate-stderr pppack --check out
    [ "$status" -eq 0 ]
    [ -z "$stderr" ]
    run --separate-stderr pppack -l 8 --modes 0 -o out data
    [ "$status" -eq 2 ]
    [ "$stderr" = "pppack: data.idx: document 1 is empty; try --empty drop" ]
    run --separate-stderr pppack -l 8 --modes 0,x -o out data
    [ "$status" -eq 2 ]
    [ "$stderr" = "pppack: --modes: 'x' is not an integer" ]
}
