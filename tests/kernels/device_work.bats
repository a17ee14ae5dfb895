#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# What a layer gives the device for a microbatch: kernels, products of cuBLAS
# included, and copies. A kernel that passes over the rows of a layer once more is
# seen here. A layer of experts makes the host wait once in a microbatch, for the
# rows of each expert; no other layer does, and no microbatch.

bats_require_minimum_version 1.5.0

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    awk 'BEGIN { for (i = 0; i < 2; i++) {
        ids = ""
        for (t = 0; t < 24; t++)
            ids = ids (t ? "," : "") (t * t + 5 * i) % 67
        print "{\"input_ids\": [" ids "]}" } }' |
        pppack -q -l 24 -o packed
}

setup() { cd "$BATS_FILE_TMPDIR"; }

# emulated PLAN STEPS COUNTS: trains, and writes the counts to a file.
emulated() {
    PP_EMULATED_COUNTS=$3 "$BUILDDIR/tests/kernels/pprun_emulated" -q \
        --device cuda --data packed --init 1 --steps "$2" "$1" >/dev/null
}

# count FAMILY LAYERS MICROBATCHES SPLIT...: writes the counts of one step.
count() {
    local family=$1 layers=$2 m=$3
    shift 3
    rm -rf model
    mkdir model
    jq "(.num_hidden_layers, .n_layer | values) = $layers
        | del(.layer_types)" \
        "$SRCDIR/tests/golden/$family/model/config.json" >model/config.json
    ppsplit -q -p 1 "$@" model | ppsched -q -s gpipe -m "$m" >plan.json
    emulated plan.json 1 "counts-$layers-$m"
}

# layer FAMILY SPLIT...: prints the counts of one more layer and one more
# microbatch together, that is of the forward and the backward of one of each.
layer() {
    local family=$1 layers m
    shift
    for layers in 2 3; do
        for m in 1 2; do
            count "$family" $layers $m "$@"
        done
    done
    paste -d' ' counts-3-2 counts-3-1 counts-2-2 counts-2-1 |
        awk '{ printf "%s %d ", $1, $2 - $4 - $6 + $8 }'
}

@test "the kernels and copies of a layer" {
    while read -r kernels copies waits family how; do
        read -ra how <<<"$how"
        got=$(layer "$family" "${how[@]}")
        echo "$family ${how[*]}: $got"
        [[ "$got" == "kernels $kernels copies $copies bytes "*" waits $waits locked "* ]]
    done <<'END'
28 0 0 llama
36 0 0 llama --recompute full
29 0 0 qwen2
38 0 0 qwen3
34 0 0 gpt2
42 0 0 olmo2
36 0 0 gemma2
48 0 0 gemma3
88 20 0 llama --tp 2
51 1 1 mixtral
61 1 1 mixtral --recompute full
69 1 1 qwen2-moe
END
}

# Ranks that divide experts have norms of two groups, and read each.
@test "the host of a rank waits once a step, and for experts once a microbatch" {
    while read -r want family mesh kind m how; do
        IFS=, read -ra mesh <<<"$mesh"
        read -ra how <<<"$how"
        ppsplit -q "${mesh[@]}" "$SRCDIR/tests/golden/$family/model" |
            ppsched -q -s "$kind" -m "$m" "${how[@]}" >step.json
        for n in 2 3; do
            emulated step.json $n steps-$n
        done
        waits=$(awk '$1 == "waits" { print -last + (last = $2) }' steps-2 steps-3 |
            tail -1)
        echo "$family ${mesh[*]} $kind: $waits"
        [ "$waits" -eq "$want" ]
    done <<'END'
1 llama -p,1 gpipe 4
2 llama -p,2 1f1b 3
2 llama -p,2 zb-h1 4
2 llama -p,2 seq1f1b 2 --slices 2
20 mixtral -p,1,--dp,2,--ep,2,--recompute,full 1f1b 4
10 mixtral -p,2,--recompute,selective zb-h1 4
END
}
