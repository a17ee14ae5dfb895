#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# ppsched -s auto at the command line: its orders, limits and errors.

bats_require_minimum_version 1.5.0
load split_helpers

setup() { cd "$BATS_TEST_TMPDIR"; }

auto() {
    ppsched -s auto --time 0.2 "$@"
}

@test "auto reaches the bound, says so, and is checked like any schedule" {
    auto -p 4 -m 8 --cost 10,10,8,1 --max-in-flight 7 >plan.json
    run ppsched --check plan.json
    [ "$output" = "valid, canonical" ]
    auto -p 4 -m 8 --cost 10,10,8,1 --max-in-flight 7 --stats >stats.json
    [ "$(jq .makespan stats.json)" = 257 ]
    [ "$(jq .lower_bound stats.json)" = 257 ]
    [ "$(jq -r .kind stats.json)" = auto ]
}

@test "--time limits the work for the bound too" {
    local plan=(-p 4 -c 2 --placement v -m 12 --cost '10,10,8,0')
    local seconds last=0
    plan+=(--max-in-flight 4)
    for seconds in 0 0.02 0.2; do
        run --separate-stderr ppsched "${plan[@]}" -s auto --time $seconds \
            --stats
        [ "$status" -eq 0 ]
        # An order of 820 is known.
        jq -e ".lower_bound > $last and .lower_bound <= 820" <<<"$output"
        last=$(jq .lower_bound <<<"$output")
    done
}

@test "--time 0 tries list schedules, which beat the kinds in short memory" {
    ppsched -s auto --time 0 -p 8 -m 24 --cost 10,10,8,1 --max-in-flight 6 \
        --stats >stats.json
    jq -e ".makespan <= 900" stats.json
    ppsched -s auto --time 0 -p 4 -c 2 -m 12 --cost 10,10,8,1 \
        --max-in-flight 6 --stats >stats.json
    jq -e ".makespan <= 786" stats.json
}

@test "auto keeps to a limit in slots on any placement" {
    auto -p 4 -c 2 --placement v -m 9 --max-in-flight 4 --stats >stats.json
    [ "$(jq '.peak | max' stats.json)" -le 4 ]
    auto -p 4 -c 2 --placement loop -m 9 --max-in-flight 5 --stats >stats.json
    [ "$(jq '.peak | max' stats.json)" -le 5 ]
}

@test "auto gives the same bytes again" {
    auto -p 4 -m 12 --cost 5,7,4,2 --max-in-flight 3 -o a.json
    cp a.json first.json
    auto -p 4 -m 12 --cost 5,7,4,2 --max-in-flight 3 -o a.json
    cmp a.json first.json
    auto -p 4 -m 12 --cost 5,7,4,2 --max-in-flight 3 --seed 9 --check
}

@test "auto refuses memory that no order fits, and names the least" {
    run --separate-stderr auto -p 3 -c 2 --placement v -m 4 --max-in-flight 1
    [ "$status" -eq 1 ]
    [ -z "$output" ]
    [ "$stderr" = "ppsched: rank 0 needs 2 for a single microbatch, \
more than its limit of '1'" ]
}

@test "--whole-backward keeps backward whole" {
    auto -p 4 -m 8 --whole-backward >plan.json
    run jq -r '.schedule.actions[]' plan.json
    [[ "$output" == *"0B0"* ]]
    [[ "$output" != *W* ]]
    [[ "$output" != *I* ]]
}

@test "--minimize memory takes less memory and no more time" {
    shape=(-p 4 -c 2 --placement v -m 9 --cost "1,2,0.5")
    auto "${shape[@]}" --stats >time.json
    auto "${shape[@]}" --minimize memory --stats >memory.json
    jq -e --slurpfile t time.json '.at_depth.makespan == $t[0].at_depth.makespan
        and (.peak | max) < ($t[0].peak | max)' memory.json
    # With less the step is longer.
    auto "${shape[@]}" --max-in-flight $(($(jq '.peak | max' memory.json) - 1)) \
        --stats >less.json
    jq -e --slurpfile t time.json \
        '.at_depth.makespan > $t[0].at_depth.makespan' less.json
    # In bytes, if sizes are known, and within a limit.
    llama 8 >config.json
    ppsplit -q -p 2 --method uniform config.json >split.json
    auto -m 8 --stats split.json >time.json
    most=$(jq '.rank_bytes | max' time.json)
    auto -m 8 --minimize memory --stats split.json >memory.json
    jq -e --slurpfile t time.json "(.rank_bytes | max) < $most
        and .at_depth.makespan <= \$t[0].at_depth.makespan * (1 + 1e-9)" \
        memory.json
    auto -m 8 --minimize memory --memory $((most - 1))B --stats split.json \
        >memory.json
    jq -e "(.rank_bytes | max) < $most" memory.json
}

@test "--minimize span finds the least span" {
    auto -p 4 -m 8 --cost 10,10,8,1 --minimize span --max-in-flight 8 --stats >a.json
    auto -p 4 -m 8 --cost 10,10,8,1 --max-in-flight 8 --stats >b.json
    [ "$(jq .span a.json)" -le "$(jq .span b.json)" ]
    run --separate-stderr auto -p 4 -m 8 --minimize size
    [ "$status" -eq 2 ]
    [[ "$stderr" == *"--minimize: 'size' is not one of: time, span, memory"* ]]
}

@test "auto keeps to a limit in bytes" {
    model='{"architectures": ["LlamaForCausalLM"], "model_type": "llama",
        "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 8,
        "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 256,
        "max_position_embeddings": 256, "rms_norm_eps": 1e-5,
        "rope_theta": 10000, "tie_word_embeddings": false}'
    mkdir model
    printf '%s' "$model" >model/config.json
    ppsplit -p 4 model >split.json
    auto -m 8 --seq-len 128 --memory 16M split.json >wide.json
    auto -m 8 --seq-len 128 --memory 5M split.json >plan.json
    ppsched --check --seq-len 128 --memory 5M plan.json
    run --separate-stderr auto -m 8 --seq-len 128 --memory 1M split.json
    [ "$status" -eq 1 ]
    run --separate-stderr auto -p 4 -m 8 --memory 5M
    [ "$status" -eq 2 ]
}

@test "options of auto need auto" {
    run --separate-stderr ppsched -p 4 -s 1f1b -m 8 --seed 3
    [ "$status" -eq 2 ]
    [[ "$stderr" == *"--seed needs -s auto"* ]]
    ppsched --list | grep -q '^auto '
}

@test "auto takes the least memory among orders of the same makespan" {
    ppsched -s auto -p 8 -m 24 --max-in-flight 15 --stats >got
    ppsched -s zb-h1 -p 8 -m 24 --stats >light
    jq -e --slurpfile w light '.gap == 0 and .makespan == $w[0].makespan and
        (.peak | max) <= ($w[0].peak | max)' got
    # zb-h2 takes as long, with twice the memory; its span is the least.
    ppsched -s zb-h2 -p 8 -m 24 --stats >heavy
    ppsched -s auto -p 8 -m 24 --max-in-flight 15 --minimize span --stats >short
    jq -e --slurpfile w heavy '.makespan == $w[0].makespan and
        .span <= $w[0].span' short
    jq -es '.[0].span < .[1].span' short got
}

@test "auto is never slower than a named kind at its depth, nor heavier" {
    ppsched -p 4 -c 2 -m 8 --cost 1,2,0.5 --compare \
        interleaved,zb-interleaved,auto --time 0.2 >got
    cat got
    # columns: 1 kind, 4 makespan, 10 peak
    awk 'NR > 1 { time[$1] = $4; peak[$1] = $10 }
        END { exit !(NR == 4 && time["auto"] <= time["interleaved"] &&
            time["auto"] <= time["zb-interleaved"] && peak["auto"] <= 8) }' got
    # Without --depth auto chooses it.
    plan=(-p 8 -c 3 -m 24 --cost '10,5,1,6' --time 0.2)
    ppsched -s auto "${plan[@]}" --stats >free
    ppsched -s auto "${plan[@]}" --depth 1 --stats >one
    jq -es '.[0].at_depth.makespan == .[0].makespan and
        .[0].at_depth.depth > 1 and .[1].at_depth.depth == 1 and
        .[0].at_depth.makespan < .[1].at_depth.makespan' free one
}

@test "auto orders stages that are not a chain" {
    # Two encoders into one model: stages 0 and 1 both feed stage 2.
    ppsched -p 4 -s gpipe -m 6 | jq 'del(.schedule) |
        .stages[1].inputs = [] | .stages[2].inputs = [0, 1]' >two.json
    auto -m 6 --max-in-flight 3 --cost 3,3,2,1 two.json >plan.json
    [ "$(ppsched --check plan.json)" = "valid, canonical" ]
    auto -m 6 --max-in-flight 3 --cost 3,3,2,1 --stats two.json >stats.json
    jq -e '.gap == 0 and .peak[0] <= 3 and .peak[1] <= 3' stats.json
    ppsched -s 1f1b -m 6 --cost 3,3,2,1 --stats two.json >1f1b.json
    jq -es '.[0].makespan < .[1].makespan' stats.json 1f1b.json
}
