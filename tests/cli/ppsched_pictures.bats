#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# ppsched's pictures: --svg, --trace, --compare and the colours of -t.

bats_require_minimum_version 1.5.0
load trace_helpers

setup() { cd "$BATS_TEST_TMPDIR"; }

# fails STATUS PATTERN ARGS...: one message on stderr, nothing on stdout.
fails() {
    local want=$1 pattern=$2
    shift 2
    run --separate-stderr ppsched "$@" </dev/null
    [ "$status" -eq "$want" ]
    [ -z "$output" ]
    [[ "${stderr_lines[0]}" == "ppsched: "* ]]
    [[ "$stderr" == *"$pattern"* ]]
}

# Checks that the picture is well-formed and has only numbers as coordinates.
well_formed() {
    xmllint --noout "$1"
    ! grep -E '[^a-z](nan|inf)[^a-z]' "$1"
}

@test "pictures show reductions that take time" {
    run ppsched -p 2 -s 1f1b -m 2 --reduce 2 -t --ascii \
        --svg reduce.svg --trace reduce.json
    [[ ${lines[2]} == *"=####|"* ]]
    [[ ${lines[*]} == *"## collective"* ]]
    well_formed reduce.svg
    grep -q 'class="r0"' reduce.svg
    grep -q '<title>0REDUCE_GRAD: 9 to 11</title>' reduce.svg
    jq -e 'any(.traceEvents[]; .name == "0REDUCE_GRAD" and .dur > 0)' reduce.json
    run ppsched -p 2 -s 1f1b -m 2 --reduce 0 -t --ascii --svg none.svg
    [[ ${lines[*]} != *collective* ]]
    run ! grep -q 'class="r0"' none.svg
}

@test "--svg draws, and the manifest stays the same" {
    ppsched -p 4 -c 2 --placement v -s zbv -m 8 --svg zbv.svg >plan.json
    well_formed zbv.svg
    [ -z "$(find . -name "*.tmp")" ]
    ppsched --check plan.json
    # The page and every action have a title.
    [ "$(grep -o '<title>' zbv.svg | wc -l)" -eq $((1 + 4 * 2 * 8 * 3)) ]
    grep -q '<title>zbv: 4 ranks, 8 stages, 8 microbatches</title>' zbv.svg
    grep -q 'makespan 51, bubble 5.9%, peak 8 slots, 96 messages' zbv.svg
    grep -q 'lower bound 51<' zbv.svg
    grep -q '@media screen and (prefers-color-scheme:dark)' zbv.svg
    [ "$(grep -c '>rank [0-3]</text>' zbv.svg)" -eq 4 ]
}

@test "without -s there is only the picture" {
    ppsched -p 2 -s 1f1b -m 3 >plan.json
    run --separate-stderr ppsched --svg a.svg --trace a.json plan.json
    [ "$status" -eq 0 ]
    [ -z "$output$stderr" ]
    well_formed a.svg
    jq -e '.traceEvents | length > 0' a.json
    run --separate-stderr ppsched --svg - plan.json
    [ "$output" = "$(cat a.svg)" ]
    # It also replaces the manifest, unless that goes elsewhere.
    run --separate-stderr ppsched -p 2 -s 1f1b -m 3 --svg -
    [ "$output" = "$(cat a.svg)" ]
    run --separate-stderr ppsched -p 2 -s 1f1b -m 3 --svg - -o again.json
    [ "$output" = "$(cat a.svg)" ]
    diff <(jq .schedule plan.json) <(jq .schedule again.json)
    run --separate-stderr ppsched --svg b.svg --stats plan.json
    jq -e '.makespan == 12' <<<"$output"
    cmp a.svg b.svg
}

@test "a picture has a legend of its items" {
    ppsched -p 4 -c 2 --placement v -s dualpipev -m 8 --svg pairs.svg >/dev/null
    grep -q 'pair, run as one' pairs.svg
    ppsched -p 4 -s 1f1b -m 8 --max-in-flight 5 --svg limit.svg >/dev/null
    grep -q 'class="k"' limit.svg
    grep -q 'memory, up to 5 slots' limit.svg
    ppsched -p 4 -s 1f1b -m 8 --svg plain.svg >/dev/null
    run ! grep -q 'class="k"\|pair, run' plain.svg
    grep -q '>message<' plain.svg
    well_formed pairs.svg
    well_formed limit.svg
}

@test "a large picture has few bytes, and the given width" {
    ppsched -p 32 -c 2 --placement v -s zbv -m 256 --svg big.svg >/dev/null
    well_formed big.svg
    [ "$(wc -c <big.svg)" -lt 3000000 ]
    [ "$(grep -o '<title>' big.svg | wc -l)" -eq 1 ]
    run ! grep -q 'number: the microbatch' big.svg
    ppsched -p 32 -s zb-h1 -m 256 --width 12000 --svg wide.svg >/dev/null
    grep -q '<svg [^>]* width="12000"' wide.svg
    grep -q '>255</text>' wide.svg
}

@test "odd sizes are drawn" {
    local n=0
    while read -r line; do
        n=$((n + 1))
        # shellcheck disable=SC2086 # words
        ppsched $line --svg odd.svg --trace odd.json >/dev/null
        well_formed odd.svg
        check_trace odd.json
    done <<'END'
-p 1 -s 1f1b -m 1
-p 1 -s gpipe -m 300
-p 70 -s 1f1b -m 1
-p 3 -s zb-h1 -m 4 --cost 1,0,0
-p 3 -s zb-h1 -m 4 --cost 0,0,1
-p 2 -s 1f1b -m 4 --cost 1e15,1e15,1e15,1e15
-p 2 -s 1f1b -m 4 --cost 1e-12,1e-12,1e-12
-p 2 -s zb-h2 -m 4 --cost 1e-9,1e9,1
-p 2 -c 9 -s interleaved -m 4 --depth 0
-p 4 -c 2 --placement v -s dualpipev -m 8 --depth 3 --cost 1,1,1,5
END
    [ "$n" -eq 10 ]
}

@test "a file that cannot be written is status 3, and leaves nothing" {
    for option in --svg --trace; do
        fails 3 'nosuch/a' -p 2 -s 1f1b -m 2 $option nosuch/a
        [ "${#stderr_lines[@]}" -eq 1 ]
        fails 3 '/dev/full' -p 2 -s 1f1b -m 2 $option /dev/full
        run bash -c "ppsched -p 2 -s 1f1b -m 2 $option - >/dev/full"
        [ "$status" -eq 3 ]
    done
    fails 2 'no action takes time' -p 2 -s 1f1b -m 2 \
        --cost 0,0,0 --svg a.svg
    [ -z "$(find . -name "a.svg*")" ]
    fails 1 "the limit of '1'" -p 2 -s 1f1b -m 2 --max-in-flight 1 --svg a.svg
    [ -z "$(find . -name "a.svg*")" ]
}

@test "options of pictures that do not go together" {
    fails 2 'only one of' -p 2 -s 1f1b -m 2 --svg - --stats
    fails 2 'only one of' -p 2 -s 1f1b -m 2 --svg - --trace -
    fails 2 '--width needs' -p 2 -s 1f1b -m 2 --width 900
    fails 2 '400 pixels' -p 2 -s 1f1b -m 2 --width 100 --svg a.svg
    fails 2 'needs -t' -p 2 -s 1f1b -m 2 --no-color
    fails 2 'exclude each other' --compare 1f1b -s 1f1b -p 2 -m 2
    fails 2 '--compare needs -m' --compare 1f1b -p 2
    fails 2 "'nosuch'" --compare 1f1b,nosuch -p 2 -m 2
    fails 2 "''" --compare 1f1b, -p 2 -m 2
}

@test "--trace has tracks, arrows and counters" {
    ppsched -p 4 -c 2 --placement v -s zbv -m 6 --cost 1,1,1,.3 \
        --trace t.json >plan.json
    check_trace t.json
    ppsched --stats plan.json --cost 1,1,1,.3 >stats.json
    # There is a slice for each action of the row, messages included.
    [ "$(jq '[.schedule.actions[] | split(" ") | length] | add' plan.json)" \
        -eq "$(jq '[.traceEvents[] | select(.ph == "X")] | length' t.json)" ]
    jq -se '.[0].traceEvents as $t | .[1] as $stats
        | ([$t[] | select(.ph == "s")] | length) == $stats.messages
        and ([$t[] | select(.ph == "X" and .tid == 1) | .ts + .dur] | max)
            == ($stats.at_depth.makespan * 1000 | round)
        and ([$t[] | select(.ph == "C" and .name == "activations")]
            | group_by(.pid) | map(map(.args.slots) | max)) == $stats.peak
        ' t.json stats.json
    jq -e '[.traceEvents[] | select(.name == "thread_name") | .args.name]
        | unique == ["compute", "recv B from rank 0", "recv B from rank 1",
            "recv B from rank 2", "recv B from rank 3", "recv F from rank 0",
            "recv F from rank 1", "recv F from rank 2", "recv F from rank 3",
            "send B to rank 0", "send B to rank 1", "send B to rank 2",
            "send B to rank 3", "send F to rank 0", "send F to rank 1",
            "send F to rank 2", "send F to rank 3"]' t.json
    jq -e '.otherData.a_millisecond_is == "1 unit"' t.json
    jq -e '.traceEvents[] | select(.name == "3F0") | .dur == 1000
        and .args == {"op": "F", "stage": 3, "microbatch": 0, "slice": 0}' \
        t.json
}

@test "every action of a trace has its name and its kind" {
    ppsplit -q -p 2 --placement both-ways \
        "$SRCDIR/tests/golden/qwen2/model" >stages.json
    ppsched -s dualpipe -m 4 --trace t.json stages.json >plan.json
    run ! grep -q null t.json
    jq -e '[.traceEvents[] | select(.ph == "X" and .cat == "sync")
        | [.name, .args.op]] | unique
        == [["SYNC_COPIES", "SYNC_COPIES"], ["SYNC_TIED", "SYNC_TIED"]]' t.json
}

@test "messages in flight at once have tracks of their own" {
    ppsched -p 2 -s gpipe -m 4 --cost 1,1,1,3 --depth 3 --trace t.json \
        >/dev/null
    check_trace t.json
    grep -q '"send F to rank 1 (3)"' t.json
    run ! grep -q '"send F to rank 1 (4)"' t.json
}

@test "a plan of a model is drawn in bytes and operations" {
    ppsplit -q -p 2 "$SRCDIR/tests/golden/llama/model" |
        ppsched -s zb-h1 -m 4 --memory 1G --svg a.svg --trace a.json >plan.json
    well_formed a.svg
    grep -q '>flop</text>' a.svg
    grep -q 'memory, up to [0-9.]* MiB' a.svg
    check_trace a.json
    ppsched --stats plan.json >stats.json
    jq -se '.[0].traceEvents as $t
        | ([$t[] | select(.ph == "C" and .name == "memory")]
            | group_by(.pid) | map(map(.args.bytes) | max)) == .[1].peak_bytes
        ' a.json stats.json
}

@test "a name from a manifest cannot break out of a picture" {
    ppsched -p 2 -s 1f1b -m 2 | jq '.schedule.kind = "<b>&\"\\"' >plan.json
    ppsched --svg a.svg --trace a.json plan.json
    well_formed a.svg
    jq -e '.otherData.kind == "<b>&\"\\"' a.json
}

@test "the dot at a peak is below the row" {
    ppsched -p 4 -s 1f1b -m 8 --svg - >plan.svg
    bottom=$(grep -o 'class="l" d="M0 0H[0-9.]*V[0-9.]*' plan.svg | head -n 1 |
        grep -o '[0-9.]*$')
    dots=$(grep -o '<circle class="p" cx="[0-9.]*" cy="[0-9.]*"' plan.svg |
        sed 's/.*cy="//; s/"//' | sort -n)
    [ "$(wc -w <<<"$dots")" -ge 4 ]
    # The legend's dot is in no row.
    jq -en --argjson bottom "$bottom" --slurpfile y <(tail -n 4 <<<"$dots") \
        'all($y[]; . >= $bottom + 2)'
}

@test "--compare gives each kind the same work" {
    run --separate-stderr ppsched --compare gpipe,1f1b,interleaved,zbv \
        -p 4 -m 8 --max-in-flight 6 --svg all.svg
    [ "$status" -eq 0 ]
    [ -z "$stderr" ]
    [[ "${lines[0]}" == kind*chunks*depth*makespan*bubble*span*gap*strict*peak ]]
    [ "${lines[1]}" = "gpipe          does not fit: rank 0 keeps 8 microbatches alive, 2 more than the" ]
    [ "${lines[2]}" = "               limit of '6'" ]
    # 57 and 51 units of a chunk are halves here, and so are 11 and 8 slots.
    [[ "${lines[3]}" =~ ^1f1b\ +1\ +1\ +33\ +27.3%\ .*\ 4$ ]]
    [[ "${lines[4]}" =~ ^interleaved\ +2\ +1\ +28.5\ +15.8%\ .*\ 5.5$ ]]
    [[ "${lines[5]}" =~ ^zbv\ +2\ +1\ +25.5\ +5.9%\ .*\ 0.0%\ .*\ 4$ ]]
    [ "${#lines[@]}" -eq 6 ]
    well_formed all.svg
    [ "$(grep -c 'class="h"' all.svg)" -eq 3 ]
    grep -q 'peak 5.5 microbatches' all.svg
    grep -q 'memory, up to 6 microbatches' all.svg
}

@test "--compare has the manifest's own schedule, and files" {
    ppsplit -q -p 2 -m 4 "$SRCDIR/tests/golden/llama/model" >stages.json
    ppsched -q -s zb-h1 -m 4 stages.json >plan.json
    ppsched -s 1f1b -m 4 --export csv stages.json >same.csv
    ppsched -s 1f1b -m 6 --export csv stages.json >more.csv
    ppsched --compare own,zb-h1,same.csv,1f1b,more.csv -m 4 plan.json \
        >got 2>/dev/null
    diff <(sed -n 's/^own *//p' got) <(sed -n 's/^zb-h1 *//p' got)
    diff <(sed -n 's/^same.csv *//p' got) <(sed -n 's/^1f1b *//p' got)
    grep -q '^more.csv *does not fit: more.csv:[12]:' got
    run -2 --separate-stderr ppsched --compare own -m 4 stages.json
    [[ $stderr == *"has no schedule, which --compare own needs" ]]
    run -2 --separate-stderr ppsched --compare no.csv -m 4 stages.json
    [ "$stderr" = "ppsched: no.csv: No such file or directory" ]
    ppsched -q -s 1f1b -m 6 stages.json |
        ppsched --compare own,1f1b -m 4 >got 2>/dev/null
    grep -q '^own *does not fit: it has 6 microbatches, not 4' got
}

@test "--compare takes chunks and costs" {
    ppsched --compare interleaved -p 2 -c 4 -m 4 --cost 4,4,4,1 >got
    ppsched -p 2 -c 4 -s interleaved -m 4 --cost 1,1,1,1 --stats >want
    read -r _ chunks depth makespan _ _ _ strict _ < <(tail -1 got)
    [ "$chunks $depth" = '4 1' ]
    [ "$makespan" = "$(jq .at_depth.makespan want)" ]
    [ "$strict" = "$(jq .at_depth.strict want)" ]
    # Messages of time 1 make a receive in its place costly.
    jq -e '.at_depth | .strict > .makespan' want
}

@test "--compare all has every kind but auto" {
    ppsched --compare all -p 2 -m 4 >got
    diff <(tail -n +2 got | grep '^[^ ]' | cut -d' ' -f1) \
        <(ppsched --list | grep -o '^[^ ]*' | grep -v '^auto$')
    ppsched --compare auto,all --time 0.1 -p 2 -m 4 >with_auto
    [ "$(wc -l <with_auto)" -eq $(($(wc -l <got) + 1)) ]
}

@test "--compare on a model's stages prints the kinds that fit, or says why none" {
    ppsplit -q -p 2 "$SRCDIR/tests/golden/llama/model" >stages.json
    run --separate-stderr ppsched --compare 1f1b,zbv -m 4 stages.json
    [ "$status" -eq 0 ]
    # The memory is the total of the fullest rank.
    [[ "${lines[0]}" == *memory ]]
    most=$(ppsched -s 1f1b -m 4 --stats stages.json |
        jq '.memory | map(.total) | max / 1048576 * 100 | round / 100')
    [[ "${lines[1]}" == 1f1b*" ${most}M" ]]
    [[ "${lines[2]}" == "zbv "*"does not fit: "* ]]
    [[ "${lines[3]}" == *"2 chunks per rank and placement v" ]]
    run --separate-stderr ppsched --compare zbv -m 4 --svg none.svg stages.json
    [ "$status" -eq 2 ]
    [[ "$output" == "zbv "*"does not fit: "* ]]
    [[ "$stderr" == "ppsched: --compare: no kind fits: zbv: "*"placement v" ]]
    [ ! -e none.svg ]
}

@test "-t has colours on a terminal or with --color" {
    run ppsched -p 2 -s 1f1b -m 2 -t
    [[ "$output" != *$'\033'* ]]
    run ppsched -p 2 -s 1f1b -m 2 -t --color
    [[ "$output" == *$'\033[24;30;48;5;'* ]]
    command -v script >/dev/null || skip 'script is missing'
    run script -qec 'ppsched -p 2 -s 1f1b -m 2 -t' /dev/null
    [[ "$output" == *$'\033[24;30;48;5;'* ]]
    run script -qec 'ppsched -p 2 -s 1f1b -m 2 -t --no-color' /dev/null
    [[ "$output" == *'rank 1'* && "$output" != *$'\033'* ]]
    NO_COLOR=1 run script -qec 'ppsched -p 2 -s 1f1b -m 2 -t' /dev/null
    [[ "$output" == *'rank 1'* && "$output" != *$'\033'* ]]
    NO_COLOR='' run script -qec 'ppsched -p 2 -s 1f1b -m 2 -t' /dev/null
    [[ "$output" == *$'\033[24;30;48;5;'* ]]
    NO_COLOR=1 run ppsched -p 2 -s 1f1b -m 2 -t --color
    [[ "$output" == *$'\033[24;30;48;5;'* ]]
}

# widest COLUMNS: prints the width of -t's widest line on such a terminal.
widest() {
    script -qec "stty cols $1; NO_COLOR=1 ppsched -p 4 -s 1f1b -m 24 -t --ascii" \
        /dev/null | tr -d '\r' | awk '/^rank/ && length > n { n = length }
            END { print n }'
}

@test "-t fits the terminal" {
    command -v script >/dev/null || skip 'script is missing'
    [ "$(widest 50)" -le 50 ]
    [ "$(widest 200)" -gt 100 ]
    [ "$(widest 200)" -le 200 ]
    # An unknown width is the same as a file's.
    [ "$(widest 0)" -eq "$(ppsched -p 4 -s 1f1b -m 24 -t --ascii |
        awk '/^rank/ { print length; exit }')" ]
}

@test "-t explains pairs and chunks, and names a width that shows microbatches" {
    run ppsched -p 4 -c 2 --placement v -s dualpipev -m 8 -t --color
    [[ "$output" == *$'\033[4;30;48;5;'*'underlined: pairs'* ]]
    run ppsched -p 2 -c 4 -s interleaved -m 12 -t --width 220
    [[ "$output" == *'second stage a-j, third A-J, fourth 0-9'* ]]
    run ppsched -p 32 -s zb-h1 -m 256 -t
    [[ "$output" =~ '(microbatches show at width '([0-9]+)')' ]]
    run ppsched -p 32 -s zb-h1 -m 256 -t --width "${BASH_REMATCH[1]}"
    [[ "$output" == *'3: last digit of the microbatch'* ]]
}
