#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# pppack_rules - the bins of each rule and of other systems.

bats_require_minimum_version 1.5.0
load pack_helpers

# bins WANT OPTION... expects these bins of the file, without blanks.
bins() {
    local want=$1
    shift
    run --separate-stderr pppack --lengths "$@" lengths
    [ "$status" -eq 0 ]
    [ -z "$stderr" ]
    [ "$(tr -d ' ' <<<"$output" | paste -sd ' ')" = "$want" ]
}

# refused MESSAGE OPTION... expects status 2 and that message.
refused() {
    local want=$1
    shift
    run --separate-stderr pppack --lengths "$@" lengths
    [ "$status" -eq 2 ]
    [ -z "$output" ]
    [ "${stderr_lines[0]}" = "pppack: $want" ]
}

@test "each rule makes its bins" {
    lengths 10 50 100 20 80 30 70 40 60 90
    bins '[2] [9,0] [4,3] [6,5] [8,7] [1]' -l 100 -a mffd
    bins '[2] [9,0] [4,3] [6,5] [8,7] [1]' -l 100 -a ffd
    lengths 3 2 4 1
    bins '[2,3] [0,1]' -l 5 -a wfd
    lengths 5 3 2 7
    bins '[0,1,2] [3]' -l 10 -a first-fit
    lengths 4 5 6 7 8
    bins '[4] [3,0] [2,1]' -l 15 -a lpt
    bins '[1,2] [0,3] [4]' -l 12 -a karmarkar-karp
}

@test "--parts sets the number of bins" {
    lengths 4 5 6 7 8
    bins '[1,2] [0,3] [4]' -l 20 -a karmarkar-karp --parts 3
    bins '[4,1,0] [3,2]' -l 20 -a lpt --parts 2
    refused "a bin would hold '17' tokens, but its capacity is 15;\
 try more --parts" -l 15 -a lpt --parts 2
    refused "--parts: '6' bins need as many sequences, but there are 5" \
        -l 20 -a lpt --parts 6
    refused '--parts needs -a lpt or karmarkar-karp, not bfd' \
        -l 20 -a bfd --parts 2
    refused "'5' sequences cannot be divided into 2 parts of equal size" \
        -l 20 -a karmarkar-karp --parts 2 --equal-size
    refused '--equal-size needs -a karmarkar-karp' \
        -l 20 -a lpt --parts 2 --equal-size
    lengths 100 200 150 50 300 250
    bins '[0,2,4] [1,3,5]' -l 600 -a karmarkar-karp --parts 2 --equal-size
}

@test "an error lists the known rules and systems" {
    lengths 1
    refused "-a: 'worst' is not one of: best, bfd, ffd, mffd, wfd, fill,\
 first-fit, first-fit-shuffle, next-fit, lpt, karmarkar-karp, none" -l 4 -a worst
    refused "--compat: 'nemo' is not one of: nemo-rl-ffd, nemo-rl-mffd,\
 nemo-rl-concat, nemo-rl-ffs, trl-bfd, trl-bfd-split, trl-wrapped, automodel-knapsack,\
 megatron-dp-balanced, megatron-rl, torchtune, axolotl, verl-kk, verl-workload" -l 4 --compat nemo
    refused '--compat and -a exclude each other' -l 4 --compat axolotl -a bfd
}

@test "--compat nemo-rl makes the bins of NeMo-RL, and raises their number" {
    lengths 10 20 30 40 50 60 70 80 90
    bins '[8,0] [7,1] [6] [5] [4] [3] [2]' -l 100 --compat nemo-rl-ffd \
        --bins-min 7
    bins '[0] [4] [5] [6] [7] [8] [3] [2] [1]' -l 100 \
        --compat nemo-rl-concat --bins-min 7 --bins-multiple 3
    bins '[8,0] [7,1] [6,2] [5] [4] [3]' -l 100 --compat nemo-rl-mffd \
        --bins-min 6 --bins-multiple 3
    lengths 46 24 55 88 11 14 73 17
    bins '[3,4] [6,5] [2,7,1] [0]' -l 100 --compat nemo-rl-mffd \
        --bins-min 2 --bins-multiple 2
    lengths 900 850 1000 950
    bins '[2] [3] [0] [1]' -l 1024 --compat nemo-rl-mffd --bins-min 2 \
        --bins-multiple 2
    lengths 5 6 7 8 9 10 11 12
    bins '[3] [4,5] [6,7] [0,1,2]' -l 24 --pad-to 4 --compat nemo-rl-mffd \
        --bins-min 2 --bins-multiple 2
    lengths 50 50
    refused "a multiple of '4' bins needs 4 sequences, but there are 2" -l 100 \
        --compat nemo-rl-ffd --bins-multiple 4
    lengths 3 0 2
    refused "nemo-rl-mffd takes no empty sequences, but sequence '1' is empty" \
        -l 100 --compat nemo-rl-mffd
    bins '[0,2,1]' -l 100 --compat nemo-rl-ffd
}

@test "--bins-min makes at least that many bins, balanced" {
    lengths 10 10 10 10
    bins '[0,2] [1,3]' -l 100 --bins-min 2
    bins '[0] [1] [2] [3]' -l 100 --bins-min 3 --bins-multiple 2
    bins '[0,1,2,3]' -l 100 --bins-min 0
    refused "at least '5' bins need as many sequences, but there are 4" \
        -l 100 --bins-min 5
    : >lengths
    refused "at least '2' bins need as many sequences, but there are 0" \
        -l 100 --bins-min 2
}

# rows STRATEGY CAPACITY ROW... prints the packed rows of tokens and the lengths
# of their sequences, as in the tests of TRL.
rows() {
    local strategy=$1 capacity=$2
    shift 2
    rm -rf out
    printf '{"input_ids":%s}\n' "$@" |
        pppack --compat "$strategy" -l "$capacity" -o out
    pppack --check out
    od -An -v -t d4 -w4 out/input_ids | tr -d ' ' | paste -sd,
}

@test "--compat trl makes the rows of TRL" {
    [ "$(rows trl-wrapped 3 '[1,2,3]' '[4,5,6,7]' '[8]')" = 1,2,3,4,5,6,7,8 ]
    [ "$(rows trl-bfd 4 '[1,2,3,4,5]' '[6,7]' '[8,9,10,11]' '[12]')" = \
        1,2,3,4,8,9,10,11,6,7,12 ]
    [ "$(rows trl-bfd 4 '[1,2,3,4,5]' '[6,7]' '[8,9,10]' '[11]')" = \
        1,2,3,4,8,9,10,11,6,7 ]
    [ "$(rows trl-bfd 5 '[1,2,3,4,5]' '[6]' '[7,8,9,10]' '[11,12,13]')" = \
        1,2,3,4,5,7,8,9,10,6,11,12,13 ]
    [ "$(rows trl-bfd-split 4 '[1,2,3,4,5]' '[6,7]' '[8,9,10]' '[11]')" = \
        1,2,3,4,8,9,10,5,6,7,11 ]
    lengths 3 4 0 1
    bins '[[0,0,3]] [[1,0,3]] [[1,3,1],[3,0,1]]' -l 3 --compat trl-wrapped
    bins '[[0,0,3]] [[1,0,3]] [[3,0,1]]' -l 3 --compat trl-bfd
    bins '[[0,0,3]] [[1,0,3]] [[1,3,1],[3,0,1]]' -l 3 --compat trl-bfd-split
    run --separate-stderr pppack --lengths --stats -l 3 --compat trl-wrapped \
        lengths
    [ "$(jq -c '[.algorithm, .bins, .tokens, .split, .empty]' \
        <<<"$output")" = '["trl-wrapped",3,8,1,1]' ]
    refused '--compat trl-bfd and --oversize exclude each other' -l 3 \
        --compat trl-bfd --oversize drop
    refused '--compat trl-wrapped fills bins, so padding is not possible' -l 4 --pad-to 2 \
        --compat trl-wrapped
    refused '--compat trl-bfd excludes --bins-min and --bins-multiple' \
        -l 4 --compat trl-bfd --bins-multiple 2
}

@test "--compat makes the bins of other systems" {
    lengths 3 2 4 1
    bins '[2,3] [0,1]' -l 5 --compat automodel-knapsack
    lengths 3 10 2
    bins '[0,2]' -l 5 --compat automodel-knapsack --oversize drop
    lengths 5 4 3 2 1
    bins '[0] [1,2] [3] [4]' -l 8 --compat megatron-dp-balanced \
        --bins-multiple 2
    # The tail gives up its sequences first, and the first bin may too.
    lengths 1 1 1 5 2 1
    bins '[0,1,2] [3] [4] [5]' -l 5 --compat megatron-dp-balanced \
        --bins-multiple 2
    lengths 4 4 4
    bins '[0,1] [2]' -l 4 --per-rank --cp 2 \
        --compat megatron-dp-balanced --bins-multiple 2
    lengths 6 5 4 3 2
    bins '[0] [1,2] [3,4]' -l 10 --compat megatron-rl
    lengths 5 6 7 8 3
    bins '[3,2] [1,0] [4]' -l 16 --pad-to 4 --compat megatron-rl
    mapfile -t ones < <(yes 1 | head -n 33)
    lengths "${ones[@]}"
    run --separate-stderr pppack --lengths -l 100 --compat megatron-rl lengths
    [ "$(jq -c length <<<"$output" | paste -sd ' ')" = '16 16 1' ]
    lengths 4 1 3 2 1 3 4 5
    bins '[0,1] [2,3] [4,5] [6] [7]' -l 5 --compat torchtune
    lengths 5 7 5 3
    bins '[0,2] [1,3]' -l 10 --compat axolotl
    lengths 4 5 6 7 8
    bins '[1,2] [0,3] [4]' -l 11 --compat verl-kk
    bins '[4] [0,3] [1,2]' -l 11 --compat verl-workload
    refused '--equal-size needs -a karmarkar-karp' -l 11 --parts 1 \
        --compat verl-workload --equal-size
    lengths 7 7 7 7 7 7 7 7
    refused "a bin would hold '14' tokens, but its capacity is 8;\
 try more --parts" -l 8 --compat verl-kk
    bins '[7] [6] [5] [4] [3] [2] [1] [0]' -l 8 --compat verl-kk --parts 8
}

# counts OPTION... prints bins, lower bound, gap and certified.
counts() {
    run --separate-stderr pppack --lengths --stats "$@" lengths
    [ "$status" -eq 0 ]
    jq -c '[.bins, .lower_bound, .gap, .certified]' <<<"$output"
}

@test "best searches if the other rules fail, and proves its result" {
    # The best bins are 10 + 5 + 5 and 8 + 6 + 6; other rules begin with 10 + 8.
    lengths 5 5 6 8 6 10
    [ "$(counts -l 20 -a ffd)" = '[3,2,1,false]' ]
    [ "$(counts -l 20)" = '[2,2,0,true]' ]
    # The sum needs two bins; the search shows that three are needed.
    lengths 35 35 35 35 35
    [ "$(counts -l 100)" = '[3,3,0,true]' ]
    [ "$(counts -l 100 -a none --rows 3 | jq -c '.[3]')" = false ]
    lengths 60 60 40 40
    [ "$(counts -l 100 -a next-fit)" = '[3,2,1,false]' ]
}
