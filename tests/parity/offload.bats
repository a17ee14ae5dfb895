#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# offload - activations that leave for the host and come back give the same bits,
# in the memory of the plan. faults.rows has the faults.

bats_require_minimum_version 1.5.0
load helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    model llama false
    model qwen3-tied true
    model qwen2-moe false
    data 1 60 >data.jsonl
    pppack -q -l 64 --cp 2 --tp 2 -o packed data.jsonl
    data 2 11 | pppack -q -l 64 --cp 2 --tp 2 -o eval
}

setup() { cd "$BATS_FILE_TMPDIR"; }

# offloads MODEL KIND SLOTS SPLIT... [-- OPTION...]: trains a plan with and without
# copies, which leave it with so many slots at most.
offloads() {
    local model=$1 kind=$2 slots=$3 split=()
    shift 3
    while [ $# -gt 0 ] && [ "$1" != -- ]; do
        split+=("$1")
        shift
    done
    shift || true
    ppsplit -q "${split[@]}" "model-$model" >stages.json
    ppsched -q -s "$kind" -m 6 --data packed stages.json >whole.json
    ppsched -q -s "$kind" -m 6 --data packed --max-in-flight "$slots" \
        --offload auto --copy 1 stages.json >plan.json
    ppsched --stats plan.json >stats.json
    jq -e '.host_bytes | max > 0' stats.json
    jq -e --argjson n "$slots" '.peak | max <= $n' stats.json
    # The planned bytes are those of the run, and fewer than without copies.
    pprun --print-memory --data packed --steps 5 plan.json >need.json
    jq -e --slurpfile need need.json '.rank_bytes == [$need[0][].total]
        and .host_bytes == [$need[0][].host]' stats.json
    pprun --print-memory --data packed --steps 5 whole.json |
        jq -e --slurpfile need need.json 'all(.host == 0) and
            (map(.total) | max) > ($need[0] | map(.total) | max)'
    rm -rf whole run
    train whole whole.json --eval eval "$@"
    train run plan.json --eval eval --max-in-flight "$slots" "$@"
    same run whole
}

@test "gpipe" { offloads llama gpipe 2 -p 4; }
@test "1f1b" { offloads llama 1f1b 2 -p 4; }
@test "1f1b of one slot" { offloads qwen3-tied 1f1b 1 -p 3; }
@test "eager-1f1b" { offloads llama eager-1f1b 2 -p 3; }
@test "interleaved" { offloads llama interleaved 4 -p 2 -c 3; }
@test "looped-bfs" { offloads qwen3-tied looped-bfs 5 -p 2 -c 2; }
@test "zb-h1 and zb-h2, whose activations leave at once" {
    local kind
    for kind in zb-h1 zb-h2; do
        ppsplit -q -p 3 model-llama >stages.json
        ppsched -q -s $kind -m 6 stages.json >whole.json
        ppsched -q -s $kind -m 6 -p 3 --export csv | sed -E \
            's/([0-9]+)F([0-9]+)/&,\1OFFLOAD\2/g
            s/([0-9]+)I([0-9]+)/\1RELOAD\2,&/g
            s/([0-9]+)B([0-9]+)/\1RELOAD\2,&/g' >rows.csv
        ppsched -q --csv rows.csv stages.json >plan.json
        rm -rf whole run
        train whole whole.json
        train run plan.json
        same run whole
    done
}
@test "zb-interleaved" { offloads qwen3-tied zb-interleaved 3 -p 2 -c 2; }
@test "hanayo" { offloads llama hanayo 4 -p 2 -c 4 --placement v; }
@test "zbv" { offloads llama zbv 5 -p 4 -c 2 --placement v; }
@test "v-half" { offloads qwen3-tied v-half 3 -p 3 -c 2 --placement v; }
@test "v-min" { offloads llama v-min 3 -p 3 -c 2 --placement v; }
@test "dualpipev" { offloads llama dualpipev 4 -p 2 -c 2 --placement v; }
@test "dualpipe" { offloads llama dualpipe 2 -p 2 --placement both-ways; }
@test "experts" { offloads qwen2-moe 1f1b 2 -p 3; }
@test "recomputation" {
    offloads llama 1f1b 2 -p 4 --recompute selective
    offloads llama gpipe 2 -p 2 --recompute full
}
@test "several passes, in messages of the largest size" {
    offloads llama gpipe 2 -p 2 -- --grad-accum 2 --message-size max
}
@test "ranks of every kind" {
    offloads llama 1f1b 1 -p 2 --dp 2 --tp 2 --zero 3
    offloads llama gpipe 2 -p 2 --cp 2
    offloads qwen2-moe gpipe 2 -p 2 --dp 2 --ep 2
}

@test "--offload-dir keeps activations in files without a name" {
    mkdir -p there
    offloads llama gpipe 2 -p 2 -- --offload-dir there
    [ -z "$(ls -A there)" ]
    run --separate-stderr pprun -q plan.json --data packed --init 1 --steps 1 \
        --offload-dir none
    [ "$status" -eq 3 ]
    [[ $stderr == 'pprun: none: a rank needs '*' of the host: No such file or directory' ]]
}

@test "a profile has the time of copies, made for it or those of the plan" {
    local name seconds
    ppsplit -q -p 2 model-llama | ppsched -q -s gpipe -m 6 >plain.json
    ppsched -q --max-in-flight 2 --offload auto --copy 1 -s gpipe -m 6 \
        -o away.json plain.json
    for name in plain away; do
        pprun -q $name.json --data packed --init 1 --steps 4 --profile $name.costs
        jq -e '.copies.seconds_per_byte > 0' $name.costs
    done
    # Plans take it from there, and pprun expects the same step.
    ppsplit -q -p 2 --costs away.costs model-llama | ppsched -q -s gpipe -m 6 \
        --data packed --max-in-flight 2 --offload auto -o timed.json
    seconds=$(ppsched --stats timed.json | jq .step)
    ppsched --trace trace.json timed.json
    jq -e '[.traceEvents[] | select(.cat == "copy" and .ph == "X") | .dur] |
        length > 0 and all(. > 0)' trace.json
    pprun -v timed.json --data packed --init 1 --steps 1 2>&1 >log |
        grep -qxF "pprun: the plan expects a step of $(printf '%.9g' "$seconds") s"
}

@test "the trace has the copies, beside the computation" {
    offloads llama gpipe 2 -p 2 -- --trace trace.json
    jq -e '[.traceEvents[] | select(.cat == "copy" and .ph == "X")] |
        length > 8 and all(.dur >= 0)' trace.json
}
