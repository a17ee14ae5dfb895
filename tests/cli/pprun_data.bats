#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# pprun_data - data that is not for the model or the objective is refused.

bats_require_minimum_version 1.5.0
load ../parity/helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    model llama false
    ppsplit -p 2 model-llama | ppsched -s 1f1b -m 4 >plan.json
    data 1 8 >data.jsonl
    pppack -l 48 -o packed data.jsonl
}

setup() { cd "$BATS_FILE_TMPDIR"; }

# refused MESSAGE OPTION...: fails with status 2 and this message.
refused() {
    local message=$1
    shift
    run --separate-stderr pprun "$@"
    echo "status $status, stderr: $stderr"
    [ "$status" -eq 2 ]
    [ "$stderr" = "pprun: $message" ]
    [ -z "$output" ]
}

@test "sft refuses pairs and rollouts, but scores them" {
    echo '{"prompt":[1],"chosen":[2,3],"rejected":[4]}' >pairs.jsonl
    echo '{"prompt":[1],"responses":[[2,3],[4]],"advantages":[1,-1]}' \
        >rollouts.jsonl
    pppack -l 8 -o pairs pairs.jsonl
    pppack -l 8 -o rollouts rollouts.jsonl
    refused "pairs: holds preference pairs, and --objective sft would train on \
the rejected answers too; pack the chosen ones as documents" \
        plan.json --data pairs --init 1 --steps 1
    refused "rollouts: holds rollouts, and --objective sft would train on bad \
ones too; pack the good ones as documents" \
        plan.json --data rollouts --init 1 --steps 1 --objective sft
    refused "pairs: holds preference pairs, and --objective sft would train on \
the rejected answers too; pack the chosen ones as documents" \
        plan.json --data packed --eval pairs --init 1 --steps 1
    ppscore plan.json --data pairs --init 1 --logprobs -o scores
    [ "$(wc -l <scores)" -eq 1 ]
}

@test "bytes are refused for a model with a tokenizer" {
    echo '{"text":"some text"}' >text.jsonl
    pppack --bytes -l 16 -o bytes text.jsonl
    mkdir words
    sed 's/"vocab_size": 67/"vocab_size": 300/' model-llama/config.json \
        >words/config.json
    ppsplit -p 2 words | ppsched -s 1f1b -m 4 >words.json
    pprun -q words.json --data bytes --init 1 --steps 1 >log
    echo '{}' >words/tokenizer.json
    refused "bytes: holds bytes, but 'words' has a vocabulary of its own; use \
scripts/tokenize and pack without --bytes" \
        words.json --data bytes --init 1 --steps 1
    # Packed anew, and without the end of a document, they still are.
    pppack -q -l 8 --oversize truncate -o cut bytes
    refused "cut: holds bytes, but 'words' has a vocabulary of its own; use \
scripts/tokenize and pack without --bytes" \
        words.json --data cut --init 1 --steps 1
    # Ids of tokens whose largest is 256 are none.
    echo '{"input_ids":[1,2,256,3]}' | pppack -q -l 16 -o ids
    pprun -q words.json --data ids --init 1 --steps 1 >log
}

@test "text without input_ids names scripts/tokenize first" {
    echo '{"text":"some text"}' >text.jsonl
    run --separate-stderr pppack -l 16 -o no text.jsonl
    [ "$status" -eq 2 ]
    [ "$stderr" = "pppack: text.jsonl: line 1: no 'input_ids'; \
scripts/tokenize makes them from text, and a model of bytes needs none; see \
--bytes" ]
}

@test "the plan takes the type of the configuration, and a CPU runs fp32" {
    local key
    for key in dtype torch_dtype; do
        mkdir -p half
        jq --arg key $key '. + {($key): "bfloat16"}' model-llama/config.json \
            >half/config.json
        ppsplit -q -p 2 half | ppsched -q -s 1f1b -m 4 >half.json
        [ "$(jq -r .model.dtype half.json)" = bf16 ]
    done
    [ "$(ppsplit -q -p 2 --dtype fp32 half | jq -r .model.dtype)" = fp32 ]
    [ "$(jq -r .model.dtype plan.json)" = fp32 ]
    run --separate-stderr pprun half.json --data packed --init 1 --steps 1
    [ "$status" -eq 0 ]
    [ "$stderr" = 'pprun: the plan is for bf16, but a CPU runs in fp32' ]
    run --separate-stderr pprun half.json --data packed --init 1 --steps 1 \
        --dtype fp32
    [ -z "$stderr" ]
}
