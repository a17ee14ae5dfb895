#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# llava - a model with images, from lines of JSON to a checkpoint: any ranks give
# the bits of one, plans of memory are those of runs, --verify proves the plan,
# and what pprun does not do is refused by name.

bats_require_minimum_version 1.5.0
load helpers
load images

lines() { image_lines llava "$@"; }
pack() { pppack -q --image-token 31 --patch 4 "$@"; }

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    lines 1 18 >data.jsonl
    pack -l 40 -o packed data.jsonl
    pack --tp 2 --cp 2 -l 48 -o divided data.jsonl
    lines 2 5 >eval.jsonl
    pack -l 40 -o eval eval.jsonl
}

setup() {
    cd "$BATS_FILE_TMPDIR"
    MODEL=$SRCDIR/tests/golden/llava
}

# refuses TEXT ARGS...: pprun fails with status 2 and says it.
refuses() {
    local text=$1
    shift
    run -2 --separate-stderr pprun -q --steps 1 "$@"
    echo "$stderr"
    [[ $stderr == *"$text"* ]]
}

@test "ranks give the bits of one, wherever the model is cut" {
    plan gpipe -p 1
    train one --eval eval --eval-every 2
    for kind in 1f1b zb-h1; do
        plan $kind -p 3 --encoder-ranks 1
        jq -e '[.stages[].component] == ["vision", "language", "language"]' \
            plan.json
        train apart --eval eval --eval-every 2
        compare one/latest apart/latest
        plan $kind -p 4 --method uniform-units
        train cut --eval eval --eval-every 2
        compare one/latest cut/latest
        diff one.jsonl apart.jsonl
    done
    plan interleaved -p 2 -c 2
    train chunks
    compare one/latest chunks/latest
    # Two ranks for the data add up in another order than one.
    plan 1f1b -p 2 --dp 2
    train lanes
    for zero in 0 3; do
        plan 1f1b -p 2 --dp 2 --zero $zero
        train zero
        compare lanes/latest zero/latest
    done
}

@test "plans have the memory of a run" {
    local length need
    same_images llava
    for args in '-p 1' '-p 3' '-p 4' '-p 3 --freeze vision' '-p 2 --dp 2' \
        '-p 4 --tp 2' '-p 2 --cp 4' '-p 3 --tp 2 --cp 2 --freeze vision'; do
        # shellcheck disable=SC2086
        ppsplit -q --method uniform-units $args "$MODEL" |
            ppsched -q -s 1f1b -m 4 --data same -o plan.json
        need=$(planned_bytes same)
        within() {
            # shellcheck disable=SC2086
            ppsplit -q --method uniform-units $args -s 1f1b -m 4 \
                --seq-len "$length" --images 2 --memory "$1" "$MODEL"
        }
        run -0 within "$need"
        run -1 within $((need - 1))
    done
}

@test "--verify proves plans with images, also with two copies of the data" {
    for args in '-p 3 --encoder-ranks 1' '-p 2 --dp 2' \
        '-p 4 --method uniform-units --freeze vision'; do
        # shellcheck disable=SC2086
        plan 1f1b $args
        run -0 pprun -q --verify --dtype fp64 --data packed plan.json
    done
}

@test "ranks that divide tokens divide the images, and --verify proves it" {
    export DATA=divided
    for args in '-p 2 --tp 2' '-p 4 --method uniform-units --cp 2' \
        '-p 3 --encoder-ranks 1 --tp 2 --cp 2' '-p 1 --dp 2 --cp 2 --zero 3' \
        '-p 2 --tp 2 --freeze vision' '-p 1 --cp 2 --cp-exchange ring'; do
        # shellcheck disable=SC2086
        plan 1f1b $args
        run -0 pprun -q --verify --dtype fp64 --data divided plan.json
    done
    plan 1f1b -p 1
    train one --dtype fp64
    plan 1f1b -p 3 --encoder-ranks 1 --tp 2 --cp 2
    train many --dtype fp64
    jq -s -e '.[:3] as $a | .[3:] as $b | [range(3) |
        ($a[.].loss / $b[.].loss - 1 | fabs) < 1e-12] | all' one.jsonl \
        many.jsonl
}

@test "--verify finds faults of images on other ranks" {
    export DATA=divided
    plan 1f1b -p 2 --tp 2
    caught() {
        PP_INJECT=$1 run "$2" "$BUILDDIR/tests/parity/pprun_inject" -q \
            --verify --dtype fp64 --data divided plan.json
    }
    caught none -0
    caught features-order -1
    [[ $output == *"the loss differs"* ]]
    caught features-lost -1
    [[ $output == *"the loss agrees"* ]]
    caught tensor-unsummed -1
    grep -q '^vision_tower.* DIFFERS' <<<"$output"
    plan 1f1b -p 2 --cp 2
    caught context-unsummed -1
    grep -q '^vision_tower.* DIFFERS' <<<"$output"
}

@test "a run goes on with other ranks, and its weights open again" {
    plan 1f1b -p 3 --encoder-ranks 1
    train whole
    train half --steps 2
    plan zb-h1 -p 2
    train half --resume half
    compare whole/latest half/latest
    ppscore -q --data packed --weights whole/latest --logprobs -o got plan.json
    ppscore -q --data packed --resume whole --logprobs -o want plan.json
    diff got want
}

@test "frozen units keep their bits" {
    plan 1f1b -p 3 --encoder-ranks 1 --freeze vision,language
    train start --steps 1 --lr 0
    train projector
    compare projector/latest start/latest 'vision_tower.*'
    compare projector/latest start/latest 'language_model.*'
    run -1 compare projector/latest start/latest 'multi_modal_projector.*'
    # The last layer of the encoder does not run.
    plan 1f1b -p 2
    train all --weight-decay 0.1
    compare all/latest start/latest 'vision_tower.*.layers.2.*'
    run -1 compare all/latest start/latest 'vision_tower.*.layers.1.*'
}

@test "a model may take the feature of the class token" {
    MODEL=$SRCDIR/tests/golden/llava-full
    sed 's/31,31,31,31/&,31/g' data.jsonl >full.jsonl
    pack --class-feature --tp 2 --cp 2 -l 48 -o full full.jsonl
    export DATA=full
    plan 1f1b -p 1
    train one
    plan 1f1b -p 3 --encoder-ranks 1
    train apart
    compare one/latest apart/latest
    diff one.jsonl apart.jsonl
    for args in '-p 2 --tp 2 --cp 2' '-p 3 --tp 2 --dp 2 --encoder-mesh dp=3'; do
        # shellcheck disable=SC2086
        plan 1f1b $args
        run -0 pprun -q --verify --dtype fp64 --data full plan.json
    done
    # Every sequence has two images of five features.
    lines 3 1 2 | sed 's/31,31,31,31/&,31/g' >line
    for _ in 1 2 3 4 5 6 7 8; do cat line; done >same.jsonl
    local length
    length=$(jq '(.input_ids | length) / 8 | ceil * 8' line)
    pack --class-feature -l "$length" --cp 4 -o same same.jsonl
    for args in '-p 3' '-p 2 --dp 2' '-p 2 --encoder-mesh dp=2' \
        '-p 3 --tp 2 --cp 2 --encoder-mesh dp=3'; do
        # shellcheck disable=SC2086
        ppsplit -q $args "$MODEL" |
            ppsched -q -s 1f1b -m 4 --data same -o plan.json
        planned_bytes same
    done
    jq -e .model.class_feature plan.json
    refuses "images have no feature of a class token, but the model takes one" \
        --data divided --init 1 plan.json
}

@test "a feature may be several hidden states, which stages pass on" {
    MODEL=$SRCDIR/tests/golden/llava-layers
    plan 1f1b -p 1
    train one
    for args in '-p 3 --encoder-ranks 2' '-p 5 --method uniform-units'; do
        # shellcheck disable=SC2086
        plan zb-h1 $args
        train cut
        compare one/latest cut/latest
        diff one.jsonl cut.jsonl
    done
    same_images llava
    for args in '-p 3' '-p 4 --method uniform-units --freeze vision' \
        '-p 3 --encoder-mesh pp=2' '-p 3 --tp 2 --cp 2 --encoder-mesh dp=3'; do
        # shellcheck disable=SC2086
        ppsplit -q $args "$MODEL" |
            ppsched -q -s 1f1b -m 4 --data same -o plan.json
        planned_bytes same
        pprun -q --data same --init 5 --steps 1 plan.json
    done
    jq -e '.model.feature_layers == 3' plan.json
}

@test "text alone trains too" {
    lines 4 8 0 >text.jsonl
    pppack -q -l 40 -o text text.jsonl
    ppsplit -q -p 3 --encoder-ranks 1 "$MODEL" |
        ppsched -q -s 1f1b -m 4 --data text -o text.json
    run -0 pprun -q --data text --steps 2 text.json
}

@test "other meshes, schedules and data are refused by name" {
    run -2 --separate-stderr ppsplit -q -p 2 --cp 2 --cp-exact "$MODEL"
    [[ $stderr == *"2 context-parallel ranks divide the images of an encoder, \
so a plan cannot be exact; try --cp 1" ]]
    plan seq1f1b -p 2
    refuses "/schedule/slices: '2', but images" --data packed plan.json
    plan 1f1b -p 2
    run -2 --separate-stderr ppscore -q --data packed --generate 3 plan.json
    [[ $stderr == *"for which --generate makes no data" ]]
    sed 's/31,31,31,31/1,1,1,1/g' data.jsonl >other.jsonl
    pppack -q --image-token 1 --patch 4 -l 40 -o other other.jsonl
    refuses "token '1' stands for images, but 31 in the model" --data other \
        plan.json
    sed 's/31,31,31,31/31/g' data.jsonl >large.jsonl
    pppack -q --image-token 31 --patch 8 -l 40 -o other large.jsonl
    refuses "patches have '192' values" --data other plan.json
    model llama false
    ppsplit -q -p 2 model-llama | ppsched -q -s 1f1b -m 4 -o llama.json
    refuses "'LlamaForCausalLM' has no encoder for the 18 images" \
        --data packed --init 1 llama.json
}
