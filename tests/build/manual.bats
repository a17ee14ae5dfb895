#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# manual - checks the manual pages: clean mdoc, the options of --help, and
# examples that run.

bats_require_minimum_version 1.5.0

TOOLS='ppmesh ppsplit ppsched pppack pprun ppscore'

load tree_helpers

setup() {
    cd "$BATS_TEST_TMPDIR"
}

# Options in --help: -x and --name at the start of a line.
help_options() {
    "$1" --help all | sed -nE \
        's/^ {2}-(.), --([a-z0-9-]+).*/-\1\n--\2/p
         s/^ {2}-(.)( .*)?$/-\1/p
         s/^ {6}--([a-z0-9-]+).*/--\1/p' | sort
}

# Options in the page: the words after each Fl of an .It Fl line.
page_options() {
    awk '/^\.It Fl / {
        flag = 0
        for (i = 2; i <= NF; i++)
            if ($i == "Fl")
                flag = 1
            else if ($i ~ /^[A-Z][a-z]$/)
                flag = 0
            else if (flag && $i ~ /^-[a-z0-9-]+$/)
                print "-" $i
            else if (flag && $i ~ /^[A-Za-z0-9]$/)
                print "-" $i
    }' "$SRCDIR/man/$1.1" | sort
}

@test "every page is clean mdoc" {
    need_program mandoc
    # -W style would complain about references to pages that are not installed.
    run mandoc -T lint -W warning "$SRCDIR"/man/*.[157]
    echo "$output"
    [ "$status" -eq 0 ]
}

@test "no heading or quotation begins with a word that is a macro" {
    run ! grep -nE '^\.[A-Z][a-z] (An|At|In|No|Do|Up) ' "$SRCDIR"/man/*.[1-9]
}

@test "every page fits 80 columns and renders whole" {
    need_program mandoc
    need_program groff
    local page device
    for page in "$SRCDIR"/man/*.[157]; do
        # man(1) leaves two columns of a terminal free.
        for device in ascii utf8; do
            groff -mandoc -T$device -P-cbou -rLL=78n -ww "$page" 2>&1 >text |
                # ASCII has no such letters.
                { grep -v "can't find special character" || true; } |
                none "warnings about $page"
        done
        mandoc -Tutf8 -O width=80 "$page" | LC_ALL=C.UTF-8 sed 's/.\x08//g' \
            >>text
        LC_ALL=C.UTF-8 grep -E '.{81}' text | none "wide in $page"
        # The last section is there in both.
        grep '^\.Sh' "$page" | tail -n 1 | cut -c 5- >last
        [ "$(grep -cxFf last text)" -eq 2 ]
    done
}

@test "every tool's page has the sections that all have" {
    for tool in $TOOLS; do
        for section in NAME SYNOPSIS DESCRIPTION ENVIRONMENT FILES \
            'EXIT STATUS' EXAMPLES 'SEE ALSO'; do
            grep -q "^\.Sh $section\$" "$SRCDIR/man/$tool.1" ||
                { echo "$tool.1 lacks $section"; return 1; }
        done
    done
}

@test "pages and --help know the same options" {
    for tool in $TOOLS; do
        help_options "$tool" >help
        [ "$(wc -l <help)" -gt 8 ]
        [ "$(uniq -d help)" = '' ]
        page_options "$tool" | diff -u help - ||
            { echo "$tool: --help and $tool.1 differ"; return 1; }
    done
}

@test "pages are in man/meson.build" {
    for page in "$SRCDIR"/man/*.[157]; do
        grep -q "'${page##*/}'" "$SRCDIR/man/meson.build" ||
            { echo "${page##*/} is not installed"; return 1; }
    done
}

@test "the files that pp-hacking(7) and pp-testing(7) name exist" {
    find "$SRCDIR" -path "$SRCDIR/build*" -prune -o -print | sed 's,.*/,,' |
        sort -u >names
    sed -n 's/^\.Pa //p' "$SRCDIR"/man/pp-{hacking,testing}.7 | tr ' ' '\n' |
        grep -E '^[a-z0-9_./-]+$' | grep -vE '^[.,]$|^build' |
        while read -r path; do
            [ -e "$SRCDIR/$path" ] || grep -qxF -- "$path" names ||
                [ -e "$SRCDIR/lib/run/$path" ] || echo "$path"
        done | none 'no such file'
}

@test "every page refers to pp-glossary(7)" {
    grep -L '^\.Xr pp-glossary 7' "$SRCDIR"/man/*.[157] |
        grep -v '/pp-glossary\.7$' | none 'pages'
}

@test "a build option in a page or the README is one" {
    local option
    for option in $(grep -hoE -- '-D[a-z_]+=' "$SRCDIR"/man/*.[157] \
        "$SRCDIR/README.md" | sort -u | tr -d '='); do
        case ${option#-D} in
        buildtype | b_sanitize | b_lundef | b_coverage) continue ;; # meson's own
        esac
        grep -q "^option('${option#-D}'" "$SRCDIR/meson_options.txt" || {
            echo "$option"
            return 1
        }
    done
}

@test "a reference to one of our pages leads somewhere" {
    sed -nE 's/^\.Xr (pp[a-z-]+) ([157]).*/\1.\2/p' "$SRCDIR"/man/*.[157] |
        sort -u | while read -r page; do
        [ -f "$SRCDIR/man/$page" ] || { echo "no $page"; exit 1; }
    done
}

# batch N: the Nth batch script of pp-slurm.
batch() {
    awk -v n="$1" '/^#SBATCH/ && !on { on = ++k } /^\.Ed/ { on = 0 }
        on == n' "$SRCDIR/man/pp-slurm.7" | sed 's/\\e/\\/'
}

@test "the batch scripts of pp-slurm are those in scripts" {
    # They pass on all operands, and keep lines and messages apart.
    [ "$(grep -l ' -o steps.jsonl "\$@" ' "$SRCDIR"/scripts/*.sbatch | wc -l)" -eq 3 ]
    sed -n '/^#SBATCH/,$p' "$SRCDIR/scripts/train-gpus.sbatch" >file
    [ -s file ]
    batch 1 | diff file -
    # The second script on the page shows only the lines that differ.
    [ "$(batch 2 | wc -l)" -gt 3 ]
    batch 2 | grep -vxFf "$SRCDIR/scripts/train-cpus.sbatch" >unknown || true
    diff /dev/null unknown
}

# Makes the files that the examples use: a model directory, text in JSON Lines,
# packed data and a plan.
make_scratch() {
    cp -r "$SRCDIR/tests/golden/llama/model" model
    cp "$SRCDIR/tests/golden/data.jsonl" data.jsonl
    jq -c '.input_ids | length' data.jsonl >lengths.txt
    printf '{"text":"%s"}\n' 'a first document' 'and a second one' >text.jsonl
    pppack -q -l 48 -o packed data.jsonl
    ppsplit -q -p 2 model | ppsched -q -s 1f1b -m 4 -o plan.json
}

@test "no example is broken to fit a page of 78 columns" {
    run awk '/^\.Dl / && length(substr($0, 5)) > 67 ||
        on && length > 73 { print FILENAME ":" FNR ": " $0 }
        /^\.Bd -literal -offset indent/ { on = 1 } /^\.Ed/ { on = 0 }' \
        "$SRCDIR"/man/*.1
    echo "$output"
    [ -z "$output" ]
}

@test "the examples of the manual run" {
    make_scratch
    for page in "$SRCDIR"/man/*.[157]; do
        "$SRCDIR/tests/build/man_examples" "$page" >examples.sh
        echo "# ${page##*/}"
        cat examples.sh
        bash -euo pipefail examples.sh </dev/null
    done
}

@test "the README's picture is what ppsched draws" {
    command=$(grep -o 'ppsched [^`]*--svg man/zbv.svg' "$SRCDIR/README.md")
    mkdir man
    $command >plan.json
    cmp man/zbv.svg "$SRCDIR/man/zbv.svg"
}

@test "every fault is injected somewhere, and pp-testing(7) has it" {
    cd "$SRCDIR"
    for fault in $(grep -ohE 'is(_of\(e, |\()"[a-z-]*"\)' tests/parity/inject*.c |
        cut -d'"' -f2 | sort -u); do
        echo "$fault"
        grep -Eq "(caught|injected|refuses|PP_INJECT=)[ \"]?$fault( |$)|\| $fault: " \
            tests/parity/*.bats tests/parity/*.rows
        sed -n '/^\.Ss Faults/,/^\.Ss San/p' man/pp-testing.7 |
            tr -s ' ,' '\n' | grep -qx -- "$fault"
    done
}
