#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# parity - every split and every canonical schedule gives the same bits.

bats_require_minimum_version 1.5.0
load helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    model llama false
    model qwen2-tied true
    model qwen3-tied true
    data 1 60 >data.jsonl
    pppack -l 48 -o packed data.jsonl
    data 2 11 >eval.jsonl
    pppack -l 48 -o eval eval.jsonl
    for name in llama qwen2-tied qwen3-tied; do
        ppsplit -p 1 "model-$name" | ppsched -s gpipe -m 6 >"$name.json"
        train "base-$name" "$name.json" --eval eval
    done
}

setup() { cd "$BATS_FILE_TMPDIR"; }

# split NAME KIND SPLIT...: trains the split and compares it with one rank.
split() {
    local name=$1 kind=$2
    shift 2
    ppsplit "$@" "model-$name" | ppsched -s "$kind" -m 6 >plan.json
    rm -rf run
    train run plan.json --eval eval
    same run "base-$name"
}

@test "1f1b on 1 rank" { split llama 1f1b -p 1; }
@test "gpipe on 2 ranks" { split llama gpipe -p 2; }
@test "1f1b on 2 ranks" { split llama 1f1b -p 2; }
@test "gpipe on 4 ranks" { split llama gpipe -p 4; }
@test "1f1b on 4 ranks" { split llama 1f1b -p 4; }
@test "gpipe on 2 ranks, V placement" {
    split llama gpipe -p 2 -c 2 --placement v
}
@test "gpipe on 4 ranks, V placement" {
    split qwen2-tied gpipe -p 4 -c 2 --placement v
}
@test "gpipe on 2 ranks, loop placement" { split llama gpipe -p 2 -c 3; }
@test "interleaved, 2 chunks on 2 ranks" { split llama interleaved -p 2 -c 2; }
@test "interleaved, 3 chunks on 2 ranks" { split llama interleaved -p 2 -c 3; }
@test "interleaved, 2 chunks on 4 ranks" {
    split qwen3-tied interleaved -p 4 -c 2
}
@test "eager-1f1b on 4 ranks" { split llama eager-1f1b -p 4; }
@test "zb-h1 on 4 ranks" { split llama zb-h1 -p 4; }
@test "zb-h2 on 2 ranks" { split qwen2-tied zb-h2 -p 2; }
@test "zb-h2 on 4 ranks" { split qwen3-tied zb-h2 -p 4; }
@test "zb-interleaved, 3 chunks on 2 ranks" {
    split llama zb-interleaved -p 2 -c 3
}
@test "zb-interleaved, 2 chunks on 3 ranks" {
    split qwen2-tied zb-interleaved -p 3 -c 2
}
@test "zbv on 1 rank" { split llama zbv -p 1 -c 2 --placement v; }
@test "zbv on 2 ranks" { split qwen3-tied zbv -p 2 -c 2 --placement v; }
@test "zbv on 4 ranks" { split llama zbv -p 4 -c 2 --placement v; }
@test "v-half on 3 ranks" { split llama v-half -p 3 -c 2 --placement v; }
@test "v-min on 2 ranks" { split qwen3-tied v-min -p 2 -c 2 --placement v; }
@test "hanayo, two waves on 2 ranks" {
    split llama hanayo -p 2 -c 4 --placement v
}
@test "v-half on 4 ranks" { split qwen3-tied v-half -p 4 -c 2 --placement v; }
@test "v-min on 3 ranks" { split llama v-min -p 3 -c 2 --placement v; }
@test "hanayo, 2 waves on 2 ranks" {
    split qwen2-tied hanayo -p 2 -c 4 --placement v
}
@test "dualpipev on 1 rank" { split llama dualpipev -p 1 -c 2 --placement v; }
@test "dualpipev on 3 ranks" {
    split qwen3-tied dualpipev -p 3 -c 2 --placement v
}
@test "a schedule from PyTorch's CSV" {
    ppsched -p 2 -c 2 --placement v -s dualpipev -m 6 --export csv >v.csv
    ppsplit -p 2 -c 2 --placement v model-llama |
        ppsched --csv v.csv - >plan.json
    rm -rf run
    train run plan.json --eval eval
    same run base-llama
    ppsched -p 2 -c 2 --placement v -s zbv -m 6 --export csv-comms >v.csv
    ppsplit -p 2 -c 2 --placement v model-qwen2-tied |
        ppsched --csv v.csv - >plan.json
    rm -rf run
    train run plan.json --eval eval
    same run base-qwen2-tied
}
@test "looped-bfs trains the same model in another order of sums" {
    ppsplit -p 2 -c 2 model-llama | ppsched -s looped-bfs -m 6 >plan.json
    rm -rf run
    train run plan.json --eval eval
    run ! same run base-llama
    paste <(jq .loss run/log) <(jq .loss base-llama/log) |
        awk '$1 != "null" && ($1 - $2) ^ 2 > 1e-8 { exit 1 }'
}
@test "tied weights on 2 ranks" { split qwen2-tied 1f1b -p 2; }
@test "tied weights on 4 ranks" { split qwen3-tied 1f1b -p 4; }
@test "tied weights, both ends on one rank" {
    split qwen3-tied gpipe -p 2 -c 2 --placement v
}
@test "stages of the embedding alone and of the head alone" {
    split llama 1f1b -p 4 --layers 0,3,3,0
    split qwen2-tied 1f1b -p 4 --layers 0,3,3,0
}
@test "a stage without any unit" {
    jq -n '[["model.embed_tokens", "model.layers.0", "model.layers.1"], [],
        ["model.layers.2", "model.layers.3", "model.layers.4"],
        ["model.layers.5", "model.norm", "lm_head"]]' >names.json
    split llama 1f1b -p 4 --fqns names.json
    jq -n '[["model.embed_tokens"], ["model.layers.0", "model.layers.1",
        "model.layers.2", "model.layers.3", "model.layers.4",
        "model.layers.5"], ["model.norm"], ["lm_head"]]' >names.json
    split qwen3-tied 1f1b -p 4 --fqns names.json
}

@test "every channel depth gives the same bits" {
    ppsplit -p 4 model-llama | ppsched -s gpipe -m 6 --depth 0 >plan.json
    rm -rf run
    train run plan.json --eval eval
    same run base-llama
    ppsplit -p 4 model-llama | ppsched -s gpipe -m 6 --depth 3 >plan.json
    rm -rf run
    train run plan.json --eval eval
    same run base-llama
}

@test "more microbatches than bins: epochs follow each other" {
    ppsplit -p 1 model-llama | ppsched -s gpipe -m 40 >one.json
    ppsplit -p 2 model-llama | ppsched -s 1f1b -m 40 >two.json
    rm -rf one two
    train one one.json
    train two two.json
    same one two
}

@test "accumulation equals one pass of as many microbatches" {
    ppsplit -p 2 model-qwen3-tied | ppsched -s 1f1b -m 3 >plan.json
    rm -rf run
    train run plan.json --eval eval --grad-accum 2
    same run base-qwen3-tied
}

@test "evaluation does not change the bits of training" {
    ppsplit -p 2 model-llama | ppsched -s 1f1b -m 6 >plan.json
    rm -rf run
    train run plan.json --eval eval --eval-every 1
    diff <(numbers run/log | tail -n 1) <(numbers base-llama/log | tail -n 1)
    compare run/ckpt/latest base-llama/ckpt/latest
}

@test "log-probabilities are the same bits, each sequence once, in order" {
    ppsplit -p 1 model-llama | ppsched -s gpipe -m 1 >one.json
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
    ppscore plan.json --eval eval --weights base-llama/ckpt/latest >alone
    diff <(jq .val_loss alone) <(tail -n 1 base-llama/log | jq .val_loss)
}

@test "bins, alignment and padding change gradients by rounding alone" {
    for way in "64 8" "64 1" "200 1"; do
        set -- $way
        rm -rf p
        pppack -l "$1" --pad-to "$2" -o p data.jsonl
        m=$(pppack -l "$1" --pad-to "$2" --stats data.jsonl | jq .bins)
        ppsplit -p 2 model-qwen3-tied | ppsched -s 1f1b -m "$m" |
            pprun --data p --init 5 --steps 1 --dtype fp64 \
                --dump-grads "grads-$1-$2" -o log
    done
    "$BUILDDIR/tests/golden/compare_tensors" 1e-6 1e-9 grads-64-8 grads-64-1
    "$BUILDDIR/tests/golden/compare_tensors" 1e-6 1e-9 grads-200-1 grads-64-1
}

@test "the comparison sees another seed" {
    ppsplit -p 2 model-llama | ppsched -s 1f1b -m 6 >plan.json
    rm -rf run
    train run plan.json --eval eval --init 6
    run ! same run base-llama
}

@test "with --row-invariant, scores do not depend on packing or split" {
    ppsplit -p 2 model-llama | ppsched -s 1f1b -m 3 >two.json
    pppack -l 200 --pad-to 8 -o wide data.jsonl
    ppscore llama.json --data wide --init 1 --row-invariant --logprobs -o wide.scores
    ppscore two.json --data packed --init 1 --row-invariant --logprobs -o scores
    cmp wide.scores scores
    pprun two.json --data packed --init 1 --steps 2 --row-invariant \
        --grad-accum 2 >two.log
    pprun llama.json --data packed --init 1 --steps 2 --row-invariant >one.log
    cmp <(numbers one.log) <(numbers two.log)
    run -2 pprun two.json --data packed --init 1 --steps 1 --row-invariant \
        --blas-threads 2
}
