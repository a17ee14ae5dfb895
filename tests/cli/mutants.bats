#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# mutants - every program, on thousands of mutants of every kind of file that it
# reads, takes it or refuses it with one line. PP_MUTANTS is the number of
# mutants of each file, PP_SEED changes them.

bats_require_minimum_version 1.5.0
load ../parity/helpers

setup_file() {
    command -v python3 >/dev/null || skip 'no python3'
    set_up_run
    export OPENBLAS_NUM_THREADS=1
    run_args=(-q plan.json --data packed --init 1 --steps 3)
    pprun "${run_args[@]}" --save ckpt --trace trace.json --profile profile.json \
        >log
    ppscore -q plan.json --data packed --init 1 --top-k 2 --logprobs -o summed
    sed 's/, "xxh3": "[^"]*"//' summed >scores
    ppsched -q --export csv -o plan.csv plan.json
    awk 'BEGIN { for (i = 1; i < 40; i++) print i * 7 % 31 + 1 }' >lengths
}

setup() {
    cd "$BATS_FILE_TMPDIR"
    rm -rf out
}

# mutants [--sum KIND] FILE COMMAND...
mutants() {
    local sum=()
    [ "$1" != --sum ] || { sum=("${@:1:2}") && shift 2; }
    "$SRCDIR/tests/cli/mutate" "${sum[@]}" "${PP_MUTANTS:-$((6 / ${FEWER:-1}))}" "$@"
}

train=(pprun -q --data packed --steps 1 -o lines)
pack=(pppack -q -l 64 -o out)

@test "manifests" {
    mutants plan.json ppsched -q --check plan.json
    mutants plan.json ppsched -q --stats plan.json
    mutants plan.json ppsplit -q -t plan.json
    mutants plan.json "${train[@]}" --init 1 plan.json
    cp plan.json copy.json
    mutants copy.json pppack -q -l 64 --balance flops --manifest copy.json \
        --stats data.jsonl
}

@test "descriptions of models" {
    mutants model-llama/config.json ppsplit -q -p 2 model-llama
    local name
    for name in qwen2-vl qwen3 gpt2; do
        mkdir -p "$name"
        cp "$SRCDIR/tests/fuzz/corpus/fuzz_config/$name" "$name/config.json"
        mutants "$name/config.json" ppsplit -q -p 2 "$name"
    done
    for name in gpt-oss deepseek-v3 gemma3; do
        mkdir -p "$name"
        cp "$SRCDIR/tests/golden/$name/model/config.json" "$name"
        mutants "$name/config.json" ppsplit -q -p 2 "$name"
    done
    cp "$SRCDIR/tests/fuzz/corpus/fuzz_units/good" units.json
    mutants units.json ppsplit -q -p 2 --units units.json
    jq '[.stages[].units]' plan.json >fqns.json
    mutants fqns.json ppsplit -q -p 2 --method fqns --fqns fqns.json model-llama
}

@test "schedules, profiles and traces" {
    mutants plan.csv ppsched -q --csv plan.csv plan.json
    mutants trace.json ppsched -q --overlay trace.json plan.json
    mutants profile.json ppsplit -q -p 2 --costs profile.json model-llama
}

@test "documents" {
    mutants data.jsonl "${pack[@]}" data.jsonl
    local name
    for name in chat pair; do
        cp "$SRCDIR/tests/fuzz/corpus/fuzz_jsonl/$name" "$name.jsonl"
        mutants "$name.jsonl" "${pack[@]}" "$name.jsonl"
    done
    head -n 1 "$SRCDIR/tests/fuzz/corpus/fuzz_jsonl/rollout" >rollout.jsonl
    mutants rollout.jsonl "${pack[@]}" rollout.jsonl
    cp "$SRCDIR/tests/fuzz/corpus/fuzz_jsonl/image" image.jsonl
    mutants image.jsonl "${pack[@]}" --image-token 9 --patch 2 image.jsonl
    cp "$SRCDIR/tests/fuzz/corpus/fuzz_jsonl/image-pair" both.jsonl
    mutants both.jsonl "${pack[@]}" --image-token 9 both.jsonl
    mutants lengths pppack -q -l 64 --lengths lengths
    mutants summed "${pack[@]}" --add-column logprobs=summed data.jsonl
    mutants scores "${pack[@]}" --add-column logprobs=scores data.jsonl
    mutants scores "${pack[@]}" --add-column topk=scores data.jsonl
}

@test "binary data" {
    jq -c 'del(.loss_mask)' data.jsonl | pppack -q -l 64 -o plain
    pppack -q --export megatron -o set plain
    mutants set.idx "${pack[@]}" set
    pppack -q --export safetensors -o rows.safetensors plain
    mutants rows.safetensors "${pack[@]}" rows.safetensors
    python3 - <<'END'
import struct
with open("image.npy", "wb") as f:
    text = b"{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4, 4), }\n"
    f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text)
    f.write(struct.pack("<48f", *range(48)))
with open("ids.npy", "wb") as f:
    text = b"{'descr': '<i4', 'fortran_order': False, 'shape': (4, 8), }\n"
    f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text)
    f.write(struct.pack("<32i", *range(32)))
END
    mutants ids.npy "${pack[@]}" ids.npy
    echo '{"input_ids": [9, 9, 9, 9, 1], "images": ["image.npy"]}' >with.jsonl
    mutants image.npy "${pack[@]}" --image-token 9 --patch 2 with.jsonl
}

@test "packed directories" {
    local sum file
    tail -n 1 "$SRCDIR/tests/fuzz/corpus/fuzz_jsonl/rollout" >group.jsonl
    pppack -q -l 64 -o groups group.jsonl
    pppack -q -l 64 --cp 2 --cp-sizes per-sequence --balance tokens \
        -o sized data.jsonl
    echo '{"input_ids": [9, 1, 8], "images": [[[[1, 2], [3, 4]]]],
        "audio": [[[0, 1, 2], [3, 4, 5]]]}' | jq -c . >line.jsonl
    pppack -q -l 64 --image-token 9 --audio-token 8 --patch 2 -o both line.jsonl
    for sum in '' '--sum index'; do
        for file in packed groups sized both; do
            # shellcheck disable=SC2086
            mutants $sum $file/index "${pack[@]}" $file
            # shellcheck disable=SC2086
            mutants $sum $file/index pppack -q --stats $file
        done
        # shellcheck disable=SC2086
        mutants $sum packed/index "${train[@]}" --init 1 plan.json
    done
    mutants packed/input_ids "${train[@]}" --init 1 plan.json
}

@test "weights and checkpoints" {
    local file
    cp ckpt/latest/model.safetensors weights.safetensors
    mutants weights.safetensors "${train[@]}" --weights weights.safetensors \
        plan.json
    # Blocks of MXFP4, whose sizes follow from each other.
    cp -r "$SRCDIR/tests/golden/quantized/gpt-oss/model" blocks
    jq -nc 'range(4) | {input_ids: [., 5, 9, 2, 11, 3, 17, . + 7]}' |
        pppack -q -l 8 -o short
    ppsplit -q -p 1 blocks | ppsched -q -s gpipe -m 4 -o blocks.json
    mutants blocks/model.safetensors pprun -q --data short --steps 1 -o lines \
        --weights blocks blocks.json
    (cd ckpt/latest && find . -type f) | sed 's,^\./,,' >files
    while read -r file; do
        mutants "ckpt/step-00000003/$file" "${train[@]}" --resume ckpt plan.json
        [ "$file" = checksums.xxh3 ] ||
            mutants --sum checkpoint "ckpt/step-00000003/$file" "${train[@]}" \
                --resume ckpt plan.json </dev/null
    done <files
}

@test "given numbers" {
    "$SRCDIR/tests/cli/objective_reference" make 1 20 >cases
    mutants cases pprun --objective-cases cases
}
