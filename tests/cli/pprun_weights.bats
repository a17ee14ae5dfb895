#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# pprun_weights - weights that are not quite those of the model: tied heads,
# other tensors, other names, other files.

bats_require_minimum_version 1.5.0
load ../parity/helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    model llama true
    data 1 8 >data.jsonl
    pppack -q -l 48 -o packed data.jsonl
    ppsplit -q -p 2 model-llama | ppsched -q -s 1f1b -m 2 >plan.json
    # One rank saves one file.
    ppsplit -q -p 1 model-llama | ppsched -q -s 1f1b -m 2 >one.json
    pprun -q one.json --data packed --init 1 --steps 1 --save trained -o log
    mkdir w
    cp trained/latest/model.safetensors w/first
    ppscore -q plan.json --weights trained/latest/model.safetensors \
        --eval packed -o want
}

setup() { cd "$BATS_FILE_TMPDIR"; }

# header_bytes FILE: the size of the header of a safetensors file.
header_bytes() { od -An -v -t u8 -N8 "$1" | tr -d ' '; }

# change FILTER [DATA]: makes w/model.safetensors from the trained weights, with
# a changed header and with the file DATA at the end.
change() {
    local n header out=w/model.safetensors
    n=$(header_bytes w/first)
    header=$(head -c $((8 + n)) w/first | tail -c "$n" | jq -c "$1")
    # shellcheck disable=SC2059 # the format is the bytes
    printf "$(printf '%016x' ${#header} | sed 's/../\\x& /g' |
        tr ' ' '\n' | tac | tr -d '\n')" >$out
    printf '%s' "$header" >>$out
    tail -c +$((9 + n)) w/first >>$out
    [ $# -eq 1 ] || cat "$2" >>$out
}

# append NAME SHAPE: a filter that adds an F32 tensor behind the last one.
append() {
    echo "(map(.data_offsets[1]? // 0) | max) as \$last | . + {\"$1\": {
        dtype: \"F32\", shape: $2, data_offsets:
        [\$last, \$last + 4 * ($2 | reduce .[] as \$d (1; . * \$d))]}}"
}

# eval_with: the loss with the changed weights.
eval_with() {
    run --separate-stderr ppscore plan.json --weights w/model.safetensors \
        --eval packed
    echo "status $status, stderr: $stderr"
}

@test "a tied model may have its embedding as lm_head" {
    change 'with_entries(if .key == "model.embed_tokens.weight"
        then .key = "lm_head.weight" else . end)'
    eval_with
    [ "$status" -eq 0 ]
    [ "$output" = "$(cat want)" ]
    [ -z "$stderr" ]
}

@test "a tied model with another head is refused, with the same one it is not" {
    local n from to
    n=$(header_bytes w/first)
    read -r from to < <(head -c $((8 + n)) w/first | tail -c "$n" |
        jq -r '."model.embed_tokens.weight".data_offsets | @tsv')
    tail -c +$((9 + n + from)) w/first | head -c $((to - from)) >same
    head -c $((to - from)) /dev/zero >other
    change "$(append lm_head.weight '[67, 32]')" same
    eval_with
    [ "$output" = "$(cat want)" ]
    [ -z "$stderr" ]
    change "$(append lm_head.weight '[67, 32]')" other
    eval_with
    [ "$status" -eq 2 ]
    [ "$stderr" = "ppscore: w/model.safetensors: 'lm_head.weight' differs from \
'model.embed_tokens.weight', but tie_word_embeddings is true; set it to false \
in config.json" ]
}

@test "tensors without a place in the model are named" {
    head -c 8 /dev/zero >two
    change "$(append model.layers.6.mlp.gate_proj.bias '[2]')" two
    eval_with
    [ "$status" -eq 0 ]
    [ "$output" = "$(cat want)" ]
    [ "$stderr" = "ppscore: w/model.safetensors: 1 tensor has no place in the \
model: 'model.layers.6.mlp.gate_proj.bias'" ]
    change "$(append model.layers.0.rotary_emb.inv_freq '[2]')" two
    eval_with
    [ "$status" -eq 0 ]
    [ -z "$stderr" ]
}

@test "other files and names are explained" {
    change 'with_entries(.key |= sub("^model\\."; ""))'
    eval_with
    [ "$status" -eq 2 ]
    [[ "$stderr" == *"no tensor 'model.embed_tokens.weight', but \
'embed_tokens.weight': these are the weights of a model without its head; save \
the whole model" ]]
    printf 'version https://git-lfs.github.com/spec/v1\nsize 9\n' \
        >w/model.safetensors
    eval_with
    [ "$status" -eq 2 ]
    [ "$stderr" = "ppscore: w/model.safetensors: is a pointer of git-lfs, not the \
file; run 'git lfs pull'" ]
    touch model-llama/pytorch_model.bin
    run --separate-stderr ppscore plan.json --eval packed
    [ "$status" -eq 2 ]
    [[ "$stderr" == "ppscore: 'model-llama' has pytorch_model.bin, which is not \
safetensors; "* ]]
}

@test "random weights do not depend on the number of processors" {
    mkdir wide
    jq '.vocab_size = 40000' model-llama/config.json >wide/config.json
    ppsplit -q -p 1 wide | ppsched -q -s gpipe -m 1 >wide.json
    taskset -c 0 pprun -q wide.json --data packed --init 1 --steps 1 \
        --save one-core -o log
    pprun -q wide.json --data packed --init 1 --steps 1 --save cores -o log
    cmp one-core/latest/model.safetensors cores/latest/model.safetensors
}
