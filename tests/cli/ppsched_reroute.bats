#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# ppsched --without-rank: plans for meshes that have lost ranks.
# test_sched_reroute has the routes and the bound.
# shellcheck disable=SC2154 # run sets stderr

bats_require_minimum_version 1.5.0

setup_file() {
    cd "$BATS_FILE_TMPDIR" || return
    mesh 2 4 -s 1f1b -m 6 >plan.json
    ppsched --without-rank 5 plan.json 2>note >lost.json
}

setup() { cd "$BATS_FILE_TMPDIR" || return; }

# mesh PP DP ARGS...: a plan of equal stages.
mesh() {
    jq -n --argjson pp "$1" --argjson dp "$2" '{format: "pp-manifest",
        version: 1, mesh: {pp: $pp, dp: $dp},
        stages: [range($pp) | {stage: ., rank: .}]}' | ppsched "${@:3}"
}

# fails STATUS PATTERN COMMAND...: one line on stderr, nothing on stdout.
fails() {
    local want=$1 pattern=$2
    shift 2
    run --separate-stderr "$@"
    echo "status $status, stderr: $stderr"
    [ "$status" -eq "$want" ]
    [ -z "$output" ]
    # shellcheck disable=SC2053
    [[ "${stderr_lines[0]}" == $pattern ]]
}

@test "the others of its row do the work of a lost rank" {
    jq -e '.mesh.pp == 7 and .mesh.dp == 1 and (.stages | length) == 12 and
        ([.stages[].rank] == [0,4, 1,4, 1,5, 1,6, 2,5, 3,6])' lost.json
    # Each works on 24 microbatches of a row of three: 8 each.
    jq -e '[.schedule.actions[] | [scan("[0-9]+F[0-9]+(?![0-9<>])")] | length]
        == [6,6,6,6,8,8,8]' lost.json
    # Microbatch k of lane 1 is 4 k + 1; its forwards are on rank 1 alone.
    jq -e '[.schedule.actions[1] | scan("[0-9]+F([0-9]+)(?![0-9<>])")[0] |
        tonumber % 4] | unique == [1]' lost.json
    jq -e 'all(.schedule.actions[]; endswith("SYNC_COPIES"))' lost.json
    run ppsched --check lost.json
    [ "$output" = 'valid, not canonical' ]
    ppsched --stats lost.json | jq -e '.makespan == .lower_bound and
        .at_depth.makespan == .lower_bound and .lower_bound == 25 and
        ([.peak[] <= 2] | all) and .bound_rule == "shared work"'
}

@test "without bubbles the step is 8/7, and less with bubbles to fill" {
    mesh 1 8 -s 1f1b -m 28 >flat.json
    ppsched --without-rank each --json flat.json |
        jq -e '(.without | length) == 8 and
            all(.without[]; .slowdown == 8 / 7 and .gap == 0)'
    mesh 4 8 -s 1f1b -m 8 >bubbles.json
    ppsched --without-rank each --json --max-in-flight 8 --time 0.3 \
        bubbles.json | jq -e '.whole.makespan == 33 and
            (.without | length) == 32 and
            all(.without[]; .slowdown <= 1 and .gap == 0)'
}

@test "each prints a line for every rank" {
    run --separate-stderr ppsched --without-rank each --time 0.1 plan.json
    [ "$status" -eq 0 ]
    [ "${#lines[@]}" -eq 10 ]
    [[ "${lines[1]}" == '  none     -     - '*' 1.0000 '* ]]
    [[ "${lines[7]}" == '     5     1     1 '* ]]
    ppsched --without-rank each --time 0.1 --json plan.json | jq -e '
        [.without[] | [.rank, .row, .lane]] == [range(8) |
            [., (. / 4 | floor), . % 4]]'
    # A rank that cannot hold one microbatch is told, too.
    mesh 1 2 -s 1f1b -m 2 >small.json
    run ppsched --without-rank each --json --memory 1K small.json
    [ "$status" -eq 2 ]
}

@test "several lost ranks, and a picture" {
    ppsched --without-rank 0,5 plan.json -o two.json
    jq -e '.mesh.pp == 6' two.json
    run ppsched --check --semantics rendezvous two.json
    [ "$status" -eq 0 ]
    ppsched -t --ascii --svg lost.svg lost.json >lost.txt
    [ "$(grep -c '^rank' lost.txt)" -eq 7 ]
    grep -q '<title>3F1: ' lost.svg
}

@test "wrong plans are refused with one line" {
    # A microbatch done by two ranks, or twice by one.
    jq '.schedule.actions[5] |= "5RECV_F1 5F1 " + .' lost.json >bad.json
    fails 1 "*'5F1' is of a microbatch that passes through another copy*" \
        ppsched --check bad.json
    jq '.schedule.actions[4] |= sub(" SYNC_COPIES"; " 1F0 SYNC_COPIES")' \
        lost.json >bad.json
    fails 1 "*'1F0' appears a second time" ppsched --check bad.json
    # A message to a rank that is lost, or for which nobody waits.
    jq '.stages[3].rank = 7' lost.json >bad.json
    fails 2 "*/stages/3/rank: '7' is not between 0 and 6" \
        ppsched --check bad.json
    jq '.schedule.actions[1] |= sub("2SEND_F1"; "2SEND_F1>12")' \
        lost.json >bad.json
    fails 2 "*'2SEND_F1>12' is beyond the last stage, 11" \
        ppsched --check bad.json
    # A gradient that is not computed, or not in the sum.
    jq '.schedule.actions[4] |= sub(" 1[WB]0"; "")' lost.json >bad.json
    fails 1 "*1?0*" ppsched --check bad.json
    jq '.schedule.actions[6] |= sub(" SYNC_COPIES"; "")' lost.json >bad.json
    fails 1 "*rank 6: 'SYNC_COPIES' is missing" ppsched --check bad.json
}

@test "plans that cannot go on are refused" {
    fails 1 '*row 1 has lost all 4 of its data-parallel ranks*' \
        ppsched --without-rank 4,5,6,7 plan.json
    fails 2 "*'8' is not one of the plan's 8 ranks" \
        ppsched --without-rank 8 plan.json
    fails 2 "*--without-rank: 'x'*" ppsched --without-rank 1,x plan.json
    fails 2 "*--without-rank: ''*" ppsched --without-rank 1, plan.json
    mesh 2 1 -s 1f1b -m 4 >one.json
    fails 2 '*there are no data-parallel ranks to take its work' \
        ppsched --without-rank 0 one.json
    fails 2 '*the plan has slices' ppsched --without-rank 0 \
        <(mesh 2 2 -s seq1f1b -m 4)
    fails 2 '*the plan has copies of the weights already' \
        ppsched --without-rank 0 lost.json
    fails 2 '*--without-rank*' ppsched --without-rank 0 -s 1f1b -m 2 plan.json
    fails 2 '*each prints a table, and nothing else' \
        ppsched --without-rank each --stats plan.json
    fails 2 '*--json needs --check or --without-rank each' \
        ppsched --without-rank 0 --json plan.json
}
