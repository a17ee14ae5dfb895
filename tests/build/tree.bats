#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# tree - the rules that the source tree keeps (pp-hacking(7)), whatever is
# built from it. Each test prints the offenders.

bats_require_minimum_version 1.5.0

setup() {
    cd "$SRCDIR"
}

# Files of the tree, ignored ones left out; of these endings, if any.
files() {
    local ending all
    all=$(git -c safe.directory='*' ls-files -co --exclude-standard \
        2>/dev/null | sort -u)
    [ -n "$all" ] || all=$(find . \( -path ./.git -o -path './build*' -o \
        -path ./quickstart-out -o -name __pycache__ \) \
        -prune -o -type f -print | cut -c3- | sort)
    for file in $all; do
        [ -f "$file" ] || continue
        [ $# -gt 0 ] || echo "$file"
        for ending; do
            [[ $file != *.$ending ]] || echo "$file"
        done
    done
}

# Scripts without an ending, by their first line: sh and bash, or python.
scripts() {
    files | while read -r file; do
        head -n 1 "$file" | tr -d '\0' | grep -aqE "^#!.*\b($1)\b" &&
            echo "$file"
    done || true
}

# Fails when there is input, which names the offenders.
none() {
    local found
    found=$(cat)
    [ -z "$found" ] || { echo "$1:"; echo "$found"; return 1; }
}

@test "every file names its licence at the top" {
    {
        for file in $(files c h cu cuh cpp in 1 5 7 bats bash) \
            $(scripts 'sh|bash|python3'); do
            head -n 2 "$file" | grep -q 'SPDX-License-Identifier: MIT' ||
                echo "$file"
        done
        for file in $(files c h cu cuh cpp); do
            [ "$(head -n 1 "$file")" = \
                '/* SPDX-License-Identifier: MIT */' ] || echo "$file"
        done
    } | none 'no SPDX line'
}

@test "no file is longer than 600 lines" {
    for file in $(files c h cu cuh cpp bats bash 1 5 7) \
        $(scripts 'sh|bash|python3'); do
        length=$(wc -l <"$file")
        [ "$length" -le 600 ] || echo "$file: $length"
    done | none 'too long'
}

@test "file names are unique over the tree" {
    { files c h cu cuh cpp bats bash 1 5 7; scripts 'sh|bash|python3'; } | sort -u |
        sed 's,.*/,,' | sort | uniq -d | none 'used twice'
}

@test "text has LF, no trailing blanks, a final newline and no tabs" {
    for file in $(files c h cu cuh cpp bats bash 1 5 7 md build) \
        $(scripts 'sh|bash|python3'); do
        grep -nP '\r|[ \t]$' "$file" | sed "s,^,$file:," || true
        [ -z "$(tail -c 1 "$file")" ] || echo "$file: no final newline"
        [[ $file == *.[157] ]] || grep -nP '\t' "$file" | sed "s,^,$file:," ||
            true
    done | none 'white space'
}

@test "nothing in the tree knows the machine it was written on" {
    files | xargs grep -nIE '/(work|root|home/[a-z]+)/' |
        none 'machine paths'
}

# Which directories of lib each may include, itself first.
arrows() {
    cat <<'END'
base
sched base
plan base sched
manifest base sched plan
data base
comm base
run base sched plan data comm
END
}

@test "includes point one way through lib" {
    arrows | while read -r dir others; do
        grep -nE '^#include "[a-z_]+/' "lib/$dir"/*.[ch] |
            grep -vE "\"($dir|${others// /|})/" || true
        # A bare name is a kernel's, or the directory's own.
        [ "$dir" = run ] || sed -nE 's,^#include "([^"/]+)".*,\1,p' \
            "lib/$dir"/*.[ch] | while read -r header; do
            [ -f "lib/$dir/$header" ] || echo "lib/$dir includes $header"
        done
    done | none 'against the arrows'
    diff <(arrows | cut -d' ' -f1 | sort) <(cd lib && printf '%s\n' * | sort)
}

@test "kernels include nothing above them" {
    grep -nE '^#include "[a-z_]+/' kernels/*.{c,h,cu,cuh} |
        grep -v '"base/' | none 'against the arrows'
}

@test "only lib/manifest knows JSON" {
    grep -lE '#include [<"]jansson' $(files c h) | grep -v '^lib/manifest/' |
        grep -v '^tests/' | none 'includes jansson'
}

@test "lib and kernels never print, exit or read the environment" {
    grep -nE '\b(printf|puts|putchar|perror|exit|_exit|getenv|setenv) ?\(' \
        lib/*/*.c kernels/*.{c,cu,cuh} |
        none 'belongs in cmd'
}

@test "no leftovers: TODO, FIXME, #if 0" {
    grep -nE '\b(TODO|FIXME|XXX|HACK)\b|^ *# *if 0' \
        $(files c h cu cuh cpp 1 5 7) $(scripts 'sh|bash|python3') |
        none leftovers
}

@test "every source and every test is in a meson.build" {
    for file in $(files c cu cpp bats); do
        build=$(dirname "$file")/meson.build
        name=$(basename "$file")
        grep -qE "'(${name//./\\.}|${name%.*})'" "$build" || echo "$file"
    done | none 'never built or run'
}

@test "C is formatted by clang-format 14" {
    command -v clang-format-14 >/dev/null || skip 'clang-format-14 is missing'
    clang-format-14 --dry-run -Werror $(files c h cu cuh cpp)
}

@test "shellcheck finds nothing in the scripts" {
    command -v shellcheck >/dev/null || skip 'shellcheck is missing'
    shellcheck $(scripts 'sh|bash')
}

@test "shellcheck finds nothing in the bats files" {
    command -v shellcheck >/dev/null || skip 'shellcheck is missing'
    # Every test is a subshell (2030, 2031) under set -e (2164), bats sets
    # variables (2154), and lists of our own file names are words (2046).
    shellcheck -s bats -S warning -e SC2030,SC2031,SC2046,SC2154,SC2164 \
        $(files bats)
    shellcheck -s bash -S warning $(files bash)
}
