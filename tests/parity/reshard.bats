#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# reshard - what one setting of ranks, schedule, dp and zero saves, another loads
# and saves with the same bytes. PP_RESHARD=all tries all pairs of more settings.

bats_require_minimum_version 1.5.0
load helpers

# A setting is a name, the options of ppsplit, and those of ppsched. A step has
# 8 microbatches in each.
settings=(
    'one:-p 1:-s gpipe -m 8'
    'two:-p 2:-s 1f1b -m 8'
    'four:-p 4:-s zb-h1 -m 8'
    'chunks:-p 2 --chunks 2:-s interleaved -m 8'
    'lanes:-p 2 --dp 2:-s 1f1b -m 4'
    'whole:-p 2 --dp 2 --zero 0:-s 1f1b -m 4'
    'copies:-p 2 --placement both-ways:-s dualpipe -m 8'
    'tensors:-p 2 --tp 2:-s 1f1b -m 8'
)
more=(
    'three:-p 3:-s gpipe -m 8'
    'vee:-p 2 --chunks 2 --placement v:-s zbv -m 8'
    'waves:-p 3 --chunks 2 --placement v:-s hanayo -m 8'
    'lanes4:-p 1 --dp 4:-s gpipe -m 2'
    'chunks-lanes:-p 2 --chunks 2 --dp 2:-s interleaved -m 4'
    'context:-p 2 --cp 2:-s 1f1b -m 8'
    'tensors4:-p 1 --tp 4:-s gpipe -m 8'
    'all:-p 2 --tp 2 --cp 2 --dp 2:-s 1f1b -m 4'
)
if [ "${PP_RESHARD-}" = all ]; then
    settings+=("${more[@]}")
    distances=${#settings[@]}
else
    distances=2
fi

# run_from PLAN ARGS...: trains two steps, or none after a resume.
run_from() {
    pprun -q "$1.json" --data packed --steps 2 --lr 1e-2 "${@:2}"
}

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    model qwen2-tied true
    data 1 60 >data.jsonl
    pppack -q -l 64 --cp 2 --tp 4 -o packed data.jsonl
    local name split schedule
    for setting in "${settings[@]}"; do
        IFS=: read -r name split schedule <<<"$setting"
        # shellcheck disable=SC2086 # these are lists of words
        ppsplit -q $split model-qwen2-tied | ppsched -q $schedule >"$name.json"
        run_from "$name" --init 5 --save "at-$name" --shard-size 40kB \
            -o "$name.log"
    done
}

setup() { cd "$BATS_FILE_TMPDIR"; }

@test "schedules of one lane save the same bytes" {
    for name in two four chunks; do
        diff -r at-one "at-$name"
    done
    [ "$(find at-one/step-00000002 -name 'model-*' | wc -l)" -gt 4 ]
    diff -r at-lanes at-whole
    diff -rq at-one at-lanes && return 1
    run_from one --init 6 --save other --shard-size 40kB -o other.log
    run ! diff -rq at-one other
}

@test "any setting loads and saves what another saved, with the same bytes" {
    local n=${#settings[@]} i k a b pairs=0
    for ((i = 0; i < n; i++)); do
        for ((k = 1; k < distances; k++)); do
            a=${settings[i]%%:*} b=${settings[(i + k) % n]%%:*}
            echo "# $a to $b and back"
            run_from "$b" --resume "at-$a" --save there --shard-size 40kB
            diff -r "at-$a" there
            run_from "$a" --resume there --save back --shard-size 40kB
            diff -r "at-$a" back
            rm -r there back
            pairs=$((pairs + 1))
        done
    done
    [ "$pairs" -eq $((n * (distances - 1))) ]
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
    run_from two --resume whole --save cut --shard-size 40kB
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
