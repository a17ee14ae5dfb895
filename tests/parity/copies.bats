#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# copies - two copies of the weights train the same as one copy, also across a
# resume. (test_merged compares the bits with one merged row.)

bats_require_minimum_version 1.5.0
load helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    data 1 60 >data.jsonl
    pppack -l 48 -o packed data.jsonl
    data 2 11 >eval.jsonl
    pppack -l 48 -o eval eval.jsonl
    for name in llama qwen3-tied; do
        model "$name" "$([ "$name" = llama ] && echo false || echo true)"
        ppsplit -p 1 "model-$name" | ppsched -s gpipe -m 8 >"$name.json"
        ppsplit -p 4 --placement both-ways "model-$name" |
            ppsched -s dualpipe -m 8 >"both-$name.json"
        train "$name" "$name.json" --eval eval --dtype fp64
        train "both-$name" "both-$name.json" --eval eval --dtype fp64 \
            --shard-size 100kB
    done
}

setup() { cd "$BATS_FILE_TMPDIR"; }

close_to() { "$BUILDDIR/tests/golden/compare_tensors" 1e-9 1e-12 "$@"; }

# Fails unless all numbers of two runs agree within 1e-10.
close_lines() {
    paste <(numbers "$1" | jq '.[]') <(numbers "$2" | jq '.[]') |
        awk '$1 != $2 && ($1 - $2) ^ 2 > 1e-20 * $2 ^ 2 {
            print; bad = 1 } END { exit bad || NR < 30 }'
}

@test "two copies train the same as one, but for the order of sums" {
    for name in llama qwen3-tied; do
        close_lines "both-$name/log" "$name/log"
        close_to "both-$name/ckpt/latest" "$name/ckpt/latest"
        # Gradients are saved in fp32.
        "$BUILDDIR/tests/golden/compare_tensors" 1e-6 1e-12 \
            "both-$name/grads" "$name/grads"
    done
    run ! same both-llama llama
}

@test "one copy resumes a run of two, and two resume a run of one" {
    for from in llama both-llama; do
        for to in llama both-llama; do
            pprun "$to.json" --data packed --resume "$from/ckpt" --steps 7 \
                --lr 1e-2 --dtype fp64 --save "$from-$to" -o log
            close_to "$from-$to/latest" llama-llama/latest
        done
    done
}

@test "a checkpoint holds copies of the weights once" {
    for file in model optimizer/exp_avg optimizer/exp_avg_sq; do
        jq -r '.weight_map | keys[]' \
            "both-qwen3-tied/ckpt/latest/$file.safetensors.index.json"
    done | sort | uniq -c | awk '$1 != 3 { exit 1 } END { exit NR < 20 }'
    size() { jq .metadata.total_size "$1/ckpt/latest/model.safetensors.index.json"; }
    ppsplit -p 2 model-qwen3-tied | ppsched -s 1f1b -m 8 >two.json
    train two two.json --dtype fp64 --shard-size 100kB
    [ "$(size two)" -eq "$(size both-qwen3-tied)" ]
}

@test "both copies score, each sequence once" {
    for plan in llama both-llama; do
        ppscore "$plan.json" --data packed --init 5 --logprobs -o "$plan.jsonl"
    done
    cmp llama.jsonl both-llama.jsonl
}

@test "passes accumulate in each copy, and the last one adds the copies" {
    ppsplit -p 2 --placement both-ways model-llama |
        ppsched -s dualpipe -m 4 >half.json
    train half half.json --eval eval --dtype fp64 --grad-accum 2
    close_lines half/log llama/log
    close_to half/ckpt/latest llama/ckpt/latest
}

@test "the memory of both copies is planned" {
    pprun both-llama.json --data packed --init 5 --steps 1 --print-memory >plan
    jq -e --slurpfile m both-llama.json '[.[].weights] == [range(4) as $r |
        [$m[0].stages[] | select(.rank == $r).params] | add * 4]' plan
}
