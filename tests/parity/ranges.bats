#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# ranges - sequences that have context-parallel ranks of their own: the bits of
# sequences that one rank has, and the index. cp_sizes.rows has the numbers.

bats_require_minimum_version 1.5.0
load helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    model llama false
    data 1 40 >data.jsonl
    pppack -q -l 128 --cp 4 --tp 2 --bins-multiple 4 --cp-sizes per-sequence \
        --balance tokens -o packed4 data.jsonl
    "$BUILDDIR/tests/parity/place_ranks" packed4 4
    pppack --check packed4
    ppsplit -q -p 1 model-llama | ppsched -q -s gpipe -m 4 >llama.json
}

setup() {
    skip_some
    cd "$BATS_FILE_TMPDIR"
}

# plan SPLIT...: writes plan.json.
plan() { ppsplit -q -p 2 --cp 4 "$@" model-llama | ppsched -q -s 1f1b -m 4 >plan.json; }

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

@test "a whole sequence has the bits of one rank, with any exchange" {
    local how
    for how in ring gather; do
        plan --cp-exchange $how
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

@test "every rank reports one hash of the bins" {
    plan --tp 2
    [ "$(ppsched -q -s 1f1b -m 4 --data packed4 plan.json | jq .data.max_tokens)" = \
        "$(pppack --stats packed4 | jq '.cp * .rank_tokens')" ]
    pprun -q plan.json --data packed4 --init 3 --steps 1 --lr 1e-3 \
        --print-metadata-hash | jq -r 'select(.hash).hash' >hashes
    pprun -q llama.json --data packed4 --init 3 --steps 1 --lr 1e-3 \
        --print-metadata-hash | jq -r 'select(.hash).hash' >>hashes
    [ "$(wc -l <hashes)" = 17 ]
    [ "$(sort -u hashes | wc -l)" = 1 ]
}
