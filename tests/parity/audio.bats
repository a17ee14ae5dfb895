#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# audio - a model with an encoder of audio, from lines of JSON to a checkpoint,
# as llava.bats has it for images.

bats_require_minimum_version 1.5.0
load helpers
load images

lines() { image_lines audio "$@"; }
pack() { pppack -q --audio-token 31 "$@"; }

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    lines 1 18 >data.jsonl
    pack --tp 2 --cp 2 -l 48 -o packed data.jsonl
}

setup() {
    cd "$BATS_FILE_TMPDIR"
    MODEL=$SRCDIR/tests/golden/qwen2-audio
}

@test "ranks give the bits of one, wherever the model is cut" {
    plan gpipe -p 1
    train one
    plan zb-h1 -p 3 --encoder-ranks 1
    jq -e '[.stages[].component] == ["audio", "language", "language"]' plan.json
    train apart
    compare one/latest apart/latest
    diff one.jsonl apart.jsonl
    plan 1f1b -p 4 --method uniform-units
    train half --steps 2
    train half --resume half
    compare one/latest half/latest
    plan 1f1b -p 2 --encoder-mesh pp=1
    train mesh
    compare one/latest mesh/latest
}

@test "plans have the memory of a run" {
    local need
    SIZE=9 same_images audio
    for args in '-p 1' '-p 3 --freeze audio' '-p 2 --tp 2 --cp 2'; do
        # shellcheck disable=SC2086
        ppsplit -q --method uniform-units $args "$MODEL" |
            ppsched -q -s 1f1b -m 4 --data same -o plan.json
        need=$(planned_bytes same)
    done
    ((need > 0))
}

@test "--verify proves meshes, and ranks of the encoder's own" {
    for args in '-p 2 --dp 2 --tp 2' '-p 4 --method uniform-units --cp 2' \
        '-p 2 --tp 2 --cp 2 --freeze audio' \
        '-p 3 --dp 2 --cp 2 --encoder-mesh pp=1,dp=3'; do
        # shellcheck disable=SC2086
        plan 1f1b $args
        run -0 pprun -q --verify --dtype fp64 --data packed plan.json
    done
}

@test "positions are stored, and never trained" {
    plan 1f1b -p 2
    train start --steps 1 --lr 0
    train all --weight-decay 0.1
    compare all/latest start/latest 'audio_tower.embed_positions.weight'
    run -1 compare all/latest start/latest 'audio_tower.conv1.*'
    plan 1f1b -p 2 --freeze audio,language
    train projector
    compare projector/latest start/latest 'audio_tower.layers.*'
    compare projector/latest start/latest 'audio_tower.conv*'
    run -1 compare projector/latest start/latest 'audio_tower.layer_norm.*'
}

# refuses TEXT DATA: pprun fails with status 2 and says it.
refuses() {
    run -2 --separate-stderr pprun -q --steps 1 --data "$2" plan.json
    [[ $stderr == *"$1"* ]]
}

@test "data of other models are refused by name" {
    plan 1f1b -p 1
    image_lines llava 1 6 >images.jsonl
    pppack -q --image-token 31 --patch 4 -l 48 -o images images.jsonl
    refuses "the data have images, which 'Qwen2AudioForConditionalGeneration' \
does not take" images
    SIZE=21 lines 1 6 >long.jsonl
    pack -l 64 -o long long.jsonl
    refuses "one of the clips of audio has '11' rows, but the model takes at \
most 10" long
    MODEL=$SRCDIR/tests/golden/llava
    plan 1f1b -p 1
    refuses "the data have clips of audio, which" packed
}
