#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# What all four programs do alike with options that they do not know.

bats_require_minimum_version 1.5.0

# fails MESSAGE TOOL ARGS...: status 2, the message, and where help is.
fails() {
    local message=$1 tool=$2
    shift
    run --separate-stderr "$@" </dev/null
    echo "$stderr"
    [ "$status" -eq 2 ]
    [ -z "$output" ]
    [ "$stderr" = "$tool: $message
try '$tool --help'" ]
}

@test "an unknown option, and the one that was meant" {
    fails "unknown option '--memroy'; did you mean '--memory'?" \
        ppsplit --memroy=80G
    fails "unknown option '--Timeline'; did you mean '--timeline'?" \
        ppsched -p 2 --Timeline
    fails "unknown option '--micro-batches'; did you mean '--microbatches'?" \
        ppsched --micro-batches 8
    fails "unknown option '--oversized'; did you mean '--oversize'?" \
        pppack --oversized drop
    # Nothing is like these; the second is longer than any.
    fails "unknown option '--num-layers'" pprun --num-layers 4
    long=$(printf 'x%.0s' {1..200})
    fails "unknown option '--${long:0:39}'" pprun "--$long"
    fails "unknown option '-X'" pppack -X
}

@test "options that are cut short, or have too much" {
    fails "option '--st' could be any of: --step, --stats" ppsched --st
    fails "option '--check' takes no argument" ppsched --check=plan.json
    fails "option '--timel' takes no argument" ppsched --timel=1
    fails "option '--steps' needs an argument" pprun --steps
}
