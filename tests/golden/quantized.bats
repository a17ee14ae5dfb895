#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# quantized - released weights in blocks of fp8 and MXFP4 are read exactly.
# scripts/gen-quantized wrote them.

bats_require_minimum_version 1.5.0

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    for i in 1 2 3 4; do
        echo "{\"input_ids\": [$i, 5, 9, 2, 11, 3, 17, $((i + 7))]}"
    done >data.jsonl
    pppack -q -l 8 --tp 2 -o packed data.jsonl
}

setup() {
    cd "$BATS_FILE_TMPDIR"
    GOLDEN=$SRCDIR/tests/golden/quantized
}

# keeps CASE SPLIT...: a step with the learning rate 0 saves the plain weights.
keeps() {
    local m=$GOLDEN/$1/model bins=4
    [[ "$*" != *'--dp 2'* ]] || bins=2
    ppsplit -q "${@:2}" "$m" | ppsched -q -s gpipe -m $bins >plan.json
    rm -rf saved
    pprun -q plan.json --data packed --weights "$m" --steps 1 --lr 0 \
        --save saved >/dev/null
    "$BUILDDIR/tests/golden/compare_tensors" 0 0 saved/latest \
        "$GOLDEN/$1/plain.safetensors"
    jq -e 'has("quantization_config") | not' saved/latest/config.json
}

@test "DeepSeek-V3's blocks of fp8, whole and divided" {
    keeps deepseek-v3 -p 1
    keeps deepseek-v3 -p 2 --tp 2 --dp 2 --ep 2 --zero 3
}

@test "the blocks of fp8 of other models" {
    keeps qwen3 -p 1
    jq '.quantization_config.quant_method = "gptq"' \
        "$GOLDEN/qwen3/model/config.json" >config.json
    run --separate-stderr ppsplit -q -p 1 config.json
    [ "$status" -eq 2 ]
    [[ $stderr == *"/quantization_config/quant_method: 'gptq' "* ]]
}

@test "GPT-OSS's blocks of MXFP4, whole and divided" {
    keeps gpt-oss -p 1
    keeps gpt-oss -p 1 --tp 2 --dp 2 --ep 2 --zero 3
}

# change CASE FILTER: copies a case to `bad`, and changes the header of its
# weights with jq. The size of the header stays.
change() {
    local from=$GOLDEN/$1/model/model.safetensors size
    rm -rf bad
    cp -r "$GOLDEN/$1/model" bad
    size=$(od -An -t u8 -N 8 "$from")
    {
        head -c 8 "$from"
        printf "%-${size}s" "$(head -c $((8 + size)) "$from" |
            tail -c "$size" | jq -c "$2")"
        tail -c +$((9 + size)) "$from"
    } >bad/model.safetensors
}

# refused CASE FILTER TEXT
refused() {
    change "$1" "$2"
    run --separate-stderr ppsplit -q -p 1 bad
    echo "$status $stderr"
    [ "$status" -eq 2 ]
    [ "$stderr" = "ppsplit: bad: $3" ]
}

@test "bad blocks of fp8 are refused" {
    local q=model.layers.0.self_attn.q_proj.weight
    refused deepseek-v3 "with_entries(.key |= sub(\"0.self_attn.q_proj.weight_scale_inv\"; \"0.self_attn.other\"))" \
        "no tensor '${q}_scale_inv', the scales of '$q'"
    refused deepseek-v3 ".\"${q}_scale_inv\".shape = [2, 1]" \
        "'${q}_scale_inv' is [2, 1], expected [1, 2]"
    refused deepseek-v3 ".\"${q}_scale_inv\".dtype = \"I32\"" \
        "'${q}_scale_inv' is not of dtype F64, F32, F16 or BF16"
    refused deepseek-v3 ".\"$q\".dtype = \"I8\"" \
        "'$q' is not of dtype F64, F32, F16 or BF16"
    change deepseek-v3 .
    jq '.quantization_config.weight_block_size = [64, 128]' \
        "$GOLDEN/deepseek-v3/model/config.json" >bad/config.json
    run --separate-stderr ppsplit -q -p 1 bad
    [ "$status" -eq 2 ]
    [[ $stderr == *"/quantization_config/weight_block_size/0: '64' is not "* ]]
}

@test "bad blocks of MXFP4 are refused" {
    local x=model.layers.0.mlp.experts.down_proj
    refused gpt-oss "with_entries(.key |= sub(\"down_proj_scales\"; \"other\"))" \
        "no tensor '${x}_scales'"
    refused gpt-oss ".\"${x}_scales\".dtype = \"I8\"" \
        "'${x}_scales' is not of dtype U8"
    refused gpt-oss ".\"${x}_blocks\".shape = [4, 32, 1, 32]" \
        "'${x}_blocks' is [4, 32, 1, 32], expected [4, 32, 2, 16]"
    refused gpt-oss "with_entries(.key |= sub(\"down_proj_blocks\"; \"other\"))" \
        "no tensor '$x'"
}
