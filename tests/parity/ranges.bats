#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# ranges - sequences that have context-parallel ranks of their own, against one
# rank in fp64. place_ranks draws the ranks at random: some ranks have far more
# tokens than others, or none.

bats_require_minimum_version 1.5.0
load helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    model llama false
    model qwen3-tied true
    model mistral false
    model qwen2-moe false
    model heads false
    eight_heads model-heads
    data 1 40 >data.jsonl
    pack 2 packed2
    pack 4 packed4
    place packed2 2
    place packed4 4
    for name in llama qwen3-tied mistral qwen2-moe heads; do
        ppsplit -q -p 1 "model-$name" | ppsched -q -s gpipe -m 4 >"$name.json"
    done
}

setup() {
    skip_some
    cd "$BATS_FILE_TMPDIR"
}

# pack CP DIR [FILE]: packs for so many ranks.
pack() {
    pppack -q -l 128 --cp "$1" --tp 2 --bins-multiple 4 \
        --cp-sizes per-sequence --balance tokens -o "$2" "${3:-data.jsonl}"
}

# place DIR SEED..: draws other ranks.
place() {
    "$BUILDDIR/tests/parity/place_ranks" "$@"
    pppack --check "$1"
}

# plan CP KIND M SPLIT...: prints a plan.
plan() {
    local cp=$1 kind=$2 m=$3
    shift 3
    ppsplit -q --cp "$cp" "$@" | ppsched -q -s "$kind" -m "$m"
}

# one_step NAME PLAN ARGS...: makes a step of SGD, after which the difference of
# two weights is that of their gradients.
one_step() {
    rm -rf "$1"
    pprun -q "$2" --init 5 --steps 1 --lr 1 --clip 0 --optimizer sgd \
        --dtype fp64 --save "$1" -o "$1.log" "${@:3}"
}

# agree DATA ARGS...: compares the steps of plan.json and of one rank, one.json.
agree() {
    one_step one one.json --data "$@"
    one_step run plan.json --data "$@"
    paste <(jq -c '[.loss, .grad_norm]' one.log) \
        <(jq -c '[.loss, .grad_norm]' run.log) | jq -se '
        transpose | length == 2 and
        all(.[]; .[0] - .[1] | fabs < 1e-10 * (.[1] | fabs))' ||
        paste one.log run.log
    "$BUILDDIR/tests/golden/compare_tensors" 1e-10 1e-10 one/latest run/latest
}

# meshes NAME: compares plans of a model, one a line of stdin: ranks and more.
meshes() {
    local cp rest
    cp "$1.json" one.json
    while read -r cp rest; do
        echo "$1: cp $cp $rest"
        # shellcheck disable=SC2086
        plan "$cp" $rest "model-$1" >plan.json
        agree "packed$cp"
    done
}

@test "losses, norms and all gradients are those of one rank" {
    meshes llama <<'END'
2 gpipe 4 -p 1
4 gpipe 4 -p 1
4 1f1b 4 -p 2 --zero 0
4 1f1b 2 -p 2 --dp 2 --tp 2
2 interleaved 2 -p 2 -c 3 --dp 2 --mesh-order dp-pp-cp-tp
4 zb-h1 4 -p 3 --recompute full --zero 3
END
}

@test "they are with every exchange" {
    meshes qwen3-tied <<'END'
4 zbv 4 -p 2 -c 2 --placement v --cp-exchange ring --recompute selective
2 zbv 4 -p 2 -c 2 --placement v --cp-exchange a2a --recompute full
END
    meshes mistral <<'END'
4 1f1b 4 -p 1 --cp-exchange ring
2 gpipe 4 -p 2 --cp-exchange a2a
END
    meshes heads <<'END'
4 1f1b 2 -p 2 --dp 2 --cp-exchange a2a
2 1f1b 4 -p 2 --tp 2 --cp-exchange a2a
END
}

@test "they are with experts, which ranks of different tokens divide" {
    meshes qwen2-moe <<'END'
4 1f1b 4 -p 2
2 1f1b 2 -p 2 --dp 2 --ep 2
END
    plan 2 1f1b 4 -p 2 --ep 2 model-qwen2-moe >plan.json
    agree packed2 --router aux=0.3,z=0.02,rule=documents
}

@test "a rank may have no token" {
    cp -r packed4 lonely
    place lonely 0 only 2
    cp llama.json one.json
    local how
    for how in gather ring; do
        plan 4 1f1b 4 -p 2 --cp-exchange $how --tp 2 model-llama >plan.json
        agree lonely
    done
    plan 4 1f1b 4 -p 2 --dp 1 model-qwen2-moe >plan.json
    cp qwen2-moe.json one.json
    agree lonely
}

@test "objectives need the whole of sequences and groups" {
    rollouts 5 24 >rollouts.jsonl
    pairs 6 24 >pairs.jsonl
    pack 2 rollouts rollouts.jsonl
    pack 4 pairs pairs.jsonl
    place rollouts 3
    place pairs 4
    cp llama.json one.json
    plan 2 1f1b 4 -p 2 model-llama >plan.json
    agree rollouts --objective grpo
    agree rollouts --objective grpo,ratio=sequence,aggregate=seq-mean-mean
    plan 4 1f1b 2 -p 2 --dp 2 model-llama >plan.json
    agree pairs --objective dpo
}

@test "the bits do not depend on pipeline ranks" {
    local log='' kind m how
    while read -r kind m how; do
        # shellcheck disable=SC2086
        plan 4 "$kind" "$m" $how model-qwen3-tied >plan.json
        pprun -q plan.json --data packed4 --init 5 --steps 3 --lr 1e-2 |
            jq -c '[.loss, .grad_norm]' >next
        [ -z "$log" ] || diff first next
        log=first
        mv -n next first
    done <<'END'
gpipe 4 -p 1
1f1b 4 -p 2
zbv 4 -p 2 -c 2 --placement v
1f1b 4 -p 3 --cp-exchange gather
END
}

@test "a whole sequence has the bits of one rank, with any exchange" {
    local how cp=4
    for how in ring gather; do
        plan $cp 1f1b 4 -p 2 --cp-exchange $how model-llama >plan.json
        for scores in one whole; do
            rm -f "$scores.scores"
            ppscore -q "$([ $scores = one ] && echo llama || echo plan).json" \
                --data packed4 --init 3 --row-invariant \
                --logprobs -o "$scores.scores"
        done
        # The gather has them for all. Find the whole ones in the index.
        [ $how = ring ] || cmp one.scores whole.scores
        pppack --export safetensors -o packed.safetensors packed4
        tensor source >source
        tensor cp_ranks | awk 'NR % 2 == 0' | paste source - |
            awk '$2 == 1 { print $1 }' | sort >whole.list
        [ "$(wc -l <whole.list)" -gt 5 ]
        diff <(scores_of one.scores) <(scores_of whole.scores)
    done
}

# tensor NAME: prints an int32 tensor of packed.safetensors, a number a line.
tensor() {
    local n at end
    n=$(od -An -tu8 -N8 packed.safetensors | tr -d ' ')
    read -r at end < <(tail -c +9 packed.safetensors | head -c "$n" |
        jq -r ".$1.data_offsets | \"\(.[0]) \(.[1])\"")
    od -An -v -w4 -td4 -j $((8 + n + at)) -N $((end - at)) packed.safetensors |
        tr -d ' '
}

# scores_of FILE: prints the scores of the sequences in whole.list.
scores_of() {
    jq -c --slurpfile whole whole.list \
        'select(.sequence | IN($whole[])) | [.sequence, .logprobs]' "$1"
}

@test "ranks allocate what ppsched and ppsplit plan" {
    local most
    for how in "1f1b -p 2" "1f1b -p 2 --tp 2 --cp-exchange ring" \
        "zb-h1 -p 3 --recompute full"; do
        # shellcheck disable=SC2086
        set -- $how
        ppsplit -q --method uniform --cp 4 "${@:2}" model-llama |
            ppsched -q -s "$1" -m 4 --data packed4 >plan.json
        [ "$(jq .data.max_tokens plan.json)" = \
            "$(pppack --stats packed4 | jq '.cp * .rank_tokens')" ]
        pprun plan.json --print-memory --dtype fp32 | jq -c 'map(.total)' >real
        ppsched --stats plan.json | jq -c .rank_bytes | diff - real
        most=$(jq max real)
        split() {
            ppsplit -q --method uniform --schedule "$1" -m 4 --cp 4 \
                --seq-len "$(longest packed4)" --micro-batch-tokens \
                "$(jq .data.max_tokens plan.json)" "${@:2}" model-llama
        }
        run -0 split "$@" --memory "$most"
        run -1 split "$@" --memory $((most - 1))
        pprun -q plan.json --init 5 --steps 1 --lr 1 >log
    done
}

@test "the verification knows them, and finds a false order of keys" {
    plan 4 1f1b 2 -p 2 --dp 2 model-llama >plan.json
    pprun --verify --init 1 --data packed4 plan.json >table
    grep -qx 'the same: 57 tensors' table
    pprun --verify --shrink --data packed4 plan.json | grep -q '^the same'
    run -1 env PP_INJECT=context-order "$BUILDDIR/tests/parity/pprun_inject" \
        --verify --init 1 --data packed4 plan.json
    [[ $output == *"not the same"* ]]
}

@test "the gradients of sinks are those of the heads of a rank" {
    local how
    for how in gather a2a; do
        plan 2 1f1b 4 -p 2 --cp-exchange $how \
            "$SRCDIR/tests/golden/gpt-oss/model" >plan.json
        pprun --verify --init 1 --dtype fp64 --data packed2 plan.json >table
        grep -q '^the same' table
    done
}

@test "every rank reports one hash of the bins" {
    plan 4 1f1b 4 -p 2 --tp 2 model-llama >plan.json
    pprun -q plan.json --data packed4 --init 3 --steps 1 --lr 1e-3 \
        --print-metadata-hash | jq -r 'select(.hash).hash' >hashes
    pprun -q llama.json --data packed4 --init 3 --steps 1 --lr 1e-3 \
        --print-metadata-hash | jq -r 'select(.hash).hash' >>hashes
    [ "$(wc -l <hashes)" = 17 ]
    [ "$(sort -u hashes | wc -l)" = 1 ]
}

@test "a plan for other ranks, and an exact one, are refused by name" {
    plan 2 1f1b 4 -p 2 model-llama >plan.json
    run -2 --separate-stderr pprun -q plan.json --data packed4 --init 1 --steps 1
    [ "$stderr" = "pprun: packed4: the sequences are on '4' context-parallel \
ranks, but the plan has 2; pack for as many" ]
    run -2 --separate-stderr ppsched -q --data packed4 --stats plan.json
    [ "$stderr" = "ppsched: packed4: the sequences are on '4' \
context-parallel ranks, but the plan has 2; pack for as many" ]
    plan 2 1f1b 4 -p 2 --cp-exact model-llama >plan.json
    run -2 --separate-stderr pprun -q plan.json --data packed2 --init 1 --steps 1
    [ "$stderr" = "pprun: packed2: sequences with ranks of their own cannot \
be exact ('cp_exact' of the mesh); pack with pppack --cp-sizes fixed" ]
}
