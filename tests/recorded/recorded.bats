#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# recorded - what the plan tools print over a fixed corpus has not changed. A
# change that is meant is written into expected in the commit that makes it:
#
#   PATH=$PWD/build/cmd:$PATH tests/recorded/commands plan >tests/recorded/expected

bats_require_minimum_version 1.5.0

@test "the tools print what they printed before" {
    cd "$BATS_TEST_TMPDIR"
    "$SRCDIR/tests/recorded/commands" plan >got
    [ "$(wc -l <got)" -gt 400 ]
    diff -u "$SRCDIR/tests/recorded/expected" got
}
