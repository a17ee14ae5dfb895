#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# meshes - pprun --verify in fp64 over a pairwise cover of meshes: schedules with
# tensor-, context- and data-parallel ranks. FEWER=3 takes only every third row.

bats_require_minimum_version 1.5.0
load helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    "$SRCDIR/tests/parity/cover" "$SRCDIR/tests/parity/meshes.factors" >rows
    local name head tied
    for head in tied untied; do
        tied=$([ $head = tied ] && echo true || echo false)
        mkdir "model-gpt2-$head"
        for name in llama qwen2 qwen3 mistral; do
            model "$name-$head" "$tied"
            jq '.hidden_size = 32 | .intermediate_size = 24 | .head_dim = 4 |
                .num_attention_heads = 8 | .num_key_value_heads = 4' \
                "model-$name-$head/config.json" >config
            mv config "model-$name-$head/config.json"
        done
        jq -n --argjson tied "$tied" '{architectures: ["GPT2LMHeadModel"],
            model_type: "gpt2", vocab_size: 67, n_embd: 32, n_layer: 6,
            n_head: 8, n_inner: 24, n_positions: 128, attn_pdrop: 0,
            activation_function: "gelu_new", initializer_range: 0.1,
            embd_pdrop: 0, resid_pdrop: 0, tie_word_embeddings: $tied}' \
            >"model-gpt2-$head/config.json"
    done
    data 1 40 >data.jsonl
    # Two chunks for each of 2 ranks, whose rows 4 ranks divide.
    pppack -q -l 64 --cp 2 --tp 4 -o packed data.jsonl
}

setup() { cd "$BATS_FILE_TMPDIR"; }

# plan WAY PP TP CP DP ZERO EXCHANGE RECOMPUTE HEAD MODEL: prints a manifest.
plan() {
    local kind chunks placement
    IFS=: read -r kind chunks placement <<<"$1"
    ppsplit -q -p "${2#pp}" -c "$chunks" --placement "$placement" \
        --tp "${3#tp}" --cp "${4#cp}" --dp "${5#dp}" --zero "${6#zero}" \
        --cp-exchange "$7" --recompute "$8" "model-${10}-$9" |
        ppsched -q -s "$kind" -m $((2 * ${2#pp}))
}

@test "every mesh of the cover computes the same as one rank" {
    while read -r -a row; do
        plan "${row[@]}" >plan.json
        pprun --verify --init 1 --data packed --dtype fp64 plan.json >table || {
            echo "${row[*]}:"
            cat table
            return 1
        }
    done < <(awk -v n="${FEWER:-1}" 'NR % n == 0' rows)
}
