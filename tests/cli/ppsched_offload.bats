#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# OFFLOAD and RELOAD in ppsched. test_sched_offload and test_sched_times have
# the rules and the times.

bats_require_minimum_version 1.5.0

setup() {
    cd "$BATS_TEST_TMPDIR"
    printf '%s\n' 0F0,0F1,0OFFLOAD0,0F2,0F3,0RELOAD0,0B0,0B1,0B2,0B3 \
        1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3 >rows.csv
}

@test "rows with copies are read, written and drawn" {
    ppsched --import rows.csv --copy 1 --trace trace.json --svg rows.svg \
        -o plan.json
    run ppsched --check plan.json
    [ "$output" = 'valid, canonical' ]
    jq -e '.schedule.actions[0] | contains(" 0OFFLOAD0 0F2 ") and
        contains(" 0RELOAD0 0B0 ")' plan.json
    # The trace has a track for each direction, and gives the plan again.
    jq -e '[.traceEvents[] | select(.ph == "M" and .name == "thread_name")
        | .args.name] | index("offload") and index("reload")' trace.json
    jq -e '[.traceEvents[] | select(.name == "0OFFLOAD0" or .name == "0RELOAD0")
        | .tid] | length == 2 and .[0] != .[1]' trace.json
    ppsched --import trace.json | jq .schedule.actions |
        diff - <(jq .schedule.actions plan.json)
    grep -q '<title>0RELOAD0: ' rows.svg
    grep -q 'collective or copy' rows.svg
    ppsched -t --copy 2 --ascii plan.json >rows.txt
    grep -q ' copy ' rows.txt
}

@test "copies cost --copy, and the rank waits where memory must be free" {
    stats() { ppsched --import rows.csv --stats "$@"; }
    stats --copy 0 | jq -e '.makespan == 15 and .peak == [4, 1]'
    stats --copy 1 | jq -e '.makespan == 15'
    # 0F2 waits until 6, and gets its gradient at 12, 3 later than without.
    stats --copy 5 | jq -e '.makespan == 21'
    stats --copy 5,0 | jq -e '.makespan == 21'
    stats --copy 0,5 | jq -e '.makespan == 15'
    run -2 --separate-stderr ppsched --import rows.csv --copy-rate 1GB -t
    [[ "$stderr" == *'the stages have no seconds; give the time of a copy with --copy'* ]]
}

@test "a format without copies refuses them" {
    run -2 --separate-stderr ppsched --import rows.csv --export csv
    [[ "$stderr" == *"PyTorch's CSV has no OFFLOAD and RELOAD" ]]
}

# step ARGS...: the makespan at the channel depth of 8 ranks and 32 microbatches.
step() {
    ppsched -q -p 8 -m 32 --stats "$@" | jq -r '.at_depth.makespan'
}

@test "1f1b takes half its memory and no more time" {
    [ "$(step -s 1f1b)" = 117 ]
    # A forward and a backward take 3, and so may a copy.
    for copy in 0 1 2 2.5 3; do
        [ "$(step -s 1f1b --max-in-flight 4 --offload auto --copy $copy)" = 117 ]
    done
    [ "$(step -s 1f1b --max-in-flight 3 --offload auto --copy 2)" = 117 ]
    # Slower copies cost time; a limit without copies is refused.
    [ "$(step -s 1f1b --max-in-flight 4 --offload auto --copy 4)" -gt 117 ]
    run -1 --separate-stderr ppsched -p 8 -m 32 -s 1f1b --max-in-flight 4
    [[ "$stderr" == *"rank 0 keeps 8 slots alive"* ]]
}

@test "--offload auto keeps to the limit, and adds no needless copies" {
    ppsched -q -p 8 -m 16 -s 1f1b --max-in-flight 4 --offload auto --copy 2 \
        -o plan.json
    [ "$(ppsched --check plan.json)" = 'valid, canonical' ]
    ppsched --stats plan.json | jq -e '.peak | max == 4'
    # The last four ranks fit as they are.
    jq -e '[.schedule.actions[] | contains("OFFLOAD")]
        == [true, true, true, true, false, false, false, false]' plan.json
    ppsched -q -p 8 -m 16 -s 1f1b --max-in-flight 8 --offload auto --copy 2 |
        jq -e '[.schedule.actions[] | contains("OFFLOAD")] | any | not'
    # An order of another program.
    ppsched -p 4 -m 8 -s gpipe --export csv -o gpipe.csv
    ppsched --import gpipe.csv --max-in-flight 3 --offload auto --copy 1 --stats |
        jq -e '.peak | max == 3'
    run -1 --separate-stderr ppsched -p 2 -m 4 -s dualpipe --max-in-flight 1 \
        --offload auto
    [[ "$stderr" == *"has no room for '"*"' even if all other activations are offloaded" ]]
}

@test "-s auto is no slower with copies, and counts them in its bound" {
    local limit=2
    for copy in 0.5 4; do
        with=$(ppsched -q -p 4 -m 8 -s auto --time 0.3 --max-in-flight $limit \
            --offload auto --copy $copy --stats)
        without=$(ppsched -q -p 4 -m 8 -s auto --time 0.3 \
            --max-in-flight $limit --stats)
        jq -ne --argjson a "$with" --argjson b "$without" \
            '$a.at_depth.makespan <= $b.at_depth.makespan
            and $a.lower_bound <= $b.lower_bound
            and ($a.peak | max) <= 2'
    done
    # 1f1b needs 4 slots for 33; without copies two slots take 41.
    ppsched -q -p 4 -m 8 -s auto --time 0.3 --max-in-flight 2 --offload auto \
        --copy 1 --stats | jq -e '.makespan <= 33'
}
