#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# qwen2_vl - images of any size in a pipeline: any ranks give the bits of one,
# plans of memory are those of runs, --verify proves meshes, and videos are
# refused by name.

bats_require_minimum_version 1.5.0
load helpers

# lines SEED COUNT [IMAGES]: prints sequences with 0, 1 or 2 images, or with as
# many as given. Token 31 stands for a feature of four patches of 24 pixels.
lines() {
    awk -v seed="$1" -v n="$2" -v fixed="${3:--1}" -v frames="${FRAMES:-1}" \
        -v size="${SIZE:-0}" '
    function text(count,  t) {
        for (t = 0; t < count; t++) ids = ids sep() int(2 + rand() * 29)
    }
    function sep() { return ids == "" ? "" : "," }
    function image(rows, columns,  p, x, all) {
        for (p = 0; p < frames * rows * columns; p++) {
            all = all (p ? ",[" : "[")
            for (x = 0; x < 24; x++)
                all = all (x ? "," : "") sprintf("%.3f", rand() * 2 - 1)
            all = all "]"
        }
        return "{\"pixels\":[" all "],\"grid\":[" frames "," rows "," \
            columns "]}"
    }
    BEGIN {
        srand(seed)
        for (i = 0; i < n; i++) {
            ids = images = ""
            text(1 + int(rand() * 6))
            k = fixed < 0 ? i % 3 : fixed
            for (j = 0; j < k; j++) {
                rows = 2 * (size ? size : 1 + int(rand() * 3))
                columns = 2 * (size ? size : 1 + int(rand() * 2))
                for (f = frames * rows * columns / 4; f > 0; f--)
                    ids = ids sep() 31
                text(1 + int(rand() * 5))
                images = images (j ? "," : "") image(rows, columns)
            }
            printf "{\"input_ids\": [%s]%s}\n", ids,
                (k ? ", \"images\": [" images "]" : "")
        }
    }'
}

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

# plan DATA KIND ARGS...: writes plan.json, for four microbatches.
plan() {
    local data=$1 kind=$2
    shift 2
    ppsplit -q "$@" "$MODEL" | ppsched -q -s "$kind" -m 4 --data "$data" \
        -o plan.json
}

train() {
    rm -rf "$1"
    pprun -q --data packed --save "$1" --steps 3 --lr 1e-2 "${@:2}" plan.json \
        >/dev/null
}

@test "ranks give the bits of one, wherever the model is cut" {
    plan packed gpipe -p 1
    train one
    plan packed 1f1b -p 3 --encoder-ranks 1
    train apart
    compare one/latest apart/latest
    plan packed zb-h1 -p 4 --method uniform-units
    train half --steps 2
    plan packed 1f1b -p 2
    train half --resume half
    compare one/latest half/latest
}

@test "--verify proves meshes, recomputation and frozen parts" {
    for args in '-p 2 --tp 2' '-p 3 --encoder-ranks 1 --cp 2' \
        '-p 1 --dp 2 --tp 2 --cp 2 --zero 3' '-p 4 --method uniform-units' \
        '-p 2 --recompute full --cp 2' \
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

@test "plans have the memory of a run" {
    # Images differ in size, and so do the shares of ranks.
    for args in '-p 1' '-p 3' '-p 4 --freeze vision' '-p 2 --dp 2' \
        '-p 4 --tp 2' '-p 2 --cp 2' '-p 3 --tp 2 --cp 2 --freeze vision'; do
        # shellcheck disable=SC2086
        ppsplit -q --method uniform-units $args "$MODEL" |
            ppsched -q -s 1f1b -m 2 --data divided -o plan.json
        pprun --plan --data divided --init 5 --steps 1 plan.json >need.json
        ppsched --stats plan.json |
            jq -e --slurpfile need need.json '.rank_bytes == [$need[0][].total]'
        pprun -q --data divided --steps 1 plan.json >/dev/null
    done
}

@test "ppsplit plans the memory of images of the size that it is told" {
    local length need
    SIZE=2 lines 3 1 2 >line
    for _ in 1 2 3 4 5 6 7 8; do cat line; done >same.jsonl
    length=$(jq '(.input_ids | length) / 8 | ceil * 8' line)
    pack -l "$length" --cp 4 -o same same.jsonl
    for args in '-p 1' '-p 3' '-p 4 --tp 2' '-p 2 --cp 4'; do
        # shellcheck disable=SC2086
        ppsplit -q --method uniform-units $args "$MODEL" |
            ppsched -q -s 1f1b -m 4 --data same -o plan.json
        pprun --plan --data same --init 5 --steps 1 plan.json >need.json
        need=$(jq 'map(.total) | max' need.json)
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

@test "text alone trains, and a video is refused" {
    lines 4 8 0 >text.jsonl
    pppack -q -l 40 -o text text.jsonl
    plan text 1f1b -p 3 --encoder-ranks 1
    pprun -q --data text --steps 2 plan.json
    pppack -q -l 40 --cp 2 --cp-sizes per-sequence --balance tokens \
        -o own text.jsonl
    plan own 1f1b -p 2 --cp 2
    run -0 pprun -q --verify --dtype fp64 --data own plan.json
    FRAMES=2 lines 5 4 1 >video.jsonl
    pack -l 60 -o video video.jsonl
    plan video 1f1b -p 2
    run -2 --separate-stderr pprun -q --data video --steps 1 plan.json
    [[ $stderr == *"a video of '2' frames; pprun takes images so far" ]]
    sed 's/31,31/31,30/g' data.jsonl >few.jsonl
    run -2 --separate-stderr pack -l 40 -o few few.jsonl
    [[ $stderr == *"features"* ]]
}
