#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# trainer - fine-tuning beside Hugging Face's Trainer with its defaults: learning
# rates, weight decay, and the short last step of each epoch (scripts/gen-trainer).

bats_require_minimum_version 1.5.0

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    GOLDEN=$SRCDIR/tests/golden
    head -n 10 "$GOLDEN/data.jsonl" |
        jq -c '.labels = [-100] + (.labels // .input_ids)[1:]' >data.jsonl
    pppack -q -l 40 -a none --rows 1 --no-shuffle -o packed data.jsonl
    export GOLDEN
}

setup() { cd "$BATS_FILE_TMPDIR"; }

# beside RUN OPTION...: trains as the Trainer did in its run, and compares the
# losses, norms and rates of all steps.
beside() {
    jq ".runs[$1]" "$GOLDEN/trainer.json" >want.json
    local model
    model=$GOLDEN/$(jq -r .model want.json)/model
    ppsplit -q -p 2 ${freeze:+--freeze "$freeze"} "$model" |
        ppsched -q -s 1f1b -m 4 |
        pprun -q --data packed --steps 20 --last-batch short "${@:2}" |
        jq -s '{losses: map(.loss), grad_norms: map(.grad_norm),
            rates: map(.lr)}' >got.json
    jq -es '.[0] as $got | .[1] as $want |
        def off($key): [range(20) as $i |
            ($got[$key][$i] - $want[$key][$i] | fabs) /
            ($want[$key][$i] | fabs + 1e-9)] | max;
        (off("losses"), off("grad_norms"), off("rates")) |
        debug | . < 1e-5' got.json want.json >judged
    [ "$(grep -c true judged)" -eq 3 ]
}

@test "cosine with warmup and weight decay, of a model with biases" {
    beside 0 --lr 1e-3 --lr-schedule cosine --warmup 3 --weight-decay 0.5
}
@test "linear without them" { beside 1 --lr 1e-3 --lr-schedule linear; }
@test "linear, with frozen modules" {
    freeze=embedding,model.layers.0,model.layers.2 \
        beside 2 --lr 1e-3 --lr-schedule linear --weight-decay 0.1
    run -1 beside 2 --lr 1e-3 --lr-schedule linear --weight-decay 0.1
}

@test "without a short last step, or with decay of biases, losses differ" {
    run -1 beside 1 --lr 1e-3 --lr-schedule linear --last-batch wrap
    run -1 beside 0 --lr 1e-3 --lr-schedule cosine --warmup 3 \
        --weight-decay 0.5 --decay-all
}
