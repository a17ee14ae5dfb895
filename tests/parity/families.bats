#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# families - the models of tests/golden whose layers have parts that no model of
# meshes.bats has: splits and recomputation give the same bits, meshes and slices
# close numbers.

bats_require_minimum_version 1.5.0
load helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    data 1 20 >data.jsonl
    pppack -q -l 64 --cp 2 --tp 2 -o packed data.jsonl
}

setup() { cd "$BATS_FILE_TMPDIR"; }

# same_bits FAMILY: all splits and ways of recomputation.
same_bits() {
    local m=$SRCDIR/tests/golden/$1/model how
    ppsplit -q -p 1 "$m" | ppsched -q -s gpipe -m 4 >plan.json
    train "$1" plan.json
    for how in selective full; do
        ppsplit -q -p 2 -c 2 --placement v --recompute $how "$m" |
            ppsched -q -s zbv -m 4 >plan.json
        train "$1-$how" plan.json
        same "$1-$how" "$1"
    done
}

# verified FAMILY SCHEDULE OPTION...: a plan with these options of ppsplit.
verified() {
    local m=$SRCDIR/tests/golden/$1/model schedule=$2
    shift 2
    # shellcheck disable=SC2086
    ppsplit -q "$@" "$m" | ppsched -q -s $schedule -m 4 >plan.json
    pprun --verify --init 1 --data packed --dtype fp64 plan.json >table ||
        { echo "$m $schedule $*"; cat table; return 1; }
}

# meshes FAMILY: every exchange of context-parallel ranks, replicas, slices.
meshes() {
    verified "$1" 1f1b -p 2 --cp 2 --cp-exchange gather --recompute full
    verified "$1" gpipe -p 1 --cp 2 --cp-exchange ring --dp 2
    verified "$1" 1f1b -p 2 --cp 2 --cp-exchange a2a --recompute selective
    verified "$1" 'seq1f1b --slices 2' -p 2 --dp 2
}

@test "OLMo: the same bits, and the same numbers over meshes" {
    same_bits olmo
    meshes olmo
    verified olmo zb-h1 -p 2 --tp 2 --recompute full
}

@test "OLMo 2: the same bits, and the same numbers over meshes" {
    same_bits olmo2
    meshes olmo2
    verified olmo2 1f1b -p 2 --tp 2 --recompute selective
    # More ranks than key heads: ranks have copies of them.
    verified olmo2 zb-h1 -p 2 --tp 4 --recompute full
    verified olmo2 1f1b -p 1 --tp 2 --cp 2 --cp-exchange ring --dp 2 --zero 3
    verified olmo2 'seq1f1b --slices 2' -p 2 --tp 2
}

@test "Phi-3 with part of a head rotated: the same bits, and over meshes" {
    same_bits phi3-partial
    meshes phi3-partial
    verified phi3-partial zb-h1 -p 2 --tp 2 --recompute selective
}

@test "Gemma: the same bits, and the same numbers over meshes" {
    same_bits gemma
    meshes gemma
    verified gemma zb-h1 -p 2 --tp 2 --recompute selective
}

@test "Gemma 2: the same bits, and the same numbers over meshes" {
    same_bits gemma2
    meshes gemma2
    verified gemma2 zb-h1 -p 2 --tp 2 --recompute full
}

@test "Gemma 3: the same bits, and the same numbers over meshes" {
    same_bits gemma3
    meshes gemma3
    verified gemma3 zb-h1 -p 2 --tp 2 --recompute selective
}

@test "GPT-OSS: the same bits, and the same numbers over meshes" {
    same_bits gpt-oss
    meshes gpt-oss
    verified gpt-oss zb-h1 -p 2 --tp 2 --recompute full
    verified gpt-oss 1f1b -p 2 --tp 2 --cp 2 --cp-exchange ring --ep 2
    verified gpt-oss 'zbv' -p 2 -c 2 --placement v --dp 2 --ep 2 --zero 3
    verified gpt-oss 1f1b -p 2 --cp 2 --cp-exchange a2a --dp 2 --ep 4
}
