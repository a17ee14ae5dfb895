#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# writing - the rules for prose and names that a pattern can find
# (.github/CONTRIBUTING.md). Each test prints the offenders.

bats_require_minimum_version 1.5.0

load tree_helpers

setup() {
    cd "$SRCDIR"
}

# Comments that open with one of these words have no verb, or are inverted.
OPENINGS='(Of|What|Whether|Where|Which)'

@test "no comment in C opens with Of, What, Whether, Where or Which" {
    grep -HnE "(^|[ ;{}])/(\*|/) ?$OPENINGS " $(files c h cu cuh cpp) /dev/null |
        none 'start with a subject or a verb'
}

@test "no comment in a script or a test opens with one of them" {
    awk -v openings="^ *# ?$OPENINGS " '
        FNR == 1 { before = "" }
        $0 ~ openings && before !~ /^ *#/ { print FILENAME ":" FNR ": " $0 }
        { before = $0 }' $(files bats bash build) \
        $(scripts 'sh|bash|python3') |
        none 'start with a subject or a verb'
}

@test "no sentence of a manual page or the README opens with one of them" {
    grep -HnE "^$OPENINGS " $(files 1 5 7 md) /dev/null |
        none 'start with a subject, or with "if" or "when"'
}

@test "no test is named after one of them" {
    grep -niE "^@test [\"']$OPENINGS " $(files bats) /dev/null |
        none 'say what must be true'
}

# Scripts read "--depth N would do", so that text stays.
@test "the library names no option: err->setting does" {
    grep -nE '"([^"\\]|\\.)*--[a-z]' $(files c h | grep '^lib/') |
        grep -vE '^[^:]*:[0-9]*: *(/?\*|//)|"--depth %d would do"' |
        none 'option names in strings'
}

@test "no two structs, unions or enums share a tag" {
    awk '/^(struct|union|enum) [A-Za-z0-9_]+ \{/ {
             if (seen[$2] && seen[$2] != FILENAME)
                 print $2 ": " seen[$2] ", " FILENAME
             seen[$2] = FILENAME
         }' $(files c h cu | grep -E '^(cmd|lib|kernels)/') | none 'tags'
}
