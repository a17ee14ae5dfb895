#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# frozen - plans and checkpoints of units that are not trained. frozen_units.rows
# has their numbers.

bats_require_minimum_version 1.5.0
load helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    model llama false
    model qwen3-tied true
    data 1 40 >data.jsonl
    pppack -q -l 48 -o packed data.jsonl
}

setup() { cd "$BATS_FILE_TMPDIR"; }

# freeze NAME LIST KIND SPLIT...: writes plan.json.
freeze() {
    ppsplit -q --freeze "$2" --method uniform "${@:4}" "model-$1" |
        ppsched -q -s "$3" -m 6 >plan.json
}

@test "rows have no action without a gradient" {
    freeze llama 'embedding,model.layers.[0-3]' zb-h1 -p 3
    jq -re '.schedule.actions[0]' plan.json >row
    run -1 grep -E 'I|B|W' row
    freeze llama 'model.layers.[2-5],head' zb-h2 -p 3
    jq -re '.schedule.actions[1]' plan.json >row
    run -1 grep -E '1[BW]' row
    grep 1I row
}

@test "a tied head is frozen with its embedding" {
    freeze qwen3-tied 'embedding,model.layers.[03]' 1f1b -p 2
    jq -e '[.model.units[] | select(.frozen).fqn] |
        . == ["model.embed_tokens", "model.layers.0", "model.layers.3",
              "lm_head"]' plan.json
}

@test "another phase begins from the weights alone" {
    freeze llama 'embedding,model.layers.[01]' 1f1b -p 2
    pprun -q plan.json --data packed --init 5 --steps 1 --save stopped >log
    ppsplit -q -p 2 model-llama | ppsched -q -s 1f1b -m 6 >all.json
    run -2 --separate-stderr pprun all.json --data packed --steps 2 \
        --resume stopped
    [[ "$stderr" == *exp_avg*"no tensor 'model.embed_tokens.weight'"* ]]
    pprun -q all.json --data packed --steps 1 --weights stopped/latest >log
}
