#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# ppsplit -s auto: the split for the order that ppsched -s auto finds.

bats_require_minimum_version 1.5.0
load split_helpers

setup() {
    cd "$BATS_TEST_TMPDIR"
    llama 11 64000 >model.json
}

# beats M MEMORY ARGS...: passes if no named kind has a shorter step on its own
# split.
beats() {
    local m=$1 memory=$2 tried=0 best said other kind
    shift 2
    set -- "$@" -m "$m" ${memory:+--memory "$memory"}
    ppsplit "$@" --schedule auto -v -o auto.json model.json 2>note
    best=$(makespan auto "$m" ${memory:+--memory "$memory"} auto.json)
    # The note of ppsplit gives the step that ppsched finds.
    grep -q 'ppsplit: auto, ' note
    said=$(sed -n 's/.*a step of \([^ ]*\) .*/\1/p' note)
    holds "$best < $said * (1 + 1e-4) && $said < $best * (1 + 1e-4)"
    for kind in $(ppsched --list | awk '/^[a-z0-9-]+ / && !/^auto/ {print $1}'); do
        # auto takes no slices and no copies.
        case $kind in seq1f1b | dualpipe) continue ;; esac
        ppsplit "$@" --schedule "$kind" -o kind.json model.json 2>/dev/null ||
            continue
        other=$(makespan "$kind" "$m" ${memory:+--memory "$memory"} kind.json)
        echo "$*: $best, $kind $other"
        holds "$best <= $other * (1 + 1e-9)"
        tried=$((tried + 1))
    done
    echo "$*: $tried kinds"
    [ "$tried" -ge 2 ]
}

@test "no named kind has a shorter step" {
    beats 2 '' -p 2
    beats 4 '' -p 2 -c 2
}

@test "no named kind has a shorter step in a V" {
    beats 4 '' -p 2 -c 2 --placement v
}

@test "no named kind has a shorter step within a limit of memory" {
    beats 8 3600M -p 3
    beats 6 4550M -p 2 -c 2 --placement v
}

@test "an order may fit if no named kind does" {
    for memory in 2800M 2600M; do
        for kind in gpipe 1f1b zb-h1; do
            run -1 ppsplit -p 3 -m 8 --memory $memory --schedule $kind model.json
        done
        ppsplit -p 3 -m 8 --memory $memory --schedule auto model.json >plan.json
        ppsched -s auto --time 0.2 -m 8 --memory $memory plan.json >/dev/null
    done
}

@test "auto orders the split of a rule, and refuses what it cannot do" {
    run -0 ppsplit -p 3 -m 4 --schedule auto --method uniform -t model.json
    [[ "$output" == *'A step of 4 microbatches under auto takes '* ]]
    run --separate-stderr ppsplit -p 3 -m 4 --schedule auto --memory 100M model.json
    [ "$status" -eq 1 ]
    [[ "$stderr" == *'more than the limit of 100.00 MiB'* ]]
    run --separate-stderr ppsplit -p 2 --placement both-ways --schedule auto model.json
    [ "$status" -eq 2 ]
    [ "$stderr" = "ppsplit: auto orders whole sequences on one copy of the weights, not slices or copies" ]
    for modes in none,full auto; do
        run --separate-stderr ppsplit -p 2 --schedule auto --memory 8G \
            --recompute $modes model.json
        [ "$status" -eq 2 ]
        [[ "$stderr" == "ppsplit: -s auto needs one mode of --recompute "* ]]
    done
}
