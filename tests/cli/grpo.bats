#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# grpo - scripts/grpo: sampling and training by turns. PP_STEPS is the number of
# steps (2). With 20 or more the script says by itself that it learns nothing.

bats_require_minimum_version 1.5.0

setup() { cd "$BATS_TEST_TMPDIR"; }

@test "each step samples from the weights that the step before it trained" {
    local steps=${PP_STEPS:-2}
    "$SRCDIR/scripts/grpo" -d out -n "$steps" "$BUILDDIR" >log
    [ "$(wc -l <log)" -eq "$steps" ]
    # The first update has the policy that sampled, and the second another one.
    jq -es 'all(.[]; .reward >= 0 and .reward <= 1 and (.updates | length) == 2 and
        .updates[0].probs_ratio_max == 1 and .updates[0].gen_kl_error < 1e-9 and
        .updates[0].grad_norm > 0 and .updates[1].probs_ratio_max > 1)' log
    cmp out/weights/latest/model.safetensors \
        out/checkpoints/latest/model.safetensors
    # It repeats itself to the bit.
    "$SRCDIR/scripts/grpo" -n 2 "$BUILDDIR" | diff - <(head -n 2 log)
}

@test "transformers samples from the weights that the trainer streams" {
    local python=${PP_PYTHON:-python3}
    "$python" -c 'import torch, transformers' || skip "no transformers"
    local steps=${PP_STEPS:-2}
    "$SRCDIR/scripts/grpo" -d out -n "$steps" -t "$python" "$BUILDDIR" >log
    [ "$(wc -l <log)" -eq "$steps" ]
    # The trainer computes the log-probabilities that transformers drew from.
    jq -es 'all(.[]; .updates[0].probs_ratio_max == 1 and
        .updates[0].gen_kl_error < 1e-9)' log
    # It is another sampler: the first step is the same, the second is not.
    "$SRCDIR/scripts/grpo" -n 2 "$BUILDDIR" >own
    diff <(head -n 1 log) <(head -n 1 own)
    run ! diff <(sed -n 2p log) <(sed -n 2p own)
}

@test "wrong arguments are refused" {
    run -2 --separate-stderr "$SRCDIR/scripts/grpo" -n 0 "$BUILDDIR"
    [ "$stderr" = "grpo: '0' is not a number from 1 to 999999" ]
    run -2 --separate-stderr "$SRCDIR/scripts/grpo" "$BATS_TEST_TMPDIR"
    [[ $stderr == "grpo: "*" holds no pprun"* ]]
    run -2 --separate-stderr "$SRCDIR/scripts/grpo" -t false "$BUILDDIR"
    [ "$stderr" = "grpo: 'false' has no transformers: pip install torch transformers" ]
}
