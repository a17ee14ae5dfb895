#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# A generator behind a language model on the emulated device. Gradients are those
# of the CPU, which tests/golden compares with PyTorch, and bits do not depend on
# the number of pipeline ranks.

bats_require_minimum_version 1.5.0
load ../parity/helpers
load device_helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    export G=$SRCDIR/tests/golden/generator
    pppack -q -l 24 --cp 2 --tp 2 --bins-multiple 2 -o packed "$G/data.jsonl"
}

setup() { cd "$BATS_FILE_TMPDIR"; }

# generates FILE M LANGUAGE GENERATOR: writes a plan of M microbatches.
generates() {
    # shellcheck disable=SC2086
    ppsplit -q $3 "$G/model" >l.json
    # shellcheck disable=SC2086
    ppsplit -q $4 "$G/model/generator" >g.json
    ppsplit -q --combine language=l.json,generator=g.json |
        ppsched -q -s 1f1b -m "$2" >"$1"
}

@test "a generator has the CPU's gradients, and the same bits on more ranks" {
    generates one.json 2 '-p 1' '-p 1'
    cpu host one.json --optimizer sgd
    gpu one one.json --optimizer sgd
    near 1e-4 one host
    run ! same one host
    generates two.json 2 '-p 2' '-p 2'
    gpu ranks two.json --optimizer sgd
    same ranks one
    diff <(jq .generator_loss one/log) <(jq .generator_loss ranks/log)
    gpu one one.json --dtype bf16
    gpu again two.json --dtype bf16
    same again one
}

@test "rows cross a bridge in the device's memory" {
    generates one.json 1 '-p 1 --dp 2' '-p 1 --tp 2'
    cpu host one.json --optimizer sgd
    PP_EMULATED_JITTER=3 gpu one one.json --optimizer sgd
    near 1e-4 one host
}
