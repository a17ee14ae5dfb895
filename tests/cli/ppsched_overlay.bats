#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# ppsched --overlay: a trace against the plan.

bats_require_minimum_version 1.5.0
load ../parity/helpers

setup() { cd "$BATS_TEST_TMPDIR"; }

# plan: zb-h1 over two ranks, and its trace at --cost 1,1,3.
plan() {
    ppsched -q -p 2 -s zb-h1 -m 3 --cost 1,1,3 --trace t.json >plan.json
}

@test "a plan's own trace equals the plan" {
    ppsched -p 3 -c 2 -s interleaved -m 6 --cost 2,3,1,.25 --trace t.json \
        >plan.json
    ppsched --stats --cost 2,3,1,.25 plan.json >stats.json
    ppsched --overlay t.json --cost 2,3,1,.25 plan.json >table
    cat table
    [ "$(awk 'NR > 1 && NF > 4 {print $NF}' table | sort -u | head -n 1)" \
        = 1.000 ]
    # A unit is a millisecond in the trace.
    want=$(jq -r '.at_depth | "\(.makespan / 1000) \(.bubble)"' stats.json)
    awk -v want="$want" '
        $1 == "makespan" { m = $2; s = $3 }
        $1 == "bubble" { b = $2; c = $3 }
        END { split(want, w)
            exit !((m - w[1]) ^ 2 < 1e-12 && (s - w[1]) ^ 2 < 1e-12 &&
                (b - 100 * w[2]) ^ 2 < .01 && b == c) }' table
}

@test "ratios are measured times over planned times" {
    plan
    ppsched --overlay t.json plan.json >table
    cat table
    # 5 units a microbatch and stage were planned as 3: scaled by 5/3.
    [ "$(awk '$1 == "forward" {print $2, $NF}' table)" = '6 0.600' ]
    [ "$(awk '$1 == "input" {print $3, $NF}' table)" = '6 0.600' ]
    [ "$(awk '$1 == "weight" {print $3, $NF}' table)" = '6 1.800' ]
    [ "$(tail -n 1 table)" = \
        'simulated at 0.00166667 seconds per unit, so that all actions together take the measured time' ]
}

@test "both are drawn on one axis" {
    plan
    ppsched --overlay t.json -t --ascii --cost 1,1,1 --svg a.svg plan.json >out
    cat out
    [ "$(grep -c '^rank ' out)" -eq 2 ]
    [ "$(grep -c '^plan ' out)" -eq 2 ]
    # The axis ends with the later of the two.
    [ "$(grep -E '^(rank|plan) ' out | sed 's/|[^|]*$//' | awk '{print length}' |
        sort -u | wc -l)" -eq 1 ]
    xmllint --noout a.svg
    grep -q '>measured, zb-h1: 2 ranks, 2 stages, 3 microbatches<' a.svg
    grep -q '>simulated, zb-h1: ' a.svg
}

@test "the two actions of a pair may overlap, the backward first" {
    model llama false
    ppsplit -q -p 2 -c 2 --placement v model-llama |
        ppsched -q -s dualpipev -m 6 --cost 1,1,1 --trace t.json >plan.json
    n=$(grep -o OVERLAP plan.json | wc -l)
    [ "$n" -gt 0 ]
    # moved MS: starts a pair's backward at once and its forward MS later.
    moved() {
        jq --argjson later "$1" --slurpfile plan plan.json '
            ([$plan[0].schedule.actions | to_entries[] | .key as $rank
                | .value | scan("\\(([^;]*);([^)]*)\\)")
                | {f: "\($rank + 1) \(.[0])", b: "\($rank + 1) \(.[1])"}])
                as $pairs
            | ([.traceEvents[] | select(.ph == "X" and .tid == 1)
                | {key: "\(.pid) \(.name)", value: .ts}] | from_entries) as $ts
            | .traceEvents |= map(if .ph == "X" and .tid == 1
                then "\(.pid) \(.name)" as $key
                    | ($pairs | map(select(.b == $key)) | first) as $b
                    | if any($pairs[]; .f == $key) then .ts += $later * 1000
                      elif $b then .ts = $ts[$b.f] else . end
                else . end)' t.json >moved.json
        ppsched --overlay moved.json --cost 1,1,1 --svg a.svg plan.json \
            >table
        cat table
        run ! grep 'width="-' a.svg
        bubble=$(awk '$1 == "bubble" { print $2 }' table)
    }
    # F takes 1 ms and B 2 ms: one after the other, then 0.5 ms at once.
    want=$(ppsched --stats --cost 1,1,1 plan.json |
        jq '.at_depth.bubble * 100')
    moved 2
    [ "$bubble" = "$(LC_ALL=C printf %.1f%% "$want")" ]
    makespan=$(ppsched --stats --cost 1,1,1 plan.json | jq .at_depth.makespan)
    want=$(awk -v b="$want" -v n="$n" -v m="$makespan" \
        'BEGIN { printf "%.1f%%", b + 100 * n * .5 / (2 * m) }')
    moved 1.5
    [ "$bubble" = "$want" ]
    # Actions outside a pair may not overlap.
    sed 's/"ts":0.000,"dur":1000/"ts":0.000,"dur":1500/' t.json >moved.json
    run --separate-stderr ppsched --overlay moved.json plan.json
    [ "$status" -eq 2 ]
    [[ "$stderr" == *" before '0F0' has ended" ]]
}

@test "traces of pprun are read" {
    model llama false
    data 1 20 >data.jsonl
    pppack -q -l 48 -o packed data.jsonl
    for kind in 1f1b zbv seq1f1b; do
        how=$([ $kind = zbv ] && echo '-c 2 --placement v' || true)
        # shellcheck disable=SC2086 # words
        ppsplit -q -p 2 $how model-llama | ppsched -q -s $kind -m 4 >plan.json
        pprun -q --data packed --init 1 --steps 3 --grad-accum 2 \
            --trace t.json --trace-steps 2 plan.json >/dev/null
        ppsched --overlay t.json --data packed --step 3 plan.json >table
        cat table
        # The last pass, of four.
        jq -r '[.traceEvents[] | select(.ph == "X" and .tid == 1
                and .args.step == 3 and .args.pass == 1)]
            | (map(.ts + .dur) | max) - (map(.ts) | min)' t.json >us
        awk -v us="$(cat us)" '$1 == "makespan" && ($2 * 1e6 / us - 1) ^ 2 < 1e-10 {
            good = 1 } END { exit !good }' table
    done
}

@test "a trace of another plan or step is refused" {
    model llama false
    data 1 20 >data.jsonl
    pppack -q -l 48 -o packed data.jsonl
    ppsplit -q -p 2 model-llama | ppsched -q -s 1f1b -m 4 >plan.json
    ppsplit -q -p 2 --layers 4,2 model-llama | ppsched -q -s 1f1b -m 4 >other.json
    pprun -q --data packed --init 1 --steps 3 --trace t.json plan.json >/dev/null
    run --separate-stderr ppsched --overlay t.json --data packed --step 3 other.json
    [ "$status" -eq 2 ]
    [ "$stderr" = "ppsched: t.json: /otherData/plan: the trace is of a plan with\
 another model, mesh or split" ]
    for step in '' '--step 2'; do
        # shellcheck disable=SC2086 # words
        run --separate-stderr ppsched --overlay t.json --data packed $step plan.json
        [ "$status" -eq 2 ]
        [ "$stderr" = "ppsched: t.json: the trace is of step 3, but the plan is\
 for step $([ -z "$step" ] && echo 1 || echo 2); give --step 3" ]
    done
    # Microbatches of one size are the same in all steps.
    ppsched --overlay t.json plan.json >/dev/null
    # Traces of older versions name no plan.
    jq 'del(.otherData.plan)' t.json >old.json
    ppsched --overlay old.json other.json >/dev/null
    # A simulated trace names its plan too.
    ppsched -q --trace s.json --data packed plan.json
    ppsched --overlay s.json --data packed plan.json >/dev/null
    run -2 ppsched --overlay s.json other.json
}

@test "malformed traces are refused" {
    plan
    # refused FILTER MESSAGE: the trace after the filter gives that message.
    refused() {
        jq "$1" t.json >bad.json
        run --separate-stderr ppsched --overlay bad.json plan.json
        echo "$stderr"
        [ "$status" -eq 2 ]
        [ -z "$output" ]
        [ "${stderr_lines[0]}" = "ppsched: bad.json: $2" ]
        [ "${#stderr_lines[@]}" -eq 1 ]
    }
    at='(.traceEvents | map(.name == "0F1" and .ph == "X") | index(true))'
    n=$(jq "$at" t.json)
    # shellcheck disable=SC2154 # set by run
    refused '[]' "'[...]' is not an object"
    refused 'del(.traceEvents)' "'traceEvents' is missing"
    refused '.traceEvents = {}' "/traceEvents: '{...}' is not an array"
    refused '.traceEvents[3] = 7' "/traceEvents/3: '7' is not an object"
    refused '.traceEvents |= map(select(.ph != "X"))' \
        "/traceEvents: there are no actions"
    refused "del(.traceEvents[$at])" "/traceEvents: rank 0 lacks '0F1'"
    refused ".traceEvents += [.traceEvents[$at]]" \
        "/traceEvents/$(jq '.traceEvents | length' t.json): '0F1' occurs more often than in the schedule"
    refused ".traceEvents[$at].pid = 2" \
        "/traceEvents/$n: rank 1 has no '0F1' in the schedule"
    refused ".traceEvents[$at].pid = 3" \
        "/traceEvents/$n/pid: '3' is not between 1 and 2"
    refused ".traceEvents[$at].name = \"0F1x\"" \
        "/traceEvents/$n/name: '0F1x' is not an action"
    refused ".traceEvents[$at].dur = -1" \
        "/traceEvents/$n/dur: '-1' is not between 0 and 1e+12"
    refused ".traceEvents[$at].ts = \"now\"" \
        "/traceEvents/$n/ts: '\"now\"' is not a number"
    refused ".traceEvents[$at].ts = 0" \
        "/traceEvents: rank 0 starts '0F1' before '0F0' has ended"
    refused 'del(.traceEvents[] | select(.name == "0SEND_F0").args.peer)' \
        "/traceEvents/$(jq '.traceEvents | map(.name == "0SEND_F0") | index(true)' t.json)/args: 'peer' is missing"
    echo '{"traceEvents": [' >bad.json
    run --separate-stderr ppsched --overlay bad.json plan.json
    [ "$status" -eq 2 ]
    [[ "$stderr" == "ppsched: bad.json: line "* ]]
    run --separate-stderr ppsched --overlay nosuch plan.json
    [ "$status" -eq 2 ]
    [[ "$stderr" == *nosuch* ]]
}

@test "options that do not go with an overlay" {
    plan
    for option in --check --stats '--export csv' '--trace x'; do
        # shellcheck disable=SC2086 # words
        run --separate-stderr ppsched --overlay t.json $option plan.json
        [ "$status" -eq 2 ]
        [[ "${stderr_lines[0]}" == *"--overlay"*" exclude each other" ]]
    done
    run --separate-stderr ppsched --overlay t.json --compare 1f1b -m 2 -p 2
    [ "$status" -eq 2 ]
    [ ! -e x ]
}
