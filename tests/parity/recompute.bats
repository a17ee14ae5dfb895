#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# recompute - recomputation gives the same bits in less memory, exactly as much
# as planned.

bats_require_minimum_version 1.5.0
load helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    model llama false
    model qwen3-tied true
    data 1 60 >data.jsonl
    pppack -q -l 48 -o packed data.jsonl
    data 2 11 >eval.jsonl
    pppack -q -l 48 -o eval eval.jsonl
}

setup() { cd "$BATS_FILE_TMPDIR"; }

# plan MODE NAME SCHED... -- SPLIT...: writes plan.json; each stage recomputes.
plan() {
    local mode=$1 name=$2 sched=()
    shift 2
    while [ "$1" != -- ]; do
        sched+=("$1")
        shift
    done
    shift
    ppsplit -q --recompute "$mode" "$@" "model-$name" |
        ppsched -q -m 6 "${sched[@]}" >"plan-$mode.json"
}

# alike MODE NAME SCHED... -- SPLIT...: the mode trains the same bits as none,
# with the same schedule.
alike() {
    local mode=$1
    shift
    plan none "$@"
    plan "$mode" "$@"
    diff <(jq .schedule plan-none.json) <(jq .schedule "plan-$mode.json")
    rm -rf none again
    train none plan-none.json --eval eval
    train again "plan-$mode.json" --eval eval
    same none again
}

@test "1f1b, selective and full" {
    alike selective llama -s 1f1b -- -p 2
    alike full llama -s 1f1b -- -p 2
}
@test "split backwards" {
    alike selective qwen3-tied -s zb-h2 -- -p 2
    alike full qwen3-tied -s zbv -- -p 2 -c 2 --placement v
}
@test "two copies of the weights" {
    alike full llama -s dualpipe -- -p 2 --placement both-ways
}
@test "slices: selective" {
    alike selective qwen3-tied -s seq1f1b --slices 3 -- -p 2
}
@test "slices: full recomputation is refused, with an alternative" {
    ppsplit -q -p 2 --recompute full model-llama >split.json
    run --separate-stderr ppsched -s seq1f1b -m 6 split.json
    [ "$status" -eq 2 ]
    [ "$stderr" = "ppsched: 2 slices: stage 0 recomputes in full, so it \
keeps no keys and values for later slices; use ppsplit --recompute selective" ]
}
@test "fp64 recomputes the same bits" {
    plan full llama -s zb-h1 -- -p 2
    plan none llama -s zb-h1 -- -p 2
    for mode in none full; do
        pprun --data packed --init 5 --steps 3 --dtype fp64 -o "$mode.log" \
            "plan-$mode.json"
    done
    diff <(numbers none.log) <(numbers full.log)
}

@test "each stage of a plan recomputes in its own mode" {
    plan none llama -s zb-h1 -- -p 3 --layers 2,2,2
    ppsplit -q -p 3 --layers 2,2,2 --recompute full,selective,none model-llama |
        ppsched -q -s zb-h1 -m 6 >plan-mixed.json
    [ "$(jq -c '[.stages[].recompute]' plan-mixed.json)" = \
        '["full","selective",null]' ]
    rm -rf none again
    train none plan-none.json
    train again plan-mixed.json
    same none again
    planned mixed
    pprun --verify --data packed --init 5 plan-mixed.json
}

# planned MODE: ppsplit, ppsched and pprun agree on the memory.
planned() {
    ppsched --stats --data packed "plan-$1.json" >stats
    pprun --print-memory --data packed --init 5 --steps 1 "plan-$1.json" >need
    jq -e --slurpfile need need '.rank_bytes == [$need[0][].total] and
        .arena_bytes == [$need[0][] |
            .activations + .messages + .workspace]' stats
}

@test "memory: ppsched plans what pprun allocates, to the byte" {
    for kind in 1f1b zb-h2; do
        for mode in none selective full; do
            plan "$mode" qwen3-tied -s "$kind" -- -p 4
            planned "$mode"
            jq '.[0].activations' need >"$kind-$mode"
        done
        # Rank 0 keeps the most microbatches, so it saves the most.
        [ "$(cat "$kind-selective")" -lt "$(cat "$kind-none")" ]
        [ "$(cat "$kind-full")" -lt "$(cat "$kind-selective")" ]
    done
}

@test "memory: ppsplit allows what pprun needs, and refuses a byte less" {
    for mode in selective full; do
        ppsplit -q -p 2 -m 6 --micro-batch-tokens 48 --recompute "$mode" \
            --method uniform model-llama |
            ppsched -q -s 1f1b -m 6 --data packed >plan.json
        need=$(pprun --print-memory --data packed --init 5 --steps 1 plan.json |
            jq 'map(.total) | max')
        fit() {
            ppsplit -q -p 2 -m 6 --recompute "$mode" --method uniform \
                --micro-batch-tokens "$(jq .data.max_tokens plan.json)" \
                --seq-len "$(longest packed)" --memory "$1" model-llama
        }
        run -0 fit "$need"
        run -1 fit $((need - 1))
    done
}

@test "memory: ppsplit recomputes as little as fits, to the byte" {
    ppsplit -q -p 3 -m 6 --micro-batch-tokens 48 --layers 2,2,2 \
        --recompute full,selective,none model-llama |
        ppsched -q -s 1f1b -m 6 --data packed >plan-mixed.json
    need=$(pprun --print-memory --data packed --init 5 --steps 1 plan-mixed.json |
        jq 'map(.total) | max')
    auto() {
        ppsplit -q -p 3 -m 6 --layers 2,2,2 --recompute auto --memory "$1" \
            --micro-batch-tokens "$(jq .data.max_tokens plan-mixed.json)" \
            --seq-len "$(longest packed)" model-llama | ppsched -q -s 1f1b -m 6 --data packed >plan-auto.json
        pprun --print-memory --data packed --init 5 --steps 1 plan-auto.json |
            jq 'map(.total) | max'
    }
    [ "$(auto "$need")" -le "$need" ]
    jq -c '[.stages[].recompute]' plan-auto.json >modes
    [ "$(auto $((need - 1)))" -lt "$need" ]
    run ! diff modes <(jq -c '[.stages[].recompute]' plan-auto.json)
    pprun --verify --data packed --init 5 plan-auto.json
}
