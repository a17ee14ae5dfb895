#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# ppsplit --units: any architecture, from a table of its units.

bats_require_minimum_version 1.5.0
load split_helpers

setup() {
    cd "$BATS_TEST_TMPDIR"
    small_llama 4096 >model.json
    # The model as a table, made from its manifest.
    ppsplit -p 1 model.json | jq '{format: "pp-units", version: 1,
        architecture: "TableForCausalLM", units: [.model.units[] |
            .kind = ({"model.embed_tokens": "embedding", "model.norm": "norm",
                      "lm_head": "head"}[.fqn] // "layer")]}' >units.json
    # An encoder and a decoder, with two units before the layers and one after.
    jq -n '{format: "pp-units", version: 1, architecture: "T5Model", units: (
        [{fqn: "shared", kind: "embedding", params: 1000},
         {fqn: "positions", kind: "embedding", params: 10}] +
        [range(6) | {fqn: "encoder.\(.)", class: "T5Block", params: 100}] +
        [range(6) | {fqn: "decoder.\(.)", class: "T5Block", params: 150}] +
        [{fqn: "lm_head", kind: "head", params: 1000}] |
        map(.fwd_flops = [2 * .params, 8] | .act_bytes = [40, 60, 80] |
            .out_bytes = (if .fqn == "lm_head" then 0
                elif .fqn == "shared" then 8 else 64 end)))}' >t5.json
}

@test "every rule splits a model and its table alike" {
    for rule in '--method uniform' '--method weights' \
        '--method megatron' '--first 2' '--method parameters' \
        '--method uniform-units' '--method colossalai' '--method automodel' \
        '--layers 1,5,6,0' '--memory 300M'; do
        # shellcheck disable=SC2086
        ppsplit -p 4 $rule model.json | jq -S '.stages' >a
        # shellcheck disable=SC2086
        ppsplit -p 4 $rule --units units.json | jq -S '.stages' >b
        cmp a b || { echo "$rule"; return 1; }
    done
    # Units without products have a cost only when ranks are compared, so the
    # split may differ, but not the step.
    for rule in '-p 4 -m 8' '-p 3 -c 2 -m 6' '-p 4 --schedule zb-h1 -m 12'; do
        # shellcheck disable=SC2086
        ppsplit $rule -t model.json | grep -o 'takes .* flop' >a
        # shellcheck disable=SC2086
        ppsplit $rule -t --units units.json | grep -o 'takes .* flop' | cmp a -
    done
}

@test "the split of a table is shown again" {
    ppsplit -q -p 3 -m 6 --units t5.json >plan.json
    ppsplit -q -p 3 -m 6 --units t5.json --export fqns >want
    ppsplit --export fqns plan.json | cmp - want
    ppsplit -t plan.json | grep -q '^t5.json: T5Model, 12 layers'
    jq '.units[3].params = 99' t5.json >other.json
    mv other.json t5.json
    run -2 --separate-stderr ppsplit -t plan.json
    [[ $stderr == "ppsplit: 't5.json' has 3509 parameters, but its plan has 3510"* ]]
}

@test "rules count layers and classes of a table" {
    [ "$(units -p 4 --method uniform --units t5.json)" = '[5,3,3,4]' ]
    [ "$(units -p 4 --method colossalai --encoder-layers 6 --units t5.json)" = \
        '[5,3,3,4]' ]
    [ "$(units -p 2 --method type:block --units t5.json)" = '[8,7]' ]
    [ "$(units -p 3 --layers 2,10,0 --units t5.json)" = '[4,10,1]' ]
    [ "$(units -p 2 --layout 'Et*6|t*6L' --units t5.json)" = '[8,7]' ]
    [ "$(units -p 2 --hybrid-layer-pattern 'MMMM|M-M-M-**' \
        --units t5.json)" = '[6,9]' ]
    refuses "--method: no class matches 'type:Llama'; a layer is a 'T5Block'" \
        -p 2 --method type:Llama --units t5.json
    refuses '16 stages are too many for 15 units' -p 16 --units t5.json
}

@test "plans are exported and read again" {
    ppsplit -p 2 -c 2 --export fqns --units t5.json -o fqns.json
    ppsplit -p 2 -c 2 --export torchtitan --units t5.json | cmp fqns.json -
    ppsplit -p 2 -c 2 --fqns fqns.json --export fqns --units t5.json |
        cmp fqns.json -
    layout=$(ppsplit -p 3 --method uniform --export megatron --units t5.json)
    [ "$(units -p 3 --layout "$layout" --units t5.json)" = \
        "$(units -p 3 --method uniform --units t5.json)" ]
    printf '[["shared"],["positions"]]' >bad.json
    refuses "bad.json: 'encoder.0' is missing" -p 2 --fqns bad.json --units t5.json
    printf '[["shared","model.norm"]]' >bad.json
    refuses "bad.json: /0/1: 'model.norm' is not in the model" \
        -p 1 --fqns bad.json --units t5.json
    # A layout cannot separate the two units before the layers.
    printf '[["shared"],["positions"]]' >apart.json
    jq -c '[.units[].fqn] | [.[:1], .[1:]]' t5.json >apart.json
    refuses '--export: a layout cannot separate the units before the layers, as this plan does' \
        -p 2 --fqns apart.json --export megatron --units t5.json
}

@test "ppsched simulates the step that ppsplit planned" {
    ppsplit -p 4 -m 8 --schedule 1f1b --seq-len 512 --units t5.json -v \
        >plan.json 2>note
    cat note
    step=$(sed -n 's/.*a step of \([^ ]*\) flop.*/\1/p' note)
    jq -ne "($(makespan 1f1b 8 plan.json) / $step - 1) | fabs < 1e-4"
    ppsplit -p 4 --units t5.json -t | grep -q 'shared ... encoder'
    jq -e '.model.architecture == "T5Model" and .model.params == 3510' plan.json
}

@test "measured costs work with a table" {
    jq '{format: "pp-profile", version: 1, units: [.units[] |
        {fqn, fwd: [1e-6, 0], input: [1e-6, 0], weight: [1e-6, 0]}]}' \
        t5.json >costs.json
    [ "$(units -p 3 -m 300 --costs costs.json --units t5.json)" = '[5,5,5]' ]
}

@test "options that need more than a table are refused" {
    refuses 'a table of units does not say how tp ranks would share a unit; try --tp 1' \
        -p 2 --tp 2 --units t5.json
    ppsplit -p 2 --dp 4 --units t5.json | jq -e '.model.units[0].state_bytes ==
        8 * 1008 + 8 * 256'
    refuses "unexpected operand 'model.json': --units replaces the model" \
        -p 2 --units t5.json model.json
    refuses "--moe-layer-freq: 't5.json' has no experts" \
        -p 2 --moe-layer-freq 2 --units t5.json
    ppsplit -p 2 --units t5.json | ppsched -s 1f1b -m 4 >plan.json
    run --separate-stderr pprun --init 1 --data none --steps 1 plan.json
    echo "$stderr"
    [ "$status" -eq 2 ]
    [[ "$stderr" == *'a table of units can be planned'* ]]
}
