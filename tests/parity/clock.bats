#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# The time of a run is the time that its plan says, by a clock that counts
# operations and bytes (counted.c).

bats_require_minimum_version 1.5.0
load helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    # Every microbatch has one sequence of one length, so that all have the same
    # number of scored rows, as the profile assumes.
    model llama false
    jq '.num_hidden_layers = 8 | .vocab_size = 300' model-llama/config.json >config.json
    jq -nc 'range(16) | {input_ids: [range(.; . + 16)]}' |
        pppack -q -l 16 -o packed
    profile
}

setup() { cd "$BATS_FILE_TMPDIR"; }

counted() {
    "$BUILDDIR/tests/parity/pprun_counted" -q --init 1 --data packed "$@"
}

# profile PLAN...: profiles a plan with these options.
profile() {
    ppsplit -q -p 2 "$@" config.json | ppsched -q -s 1f1b -m 4 --data packed |
        counted --steps 4 --profile profile.json >/dev/null
}

# agrees SHARE KIND PLAN...: passes if the step of a run is at most that share
# away from the step of its plan.
agrees() {
    local share=$1 kind=$2 want got
    shift 2
    ppsplit -q -s "$kind" -m 4 --costs profile.json "$@" config.json |
        ppsched -q -s "$kind" -m 4 --data packed >plan.json
    want=$(ppsched --stats --data packed plan.json | jq .step)
    got=$(counted --steps 2 plan.json | jq -s '.[1].seconds')
    echo "$kind $*: a run of $got s, and $want s in the plan"
    jq -en "($want / $got - 1 | fabs) <= $share"
}

@test "a profile of 1f1b says what steps of other kinds take" {
    agrees 1e-9 1f1b -p 2
    agrees 1e-9 interleaved -p 2 -c 2
    agrees 1e-9 zb-h1 -p 2
    agrees 1e-9 zbv -p 2 -c 2 --placement v
    agrees 1e-9 gpipe -p 2
    [ -z "$SLOW" ] && return
    agrees 1e-9 dualpipev -p 2 -c 2 --placement v
    agrees 1e-9 hanayo -p 2 -c 2 --placement v
    agrees 1e-9 v-half -p 2 -c 2 --placement v
    agrees 1e-9 zb-h2 -p 2
    agrees 1e-9 looped-bfs -p 2 -c 2
    agrees 1e-9 eager-1f1b -p 2
    # A rank of two copies begins the forward of a pair before it has what the
    # backward needs, and the last slice of a sequence has a row less to score.
    agrees 2e-2 dualpipe -p 2 --placement both-ways
    agrees 2e-2 seq1f1b -p 2
}

@test "a profile of adapters or of a frozen head says what theirs take" {
    for what in '--lora rank=4' '--freeze head'; do
        # shellcheck disable=SC2086 # words
        profile $what
        # shellcheck disable=SC2086
        agrees 1e-9 zb-h1 -p 2 $what
        [ -z "$SLOW" ] && continue
        # shellcheck disable=SC2086
        agrees 1e-9 gpipe -p 2 $what
    done
}

@test "a profile of a head of several stages says what other kinds take" {
    profile --head-stages 2
    agrees 1e-9 1f1b -p 2 --head-stages 2
    agrees 1e-9 zb-h1 -p 2 --head-stages 2
    [ -z "$SLOW" ] || agrees 1e-9 gpipe -p 4 --head-stages 4
}
