#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# figures - the rows of RESULTS.md that any machine can show are what the commands
# give, and README has no other figures.

bats_require_minimum_version 1.5.0

setup() {
    cd "$BATS_TEST_TMPDIR"
}

@test "RESULTS.md has what its commands give" {
    "$SRCDIR/scripts/results" --build "$BUILDDIR" --check
}

@test "a result that changes is found" {
    mkdir -p tree/scripts tree/tests/parity
    cp "$SRCDIR"/scripts/results* tree/scripts
    cp "$SRCDIR/tests/parity/public_reports" tree/tests/parity
    sed 's/| 3107 bins, /| 3106 bins, /' "$SRCDIR/RESULTS.md" >tree/RESULTS.md
    cp tree/RESULTS.md before
    run tree/scripts/results --build "$BUILDDIR" --check pack-bound
    [ "$status" -eq 1 ]
    [[ "$output" == "pack-bound: 3107 bins,"*"(RESULTS.md: 3106 bins,"* ]]
    cmp before tree/RESULTS.md
    run tree/scripts/results --build "$BUILDDIR" pack-bound
    [ "$status" -eq 0 ]
    grep -q '| 3107 bins, at least 3107 |' tree/RESULTS.md
    [ "$(diff before tree/RESULTS.md | grep -c '^>')" -le 2 ]
    run tree/scripts/results no-row
    [[ "$output" == "results: 'no-row' is neither a row nor a kind;"* ]]
}

@test "each row is in RESULTS.md, measured" {
    PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$SRCDIR/scripts python3 -c '
import results_rows
for _, rows in results_rows.SECTIONS:
    for row in rows:
        print(row.name)' >names
    [ "$(wc -l <names)" -gt 15 ]
    while read -r name; do
        grep -F "| \`$name\` |" "$SRCDIR/RESULTS.md" |
            grep -qv '| not measured |' || { echo "$name"; return 1; }
    done <names
}

@test "figures of README are those of RESULTS.md" {
    sed -n '/^## Why believe it/,/^## Not yet/p' "$SRCDIR/README.md" |
        grep -oE '\b[0-9]+\.[0-9]+|\b[0-9]+,[0-9]+|\b[1-9][0-9]+\b' |
        sort -u >figures
    [ "$(wc -l <figures)" -gt 4 ]
    while read -r figure; do
        grep -qwF -- "$figure" "$SRCDIR/RESULTS.md" ||
            { echo "README: $figure"; return 1; }
    done <figures
}

@test "README shows what ppsched draws" {
    sed -n 's/^    \$ \(ppsched .*\)/\1/p' "$SRCDIR/README.md" >lines
    [ "$(wc -l <lines)" -eq 1 ]
    bash lines | sed 's/^/    /' >drawn
    sed -n '/^    \$ ppsched/,/^$/p' "$SRCDIR/README.md" | sed '1d; $d' |
        diff - drawn
}

@test "reports of public faults name faults that tests inject" {
    grep -v '^#' "$SRCDIR/tests/parity/public_reports" | cut -d' ' -f1 >reported
    [ "$(wc -l <reported)" -gt 10 ]
    while read -r fault; do
        grep -qF "\"$fault\"" "$SRCDIR"/tests/parity/inject*.c ||
            { echo "$fault"; return 1; }
    done <reported
}
