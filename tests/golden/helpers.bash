# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# helpers - plans, runs and comparisons of the tests of tests/golden.

GOLDEN=$SRCDIR/tests/golden
export COMPARE=$BUILDDIR/tests/golden/compare_tensors

# bins: prints the number of bins (pp-pack(5)).
bins() { od -An -tu8 -j32 -N8 packed/index | tr -d ' '; }

# plan MODEL RANKS: writes plan.json, whose step takes every bin.
plan() { ppsplit -q -p "$2" "$1" | ppsched -q -s 1f1b -m "$(bins)" >plan.json; }

# train CASE MODEL STEPS [OPTION...]: trains with the optimizer of the golden.
train() {
    local case=$1 model=$2 steps=$3
    shift 3
    local decay
    decay=$(jq .optimizer.weight_decay "$GOLDEN/$case/expected.json")
    pprun -q --data packed --weights "$model" --steps "$steps" --lr 1e-3 \
        --betas 0.9,0.999 --eps 1e-8 --clip 1.0 --weight-decay "$decay" --decay-all \
        "$@" plan.json >steps.jsonl
}

# Compares arrays of numbers. The tolerance is relative to the wanted number, or
# to $least if that is larger.
CLOSE='def close($tolerance; $got; $want; $least):
    ($want | length) > 0 and ($got | length) == ($want | length)
    and all(range($want | length); ($got[.] - $want[.] | fabs)
            <= $tolerance * ([$want[.], -$want[.], $least] | max));'

# agree FILE [TOLERANCE GOT WANT]...: compares what filters take from the steps and
# from an object in FILE. One jq for all: it takes longer to start than to compare.
# Returns 1 if they differ.
agree() {
    local file=$1 all=true status=0
    shift
    while [ $# -gt 0 ]; do
        all+=" and close($1; \$got | $2; \$want | $3; 0)"
        shift 3
    done
    jq -se --slurpfile want "$file" \
        "$CLOSE . as \$got | \$want[0] as \$want | $all" steps.jsonl || status=$?
    [ $status -eq 0 ] || cat steps.jsonl "$file"
    return $status
}

# skip_some: leaves one of FEWER tests, if FEWER is set.
skip_some() {
    ((BATS_TEST_NUMBER % ${FEWER:-1} == 0)) || skip 'FEWER is set'
}
