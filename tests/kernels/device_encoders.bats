#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Models with encoders on the emulated device. Gradients are those of the CPU,
# whichever ranks have the encoder, and bits do not depend on the number of
# ranks. tests/golden has the comparison with transformers.

bats_require_minimum_version 1.5.0
load ../parity/helpers
load ../parity/images
load device_helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    image_lines llava 1 18 >llava.jsonl
    pack --tp 2 --cp 2 -l 48 -o llava llava.jsonl
    image_lines qwen 1 18 >qwen.jsonl
    pppack -q --image-token 31 --merge 2 --tp 2 --cp 2 -l 48 -o qwen2.5-vl qwen.jsonl
    image_lines omni 1 18 >omni.jsonl
    pppack -q --image-token 31 --merge 2 --audio-token 32 --tp 2 --cp 2 -l 48 \
        -o qwen2.5-omni omni.jsonl
}

pack() { pppack -q --image-token 31 --patch 4 "$@"; }

setup() {
    cd "$BATS_FILE_TMPDIR"
    o=(--optimizer sgd)
}

# use FAMILY: plans and runs are of this model, with its data.
use() {
    MODEL=$SRCDIR/tests/golden/$1
    export DATA=$1 packed=$1
}

# made PLAN KIND ARGS...: writes a plan.
made() {
    local file=$1.json
    shift
    plan "$@"
    mv plan.json "$file"
}

@test "LLaVA: any ranks have the CPU's gradients" {
    use llava
    made one gpipe -p 1
    cpu host one.json "${o[@]}"
    gpu one one.json "${o[@]}"
    near 1e-4 one host
    # An encoder on a rank of its own; and with the embedding, its forward beside
    # a backward.
    made apart zb-h1 -p 3 --encoder-ranks 1
    made pairs dualpipev -p 2 -c 2 --placement v
    # Several stages of the language model on each rank behind it.
    made behind dualpipev -p 3 -c 2 --placement v --encoder-ranks 1
    for name in apart pairs behind; do
        PP_EMULATED_JITTER=3 gpu ranks $name.json "${o[@]}"
        same ranks one
    done
    # Ranks that divide tokens exchange features.
    made divided 1f1b -p 3 --encoder-ranks 1 --tp 2 --cp 2
    PP_EMULATED_JITTER=3 gpu ranks divided.json "${o[@]}"
    near 1e-4 ranks host
    gpu half apart.json "${o[@]}" --dtype bf16
    near 0.05 half host
    PP_EMULATED_JITTER=5 gpu again apart.json "${o[@]}" --dtype bf16
    same half again
    run ! same half host
}

@test "an encoder with a mesh of its own has the CPU's gradients" {
    use llava
    for mesh in pp=1,dp=3 shared,tp=1; do
        made own 1f1b -p 2 --dp 2 --tp 2 --encoder-mesh $mesh
        cpu host own.json "${o[@]}"
        PP_EMULATED_JITTER=3 gpu own own.json "${o[@]}"
        near 1e-4 own host
    done
}

@test "images with windows, and two encoders: the CPU's gradients" {
    use qwen2.5-vl
    made parts 1f1b -p 2 --tp 2 --cp 2
    cpu host parts.json "${o[@]}"
    PP_EMULATED_JITTER=3 gpu parts parts.json "${o[@]}"
    near 1e-4 parts host
    use qwen2.5-omni
    made branches 1f1b --seq-len 48 --image-patches 16 --clip-rows 8 -p 3 --dp 2 \
        --encoder-mesh vision:dp=1 --encoder-mesh audio:dp=3
    cpu host branches.json "${o[@]}"
    PP_EMULATED_JITTER=5 gpu branches branches.json "${o[@]}"
    near 1e-4 branches host
}

# within ARGS...: ppsplit finds a plan in so much memory.
within() {
    ppsplit -q --device cuda --method uniform-units -s 1f1b -m 4 \
        --seq-len "$length" --images 2 "$@" "$MODEL" >plan
}

@test "a plan for a GPU has the memory of a run" {
    local need
    use llava
    same_images llava
    export DATA=same
    for args in '-p 1' '-p 3 --freeze vision' '-p 2 --cp 4 --dtype bf16'; do
        # shellcheck disable=SC2086
        made planned 1f1b --device cuda --method uniform-units $args
        need=$("$EMULATED" --print-memory --device cuda --data same --init 5 --steps 1 \
            planned.json | jq 'map(.total) | max')
        # shellcheck disable=SC2086
        within $args --memory "$need"
        # shellcheck disable=SC2086
        run -1 within $args --memory $((need - 1))
    done
}
