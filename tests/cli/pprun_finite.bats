#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# pprun_finite - a run that diverges ends with status 3 and never becomes the
# latest checkpoint.

bats_require_minimum_version 1.5.0
load ../parity/helpers

setup_file() {
    set_up_run
    # A model with weights that are not numbers.
    mkdir nan
    cp "$SRCDIR/tests/golden/llama/model/"* nan
    head -c -64 "$SRCDIR/tests/golden/llama/model/model.safetensors" \
        >nan/model.safetensors
    printf '\377%.0s' {1..64} >>nan/model.safetensors
    ppsplit -p 2 nan | ppsched -s 1f1b -m 4 >nan.json
}

setup() { cd "$BATS_FILE_TMPDIR"; }

# diverges PATTERN COMMAND...: fails with status 3 and this message.
diverges() {
    local pattern=$1
    shift
    run --separate-stderr "$@"
    echo "status $status, stderr: $stderr"
    [ "$status" -eq 3 ]
    # shellcheck disable=SC2053
    [[ "$stderr" == $pattern ]]
}

wild=(--optimizer sgd --lr 1e6 --clip 0)

@test "weights that are not finite are not saved" {
    PP_INJECT=update-infinite diverges \
        "pprun: after step 1 'model.*' is not finite: no checkpoint is written" \
        "$BUILDDIR/tests/parity/pprun_inject" plan.json --data packed --init 1 \
        --optimizer sgd --steps 1 --save infinite
    [ "$(jq .step <<<"$output")" -eq 1 ]
    [ -z "$(ls infinite)" ]
}

@test "weights without a finite loss do not become the latest checkpoint" {
    pprun -q plan.json --data packed --init 1 --steps 1 --save kept >first
    diverges 'pprun: after step 2 * not finite: no checkpoint is written' \
        pprun -q plan.json --data packed --init 1 --steps 3 --save kept \
        --save-every 1 --resume kept "${wild[@]:2}"
    [ "$(readlink kept/latest)" = step-00000001 ]
    [ "$(ls kept)" = "$(printf 'latest\nstep-00000001')" ]
}

@test "nor do they if they are saved while the next step trains" {
    pprun -q plan.json --data packed --init 1 --steps 1 --save early >first
    diverges 'pprun: step 3: loss is * and the gradient norm *' \
        pprun -q plan.json --data packed --init 1 --steps 4 --save early \
        --save-every 1 --save-background --resume early "${wild[@]:2}"
    [ "$(ls early)" = "$(printf 'latest\nstep-00000001')" ]
}

@test "an evaluation without a finite loss is reported, and fails" {
    diverges 'pprun: step [12]: the loss of the evaluation is *' \
        pprun plan.json --data packed --init 1 --steps 2 --eval packed \
        "${wild[@]}" --save evaluated
    [ "$(jq -c '[.step, .val_loss]' <<<"${lines[-1]}")" = '[2,null]' ]
    [ -z "$(ls evaluated)" ]
    diverges 'ppscore: step 0: the loss of the evaluation is *' \
        ppscore nan.json --eval packed
    [ -z "$output" ]
}

@test "log-probabilities that are not finite are not written" {
    diverges 'ppscore: sequence 0: the log-probability of token 1 is nan' \
        ppscore nan.json --data packed --logprobs -o scores
    [ ! -e scores ]
    diverges 'ppscore: sequence 0: the log-probability of token 1 is nan' \
        ppscore nan.json --data packed --logprobs
    [ -z "$output" ]
}

@test "the check changes no bit of a run that saves" {
    pprun plan.json --data packed --init 1 --steps 4 >plain
    pprun plan.json --data packed --init 1 --steps 4 --save often \
        --save-every 1 --dump-grads grads >saved
    diff <(numbers plain) <(numbers saved)
    pprun -q plan.json --data packed --init 1 --steps 4 --dump-grads alone \
        >again
    cmp grads alone
}
