#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# meshes - pprun --verify in fp64 over a pairwise cover of meshes: schedules with
# tensor-, context-, data- and expert-parallel ranks. FEWER=3 takes only a third of
# the rows.

bats_require_minimum_version 1.5.0
load helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    "$SRCDIR/tests/parity/cover" -v fewer="${FEWER:-1}" \
        "$SRCDIR/tests/parity/meshes.factors" >rows
    local name head tied n
    for head in tied untied; do
        tied=$([ $head = tied ] && echo true || echo false)
        mkdir "model-gpt2-$head"
        for name in llama qwen2 qwen3 mistral qwen2-moe; do
            model "$name-$head" "$tied"
            eight_heads "model-$name-$head"
        done
        jq -n --argjson tied "$tied" '{architectures: ["GPT2LMHeadModel"],
            model_type: "gpt2", vocab_size: 67, n_embd: 32, n_layer: 6,
            n_head: 8, n_inner: 24, n_positions: 128, attn_pdrop: 0,
            activation_function: "gelu_new", initializer_range: 0.1,
            embd_pdrop: 0, resid_pdrop: 0, tie_word_embeddings: $tied}' \
            >"model-gpt2-$head/config.json"
        for name in llama qwen2 qwen3 mistral qwen2-moe gpt2; do
            for n in 3 4 6; do
                mkdir "model-$name-$head-$n"
                sed -E "s/(\"(n_layer|num_hidden_layers)\": )6/\1$n/" \
                    "model-$name-$head/config.json" \
                    >"model-$name-$head-$n/config.json"
            done
        done
    done
    data 1 40 >data.jsonl
    # Two chunks for each of 2 ranks, whose rows 4 ranks divide.
    pppack -q -l 64 --cp 2 --tp 4 -o packed data.jsonl
    pppack -q -l 64 --cp 2 --tp 4 --balance tokens --cp-sizes per-sequence \
        -o ranges data.jsonl
    "$BUILDDIR/tests/parity/place_ranks" ranges 1
}

setup() { cd "$BATS_FILE_TMPDIR"; }

@test "every mesh of the cover computes the same as one rank" {
    while read -r -a row; do
        # N ranks divide the experts of a model "NAME:epN".
        ep=
        [[ ${row[9]} != *:ep* ]] || ep=:${row[9]##*:}
        # About one layer for each stage.
        IFS=: read -r _ chunks _ <<<"${row[0]}"
        n=$((chunks * ${row[1]#pp}))
        n=$((n < 3 ? 3 : n))
        plan_row $((2 * ${row[1]#pp})) \
            "model-${row[9]%:ep*}-${row[8]}-$n$ep" "${row[@]}" >plan.json
        options=(--data packed)
        [[ ${row[3]} != *-ranges ]] || options=(--data ranges)
        if [[ ${row[9]} == qwen2-moe* && ${row[0]} != seq1f1b* ]]; then
            options+=(--router 'aux=0.3,z=0.02,rule=documents')
        fi
        pprun --verify --init 1 --dtype fp64 "${options[@]}" \
            plan.json >table || {
            echo "${row[*]}:"
            cat table
            return 1
        }
    done <rows
}
