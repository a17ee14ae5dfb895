#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# The kinds at the command line: each on the placement that it needs, on stages
# that branch, and refused on others.

bats_require_minimum_version 1.5.0

setup() { cd "$BATS_TEST_TMPDIR"; }

# branches RANK:INPUTS...: a manifest whose stages have these inputs.
branches() {
    printf '%s\n' "$@" | jq -Rn '[inputs | capture("(?<rank>.*):(?<from>.*)")]
        | { format: "pp-manifest", version: 1,
            mesh: { pp: (map(.rank | tonumber) | max + 1),
                    dp: 1, tp: 1, cp: 1, ep: 1 },
            stages: [ to_entries[] | {
                stage: .key, rank: (.value.rank | tonumber),
                inputs: (.value.from | split(",") | map(tonumber)),
                params: 0, fwd_flops: [0, 0], act_bytes: [0, 0, 0],
                out_bytes: 0, units: [] } ] }'
}

# runs ARGS...: a schedule that is valid at rendezvous and at depth 1.
runs() {
    ppsched -q "$@" >plan.json
    for depth in 0 1; do
        run --separate-stderr ppsched --check --depth "$depth" plan.json
        echo "$stderr"
        [ "$status" -eq 0 ]
        [[ "$output" == valid* ]]
        [ -z "$stderr" ]
    done
}

# refused PATTERN ARGS...: status 2, with a message.
refused() {
    local pattern=$1
    shift
    run --separate-stderr ppsched "$@" </dev/null
    echo "$stderr"
    [ "$status" -eq 2 ]
    [ -z "$output" ]
    [[ "${stderr_lines[0]}" == "ppsched: "*"$pattern"* ]]
}

@test "every kind runs as --list says" {
    ppsched --list >list
    [ "$(grep -c '^[a-z0-9]' list)" -eq "$(grep -c ' needs: ' list)" ]
    for kind in v-half v-min hanayo; do grep -q "^$kind " list; done
    for kind in $(grep -o '^[a-z0-9-]*' list); do
        case $kind in
        interleaved | looped-bfs | zb-interleaved) how='-c 2' ;;
        zbv | v-half | v-min | dualpipev) how='-c 2 --placement v' ;;
        hanayo) how='-c 4 --placement v' ;;
        gpipe | 1f1b | eager-1f1b | zb-h1 | zb-h2) how='-c 1' ;;
        *) continue ;;
        esac
        # shellcheck disable=SC2086
        runs -p 4 $how -m 8 -s "$kind"
        # These stages are the default.
        ppsched -p 4 -m 8 -s "$kind" | jq 'del(.history)' |
            diff <(jq 'del(.history)' plan.json) -
    done
}

@test "v-half and v-min keep half and a third of zbv's memory" {
    run ppsched -p 8 -c 2 --placement v -s zbv -m 24 --stats
    jq -e '.peak | max == 16' <<<"$output"
    run ppsched -p 8 -c 2 --placement v -s v-half -m 24 --stats --cost .5,.5,.5
    jq -e '.makespan == 80.5 and (.peak | max) == 10' <<<"$output"
    run ppsched -p 8 -c 2 --placement v -s v-min -m 24 --stats --cost .5,.5,.5
    jq -e '.makespan == 85.5 and (.peak | max) == 8' <<<"$output"
    run --separate-stderr ppsched -p 8 -c 2 --placement v -s v-half -m 24 \
        --max-in-flight 9
    [ "$status" -eq 1 ]
    refused '2 chunks per rank and placement v' -p 8 -c 2 --placement loop -s v-min -m 8
}

@test "hanayo divides the bubble by its chunks" {
    for c in 2 4 8; do
        run ppsched -p 4 -c $c --placement v -s hanayo -m 16 --stats
        jq -e ".makespan - 48 * $c | . >= 9 and . <= 11" <<<"$output"
    done
    refused '4 chunks per rank and placement v' -p 4 -c 3 --placement v -s hanayo -m 8
}

@test "1f1b with fewer microbatches than ranks is Megatron-LM's" {
    run --separate-stderr ppsched -p 4 -s 1f1b -m 2 --export csv
    [ "$output" = "0F0,0F1,0B0,0B1
1F0,1F1,1B0,1B1
2F0,2F1,2B0,2B1
3F0,3B0,3F1,3B1" ]
}

@test "a group that does not fit is refused with one chunk too" {
    refused '--group' -p 4 -s interleaved -m 8 --group 3
    runs -p 4 -s interleaved -m 8 --group 4
}

@test "encoders of different depth feed one model" {
    branches 0: 1: 2:1 3:0,2 4:3 >image1-audio2.json
    branches 0: 1: 2:1 3: 4:3 5:4 6:0,2,5 7:6 >three.json
    for kind in gpipe looped-bfs 1f1b eager-1f1b zb-h1 zb-h2; do
        for plan in image1-audio2 three; do
            for m in 1 2 8; do runs -s $kind -m $m $plan.json; done
        done
    done
    run ppsched -s 1f1b -m 8 --stats image1-audio2.json
    jq -e '.makespan == 33 and .peak == [3, 4, 3, 2, 1]' <<<"$output"
    for kind in interleaved zb-interleaved hanayo zbv v-half v-min dualpipev; do
        refused "$kind needs a chain, but stage 1" -s $kind -m 8 \
            image1-audio2.json
    done
}

@test "encoders share a rank with each other, or with stages that they feed" {
    branches 0: 0: 1:0,1 2:2 >shared.json
    branches 0: 1: 1:0,1 2:2 >joined.json
    branches 0: 1: 0:0,1 1:2 >twice.json
    for kind in gpipe looped-bfs 1f1b eager-1f1b zb-h1 zb-h2; do
        runs -s $kind -m 8 shared.json
        runs -s $kind -m 8 joined.json
    done
    runs -s gpipe -m 8 twice.json
    refused 'one rank is passed twice' -s 1f1b -m 8 twice.json
}

@test "a plan beyond the limit is refused before it is made" {
    # Each of the three sizes counts.
    local sizes
    for sizes in "-p 2 -m 1000 --slices 32767" "-p 2048 -m 2049 --slices 1" \
        "-p 2 -m 65537 --slices 32"; do
        # shellcheck disable=SC2086 # words
        run timeout 20 ppsched -s seq1f1b --stats $sizes
        [ "$status" -eq 2 ]
        [[ "$output" == "ppsched: "*" stages, "*" microbatches and "*" slices make more than 4194304 forwards, the limit of a plan" ]]
    done
}
