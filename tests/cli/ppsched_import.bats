#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# ppsched --import: Megatron's orders and traces. ppsched_csv.bats has PyTorch's
# files.

bats_require_minimum_version 1.5.0

setup() {
    cd "$BATS_TEST_TMPDIR"
}

actions() {
    jq -r '.schedule.actions[]' "$1"
}

# refused STATUS TEXT MESSAGE [ARGS...]: the text (with \n) is not accepted.
refused() {
    local want=$1 text=$2 message=$3
    shift 3
    printf '%b' "$text" >bad.txt
    run --separate-stderr ppsched -q --import bad.txt --check "$@"
    echo "$stderr"
    [ "$status" -eq "$want" ]
    [ -z "$output" ]
    [ "$stderr" = "ppsched: bad.txt$message" ]
}

@test "Megatron's order of each rank is read" {
    # convert_schedule_table_to_order of PP 2, VP 2, 4 microbatches in groups of
    # 2, with the warmups 4 and 2.
    cat >orders.txt <<'END'
[1, 1, 2, 2, 1, -2, 1, -2, 2, -1, 2, -1, -2, -2, -1, -1]
[1, 1, 2, -2, 2, -2, 1, -1, 1, -1, 2, -2, 2, -2, -1, -1]
END
    ppsched -p 2 -c 2 -s interleaved -m 4 -o plan.json
    ppsched --import orders.txt -o orders.json
    diff <(actions plan.json) <(actions orders.json)
    run ppsched --check orders.json
    [ "$output" = 'valid, canonical' ]
    # All in one list, over several lines.
    { echo '[' && sed 's/$/,/; s/-2, 1/-2,\n  1/' orders.txt && echo ']'; } >one.txt
    ppsched --csv one.txt | jq .schedule | diff - <(jq .schedule orders.json)
}

@test "Megatron's schedule table is read" {
    ppsched -p 4 -c 2 -s interleaved -m 8 -o plan.json
    echo '[(0, 0), (1, 0), (2, 0), (3, 0), (0, 1), (1, 1), (2, 1), (3, 1),
(4, 0), (5, 0), (6, 0), (7, 0), (4, 1), (5, 1), (6, 1), (7, 1)]' >table.txt
    ppsched -p 4 --import table.txt -o table.json
    diff <(actions plan.json) <(actions table.json)
    ppsched --import table.txt plan.json | actions - | diff - <(actions plan.json)
    # Without virtual stages the warmup is that of 1F1B.
    echo '(0,0) (1,0) (2,0) (3,0) (4,0) (5,0)' >table.txt
    ppsched -p 3 --import table.txt |
        actions - | diff - <(ppsched -p 3 -s 1f1b -m 6 | actions -)
}

@test "faults of orders have their places" {
    refused 2 '[1, 0]\n' ":1:5: '0' is no chunk of an order: they count from 1"
    refused 2 '[1,--1]\n' ":1:4: '-' is not a number of an order"
    refused 2 '1\n1 9999999999\n' ":2:3: '9999999999' is not a number of an order"
    refused 2 '(0,0) (-1,0)\n' ':1:8: (-1, 0) is not (microbatch, chunk)' -p 2
    refused 2 '(0,0) (1)\n' \
        ': the table has 3 numbers, which are no pairs (microbatch, chunk)' -p 2
    refused 2 '(0,0)\n' \
        ': the table does not say how many ranks run it; see --ranks'
    refused 1 '1 -1\n-1 1\n' ":2:1: rank 1, action 0: '1B0' comes before 1F0"
    refused 1 '1 4\n' ': rank 0: chunk 3 is too large for 2 entries'
    refused 2 '1 -1\n1 -1\n' ': the file has 2 rows, but there are 3 pipeline ranks' -p 3
}

@test "a trace gives the schedule of its plan" {
    for kind in 1f1b interleaved zbv dualpipe dualpipev seq1f1b; do
        ppsched -p 4 -s $kind -m 8 --cost 3,4,2,1 --reduce 2 --unshard 1 \
            --depth 2 --trace trace.json -o plan.json
        ppsched -q --import trace.json -o again.json
        diff <(jq '.schedule.kind = "trace" | .schedule' plan.json) \
            <(jq .schedule again.json)
    done
    run -1 --separate-stderr ppsched --check --import \
        <(sed '/"name":"0F3"/d' trace.json)
    [[ "$stderr" == *": rank 0, action "*": '0B3' comes before 0F3"* ]]
    run -2 --separate-stderr ppsched --check --import <(echo '{"traceEvents": []}')
    [[ "$stderr" == *': /traceEvents: there are no actions' ]]
}

@test "--compare takes every file that --import does" {
    ppsched -p 2 -s 1f1b -m 4 --trace run.json -o plan.json
    printf '1 1 -1 1 -1 1 -1 -1\n1 -1 1 -1 1 -1 1 -1\n' >orders.txt
    ppsched -p 2 -s gpipe -m 4 --export csv -o gpipe.csv
    run ppsched -m 4 --compare own,run.json,orders.txt,gpipe.csv plan.json
    echo "$output"
    diff <(sed -n '2s/^own *//p' <<<"$output") <(sed -n '3s/^run.json *//p' <<<"$output")
    diff <(sed -n '2s/^own *//p' <<<"$output") <(sed -n '4s/^orders.txt *//p' <<<"$output")
    [[ "${lines[4]}" == gpipe.csv* ]]
}

# mended MESSAGE ROWS...: the message is the only change that is named, and the
# rows do not pass without it.
mended() {
    local message=$1
    shift
    printf '%s\n' "$@" >bad.csv
    run -1 --separate-stderr ppsched --import bad.csv --check
    echo "$stderr"
    [ "$(grep -E 'to make it valid|and then' <<<"$stderr")" = \
        "ppsched: bad.csv: to make it valid: $message" ]
}

@test "the smallest change that makes a file valid is named" {
    mended "move '1B0' (2:1) behind '1F0'" 0F0,0F1,0B0,0B1 1B0,1F0,1F1,1B1
    mended "replace '0B0' (1:13) by '0B1'" 0F0,0F1,0B0,0B0 1F0,1B0,1F1,1B1
    mended "remove '0F0' (1:5)" 0F0,0F0,0F1,0B0,0B1 1F0,1B0,1F1,1B1
    mended "add '1W1' behind '1I1'" 0F0,0F1,0B0,0B1 1F0,1I0,1W0,1F1,1I1
    # A deadlock: rank 0 waits for the backward of the first, rank 1 for the
    # forward of the second.
    mended "move '0B0' (1:5) behind '0F1'" 0F0,0B0,0F1,0B1 1F1,1B1,1F0,1B0
    ppsched -p 2 -s 1f1b -m 2 --export csv-comms >comms.csv
    mapfile -t rows < <(sed '1s/0RECV_B0,0B0/0B0,0RECV_B0/' comms.csv)
    mended "move '0B0' (1:36) behind '0RECV_B0'" "${rows[@]}"
    # Two changes.
    printf '0F0,0F1,0B0\n1B0,1F0,1F1,1B1\n' >bad.csv
    run -1 --separate-stderr ppsched --import bad.csv --check
    [ "$(grep -c -E 'to make it valid|and then' <<<"$stderr")" -eq 2 ]
}

@test "the changes of damaged schedules make them valid" {
    # Each change is made by hand, on another tool's rows.
    ppsched -p 2 -c 2 -s interleaved -m 4 --export csv | tr -s , >good.csv
    for row in 1 2; do
        for cell in 2 5 9 14; do
            awk -F, -v OFS=, -v row=$row -v c=$cell \
                'NR == row {t = $c; $c = $(c + 1); $(c + 1) = t} 1' good.csv \
                >bad.csv
            ppsched -q --import bad.csv --check >/dev/null 2>&1 && continue
            run -1 --separate-stderr ppsched --import bad.csv --check --json
            move=$(jq -r '.changes | select(length == 1)[0]' <<<"$output")
            [[ $move =~ ^move\ \'(.*)\'\ \((.):.*\)\ behind\ \'(.*)\'$ ]]
            awk -F, -v a="${BASH_REMATCH[1]}" -v row="${BASH_REMATCH[2]}" \
                -v b="${BASH_REMATCH[3]}" 'NR != row {print; next}
                {line = ""
                for (i = 1; i <= NF; i++) {
                    if ($i != a) line = line "," $i
                    if ($i == b) line = line "," a
                }
                print substr(line, 2)}' bad.csv >mended.csv
            run ppsched --import mended.csv --check --lenient
            [[ $output == valid* ]]
        done
    done
}

@test "--check --json says what is wrong, or what the order costs" {
    ppsched -p 2 -s gpipe -m 4 --export csv -o gpipe.csv
    ppsched --import gpipe.csv --check --json >gpipe.json
    jq -e '.valid and .canonical and .ranks == 2 and .microbatches == 4
        and .makespan == 15 and .lower_bound == 15 and .gap == 0' gpipe.json
    ppsched -p 2 -s 1f1b -m 4 --comm 1 | ppsched --check --json --comm 1 |
        jq -e '.gap > 0.05'
    printf '0F0,0B0\n1F0,1B1\n' >bad.csv
    run -1 --separate-stderr ppsched --import bad.csv --check --json -o bad.json
    [ -z "$output" ]
    jq -e '.valid == false and .error == "bad.csv:2: rank 1: '"'1B0'"' is missing"
        and .faults[0] == {rank: 1, line: 2, column: 5, text:
            "rank 1, action 1: '"'1B1'"' names a microbatch that does not exist"}
        and .changes == ["replace '"'1B1'"' (2:5) by '"'1B0'"'"]' bad.json
    printf '0F0,0Q0\n' >bad.csv
    run -2 --separate-stderr ppsched --import bad.csv --check --json
    jq -e '.valid == false and (.faults | length) == 1' <<<"$output"
    run -2 --separate-stderr ppsched --import absent.csv --check --json
    [ -z "$output" ]
}
