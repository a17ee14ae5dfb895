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

@test "formats and programs without copies refuse them" {
    run -2 --separate-stderr ppsched --import rows.csv --export csv
    [[ "$stderr" == *"PyTorch's CSV has no OFFLOAD and RELOAD" ]]
    run --separate-stderr ppsched --import rows.csv -o plan.json
    [ "$status" -eq 0 ]
    [ "$stderr" = 'ppsched: pprun cannot run this plan: /schedule/actions: OFFLOAD and RELOAD, which pprun does not run so far' ]
}
