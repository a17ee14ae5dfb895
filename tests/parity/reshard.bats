#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# reshard - what one mesh and schedule saves, another loads and saves with the
# same bytes, and so does the first one again. PP_RESHARD=all tries all pairs of
# these and of the meshes of meshes.factors.

bats_require_minimum_version 1.5.0
load helpers

# A setting is a name, the options of ppsplit, and those of ppsched. A step has
# 24 microbatches in each.
settings=(
    'one:-p 1:-s gpipe -m 24'
    'two:-p 2:-s 1f1b -m 24'
    'four:-p 4:-s zb-h1 -m 24'
    'chunks:-p 2 --chunks 2:-s interleaved -m 24'
    'lanes:-p 2 --dp 2:-s 1f1b -m 12'
    'whole:-p 2 --dp 2 --zero 0:-s 1f1b -m 12'
    'parts:-p 2 --chunks 2 --dp 2 --zero 3 --resident 1:-s interleaved -m 12'
    'copies:-p 2 --placement both-ways:-s dualpipe -m 24'
    'tensors:-p 2 --tp 2 --cp 2:-s seq1f1b -m 24 --slices 1'
)

# Makes the plans of all settings, and lists their names.
make_plans() {
    local setting name split schedule row
    for setting in "${settings[@]}"; do
        IFS=: read -r name split schedule <<<"$setting"
        # shellcheck disable=SC2086 # these are lists of words
        ppsplit -q $split model-qwen2-tied | ppsched -q $schedule >"$name.json"
        echo "$name"
    done
    [ "${PP_RESHARD-}" = all ] || return 0
    "$SRCDIR/tests/parity/cover" "$SRCDIR/tests/parity/meshes.factors" |
        while read -r -a row; do
            name=$(IFS=-; echo "${row[*]}")
            plan_row $((24 / ${row[4]#dp})) model-qwen2-tied "${row[@]}" \
                >"$name.json"
            echo "$name"
        done
}

# run_from PLAN ARGS...: trains two steps, or none after a resume.
run_from() {
    pprun -q "$1.json" --data packed --steps 2 --lr 1e-2 "${@:2}"
}

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    model qwen2-tied true
    eight_heads model-qwen2-tied
    data 1 60 >data.jsonl
    pppack -q -l 64 --cp 2 --tp 4 -o packed data.jsonl
    make_plans >names
    local name
    while read -r name; do
        run_from "$name" --init 5 --save "at-$name" --shard-size 20kB \
            -o "$name.log" </dev/null
    done <names
}

setup() { cd "$BATS_FILE_TMPDIR"; }

@test "schedules of one lane save the same bytes" {
    for name in two four chunks; do
        diff -r at-one "at-$name"
    done
    [ "$(find at-one/step-00000002 -name 'model-*' | wc -l)" -gt 4 ]
    diff -r at-lanes at-whole
    diff -r at-lanes at-parts
    diff -rq at-one at-lanes && return 1
    run_from one --init 6 --save other --shard-size 20kB -o other.log
    run ! diff -rq at-one other
}

# moved FROM TO: TO saves what FROM saved, with the same bytes.
moved() {
    echo "# $1 to $2"
    run_from "$2" --resume "at-$1" --save there --shard-size 20kB
    diff -r "at-$1" there
    rm -r there
}

# A pair that saves the same bytes both ways gives them back too.
@test "any setting loads and saves what another saved, with the same bytes" {
    local names a b k pairs=0
    readarray -t names <names
    local n=${#names[@]} distances=2
    [ "${PP_RESHARD-}" != all ] || distances=$n
    for ((a = 0; a < n; a++)); do
        for ((k = 0; k < distances; k++)); do
            b=$(((a + k) % n))
            moved "${names[a]}" "${names[b]}"
            ((k == 0 || distances == n)) || moved "${names[b]}" "${names[a]}"
            pairs=$((pairs + 1))
        done
    done
    echo "# $pairs pairs of $n settings" >&3
    [ "$n" -ge 8 ]
    [ "${PP_RESHARD-}" != all ] || [ "$n" -ge 40 ]
}

@test "a finished run into its own directory writes nothing" {
    touch -d 2020-01-01 at-two/step-00000002/config.json
    run_from one --resume at-two --save at-two
    [ "$(stat -c %y at-two/step-00000002/config.json | cut -c 1-4)" = 2020 ]
}

@test "a checkpoint in other shards has the same tensors" {
    run_from one --resume at-two --save whole
    [ -e whole/latest/model.safetensors ]
    compare whole/latest at-two/latest
    compare whole/latest/optimizer/exp_avg.safetensors \
        at-two/latest/optimizer/exp_avg.safetensors.index.json
    run_from two --resume whole --save cut --shard-size 20kB
    diff -r cut at-two
}

@test "weights are saved in another type, with the exact ones beside them" {
    cd "$BATS_FILE_TMPDIR"
    model narrow false
    jq '.torch_dtype = "bfloat16"' model-narrow/config.json >config
    mv config model-narrow/config.json
    ppsplit -q -p 2 model-narrow | ppsched -q -s 1f1b -m 4 >narrow.json
    go() { pprun -q narrow.json --data packed --init 1 --lr 1e-2 "$@" \
        >/dev/null; }
    go --steps 4 --save fp32
    go --steps 2 --save model --save-dtype model --shard-size 20k
    pprun -q narrow.json --data packed --lr 1e-2 --steps 4 --resume model \
        --save again >/dev/null
    compare fp32/step-00000004 again/step-00000004
    jq -e '.torch_dtype == "bfloat16"' model/latest/config.json
    jq -e '.torch_dtype == "float32"' again/latest/config.json
    # bf16 alone is at most half a unit in the last place away, 2^-8.
    go --steps 2 --save exact
    rm model/latest/optimizer/master*
    "$BUILDDIR/tests/golden/compare_tensors" 0.004 0 exact/latest model/latest
    run ! "$BUILDDIR/tests/golden/compare_tensors" 0 0 exact/latest model/latest
}
