# SPDX-License-Identifier: MIT
# tree_helpers - the files of the tree, for tests that read them. The current
# directory is the root of the tree.
# shellcheck shell=bash disable=SC2120

# Prints the files of the tree that git does not ignore; only those with one of
# the given endings, if there are any. Whole lists go through one filter each:
# bats traps every command, which makes a loop over the files slow.
files() {
    local all
    all=$(git -c safe.directory='*' ls-files -co --exclude-standard \
        2>/dev/null | sort -u | xargs ls -d 2>/dev/null || true)
    [ -n "$all" ] || all=$(find . \( -path ./.git -o -path './build*' -o \
        -path ./quickstart-out -o -name __pycache__ \) \
        -prune -o -type f -print | cut -c3- | sort)
    if [ $# -eq 0 ]; then
        echo "$all"
    else
        grep -E "\.($(IFS='|' && echo "$*"))\$" <<<"$all"
    fi
}

# Prints the scripts without an ending whose first line names one of the
# interpreters in $1, such as 'sh|bash'.
scripts() {
    files | xargs awk -v "line=^#!.*[/ ]($1)( |\$)" '
        FNR == 1 && $0 ~ line { print FILENAME }
        { nextfile }'
}

# Fails if there is input, which names the offenders.
none() {
    local found
    found=$(cat)
    [ -z "$found" ] || { echo "$1:"; echo "$found"; return 1; }
}

# Skips the test if a program is missing. Under CI=true that is a failure.
need_program() {
    command -v "$1" >/dev/null && return
    [ "${CI:-}" != true ] || { echo "$1 is missing"; return 1; }
    skip "$1 is missing"
}
