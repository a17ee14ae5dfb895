# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# Runs on the emulated device, and the same on the CPU.

export EMULATED="$BUILDDIR/tests/kernels/pprun_emulated"

# go PROGRAM NAME PLAN ARGS...: makes two steps with all output in NAME.
go() {
    local program=$1 name=$2 plan=$3
    shift 3
    rm -rf "$name"
    mkdir "$name"
    "$program" "$plan" --data "${packed:-packed}" --init 5 --steps 2 --lr 1e-2 \
        --weight-decay 0.1 --save "$name/ckpt" --dump-grads "$name/grads" \
        -o "$name/log" "$@"
}

cpu() { go pprun "$@"; }
gpu() { go "$EMULATED" "$@" --device cuda; }

# near BOUND A B: compares all gradients of the last step and all weights. Runs
# with a small bound use SGD, because AdamW divides gradients by their size, which
# enlarges rounding errors.
near() {
    "$BUILDDIR/tests/golden/compare_tensors" "$1" 1e-7 "$2/grads" "$3/grads"
    "$BUILDDIR/tests/golden/compare_tensors" "$1" 1e-7 \
        "$2/ckpt/latest" "$3/ckpt/latest"
}

# golden PLAN FAMILY RANKS: writes a plan for a model of tests/golden.
golden() {
    ppsplit -q -p "$3" "$SRCDIR/tests/golden/$2/model" |
        ppsched -q -s 1f1b -m 3 >"$1"
}
