#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# ppsplit records the microbatch size that it assumed, every tool passes it on,
# and ppsched uses it by default.

bats_require_minimum_version 1.5.0
load split_helpers

setup() {
    cd "$BATS_TEST_TMPDIR"
    mkdir -p m
    llama 5 >m/config.json
}

@test "ppsplit records the microbatch size that it assumed" {
    recorded() { ppsplit "$@" | jq -cS .microbatch; }
    [ "$(recorded -p 2 m)" = '{"seq_len":2048,"tokens":2048}' ]
    [ "$(recorded -p 2 --seq-len 512 m)" = '{"seq_len":512,"tokens":512}' ]
    [ "$(recorded -p 2 --seq-len 512 --micro-batch-tokens 4K m)" = \
        '{"seq_len":512,"tokens":4096}' ]
    [ "$(recorded -p 2 --images 2 --image-patches 1600 \
        "$SRCDIR/tests/data/vision/qwen2-vl-2b.json")" = \
        '{"image_patches":1600,"images":2,"seq_len":4096,"tokens":4096}' ]
}

@test "ppsplit counts microbatches in sequences too" {
    ppsplit -q -p 2 --dp 2 -m 8 --seq-len 512 --micro-batch-tokens 1K -t m >tokens
    ppsplit -q -p 2 --dp 2 --global-batch-size 32 --seq-len 512 --mbs 2 -t m |
        diff tokens -
    refuses "--global-batch: '31' sequences do not go into microbatches of 1024 \
tokens on 2 data-parallel ranks" \
        -p 2 --dp 2 --global-batch 31 --seq-len 512 --micro-batch-size 2 m
    refuses "--global-batch: '32' sequences do not go into microbatches of 700 \
tokens on 1 data-parallel ranks" \
        -q -p 2 --global-batch 32 --seq-len 512 --micro-batch-tokens 700 m
    refuses "--micro-batch-size: '2000000' sequences of 2048 tokens are too many" \
        -p 2 --micro-batch-size 2000000 m
    run -0 --separate-stderr ppsplit -p 2 --micro-batch-tokens 2 -o plan m
    [[ "$stderr" == "ppsplit: --micro-batch-tokens: '2' tokens are less \
than a sequence of 2048 (--seq-len); --micro-batch-size counts sequences"* ]]
}

@test "ppsched counts microbatches in sequences too" {
    ppsplit -q -p 2 --dp 2 --seq-len 512 --mbs 2 m >plan
    ppsched -s 1f1b --global-batch 32 plan | jq 'del(.history)' >got
    ppsched -s 1f1b -m 8 plan | jq 'del(.history)' | diff - got
    ppsched --compare gpipe,1f1b --gbs 32 plan >got
    ppsched --compare gpipe,1f1b -m 8 plan | diff - got
    run -2 --separate-stderr ppsched -s 1f1b --global-batch 30 plan
    [[ "$stderr" == "ppsched: --global-batch: '30' sequences do not go into \
microbatches of 1024 tokens on 2 data-parallel ranks"* ]]
    run -2 --separate-stderr ppsched -s 1f1b --global-batch 32 -p 2
    [[ "$stderr" == *'--global-batch and -p exclude each other'* ]]
}

@test "ppsched finds the step time of ppsplit without options" {
    step() {
        local kind=$1
        shift
        ppsplit -p 3 -m 4 --schedule "$kind" -v -o plan.json "$@" m 2>said
        want=$(sed -n 's/.*a step of \(.*\) flop,.*/\1/p' said)
        got=$(makespan "$kind" 4 plan.json)
        echo "$kind $*: $got, not $want"
        holds "$got < $want * (1 + 1e-5) && $want < $got * (1 + 1e-5)"
    }
    step 1f1b --seq-len 300
    step 1f1b --seq-len 300 --micro-batch-tokens 900
    # Sequences do not divide the microbatch, nor slices the sequences.
    step gpipe --seq-len 300 --micro-batch-tokens 1000
    step seq1f1b --seq-len 301 --micro-batch-tokens 1000
    step seq1f1b --seq-len 4K --micro-batch-tokens 1000
}

@test "ppsched checks --memory with the same microbatches" {
    args=(-p 2 --schedule 1f1b -m 4 --method uniform --micro-batch-tokens 16K m)
    most=$(least_limit "${args[@]}")
    echo "$most MiB"
    ppsplit -q "${args[@]}" >plan.json
    ppsched -q -s 1f1b -m 4 --memory "${most}M" plan.json >/dev/null
    run -1 ppsched -s 1f1b -m 4 --memory $((most - 1))M plan.json
    # Shorter ones fit.
    ppsched -q -s 1f1b -m 4 --memory $((most - 1))M --seq-len 2K plan.json \
        >/dev/null
}

@test "options override the recorded size" {
    ppsplit -p 2 --seq-len 512 m >plan.json
    jq 'del(.microbatch)' plan.json >without.json
    [ "$(makespan gpipe 2 --seq-len 100 plan.json)" = \
        "$(makespan gpipe 2 --seq-len 100 without.json)" ]
    # Without any it is 4096.
    [ "$(makespan gpipe 2 without.json)" = \
        "$(makespan gpipe 2 --seq-len 4K plan.json)" ]
    [ "$(makespan gpipe 2 without.json)" != "$(makespan gpipe 2 plan.json)" ]
    jq -nc '({input_ids: [range(64)]}, {input_ids: [range(16)]})' >data.jsonl
    pppack -q -a next-fit -l 64 -o data data.jsonl
    [ "$(makespan gpipe 2 --data data plan.json)" = \
        "$(makespan gpipe 2 --data data without.json)" ]
    [ "$(makespan gpipe 2 --data data plan.json)" != \
        "$(makespan gpipe 2 plan.json)" ]
}

@test "the manifest's data are used if they can be read" {
    jq -nc '({input_ids: [range(64)]}, {input_ids: [range(16)]})' >data.jsonl
    pppack -q -a next-fit -l 64 -o data data.jsonl
    ppsplit -q -p 2 --seq-len 512 m | ppsched -q -s gpipe -m 1 --data data >p.json
    ppsched --stats --data data p.json >want
    run --separate-stderr ppsched --stats p.json
    [ "$stderr" = "" ]
    diff - want <<<"$output"
    ppsched --stats --step 2 --data data p.json >second
    ppsched --stats --step 2 p.json | diff - second
    run ! diff -q want second
    # An option overrides them, also for a new schedule.
    [ "$(makespan gpipe 1 --seq-len 512 p.json)" = \
        "$(makespan gpipe 1 --seq-len 512 <(jq 'del(.data)' p.json))" ]
    ppsched --compare gpipe,1f1b -m 1 p.json >got
    ppsched --compare gpipe,1f1b -m 1 --data data p.json | diff - got
    # The data change, and then are gone.
    ppsched --seq-len 512 --stats p.json >assumed
    rm -r data
    pppack -q -l 80 -o data data.jsonl
    run --separate-stderr ppsched --stats p.json
    [ "$stderr" = "ppsched: data: the data have changed since the manifest \
was made; assuming the microbatch size of the split" ]
    diff - assumed <<<"$output"
    rm -r data
    run --separate-stderr ppsched --stats p.json
    [[ $stderr == *"data"*"; assuming the microbatch size of the split" ]]
    diff - assumed <<<"$output"
    run --separate-stderr ppsched --stats --step 2 p.json
    [ "$status" -eq 2 ]
    [[ $stderr == *"--step needs --data"* ]]
}

@test "-v prints the microbatch size of the split" {
    ppsplit -q -p 2 --seq-len 512 m >plan.json
    run --separate-stderr ppsched -v -s gpipe -m 2 --stats plan.json
    [ "$stderr" = "ppsched: the split is for microbatches of 512 tokens in \
sequences of 512" ]
    run --separate-stderr ppsched -v -s gpipe -m 2 --seq-len 64 --stats \
        plan.json
    [ "$stderr" = "ppsched: the split is for microbatches of 512 tokens in \
sequences of 512; --seq-len overrides that here" ]
    run --separate-stderr ppsched -s gpipe -m 2 --stats plan.json
    [ -z "$stderr" ]
}

@test "every tool passes the size on" {
    jq -nc '{input_ids: [range(64)]}' >data.jsonl
    ppsplit -q -p 2 --seq-len 512 --micro-batch-tokens 1K m |
        ppsched -q -s gpipe -m 2 >plan.json
    pppack -q -l 64 --manifest plan.json -o data data.jsonl
    jq -e '.data.n_bins == 1 and
        .microbatch == {"tokens": 1024, "seq_len": 512}' plan.json
    ppsched -q -s 1f1b -m 4 plan.json |
        jq -e '.microbatch == {"tokens": 1024, "seq_len": 512}'
}

# images COUNT SIDE DIR: packs four documents of 40 tokens with so many images of
# SIDE x SIDE features.
images() {
    jq -nc --argjson n "$1" --argjson s "$2" '($n * $s * $s) as $all |
        range(4) | {input_ids: ([5] + [range($all) | 31] +
            [range(39 - $all) | 7]),
        images: [range($n) | {grid: [1, 2 * $s, 2 * $s],
            pixels: [range(4 * $s * $s) | [range(24) | 0.5]]}]} |
        if $n == 0 then del(.images) else . end' >images.jsonl
    local some=(--image-token 31 --merge 2)
    [ "$1" -gt 0 ] || some=()
    pppack -q "${some[@]}" -l 40 -o "$3" images.jsonl
}

# split COUNT PATCHES ARGS...: splits for so many images.
split() {
    local method=uniform-units
    [[ "$*" != *--encoder-mesh* ]] || method=balanced
    ppsplit -q --seq-len 40 --images "$1" --image-patches "$2" \
        --method $method "${@:3}" "$SRCDIR/tests/golden/qwen2-vl"
}

# near A B: checks that two numbers are equal up to rounding.
near() { holds "$1 < $2 * (1 + 1e-12) && $2 < $1 * (1 + 1e-12)"; }

# takes: prints the makespan of statistics.
takes() { sed -n 's/^  "makespan": \(.*\),$/\1/p'; }

@test "an encoder takes the time of the images of each microbatch" {
    local of got want n side
    for of in '1 2' '2 2' '3 1' '1 4'; do
        read -r n side <<<"$of"
        rm -rf data
        images "$n" "$side" data
        for args in '-p 1' '-p 3' '-p 3 --tp 2' '-p 3 --freeze vision' \
            '-p 2 --encoder-mesh dp=2' \
            '-p 2 --encoder-mesh dp=1 --dp 2'; do
            # The plan for one image of 16 patches, and that for these images.
            # shellcheck disable=SC2086
            got=$(split 1 16 $args |
                ppsched -s 1f1b -m 4 --data data --stats | takes)
            # shellcheck disable=SC2086
            want=$(split "$n" $((4 * side * side)) $args |
                ppsched -s 1f1b -m 4 --seq-len 40 --stats | takes)
            echo "$of $args"
            near "$got" "$want"
        done
    done
    # Without images the encoder takes no time.
    for of in 0 1 2; do
        images $of 2 "data$of"
        split 1 16 -p 1 | ppsched -s 1f1b -m 4 --data "data$of" --stats |
            jq .makespan
    done >makespans
    jq -se '(.[1] - .[0]) / (.[2] - .[1]) - 1 | fabs < 1e-12' makespans
    jq -se '.[0] > 0 and .[1] > .[0]' makespans
}

@test "pppack simulates the images of each microbatch, too" {
    for n in 0 1 2 3; do
        images $n 2 "each$n"
        head -n 1 images.jsonl
    done >mixed.jsonl
    split 1 16 -p 2 | ppsched -q -s 1f1b -m 4 -o plan.json
    pppack -q --image-token 31 --merge 2 -l 40 --manifest plan.json \
        --balance flops --stats -o mixed mixed.jsonl >stats
    near "$(jq .step_time stats)" "$(ppsched -q --data mixed -s 1f1b -m 4 \
        --stats plan.json | jq .span)"
    # By tokens alone all microbatches would be alike.
    run -1 near "$(jq .step_time stats)" "$(ppsched -q --seq-len 40 -s 1f1b \
        -m 4 --stats plan.json | jq .span)"
}
