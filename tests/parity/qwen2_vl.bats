#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# qwen2_vl - images of any size in a pipeline, by Qwen2-VL and Qwen2.5-VL: any
# ranks give the bits of one, plans of memory are those of runs, --verify proves
# meshes, and videos are refused by name.

bats_require_minimum_version 1.5.0
load helpers
load images

lines() { image_lines qwen "$@"; }
pack() { pppack -q --image-token 31 --merge 2 "$@"; }

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    lines 1 18 >data.jsonl
    pack -l 40 -o packed data.jsonl
    pack --tp 2 --cp 2 -l 48 -o divided data.jsonl
}

setup() {
    cd "$BATS_FILE_TMPDIR"
    MODEL=$SRCDIR/tests/golden/qwen2-vl
}

# both COMMAND...: runs it for each model.
both() {
    for MODEL in "$SRCDIR"/tests/golden/qwen2{,.5}-vl; do
        "$@"
    done
}

bits() {
    plan gpipe -p 1
    train one
    plan 1f1b -p 3 --encoder-ranks 1
    train apart
    compare one/latest apart/latest
    plan zb-h1 -p 4 --method uniform-units
    train half --steps 2
    plan 1f1b -p 2
    train half --resume half
    compare one/latest half/latest
}
@test "ranks give the bits of one, wherever the model is cut" { both bits; }

proves() {
    for args in '-p 2 --tp 2' '-p 3 --encoder-ranks 1 --cp 2' \
        '-p 1 --dp 2 --tp 2 --cp 2 --zero 3' '-p 4 --method uniform-units' \
        '-p 2 --recompute full --cp 2' \
        '-p 3 --tp 2 --dp 2 --encoder-mesh dp=3' \
        '-p 2 --freeze vision,language'; do
        case $args in
        *--tp* | *--cp*) data=divided ;;
        *) data=packed ;;
        esac
        # shellcheck disable=SC2086
        ppsplit -q $args "$MODEL" >split.json
        ppsched -q -s 1f1b -m 4 --data $data -o plan.json split.json
        run -0 pprun -q --verify --dtype fp64 --data $data plan.json
    done
}
@test "--verify proves meshes, recomputation and frozen parts" { both proves; }

memory() {
    # Images differ in size, and so do the shares of ranks.
    local units='--method uniform-units'
    for args in "$units -p 1" "$units -p 3" "$units -p 4 --freeze vision" \
        "$units -p 2 --dp 2" "$units -p 4 --tp 2" "$units -p 2 --cp 2" \
        "$units -p 3 --tp 2 --cp 2 --freeze vision" \
        '-p 3 --dp 2 --encoder-mesh dp=3' '-p 2 --cp 2 --encoder-mesh dp=2'; do
        # shellcheck disable=SC2086
        ppsplit -q $args "$MODEL" |
            ppsched -q -s 1f1b -m 2 --data divided -o plan.json
        planned_bytes divided
        pprun -q --data divided --steps 1 plan.json >/dev/null
    done
}
@test "plans have the memory of a run" { both memory; }

told() {
    local length need
    SIZE=2 same_images qwen
    for args in '-p 1' '-p 3' '-p 4 --tp 2' '-p 2 --cp 4'; do
        # shellcheck disable=SC2086
        ppsplit -q --method uniform-units $args "$MODEL" |
            ppsched -q -s 1f1b -m 4 --data same -o plan.json
        need=$(planned_bytes same)
        within() {
            # shellcheck disable=SC2086
            ppsplit -q --method uniform-units $args -s 1f1b -m 4 \
                --seq-len "$length" --images 2 --image-patches 16 \
                --memory "$1" "$MODEL"
        }
        run -0 within "$need"
        run -1 within $((need - 1))
    done
}
@test "ppsplit plans the memory of images of the size that it is told" {
    both told
    # The embedding of a tied head is not on the first stage.
    mkdir tied
    jq '.tie_word_embeddings = true' "$SRCDIR/tests/golden/qwen2-vl/config.json" \
        >tied/config.json
    MODEL=tied told
}

@test "text alone trains, and a video is refused" {
    lines 4 8 0 >text.jsonl
    pppack -q -l 40 -o text text.jsonl
    DATA=text plan 1f1b -p 3 --encoder-ranks 1
    pprun -q --data text --steps 2 plan.json
    pppack -q -l 40 --cp 2 --cp-sizes per-sequence --balance tokens \
        -o own text.jsonl
    DATA=own plan 1f1b -p 2 --cp 2
    run -0 pprun -q --verify --dtype fp64 --data own plan.json
    FRAMES=2 lines 5 4 1 >video.jsonl
    pack -l 60 -o video video.jsonl
    video() {
        DATA=video plan 1f1b -p 2
        run -2 --separate-stderr pprun -q --data video --steps 1 plan.json
        [[ $stderr == *"a video of '2' frames; pprun takes images so far" ]]
    }
    both video
    sed 's/31,31/31,30/g' data.jsonl >few.jsonl
    run -2 --separate-stderr pack -l 40 -o few few.jsonl
    [[ $stderr == *"features"* ]]
}

@test "Qwen2.5-VL attends to windows, and its weights open by both names" {
    MODEL=$SRCDIR/tests/golden/qwen2.5-vl
    plan 1f1b -p 2
    train some --steps 1
    renamed "$MODEL" model 'sub("^model"; "model.language_model") |
        sub("^visual"; "model.visual")'
    MODEL=model
    plan 1f1b -p 2
    train other --steps 1
    compare some/latest other/latest
    jq '.vision_config.window_size = 16' model/config.json >config.json
    mv config.json model/config.json
    plan 1f1b -p 2
    train wider --steps 1
    run -1 compare some/latest wider/latest
}
