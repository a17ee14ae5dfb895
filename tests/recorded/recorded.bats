#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# recorded - the plan tools print the same as before over a fixed corpus. A
# commit that changes the output on purpose also updates the file expected:
#
#   PATH=$PWD/build/cmd:$PATH tests/recorded/commands plan >tests/recorded/expected

bats_require_minimum_version 1.5.0

@test "the tools print what they printed before" {
    cd "$BATS_TEST_TMPDIR"
    "$SRCDIR/tests/recorded/commands" plan >got
    [ "$(wc -l <got)" -gt 400 ]
    diff -u "$SRCDIR/tests/recorded/expected" got
}
