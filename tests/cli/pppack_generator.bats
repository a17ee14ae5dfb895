#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# pppack_generator - tokens of a generator behind the language model: packed
# beside the language model's, packed anew, exported and refused.

bats_require_minimum_version 1.5.0
load pack_helpers

# ints FILE prints the integers of a column.
ints() {
    od -An -v -t d4 -w1000000 "$1" | tr -s ' ' | sed 's/^ //'
}

# pack LINE... packs lines without a change of their order into 'packed'.
pack() {
    printf '%s\n' "$@" | jq -c . >in.jsonl
    pppack -q -l 8 --pad-to 2 -a none --rows 1 --no-shuffle -o packed in.jsonl
    pppack --check packed
}

@test "a generator has an id and a label in line with every token" {
    pack '{"input_ids":[1,2,3],"generator_ids":[41,42,43]}' \
        '{"input_ids":[4,5,6,7],"generator_ids":[44,45,46,50],
            "generator_mask":[0,true,0,1]}' \
        '{"input_ids":[8,9],"generator_ids":[47,48],
            "generator_labels":[-100,51]}'
    [ "$(ints packed/generator_ids)" = '41 42 43 0 44 45 46 50 47 48' ]
    [ "$(ints packed/generator_labels)" = \
        '41 42 43 -100 -100 45 -100 50 -100 51' ]
    [ "$(ints packed/labels)" = '1 2 3 -100 4 5 6 7 8 9' ]
    # The first token of a sequence is never scored: 2, 2 and 1 are.
    [ "$(pppack --stats packed | jq -c \
        '[.scored, .generator_vocab, .generator_scored]')" = '[6,52,5]' ]
    [ "$(pppack -l 8 --stats in.jsonl | jq .generator_scored)" = 5 ]
}

@test "by default a generator is scored where the language model is" {
    pack '{"input_ids":[1,2,3],"loss_mask":[1,1,0],"generator_ids":[6,7,8]}' \
        '{"input_ids":[1,2,3],"labels":[1,-100,3],"generator_ids":[6,7,8]}' \
        '{"messages":[{"role":"user","input_ids":[1,2]},
            {"role":"assistant","input_ids":[3,4]}],"generator_ids":[5,6,7,8]}' \
        '{"input_ids":[0,1,2,0],"attention_mask":[0,1,1,0],
            "generator_ids":[5,6,7,8]}'
    [ "$(ints packed/generator_labels)" = \
        '6 7 -100 -100 6 -100 8 -100 -100 -100 7 8 6 7' ]
    # A mask decides alone.
    pack '{"input_ids":[1,2,3],"loss_mask":[1,0,0],"generator_ids":[6,7,8],
        "generator_mask":[1,0,1]}'
    [ "$(ints packed/generator_labels)" = '6 -100 8 -100' ]
}

@test "bytes can have a generator" {
    pack_bytes='{"text":"ab","generator_ids":[6,7,8]}'
    pppack -q --bytes -l 8 -o packed <<<"$pack_bytes"
    [ "$(ints packed/generator_ids)" = '6 7 8' ]
    [ "$(ints packed/input_ids)" = '97 98 256' ]
}

@test "a sequence without a generator has none of its targets" {
    for first in 0 1; do
        lines=('{"input_ids":[4,5],"generator_ids":[6,7]}' '{"input_ids":[1,2]}')
        pack "${lines[first]}" "${lines[1 - first]}"
        [ "$(pppack --stats packed | jq .generator_scored)" = 1 ]
        [ "$(pppack --stats packed | jq .scored)" = 2 ]
    done
    [ "$(ints packed/generator_ids)" = '0 0 6 7' ]
    [ "$(ints packed/generator_labels)" = '-100 -100 6 7' ]
    pack '{"input_ids":[1,2]}'
    [ ! -e packed/generator_ids ]
}

@test "documents that are cut, split or rows of several keep their tokens" {
    printf '%s\n' '{"input_ids":[1,2,3,4,5],"generator_ids":[11,12,13,14,15]}' \
        '{"input_ids":[6,7,8],"seq_lengths":[1,2],"generator_ids":[16,17,18]}' \
        >in.jsonl
    pppack -q -l 4 --oversize split --no-shuffle -o split in.jsonl
    pppack --check split
    paste -d' ' <(ints split/input_ids | tr ' ' '\n') \
        <(ints split/generator_ids | tr ' ' '\n') | sort -n >pairs
    [ "$(awk '{ print $2 - $1 }' pairs | sort -u)" = 10 ]
    [ "$(wc -l <pairs)" = 8 ]
    pppack -q -l 4 --oversize truncate -o cut in.jsonl
    [ "$(ints cut/generator_ids | tr ' ' '\n' | sort | tr '\n' ' ')" = \
        '11 12 13 14 16 17 18 ' ]
    # Packed anew, the pieces are joined again.
    pppack -q -l 8 -o whole split
    pppack -q -l 8 -o once in.jsonl
    cmp whole/generator_ids once/generator_ids
    cmp whole/generator_labels once/generator_labels
    cmp whole/index once/index
    # Shares of the documents.
    pppack -q -l 8 --split 1,2 -o parts in.jsonl
    [ "$(ints parts/train/generator_ids)" = '11 12 13 14 15' ]
}

@test "safetensors hold a generator, and datasets of Megatron do not" {
    pack '{"input_ids":[1,2,3],"generator_ids":[41,42,43]}' \
        '{"input_ids":[4,5],"generator_ids":[44,45],"generator_mask":[1,0]}'
    pppack -q --export safetensors -o out.safetensors packed
    pppack -q -l 8 --pad-to 2 -a none --rows 1 --no-shuffle -o again out.safetensors
    for f in packed/*; do cmp "$f" "again/${f#packed/}"; done
    run head -c 1000 out.safetensors
    [[ $output = *'"generator_ids":{"dtype":"I32"'* ]]
    run --separate-stderr pppack --export megatron -o corpus packed
    [ "$status" -eq 2 ]
    [[ $stderr = *"an indexed dataset cannot hold 'generator_labels'"* ]]
}

@test "a generator goes with images, and with ranks of sequences" {
    local image='{"input_ids":[9,9,1],"images":[[[[1,2,3,4],[5,6,7,8]]]]'
    printf '%s\n' "$image,\"generator_ids\":[4,5,6]}" \
        '{"input_ids":[1,2],"generator_ids":[7,8]}' >in.jsonl
    pppack -q -l 8 --image-token 9 --patch 2 -a none --rows 1 --no-shuffle -o packed \
        in.jsonl
    pppack --check packed
    # Placeholders have no label, and so the generator has none there.
    [ "$(ints packed/generator_labels)" = '-100 -100 6 7 8' ]
    [ "$(pppack --stats packed | jq -c '[.images, .patches]')" = '[1,2]' ]
    pppack -q -l 8 -a none --rows 1 --no-shuffle -o again packed
    cmp packed/index again/index
    sed 's/\[9,9,1\]/[9,9,9]/' in.jsonl >class.jsonl
    pppack -q -l 8 --image-token 9 --patch 2 --class-feature -o class class.jsonl
    pppack --check class
    pppack -q -l 8 -o again class
    cmp class/index again/index
    jq -nc 'range(1; 9) | {input_ids: [range(. * 2) | . + 1],
        generator_ids: [range(. * 2)]}' >long.jsonl
    pppack -q -l 32 --cp 2 --balance tokens --cp-sizes per-sequence -o ranks \
        long.jsonl
    pppack --check ranks
    [ "$(pppack --stats ranks | jq -c '[.cp, .generator_scored]')" = '[2,64]' ]
}

@test "a generator has one id for each token" {
    echo '{"input_ids":[1,2],"generator_ids":[3]}' >in.jsonl
    refused "in.jsonl: line 1, column 36: '1' generator_ids for 2 tokens" \
        -l 8 -o packed in.jsonl
    echo '{"input_ids":[1,2],"generator_ids":[3,-1]}' >in.jsonl
    refused "in.jsonl: line 1, column 39: expected a generator's id, \
got '-1'" -l 8 -o packed in.jsonl
    echo '{"input_ids":[1,2],"generator_ids":[3,4],"generator_mask":[1]}' \
        >in.jsonl
    refused "in.jsonl: line 1, column 59: '1' elements of generator_mask for 2 \
tokens" -l 8 -o packed in.jsonl
    echo '{"input_ids":[1,2],"generator_mask":[1,1]}' >in.jsonl
    refused "in.jsonl: line 1, column 43: labels or a mask of a generator need \
'generator_ids'" -l 8 -o packed in.jsonl
    echo '{"messages":[{"input_ids":[1,2],"generator_mask":[1,1]}]}' >in.jsonl
    refused "in.jsonl: line 1, column 32: 'generator_mask' must be beside the \
turns, not inside one" -l 8 -o packed in.jsonl
    # Bad lines can be skipped, and leave nothing behind.
    printf '%s\n' '{"input_ids":[1,2]}' \
        '{"input_ids":[1,2],"generator_ids":[3]}' >in.jsonl
    pppack -q -l 8 --skip-bad 1 -o packed in.jsonl
    [ ! -e packed/generator_ids ]
}

@test "a generator is refused in preference pairs, rollouts and policies" {
    local alone='a generator is trained by supervised fine-tuning alone'
    echo '{"chosen":[1,2],"rejected":[3],"generator_ids":[3,4]}' >in.jsonl
    refused "in.jsonl: line 1, column 54: 'generator_ids' must be of a document \
or a chat: $alone" -l 8 -o packed in.jsonl
    echo '{"chosen":{"input_ids":[1,2],"generator_ids":[3,4]},"rejected":[3]}' \
        >in.jsonl
    refused "in.jsonl: line 1, column 52: 'generator_ids' must be of a document \
or a chat: $alone" -l 8 -o packed in.jsonl
    echo '{"prompt":[1],"response":[2],"generator_ids":[3,4]}' >in.jsonl
    refused "in.jsonl: line 1, column 52: 'generator_ids' must be of a document \
or a chat: $alone" -l 8 -o packed in.jsonl
    echo '{"input_ids":[1,2],"advantages":1,"generator_ids":[3,4]}' >in.jsonl
    refused "in.jsonl: line 1: 'generator_ids' cannot be beside 'advantages': \
$alone" -l 8 -o packed in.jsonl
    echo '{"input_ids":[1,2],"generator_ids":[3,4]}' >in.jsonl
    echo '{"sequence":0,"logprobs":[0,-1]}' >scores
    refused "'generator_ids' cannot be beside 'logprobs': $alone" -l 8 \
        --add-column logprobs=scores -o packed in.jsonl
}

@test "a language model alone trains as without a generator" {
    mkdir model
    jq -n '{architectures: ["LlamaForCausalLM"], model_type: "llama",
        vocab_size: 16, hidden_size: 8, num_hidden_layers: 2,
        num_attention_heads: 2, num_key_value_heads: 1, intermediate_size: 16,
        hidden_act: "silu", max_position_embeddings: 64, rms_norm_eps: 1e-5,
        rope_theta: 10000.0, tie_word_embeddings: false}' >model/config.json
    documents 5 6 7 8 | jq -c '.generator_ids = .input_ids' >with.jsonl
    jq -c 'del(.generator_ids)' with.jsonl >without.jsonl
    for way in with without; do
        pppack -q -l 8 -o $way $way.jsonl
        ppsplit -q -p 2 model | ppsched -q -s 1f1b -m 2 --data $way -o plan.json
        pprun -q --data $way --init 1 --steps 2 plan.json |
            jq -c '[.loss, .grad_norm]' >$way.steps
        pprun -q --data $way --init 1 --verify plan.json
    done
    [ "$(wc -l <with.steps)" = 2 ]
    cmp with.steps without.steps
}
