#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# ppsched and PyTorch's schedule files: it reads public ones, refuses defective
# ones, and writes them.

bats_require_minimum_version 1.5.0

setup() {
    cd "$BATS_TEST_TMPDIR"
    files=$SRCDIR/tests/data/csv
}

# refused STATUS PATTERN TEXT [ARGS...]: the text (with \n) is not accepted. All
# lines of the message name the file.
refused() {
    local want=$1 pattern=$2
    printf '%b' "$3" >bad.csv
    shift 3
    run --separate-stderr ppsched --csv bad.csv --check "$@"
    echo "$stderr"
    [ "$status" -eq "$want" ]
    [ -z "$output" ]
    [ -z "$(grep -v '^ppsched: bad.csv:' <<<"$stderr")" ]
    [[ "$stderr" == *"$pattern"* ]]
}

# accepted TEXT [ARGS...]: the text is valid, without any message.
accepted() {
    printf '%b' "$1" >good.csv
    shift
    run --separate-stderr ppsched --csv good.csv --check "$@"
    [ "$status" -eq 0 ]
    [[ "$output" == valid* ]]
    [ -z "$stderr" ]
}

@test "the public files are valid" {
    for name in dualpipev_4rank_10mb zb1p_2rank_2stagep_compute \
        torchtitan_custom_schedule_2rank_4stage_8mb; do
        run --separate-stderr ppsched --csv "$files/$name.csv" --check
        [ "$status" -eq 0 ]
        [ "$output" = "valid, canonical" ]
        [ -z "$stderr" ]
    done
}

@test "sends without REDUCE_GRAD are valid, with a warning" {
    run --separate-stderr ppsched -q --check \
        --csv "$files/zb1p_2rank_2stagep_comms.csv"
    [ "$status" -eq 0 ]
    [ "$output" = "valid, canonical, by PyTorch's transport" ]
    [[ "$stderr" == *"stage 0 has no REDUCE_GRAD"* ]]
    accepted '0F0,0B0,0REDUCE_GRAD\n'
}

@test "the kinds are PyTorch's classes, cell by cell" {
    ppsched -p 2 -c 2 -s zb-interleaved -m 8 --export csv |
        cmp - "$files/zb1p_2rank_2stagep_compute.csv"
    ppsched -p 4 -c 2 --placement v -s dualpipev -m 10 --export csv |
        cmp - "$files/dualpipev_4rank_10mb.csv"
    run ppsched -p 2 -s gpipe -m 2 --export csv
    [ "${lines[0]}" = "0F0,0F1,,,,0B0,0B1" ]
    [ "${lines[1]}" = ",1F0,1F1,1B0,1B1" ]
    run ppsched -p 2 -c 2 -s looped-bfs -m 2 --export csv
    [ "${lines[0]}" = "0F0,0F1,2F0,2F1,,,2B1,2B0,0B1,0B0" ]
    [ "${lines[1]}" = ",1F0,1F1,3F0,3F1,3B1,3B0,1B1,1B0" ]
    run ppsched -p 2 -c 2 -s interleaved -m 2 --export csv
    [ "${lines[0]}" = "0F0,0F1,2F0,2F1,,,,2B0,,2B1,,0B0,,0B1" ]
    run ppsched -p 2 -c 2 -s zb-interleaved -m 1 --export csv
    [ "${lines[0]}" = "0F0,,2F0,,2I0,2W0,0I0,0W0" ]
    [ "${lines[1]}" = ",1F0,,3F0,3I0,1I0,3W0,1W0" ]
    run ppsched -p 2 -c 2 --placement v -s zbv -m 1 --export csv
    [ "${lines[0]}" = "0F0,,,3F0,3I0,3W0,,,,0I0,0W0,,,,,,," ]
    [ "${lines[1]}" = ",1F0,2F0,,,2I0,2W0,,1I0,1W0,,,,,,,,," ]
}

@test "reductions of replicas are exported once, with UNSHARD and RESHARD" {
    ppsched -p 2 -s 1f1b -m 2 --reduce 1 --export csv-comms >reduced.csv
    ppsched -p 2 -s 1f1b -m 2 --export csv-comms >plain.csv
    cmp reduced.csv plain.csv
    [ "$(grep -o ',0REDUCE_GRAD' reduced.csv | wc -l)" -eq 1 ]
    # A plan keeps those of a file.
    ppsched --csv reduced.csv | grep -q '0B1 0REDUCE_GRAD 0RESHARD'
}

@test "exported files can be read again: every kind, both forms" {
    while read -r kind placement chunks; do
        for form in csv csv-comms; do
            ppsched -p 3 -c "$chunks" --placement "$placement" -s "$kind" \
                -m 6 --export "$form" >"$kind.csv"
            accepted "$(cat "$kind.csv")" --depth 0
            ppsched --csv "$kind.csv" --export "$form" >again.csv
            diff <(sed 's/,,*/,/g; s/^,//; s/,$//' "$kind.csv") again.csv
            sed 's/$/\r/' "$kind.csv" >crlf.csv
            diff again.csv <(ppsched --csv crlf.csv --export "$form")
        done
    done <<END
gpipe loop 1
1f1b loop 1
eager-1f1b loop 1
interleaved loop 2
looped-bfs loop 2
zb-h1 loop 1
zb-h2 loop 1
zb-interleaved loop 3
zbv v 2
dualpipev v 2
END
}

@test "files of PyTorch are judged by its transport" {
    local deferred=0
    for file in "$SRCDIR"/tests/golden/lowerings/*-deferred.csv; do
        run -1 --separate-stderr ppsched -q --check --csv "$file"
        [[ "$stderr" == *"RECV_"*"' would receive the message of rank "*"SEND_"*", which swaps an activation and a gradient, by PyTorch's transport "* ]]
        # pprun has a channel for each direction.
        run -0 --separate-stderr ppsched --csv "$file"
        [[ "$stderr" == *": pprun can run it, but not PyTorch: "* ]]
        run -0 ppsched -q --check --semantics channel --depth 2 --csv "$file"
        [ "$output" = "valid, not canonical" ] || [ "$output" = "valid, canonical" ]
        run -1 ppsched -q --csv "$file" --export csv-comms
        # The remedy of the message.
        ppsched -q --csv "$file" --export csv |
            ppsched -q --csv - --export csv-comms >again.csv
        accepted "$(cat again.csv)"
        accepted "$(cat "${file/deferred/plain}")"
        [[ "$output" == *", by PyTorch's transport" ]]
        deferred=$((deferred + 1))
    done
    [ "$deferred" -eq 3 ]
}

@test "csv-comms has parameters and gradients too" {
    run ppsched -p 2 -s 1f1b -m 2 --export csv-comms
    [ "${lines[0]}" = "0UNSHARD,0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,\
0WAIT_SEND_F0,0RECV_B1,0B1,0WAIT_SEND_F1,0REDUCE_GRAD,0WAIT_REDUCE_GRAD,\
0RESHARD" ]
    [ "${lines[1]}" = "1UNSHARD,1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,\
1SEND_B1,1REDUCE_GRAD,1WAIT_REDUCE_GRAD,1RESHARD,1WAIT_SEND_B0,\
1WAIT_SEND_B1" ]
}

@test "--dialect no-wait writes no waits" {
    run ppsched -p 2 -s 1f1b -m 2 --export csv-comms --dialect no-wait
    [ "${lines[0]}" = "0UNSHARD,0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,\
0RECV_B1,0B1,0REDUCE_GRAD,0RESHARD" ]
    [ "${lines[1]}" = "1UNSHARD,1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,\
1SEND_B1,1REDUCE_GRAD,1RESHARD" ]
    file=$files/zb1p_2rank_2stagep_comms.csv
    ppsched --csv "$file" --export csv-comms >now.csv
    accepted "$(cat now.csv)"
    diff <(sed 's/,[0-9]*WAIT_[A-Z_]*[0-9]*//g' now.csv) \
        <(ppsched --csv now.csv --export csv-comms --dialect no-wait)
}

@test "every send has a wait, after the gradient of its activation" {
    ppsched -p 3 -c 2 --placement v -s dualpipev -m 6 --export csv-comms \
        >waits.csv
    [ "$(grep -o 'WAIT_SEND' waits.csv | wc -l)" -eq \
        "$(grep -o ',[0-9]*SEND' waits.csv | wc -l)" ]
    # The last stage on the way down and the first on the way up share a rank.
    run ! grep -E '2WAIT_SEND_F|3WAIT_SEND_B' waits.csv
    grep -E '\(0F[0-9]*;5B([0-9]*)\)OVERLAP_F_B' waits.csv
    grep -E '\(5F[0-9]*;0B([0-9]*)\)OVERLAP_F_B,0WAIT_SEND_F\1,' waits.csv
}

@test "choices that a file cannot hold are named" {
    ppsplit -q -p 2 --dp 2 --recompute full --freeze embedding \
        "$SRCDIR/tests/golden/llama/model" | ppsched -q -s 1f1b -m 4 --depth 2 >plan.json
    for form in csv csv-comms; do
        run -0 --separate-stderr ppsched --export $form plan.json
        [ "$stderr" = "ppsched: --export $form does not hold these choices, so set them in its system: the units of stages (ppsplit --export), recomputation, units that are not trained, the mesh (dp 2, tp 1, cp 1, ep 1), channel depth 2" ]
        run -0 --separate-stderr ppsched -p 2 -s 1f1b -m 2 --export $form
        [ -z "$stderr" ]
    done
}

# computed PLAN: prints the rows of a plan without what ranks share.
computed() {
    jq -r '.schedule.actions[]' "$1" |
        sed -E 's/[0-9](UNSHARD|RESHARD|REDUCE_GRAD) ?//g; s/ $//'
}

@test "a frozen stage waits for what it sends, and reduces no gradients" {
    for mesh in '' '--dp 2 --zero 3'; do
        # shellcheck disable=SC2086
        ppsplit -q -p 3 $mesh --freeze 'embedding,model.layers.[01]' \
            --layers 2,1,1 "$SRCDIR/tests/golden/llama/model" >frozen.json
        ppsched -q -s 1f1b -m 2 frozen.json -o plan.json
        ppsched --export csv-comms -o plan.csv plan.json
        [ "$(tail -n +2 plan.csv | grep -o ',[12]REDUCE_GRAD' | wc -l)" -eq 2 ]
        [[ "$(head -n 1 plan.csv)" == *,0RESHARD,0WAIT_SEND_F0,0WAIT_SEND_F1 ]]
        run --separate-stderr ppsched -q --csv plan.csv frozen.json -o again.json
        [ "$status" -eq 0 ]
        [ -z "$stderr" ]
        diff <(computed plan.json) <(computed again.json)
    done
}

@test "a pair stays a pair through lowering" {
    ppsched --csv "$files/dualpipev_4rank_10mb.csv" -o plan.json
    jq -e '.schedule.kind == "csv" and .schedule.n_microbatches == 10 and
        ([.stages[].rank] == [0, 1, 2, 3, 3, 2, 1, 0])' plan.json
    run jq -r '.schedule.actions[0]' plan.json
    [[ "$output" == *" (0F7;7B3)OVERLAP_F_B 0SEND_F7"* ]]
    diff <(ppsched --export csv plan.json) "$files/dualpipev_4rank_10mb.csv"
    run ppsched -p 4 -c 2 --placement v -s dualpipev -m 8 --stats
    jq -e '.makespan == 54 and .peak == [9, 9, 9, 9]' <<<"$output"
}

@test "a file must fit the manifest that is named" {
    ppsched -p 2 -c 2 --placement v -s gpipe -m 8 -o vee.json
    ppsched -p 2 -c 2 -s gpipe -m 8 -o loop.json
    file=$files/torchtitan_custom_schedule_2rank_4stage_8mb.csv
    run --separate-stderr ppsched --csv "$file" loop.json --check
    [ "$status" -eq 0 ]
    run --separate-stderr ppsched --csv "$file" vee.json --check
    [ "$status" -eq 1 ]
    [[ "$stderr" == *"'2F0' names a stage of another rank"* ]]
    run --separate-stderr ppsched --csv "$file" -m 9 --check
    [ "$status" -eq 1 ]
    [[ "$stderr" == *"is missing"* ]]
    ppsched -p 3 -s gpipe -m 8 -o three.json
    run --separate-stderr ppsched --csv "$file" three.json --check
    [ "$status" -eq 2 ]
    [[ "$stderr" == *"the file has 2 rows, but the manifest has 3 pipeline ranks"* ]]
}

@test "cells are matched to their ends" {
    for cell in 0F0x '0F0 1F9' 0F 0F00 0f0 0REDUCE_GRAD5 F0_s1 0F0.1 -1F0 \
        0F99999999999 '"0F0"' 'SYNC_TIED' '()OVERLAP_F_B' '(0F0)OVERLAP_F_B' \
        '(0F1;0B0;0B1)OVERLAP_F_B' '(0F1;0B0)F' '(0F1;0B0)'; do
        refused 2 "rank 0, cell 1: '" "0F0,$cell,0B0\n"
    done
    accepted ' 0F0 ,\t0B0 \n1F0,1B0'
    accepted ',0F0,,0B0,,\r\n1F0,,1B0\r\n'
    refused 2 "'0BW0' is not an action" '0F0,0BW0\n'
    refused 1 "'0W0' repeats a backward" '0F0,0B0,0W0\n'
    refused 2 "zero byte" '0F0\0,0B0\n'
    refused 2 "no rows" ''
    refused 2 "rank 0, cell 1: the cell is empty, in a file with communication; see --lenient" \
        '0F0,,0REDUCE_GRAD,0B0\n'
}

@test "defective files are refused" {
    local two='1F0,1B0,1F1,1B1\n'
    refused 1 "action 1: '0F0' appears a second time" "0F0,0F0,0F1,0B0,0B1\n$two"
    refused 1 "'0W0' appears a second time" "0F0,0F1,0I0,0W0,0W0,0I1,0W1\n$two"
    refused 1 "'0F7' names a microbatch that does not" \
        '0F0,0F7,0B0,0B7\n1F0,1B0,1F7,1B7\n'
    refused 1 "rank 0 waits in '0B0', rank 1 waits in '1F1'" \
        '0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n'
    refused 1 "rank 1 has no actions" \
        '0F0,1F0,0F1,1F1,1B0,0B0,1B1,0B1\n\n'
    refused 1 "rank 1, action 0: stage '1' is already on rank 0" \
        '0F0,0F1,0B0,0B1,1B1\n1F0,1B0,1F1\n'
    refused 1 "stage 1 is on no rank" '0F0,0B0\n2F0,2B0\n'
    refused 1 "stage '5000' is too large for 4 compute actions" '0F0,0B0\n5000F0,1B0\n'
    refused 1 "B, or I and W" '0F0,0B0,0I0,0W0\n'
    refused 1 "'1F2' names a microbatch" '0F0,0F1,0B0,0B1\n1F0,1B0,1F2,1B2\n'
    refused 1 "'0B1' is missing" '0F0,0F1,0B0\n1F0,1B0,1F1,1B1\n'
    refused 1 "paired with its own backward" '0F0,(0F1;0B1)OVERLAP_F_B,0B0\n'
    refused 1 "is paired, but not as F then B" '0F0,(0F1;0I0)OVERLAP_F_B,0W0\n'
}

@test "defective communication is refused" {
    refused 1 "'0B0' comes before 0RECV_B0" "0F0,0SEND_F0,0F1,0B0,0B1\n1F0,1B0\n"
    refused 1 "never sent" '0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n'
    refused 1 "'0SEND_F0' comes before 0F0" \
        '0SEND_F0,0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n'
    refused 1 "between two stages of one rank" '0F0,0SEND_F0,1F0,1B0,0B0\n'
    refused 1 "before the last backward" '0F0,0F1,0B0,0REDUCE_GRAD,0B1\n'
    refused 1 "a second time" '0F0,0B0,0REDUCE_GRAD,0REDUCE_GRAD\n'
    refused 1 "'0RESHARD' is missing" '0UNSHARD,0F0,0B0,0REDUCE_GRAD\n'
    refused 1 "lacks UNSHARD before it" '0F0,0B0,0RESHARD\n'
    refused 1 "without RESHARD between" '0UNSHARD,0UNSHARD,0F0,0B0,0RESHARD\n'
    refused 1 "after RESHARD of its stage" '0UNSHARD,0F0,0RESHARD,0B0\n'
    refused 1 "comes after its stage was used" '0F0,0UNSHARD,0B0,0RESHARD\n'
    accepted '0UNSHARD,0F0,0RESHARD,0UNSHARD,0B0,0REDUCE_GRAD,0RESHARD\n'
    local pair='0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1'
    pair+=',0REDUCE_GRAD\n1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1'
    pair+=',1REDUCE_GRAD\n'
    refused 1 "(--depth 1 would do; needs 1 in flight on 1->0" "$pair" \
        --semantics channel --depth 0
    accepted "$pair"
}

@test "all faults are told at once, each with line and column" {
    printf '0F0,0SEND_X, 0B1q,0B0\n1F0,1FB\n' >bad.csv
    run -2 --separate-stderr ppsched --csv bad.csv --check
    diff - <(echo "$stderr") <<'END'
ppsched: bad.csv:1:5: rank 0, cell 1: '0SEND_X' is not an action
ppsched: bad.csv:1:14: rank 0, cell 2: '0B1q' is not an action
ppsched: bad.csv:2:5: rank 1, cell 1: '1FB' is not an action
END
    # A fault does not make faults of what follows from it.
    printf '0F0,0B0,0F0,0F1,0B1\n1B0,1F0,1F1\n' >bad.csv
    run -1 --separate-stderr ppsched --csv bad.csv --check
    diff - <(echo "$stderr") <<'END'
ppsched: bad.csv:1:9: rank 0, action 2: '0F0' appears a second time
ppsched: bad.csv:2:1: rank 1, action 0: '1B0' comes before 1F0
ppsched: bad.csv: to make it valid: remove '0F0' (1:9)
ppsched: bad.csv: and then: add '1B1' behind '1F1'
ppsched: bad.csv: and then: move '1B0' behind '1F0'
ppsched: bad.csv:2: rank 1: '1B1' is missing
END
    # More than fit are counted.
    { printf 0F0, && seq -f '%gX' -s, 30; } >bad.csv
    run -2 --separate-stderr ppsched --csv bad.csv --check
    [ "${#stderr_lines[@]}" -eq 25 ]
    [ "${stderr_lines[24]}" = 'ppsched: bad.csv: 6 more faults' ]
}

@test "a deadlock is told as a circle of waits, and drawn up to where it stops" {
    # Rank 0 wants gradients before it sends the next microbatch.
    printf '0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n' >bad.csv
    run -1 --separate-stderr ppsched --csv bad.csv -t --ascii --width 40
    diff - <(echo "$stderr") <<'END'
ppsched: bad.csv:1:5: rank 0 waits in '0B0' for '1B0' of rank 1 (2:9)
ppsched: bad.csv:2:5: rank 1 waits in '1F1' for '0F1' of rank 0 (1:9)
ppsched: bad.csv: to make it valid: move '0B0' (1:5) behind '0F1'
ppsched: bad.csv: this order deadlocks: rank 0 waits in '0B0', rank 1 waits in '1F1'
END
    [ "${lines[0]}" = 'csv: a deadlock stops all ranks after 2 actions:' ]
    [[ "$output" == *'rank 0 '*'0'*'rank 1 '*'0'* ]]
    # Every receive just before its use, every send just after: 1f1b has no room
    # for its sends without a buffer.
    ppsched -p 3 -s 1f1b -m 4 --export csv | awk -F, '{
        line = ""
        for (i = 1; i <= NF; i++) {
            if (!$i)
                continue
            op = substr($i, 2, 1); m = substr($i, 3); s = NR - 1
            first = op == "F" ? s == 0 : s == 2
            last = op == "F" ? s == 2 : s == 0
            line = line (first ? "" : s "RECV_" op m ",") $i ","
            line = line (last ? "" : s "SEND_" op m ",")
        }
        print line s "REDUCE_GRAD" }' >naive.csv
    ppsched --csv naive.csv --check
    run -1 --separate-stderr ppsched --csv naive.csv -t --depth 0
    [[ "${lines[0]}" == 'csv: a deadlock stops all ranks after '* ]]
    # Each wait names the cells, and the waits form a circle.
    grep '^ppsched: naive.csv:[0-9]*:[0-9]*: rank [0-9]* waits' \
        <<<"$stderr" | tee waits
    [ "$(wc -l <waits)" -ge 2 ]
    sed 's/.*: rank \([0-9]*\) waits.*/\1/' waits >from
    sed 's/.* of rank \([0-9]*\) .*/\1/' waits >to
    diff <(tail -n +2 from; head -n 1 from) to
    while IFS=: read -r _ _ row column rest; do
        cell=$(sed -n "${row}p" naive.csv | cut -c"$column"- | cut -d, -f1)
        [[ "$rest" == *" waits in '$cell' for '"* ]]
        on=${rest##*(}
        on=${on%)}
        cell=$(sed -n "${on%:*}p" naive.csv | cut -c"${on#*:}"- | cut -d, -f1)
        [[ "$rest" == *" for '$cell' of rank $((${on%:*} - 1)) ("* ]]
    done <waits
    # A manifest has no lines, but a picture.
    ppsched -p 2 -s 1f1b -m 3 | jq '.schedule.actions[0] |=
        (sub(" 0RECV_B0"; "") | sub("0F0"; "0F0 0RECV_B0"))' >plan.json
    run -1 --separate-stderr ppsched -t plan.json
    [ "${lines[0]}" = '1f1b: a deadlock stops all ranks after 1 actions:' ]
    [ "${#stderr_lines[@]}" -eq 1 ]
}

@test "options that do not go together" {
    local file=$files/dualpipev_4rank_10mb.csv
    for args in "-s 1f1b -m 2" "--group 2" "--check --export csv" \
        "--export tsv"; do
        # shellcheck disable=SC2086 # words
        run --separate-stderr ppsched --csv "$file" $args
        [ "$status" -eq 2 ]
        [[ "$stderr" == *"try 'ppsched --help'"* ]]
    done
    run --separate-stderr ppsched --csv nosuch.csv --check
    [ "$status" -eq 2 ]
    [[ "$stderr" == *"nosuch.csv: "* ]]
    run --separate-stderr ppsched --csv . --check
    [ "$status" -eq 2 ]
}

@test "waits of newer files are read, each after its action" {
    accepted '0UNSHARD,0F0,0B0,0REDUCE_GRAD,0WAIT_REDUCE_GRAD,0RESHARD\n'
    rows='0F0,0SEND_F0,0RECV_B0,0B0,0WAIT_SEND_F0,0REDUCE_GRAD\n'
    rows+='1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD,1WAIT_SEND_B0\n'
    accepted "$rows"
    refused 1 'rank 0, cell 2 waits for 0REDUCE_GRAD but comes before it' \
        '0F0,0B0,0WAIT_REDUCE_GRAD,0REDUCE_GRAD\n'
    refused 1 'rank 0, cell 4 waits for 0REDUCE_GRAD a second time' \
        '0F0,0B0,0REDUCE_GRAD,0WAIT_REDUCE_GRAD,0WAIT_REDUCE_GRAD\n'
    refused 2 "'0WAIT_F0' is not an action" '0F0,0WAIT_F0,0B0\n'
    refused 2 "'0WAIT_SEND_F' is not an action" '0F0,0WAIT_SEND_F,0B0\n'
    refused 2 "'0WAIT_' is not an action" '0F0,0B0,0WAIT_\n'
}
