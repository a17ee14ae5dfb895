#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# parity - the same bits from schedules of files, in evaluations and scores, and
# the same numbers from other packings. splits.rows has all splits and schedules.

bats_require_minimum_version 1.5.0
load helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    model llama false
    data 1 60 >data.jsonl
    pppack -l 48 -o packed data.jsonl
    data 2 11 >eval.jsonl
    pppack -l 48 -o eval eval.jsonl
    ppsplit -p 1 model-llama | ppsched -s gpipe -m 6 >one.json
    train one one.json --eval eval
}

setup() { cd "$BATS_FILE_TMPDIR"; }

# same_as_one: trains plan.json and compares it with one rank.
same_as_one() {
    rm -rf run
    train run plan.json --eval eval
    same run one
}

@test "a schedule from PyTorch's CSV" {
    local kind form
    while read -r kind form; do
        ppsched -p 2 -c 2 --placement v -s "$kind" -m 6 --export "$form" >v.csv
        ppsplit -p 2 -c 2 --placement v model-llama |
            ppsched --csv v.csv - >plan.json
        same_as_one
    done <<<$'dualpipev csv\nzbv csv-comms'
}

@test "stages without any unit, or with one" {
    jq -n '[range(6) | "model.layers.\(.)"] as $layers |
        [["model.embed_tokens"] + $layers[:2], [], $layers[2:5],
         $layers[5:] + ["model.norm", "lm_head"]],
        [["model.embed_tokens"], $layers, ["model.norm"], ["lm_head"]]' -c >lists
    while read -r list; do
        echo "$list" >names.json
        ppsplit -p 4 --fqns names.json model-llama | ppsched -s 1f1b -m 6 >plan.json
        same_as_one
    done <lists
}

@test "evaluation does not change the bits of training" {
    ppsplit -p 2 model-llama | ppsched -s 1f1b -m 6 >plan.json
    rm -rf run
    train run plan.json --eval eval --eval-every 1
    diff <(numbers run/log | tail -n 1) <(numbers one/log | tail -n 1)
    compare run/ckpt/latest one/ckpt/latest
}

@test "log-probabilities are the same bits, each sequence once, in order" {
    ppsplit -p 4 model-llama | ppsched -s 1f1b -m 7 >four.json
    ppscore one.json --data packed --init 5 --logprobs -o one.jsonl
    ppscore four.json --data packed --init 5 --logprobs -o four.jsonl
    cmp one.jsonl four.jsonl
    diff <(jq .sequence one.jsonl) <(seq 0 59)
    diff <(jq -c '.logprobs | length' one.jsonl) \
        <(jq -c '.input_ids | length' data.jsonl)
    jq -e '.logprobs[0] == 0' one.jsonl >first
    ! grep -q false first
}

@test "evaluation alone prints the loss that training prints" {
    ppsplit -p 2 model-llama | ppsched -s 1f1b -m 4 >plan.json
    ppscore plan.json --eval eval --weights one/ckpt/latest >alone
    diff <(jq .val_loss alone) <(tail -n 1 one/log | jq .val_loss)
}

@test "bins, alignment and padding change gradients by rounding alone" {
    for way in "64 8" "64 1" "200 1"; do
        set -- $way
        rm -rf p
        pppack -l "$1" --pad-to "$2" -o p data.jsonl
        m=$(pppack -l "$1" --pad-to "$2" --stats data.jsonl | jq .bins)
        ppsplit -p 2 model-llama | ppsched -s 1f1b -m "$m" |
            pprun --data p --init 5 --steps 1 --dtype fp64 \
                --dump-grads "grads-$1-$2" -o log
    done
    "$BUILDDIR/tests/golden/compare_tensors" 1e-6 1e-9 grads-64-8 grads-64-1
    "$BUILDDIR/tests/golden/compare_tensors" 1e-6 1e-9 grads-200-1 grads-64-1
}

@test "with --row-invariant, scores do not depend on packing or split" {
    ppsplit -p 2 model-llama | ppsched -s 1f1b -m 3 >two.json
    pppack -l 200 --pad-to 8 -o wide data.jsonl
    ppscore one.json --data wide --init 1 --row-invariant --logprobs -o wide.scores
    ppscore two.json --data packed --init 1 --row-invariant --logprobs -o scores
    cmp wide.scores scores
    pprun two.json --data packed --init 1 --steps 2 --row-invariant \
        --grad-accum 2 >two.log
    pprun one.json --data packed --init 1 --steps 2 --row-invariant >one.log
    cmp <(numbers one.log) <(numbers two.log)
}
