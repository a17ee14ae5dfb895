#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# family_meshes - the families of tests/golden/families on tensor-, context- and
# expert-parallel ranks, in slices and with every recomputation: the numbers are
# those of one rank.

bats_require_minimum_version 1.5.0
load helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    data 1 20 >data.jsonl
    pppack -q -l 64 --cp 2 --tp 2 -o packed data.jsonl
}

setup() {
    skip_some
    cd "$BATS_FILE_TMPDIR"
}

# verified FAMILY SCHEDULE OPTION...: a plan with these options of ppsplit.
verified() {
    local m=$SRCDIR/tests/golden/families/$1/model schedule=$2
    shift 2
    # shellcheck disable=SC2086
    ppsplit -q "$@" "$m" | ppsched -q -s $schedule -m 4 >plan.json
    pprun --verify --init 1 --data packed --dtype fp64 plan.json >table ||
        { echo "$m $schedule $*"; cat table; return 1; }
}

# meshes FAMILY [OPTION...]: the options are those of ranks that divide experts.
meshes() {
    local family=$1
    shift
    verified "$family" 1f1b -p 2 --tp 2 --cp 2 --cp-exchange "${exchange:-ring}" \
        --recompute selective
    verified "$family" zb-h1 -p 2 --recompute full "$@"
    verified "$family" 'seq1f1b --slices 2' -p 2 --cp 2 "$@"
}

@test "olmo3" { meshes olmo3; }
@test "exaone4" { meshes exaone4; }
@test "seed_oss" { meshes seed_oss; }
@test "ministral" { meshes ministral; }
@test "cwm" { meshes cwm; }
@test "glm" { meshes glm; }
@test "glm4" { meshes glm4; }
@test "ernie4_5" { meshes ernie4_5; }
@test "granite" { meshes granite; }
@test "arcee" { meshes arcee; }
@test "apertus" { meshes apertus; }
@test "starcoder2" { meshes starcoder2; }
@test "cohere" { meshes cohere; }
@test "cohere2" { meshes cohere2; }
@test "ministral3" { meshes ministral3; }
@test "hunyuan_v1_dense" { meshes hunyuan_v1_dense; }
@test "hunyuan_v1_moe" { meshes hunyuan_v1_moe --ep 2 --dp 2; }
@test "ernie4_5_moe" { meshes ernie4_5_moe --ep 2 --dp 2; }
@test "granitemoe" { meshes granitemoe --ep 2 --dp 2; }
@test "granitemoeshared" { meshes granitemoeshared --ep 2 --dp 2; }
@test "olmoe" { meshes olmoe --ep 2 --dp 2; }
@test "flex_olmo" { meshes flex_olmo --ep 2 --dp 2; }
@test "dots1" { meshes dots1 --ep 2 --dp 2; }
@test "exaone_moe" { meshes exaone_moe --ep 2 --dp 2; }
@test "solar_open" { meshes solar_open --ep 2 --dp 2; }
@test "hy_v3" { meshes hy_v3 --ep 2 --dp 2; }
@test "glm4_moe" { meshes glm4_moe --ep 2 --dp 2; }
@test "afmoe" { meshes afmoe --ep 2 --dp 2; }
@test "glm4_moe_lite" { meshes glm4_moe_lite --ep 2 --dp 2; }
@test "cohere2_moe" { meshes cohere2_moe --ep 2 --dp 2; }
@test "llama4_text" { exchange=gather meshes llama4_text --ep 2 --dp 2; }
@test "mimo_v2_flash" { meshes mimo_v2_flash --ep 2 --dp 2; }
@test "minimax_m2" { meshes minimax_m2 --ep 2 --dp 2; }

@test "qwen3_5" {
    verified qwen3_5_text 1f1b -p 2 --dp 2 --recompute selective
    verified qwen3_5_moe_text zb-h1 -p 2 --recompute full --ep 2 --dp 2
    verified qwen3_5_text zb-h1 -p 2 --tp 2 --recompute selective
    verified qwen3_5_text 1f1b -p 1 --tp 2 --dp 2 --recompute full
    verified qwen3_next zb-h1 -p 2 --tp 2 --ep 2 --dp 2 --recompute selective
    verified qwen3_5_text 'seq1f1b --slices 4' -p 2 --recompute selective
    verified qwen3_next 'seq1f1b --slices 3' -p 1 --tp 2
    verified qwen3_5_text 1f1b -p 1 --cp 2 --cp-exchange ring --recompute full
    verified qwen3_next zb-h1 -p 2 --cp 2 --recompute selective
    # W reads the inputs and the gradients of one product.
    verified qwen3_5_text zb-h1 -p 2 --cp 2 --lora rank=2,targets=out_proj
    verified qwen3_5_text zb-h1 -p 2 --tp 2 --lora rank=2,targets=in_proj_z \
        --recompute full
}

@test "context-parallel ranks of linear attention give the bits of one" {
    local m=$SRCDIR/tests/golden/families/qwen3_next/model
    local scored=(ppscore -q --logprobs --row-invariant --init 1 --data packed)
    mkdir -p wide
    jq '.linear_num_key_heads = 4 | .linear_num_value_heads = 8' \
        "$m/config.json" >wide/config.json
    ppsplit -q -p 1 --cp 2 --tp 2 --cp-exact wide | ppsched -q -s 1f1b -m 4 >two.json
    ppsplit -q -p 1 --tp 2 wide | ppsched -q -s 1f1b -m 4 >tp.json
    "${scored[@]}" -o tp.scores tp.json
    "${scored[@]}" -o two.scores two.json
    cmp tp.scores two.scores
    # Sequences with ranks of their own.
    pppack -q -l 128 --cp 2 --cp-sizes per-sequence --balance tokens \
        --bins-multiple 4 -o sized data.jsonl
    ppsplit -q -p 1 --cp 2 wide | ppsched -q -s 1f1b -m 4 >plan.json
    pprun --verify --init 1 --data sized --dtype fp64 plan.json >table
}

@test "chunks of attention are refused in a ring" {
    run -2 --separate-stderr ppsplit -p 1 --cp 2 --cp-exchange ring \
        "$SRCDIR/tests/golden/families/llama4_text/model"
    [[ $stderr == *"a ring does not know where chunks of attention begin"* ]]
}

@test "ranks exchange as many heads as each layer has" {
    mkdir -p two_heads
    jq '.num_key_value_heads = 2' \
        "$SRCDIR/tests/golden/families/mimo_v2_flash/model/config.json" \
        >two_heads/config.json
    ppsplit -q -p 2 --cp 2 --cp-exchange a2a two_heads |
        ppsched -q -s 1f1b -m 4 >plan.json
    pprun --verify --init 1 --data packed --dtype fp64 plan.json
}

@test "heads of layers with a window must be a share of all, and divide" {
    local m=$SRCDIR/tests/golden/families/mimo_v2_flash/model
    mkdir -p other
    jq '.num_key_value_heads = 4' "$m/config.json" >other/config.json
    run -2 --separate-stderr ppsplit -p 1 other
    [[ $stderr == *"'4' is not a multiple of 8, the key and value heads of layers with a window" ]]
    jq '.num_key_value_heads = 3 | .num_attention_heads = 12' "$m/config.json" \
        >other/config.json
    run -2 --separate-stderr ppsplit -p 1 --tp 2 other
    [[ $stderr == *"3 key and value heads do not divide by 2"* ]]
    jq '.num_attention_heads = 12' "$m/config.json" >other/config.json
    run -2 --separate-stderr ppsplit -p 1 --tp 3 other
    [[ $stderr == *"2 key and value heads do not divide by 3"* ]]
    jq '.rope_parameters.sliding_attention.partial_rotary_factor = 0.5' \
        "$m/config.json" >other/config.json
    run -2 --separate-stderr ppsplit -p 1 other
    [[ $stderr == *"'0.5' as partial_rotary_factor, but '0.7' of full_attention" ]]
}

@test "linear attention is refused where ranks would divide it" {
    local m=$SRCDIR/tests/golden/families/qwen3_5_text/model
    ppsplit -p 1 --cp 2 "$m" | ppsched -q -s seq1f1b --slices 2 -m 4 >plan.json
    run -2 --separate-stderr pprun --verify --data packed plan.json
    [[ $stderr == *"/schedule/slices: '2', but context-parallel ranks exchange \
heads of linear attention of whole microbatches; take a schedule without slices" ]]
    run -2 --separate-stderr ppsplit -p 1 --cp 4 "$m"
    [[ $stderr == *"2 key heads of linear attention do not divide by 4 ranks \
(cp); try --cp 2" ]]
    mkdir -p other
    jq '.num_attention_heads = 4' "$m/config.json" >other/config.json
    run -2 --separate-stderr ppsplit -p 1 --tp 4 other
    [[ $stderr == *"2 key heads of linear attention do not divide by 4"* ]]
}
