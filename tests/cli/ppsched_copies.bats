#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Two copies of the weights and slices of sequences, from ppsplit through
# ppsched.

bats_require_minimum_version 1.5.0
load ../parity/helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    model llama true
    ppsplit -p 4 --placement both-ways model-llama >split.json
    ppsched -s dualpipe -m 8 split.json >both.json
    ppsplit -p 2 model-llama | ppsched -s seq1f1b -m 4 --slices 4 >sliced.json
}

setup() { cd "$BATS_FILE_TMPDIR"; }

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

@test "dualpipe has its published bubble" {
    run --separate-stderr ppsched -s dualpipe -p 8 -m 20 --stats
    [ "$status" -eq 0 ]
    jq -e '.makespan == 66 and .peak == [range(8) | 9] and .copies == 2 and
        .stages == 16 and .canonical == false and
        .lower_bound <= .makespan' <<<"$output"
    ppsched -s dualpipe -p 8 -m 20 --placement both-ways --stats |
        diff - <(echo "$output")
}

@test "a split both ways holds the units twice" {
    jq -e '(.stages | length) == 8 and
        ([.stages[].rank] == [0, 1, 2, 3, 3, 2, 1, 0]) and
        ([.stages[].copy_of] == [null, null, null, null, 0, 1, 2, 3]) and
        ([.stages[4:][].units] == [.stages[:4][].units]) and
        ([.stages[].inputs] == [[], [0], [1], [2], [], [4], [5], [6]])' split.json
    jq -e 'all(.schedule.actions[]; contains("SYNC_COPIES")) and
        ([.schedule.actions[] | contains("SYNC_TIED")] ==
            [true, false, false, true])' both.json
    run --separate-stderr ppsched --check both.json
    [ "$status" -eq 0 ]
    [ "$output" = "valid, not canonical" ]
}

@test "each microbatch passes through one copy, the first half the first" {
    jq -e '[.schedule.actions[] | scan("([0-9]+)F([0-9]+)(?![0-9.])") |
        [(.[0] | tonumber) >= 4, (.[1] | tonumber) >= 4]] | unique ==
        [[false, false], [true, true]]' both.json
    jq '.schedule.actions |= map(sub("^0F0 "; "0F0 7F0 "))' both.json >bad.json
    fails 1 "*'7F0' is of a microbatch that passes through another copy*" \
        ppsched --check bad.json
    jq '.schedule.actions[1] |= sub(" SYNC_COPIES"; "")' both.json >bad.json
    fails 1 "*rank 1: 'SYNC_COPIES' is missing" ppsched --check bad.json
}

@test "a rank pays for both copies" {
    once=$(ppsplit -p 4 -t model-llama | tail -n 3)
    run ppsplit -p 4 --placement both-ways -t model-llama
    [ "$status" -eq 0 ]
    [[ "${lines[1]}" == "8 stages on 4 ranks both ways,"* ]]
    [[ "$output" != *"$once"* ]]
    # Parameters of embedding and head are on rank 0: weights, gradients and
    # two moments of four bytes.
    bytes=$(jq '[.stages[] | select(.rank == 0).params] | add * 16' split.json)
    run --separate-stderr ppsched --memory 1K both.json --check
    [ "$status" -eq 1 ]
    [[ "$stderr" == *"$((bytes / 1024))."*" of weights, gradients and optimizer"* ]]
}

@test "kinds and splits that cannot go both ways are refused" {
    fails 2 "*an even number of ranks, not '3'" \
        ppsplit -p 3 --placement both-ways model-llama
    fails 2 "*one stage of each copy on a rank, not '2' (-c)" \
        ppsplit -p 2 -c 2 --placement both-ways model-llama
    fails 2 "*no other system places stages both ways" \
        ppsplit -p 2 --placement both-ways --export torchtitan model-llama
    fails 2 "*2 chunks do not work with placement both-ways*" \
        ppsched -s dualpipe -p 4 -c 2 -m 8
    fails 2 "*gpipe runs on one copy of the weights*" \
        ppsched -s gpipe -m 8 split.json
    fails 2 "*use 4 ranks and placement both-ways" \
        ppsched -s dualpipe -p 4 -m 8 --placement loop
    fails 2 "*not 9; try --microbatches 10" \
        ppsched -s dualpipe -m 9 split.json
    fails 2 "*PyTorch's CSV has no copies of the weights" \
        ppsched --export csv both.json
}

@test "slices are recorded, checked and drawn" {
    jq -e '.schedule.slices == 4' sliced.json
    run --separate-stderr ppsched --check sliced.json
    [ "$status" -eq 0 ]
    [ "$output" = "valid, canonical" ]
    run --separate-stderr ppsched -s seq1f1b -p 4 -m 8 --slices 4 --stats
    [ "$status" -eq 0 ]
    jq -e '.makespan == 26.25 and .peak == [1.75, 1.5, 1.25, 1] and
        .slices == 4 and .canonical and .lower_bound == .makespan' <<<"$output"
    run ppsched -s seq1f1b -p 4 -m 8 --slices 4 -t --ascii
    [[ "$output" == *"at most 1.75 slots"* ]]
    run ppsched -s seq1f1b -p 2 -m 2 --slices 2 -t --ascii
    [[ "${lines[2]}" == *"|0.0-0.1-1.0-"* ]]
    [[ "${lines[4]}" == *"3.1: microbatch 3, slice 1"* ]]
    ppsched -s seq1f1b -p 2 -m 2 --slices 2 --svg - >slices.svg
    grep -q '>1\.1</text>' slices.svg
    grep -q 'number: the microbatch and its slice' slices.svg
    ppsched -s seq1f1b -p 2 -m 2 | jq -e '.schedule.slices == 2'
    # A schedule of whole sequences takes the slices out again.
    ppsched -s 1f1b -m 4 sliced.json | jq -e '.schedule | has("slices") | not'
}

@test "every other kind takes slices" {
    local kind
    for kind in 1f1b interleaved hanayo zb-h1 zb-h2 zb-interleaved zbv v-half \
        v-min dualpipev dualpipe; do
        ppsched -q -s "$kind" -p 4 -m 6 --slices 4 | tee plan.json |
            jq -e '.schedule.slices == 4'
        ppsched --check plan.json
    done
    # Seq1F1B is 1f1b, action by action.
    ppsched -s 1f1b -p 4 -m 8 --slices 4 | jq .schedule.actions >one
    ppsched -s seq1f1b -p 4 -m 8 --slices 4 | jq .schedule.actions | diff one -
    # Memory and bubble shrink: 1 + 3 / 8 slots for 4, and no longer than whole.
    ppsched -q -s zb-h1 -p 4 -m 8 --slices 8 --stats |
        jq -e '(.peak | max) == 1.375 and .makespan == 24.375'
    ppsched -q -s interleaved -p 4 -m 8 --slices 8 --stats |
        jq -e '(.peak | max) == 3.125 and .makespan == 49.625'
}

@test "a later slice attends to all before it" {
    jq -n '{format: "pp-manifest", version: 1, mesh: {pp: 2}, stages:
        [range(2) | {stage: ., rank: ., fwd_flops: [0, 1]}]}' >pairs.json
    # Two slices of two tokens have 3 and 7 pairs, F costs those and I 2.5
    # times as many: (3 + 7) + 7 forward, then 17.5 + 17.5 + 7.5.
    run ppsched -s seq1f1b -m 1 --slices 2 --seq-len 4 --stats pairs.json
    jq -e '.makespan == 59.5 and .time == "flops"' <<<"$output"
    # A sequence of three tokens and one of one: 3 pairs, then 3 and 1.
    printf '%s\n' '{"input_ids": [1, 2, 3]}' '{"input_ids": [4]}' |
        pppack -l 4 -o two -
    run ppsched -s seq1f1b -m 1 --slices 2 --data two --stats pairs.json
    jq -e '.makespan == 3 + 4 + 4 + 10 + 10 + 7.5' <<<"$output"
    # Together they cost the same as the whole.
    ppsched -s 1f1b -p 1 -m 3 --stats | jq .makespan >whole
    ppsched -s seq1f1b -p 1 -m 3 --slices 4 --stats | jq .makespan | diff whole -
}

@test "memory shrinks with the slices" {
    ppsplit -p 2 model-llama | ppsched -s 1f1b -m 4 --stats >whole.json
    ppsched --stats sliced.json >parts.json
    jq -e --slurpfile whole whole.json '.peak == [1.25, 1] and
        .peak_bytes[0] < 0.8 * $whole[0].peak_bytes[0]' parts.json
    fails 1 "*rank 0 keeps 1.25 slots alive, 0.25 more than the limit of '1', first at '0F1' (action 8)" \
        ppsched --max-in-flight 1 --check sliced.json
}

@test "slices have parts of a microbatch" {
    ppsched -q -s seq1f1b -p 2 -m 2 --slices 6,4,2 >parts.json
    jq -e '.schedule | .slices == 3 and .slice_parts == [3, 2, 1]' parts.json
    # F takes 3, 2 and 1 sixths of 1, and B as many of 2.
    ppsched --stats parts.json |
        jq -e '(.makespan - 7.5 | fabs) < 1e-9 and (.peak[0] - 5 / 3 | fabs) < 1e-9'
    # Equal parts are slices without parts, and other schedules have none.
    ppsched -q -s seq1f1b -p 2 -m 2 --slices 3 >equal.json
    ppsched -q -s seq1f1b -p 2 -m 2 --slices 2,2,2 >same.json
    diff <(jq .schedule equal.json) <(jq .schedule same.json)
    ppsched -q -s 1f1b -m 2 parts.json |
        jq -e '.schedule | has("slice_parts") | not'
}

# longest N PARTS: prints the largest product of the pairs of a slice, whose
# parts of N tokens are given; the work is the pairs, and TOKENS for each token.
longest() {
    jq -n --argjson n "$1" --argjson parts "[$2]" --argjson by "$3" '
        def work($a; $b): $b * ($b + 1) / 2 - $a * ($a + 1) / 2 + $by * ($b - $a);
        ($parts | add) as $all | [foreach $parts[] as $p (
            {at: 0}; .from = (.at * $n / $all | floor) | .at += $p
            | .to = (.at * $n / $all | floor)) | work(.from; .to)] | max'
}

@test "slices of equal work have the shortest longest slice" {
    local by best now parts
    for by in 0 5 100; do
        jq -n --argjson by "$by" '{format: "pp-manifest", version: 1, mesh: {pp: 2},
            stages: [range(2) | {stage: ., rank: ., fwd_flops: [$by, 1]}]}' >work.json
        ppsched -q -s 1f1b -m 2 --slices 3,work --seq-len 24 work.json >cut.json
        parts=$(jq -r '.schedule.slice_parts | join(",")' cut.json)
        # All ways to cut 24 tokens.
        best=$(jq -n --argjson by "$by" '
            def work($a; $b): $b * ($b + 1) / 2 - $a * ($a + 1) / 2 + $by * ($b - $a);
            [range(1; 23) as $a | range($a + 1; 24) as $b |
                [work(0; $a), work($a; $b), work($b; 24)] | max] | min')
        now=$(longest 24 "$parts" "$by")
        [ "$now" = "$best" ]
        ppsched --stats --seq-len 24 cut.json >by-work
        ppsched -q -s 1f1b -m 2 --slices 3 --seq-len 24 --stats work.json >equal
        jq -e --slurpfile equal equal '.makespan < $equal[0].makespan' by-work
    done
    # Two short sequences have as much work in each half.
    printf '%s\n' '{"input_ids": [1, 2, 3]}' '{"input_ids": [4, 5, 6]}' |
        pppack -l 6 -o halves -
    ppsched -q -s 1f1b -m 1 --slices 2,work --data halves work.json |
        jq -e '.schedule | .slices == 2 and (has("slice_parts") | not)'
}

@test "invalid uses of slices are refused" {
    fails 2 "ppsched: --slices: 'wor' is not an integer" \
        ppsched -s 1f1b -p 2 -m 4 --slices 4,wor
    fails 2 "ppsched: --slices: '0' is not between 1 and 1073741824" \
        ppsched -s 1f1b -p 2 -m 4 --slices 4,0
    fails 2 "ppsched: --slices: the parts are more than 1073741824 in all" \
        ppsched -s 1f1b -p 2 -m 4 --slices 1,1073741824
    fails 2 "ppsched: --slices: the stages have no costs *; give the parts of slices" \
        ppsched -s 1f1b -p 2 -m 4 --slices 4,work
    fails 2 "*looped-bfs takes whole sequences*" \
        ppsched -s looped-bfs -p 2 -m 4 --slices 2
    fails 2 "*not 9; try --microbatches 10" \
        ppsched -s dualpipe -p 4 -m 9 --slices 2
    fails 2 "ppsched: groups of 3 slices do not fit: a group needs a slice for each of the 4 ranks; try --group 4" \
        ppsched -s interleaved -p 4 -m 6 --slices 4 --group 3
    ppsched -q -s interleaved -p 4 -m 6 --slices 4 --group 5 | ppsched -q --check
    fails 2 "*--slices needs -s" ppsched --check --slices 2 sliced.json
    fails 2 "*'0' is not between 1 and 32767" \
        ppsched -s seq1f1b -p 2 -m 4 --slices 0
    fails 2 "*PyTorch's CSV has no slices" \
        ppsched -s seq1f1b -p 2 -m 4 --slices 2 --export csv
    ppsched -s gpipe -p 2 -m 4 --slices 2 | ppsched --check
}
