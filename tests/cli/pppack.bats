#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# pppack - packs documents as a user would.

bats_require_minimum_version 1.5.0
load pack_helpers

# int32 FILE prints its numbers, one per line.
int32() {
    od -An -v -t d4 -w4 "$1" | tr -d ' '
}

@test "pppack writes a consistent directory" {
    documents 5 3 4 2 >in.jsonl
    run --separate-stderr pppack -l 8 --no-shuffle -o out in.jsonl
    [ "$status" -eq 0 ]
    [ -z "$output" ]
    # It says what it did, unless -q is given.
    [ "$stderr" = 'pppack: out: 4 sequences of 14 tokens in 2 bins of 8, 87.5 % full' ]
    run --separate-stderr pppack -q -l 8 --no-shuffle -o out in.jsonl
    [ -z "$stderr" ]
    [ "$(int32 out/input_ids | paste -sd ' ')" = \
        '1 2 3 4 5 1 2 3 1 2 3 4 1 2' ]
    cmp out/input_ids out/labels
    run --separate-stderr pppack --check out
    [ "$status" -eq 0 ]
    [ -z "$output" ]
    [ -z "$stderr" ]
    run --separate-stderr pppack -v --check out
    [ "$stderr" = 'pppack: out: 2 bins, consistent' ]
}

@test "standard input, a file, several files and - give the same" {
    documents 5 3 4 2 >in.jsonl
    head -n 1 in.jsonl >a.jsonl
    tail -n +2 in.jsonl >b.jsonl
    pppack -l 8 -o one in.jsonl
    pppack -l 8 -o two <in.jsonl
    pppack -l 8 -o three a.jsonl b.jsonl
    pppack -l 8 -o four a.jsonl - <b.jsonl
    for dir in two three four; do
        diff -r one "$dir"
    done
}

@test "--stats and --svg report on a packed directory" {
    documents 5 3 4 2 >in.jsonl
    pppack -q -l 8 --pad-to 2 -o out --svg fill.svg in.jsonl
    pppack --stats out >stats.json
    jq -e '.sequences == 4 and .tokens == 14 and .scored == 10 and
        .bins == 2 and .capacity == 8 and .align == 2 and .longest == 6 and
        .padding == 2 and .efficiency == 14 / 16' stats.json
    # They are those of the packing.
    pppack -l 8 --pad-to 2 --stats in.jsonl >packing.json
    for key in sequences tokens scored bins padding efficiency; do
        diff <(jq ".$key" stats.json) <(jq ".$key" packing.json)
    done
    # The bars add up to four sequences and two bins, in 3 and 1 to 2 buckets.
    xmllint --noout fill.svg
    [ "$(grep -c '<rect class="a0"' fill.svg)" -eq 4 ]
    [[ "$(grep -c '<rect class="a2"' fill.svg)" == [12] ]]
    grep -q '4 sequences in 2 bins of 8 tokens: 87.5 % full' fill.svg
    run -2 --separate-stderr pppack -l 8 --stats --svg x.svg in.jsonl
    [[ "$stderr" == *'--svg needs -o DIR'* ]]
    printf X | dd of=out/index bs=1 conv=notrunc status=none
    run -2 --separate-stderr pppack --stats out
    [ "$stderr" = 'pppack: out/index: not the index of a packed directory' ]
    run -2 --separate-stderr pppack --stats nosuch
    [[ "$stderr" == *'a capacity is needed (-l)'* ]]
}

@test "--bytes makes bytes and ends of documents" {
    printf '%s\n' '{"text":"h\u00e9"}' '{"text":""}' >in.jsonl
    run --separate-stderr pppack --bytes -l 4 --pad-to 2 --no-shuffle -o out \
        --stats in.jsonl
    [ "$status" -eq 0 ]
    [ -z "$stderr" ]
    [ "$(jq -c '[.tokens, .scored, .bins, .padding]' <<<"$output")" = \
        '[5,3,2,1]' ]
    [ "$(int32 out/input_ids | paste -sd ' ')" = '104 195 169 256 256 0' ]
    [ "$(int32 out/labels | paste -sd ' ')" = '104 195 169 256 256 -100' ]
    # safetensors say that the ids are bytes, and others are not.
    pppack --export safetensors -o out.safetensors out
    pppack -q -l 4 --pad-to 2 --no-shuffle -o again out.safetensors
    diff -r out again
    jq -Rn '{input_ids: [104, 195, 169, 256]}, {input_ids: [256]}' -c >ids.jsonl
    pppack -q -l 4 --pad-to 2 --no-shuffle -o ids ids.jsonl
    pppack --export safetensors -o ids.safetensors ids
    pppack -q -l 4 --pad-to 2 --no-shuffle -o again ids.safetensors
    diff -r ids again
    run ! diff -r out again
}

@test "labels and loss_mask are kept, and padding is not scored" {
    echo '{"input_ids":[1,2,3],"labels":[1,-100,9],"loss_mask":[0,1,1]}' |
        pppack -l 4 --cp 2 -o out
    [ "$(int32 out/labels | paste -sd ' ')" = '-100 -100 9 -100' ]
    [ "$(int32 out/input_ids | paste -sd ' ')" = '1 2 3 0' ]
}

@test "--stats prints statistics" {
    documents 5 3 4 2 >in.jsonl
    run --separate-stderr pppack -l 8 --stats in.jsonl
    [ "$status" -eq 0 ]
    [ -z "$stderr" ]
    diff - <(jq -cS . <<<"$output") <<'END'
{"algorithm":"best","align":1,"bins":2,"capacity":8,"certified":true,"dropped":0,"dropped_tokens":0,"efficiency":0.875,"empty":0,"gap":0,"imbalance":1.1428571428571428,"input_tokens":14,"inputs":4,"lower_bound":2,"other_modes":0,"padding":0,"row":1,"scored":10,"sequences":4,"skipped":0,"split":0,"tokens":14,"truncated":0,"truncated_tokens":0}
END
    [ -z "$(find . -mindepth 1 -type d)" ]
}

@test "--lengths prints the bins of each rule" {
    printf '%s\n' 10 50 100 20 80 30 70 40 60 90 >lengths
    run --separate-stderr pppack -l 100 -a next-fit --lengths lengths
    [ "$status" -eq 0 ]
    [ -z "$stderr" ]
    [ "$(jq -c . <<<"$output" | paste -sd ' ')" = \
        '[0,1] [2] [3,4] [5,6] [7,8] [9]' ]
    run --separate-stderr pppack -l 100 -a bfd --lengths lengths
    [ "$(jq -c . <<<"$output" | paste -sd ' ')" = \
        '[2] [9,0] [4,3] [6,5] [8,7] [1]' ]
    run --separate-stderr pppack -l 100 -a none --rows 4 --lengths lengths
    [ "$(jq -c . <<<"$output" | paste -sd ' ')" = '[0,1,2,3] [4,5,6,7] [8,9]' ]
    run --separate-stderr pppack -l 100 --lengths -o bins lengths
    [ "$status" -eq 0 ]
    [ -z "$output" ]
    [ "$(wc -l <bins)" -eq 6 ]
    run --separate-stderr pppack -l 100 --lengths --stats lengths
    [ "$(jq -c '[.bins, .scored]' <<<"$output")" = '[6,null]' ]
}

@test "the rule none pads to the longest sequence of each bin" {
    documents 5 3 2 1 4 >in.jsonl
    run --separate-stderr pppack -l 6 -a none --rows 2 --pad-to 2 -o out \
        --stats in.jsonl
    [ "$status" -eq 0 ]
    [ "$(jq -c '[.bins, .capacity, .padding]' <<<"$output")" = '[3,12,5]' ]
    [ "$(int32 out/input_ids | paste -sd ' ')" = \
        '1 2 3 4 5 0 1 2 3 0 0 0 1 2 1 0 1 2 3 4' ]
    pppack --check out
}

@test "a document that is too long is named, and is not skipped as malformed" {
    documents 5 5 >short.jsonl
    documents 3 4 6 >long.jsonl
    for skip in "" "--skip-bad 9"; do
        # shellcheck disable=SC2086
        run --separate-stderr pppack -l 5 $skip -o out short.jsonl long.jsonl
        [ "$status" -eq 2 ]
        [ "$stderr" = "pppack: long.jsonl: line 3: '6' tokens are more than the\
 5 of a bin; see --oversize" ]
        [ ! -e out ]
    done
    # With two ranks of 5 tokens each there is room.
    pppack -l 6 --cp 2 --per-rank --stats short.jsonl long.jsonl |
        jq -e '.sequences == 5'
}

@test "a byte order mark at the beginning is ignored" {
    documents 5 3 >in.jsonl
    { printf '\357\273\277'; cat in.jsonl; } >marked.jsonl
    pppack -l 8 -o want in.jsonl
    pppack -l 8 -o got marked.jsonl
    diff -r want got
    # Elsewhere it is an error.
    { cat in.jsonl marked.jsonl; } >twice.jsonl
    run --separate-stderr pppack -l 8 -o none twice.jsonl
    [ "$status" -eq 2 ]
    [ "$stderr" = "pppack: twice.jsonl: line 3, column 1: expected '{', got byte\
 239" ]
}

@test "a list or a compressed file is refused with what to do" {
    echo '[{"input_ids":[1]}]' >list.json
    run --separate-stderr pppack -l 8 -o none list.json
    [ "$status" -eq 2 ]
    [ "$stderr" = "pppack: list.json: line 1, column 1: expected '{', got '[';\
 jq -c '.[]' makes lines of a list" ]
    documents 5 | gzip >in.jsonl.gz
    run --separate-stderr pppack -l 8 -o none in.jsonl.gz
    [ "$status" -eq 2 ]
    [ "$stderr" = "pppack: in.jsonl.gz: line 1, column 1: the file is compressed;\
 read what zcat prints" ]
    zcat in.jsonl.gz | pppack -q -l 8 -o out
}

@test "a sequence is padded before it must fit" {
    documents 5 5 >in.jsonl
    run --separate-stderr pppack -l 12 --pad-to 8 --stats in.jsonl
    [ "$(jq -c '[.bins, .align]' <<<"$output")" = '[2,8]' ]
    documents 9 >in.jsonl
    run --separate-stderr pppack -l 12 --pad-to 8 --stats in.jsonl
    [ "$status" -eq 2 ]
    [ "$stderr" = "pppack: in.jsonl: line 1: '9' tokens are more than the 8 of a\
 bin; see --oversize" ]
    run --separate-stderr pppack -l 10 --cp 2 --stats in.jsonl
    [ "$status" -eq 2 ]
    [ "${stderr_lines[0]}" = \
        "pppack: -l: '10' is not a multiple of 4 (2 x cp); try 8 or 12" ]
    run --separate-stderr pppack -l 16 --cp 2 --tp 4 --pad-to 3 --stats in.jsonl
    [ "$status" -eq 2 ]
    run --separate-stderr pppack -l 24 --cp 2 --tp 4 --pad-to 3 --stats in.jsonl
    [ "$(jq .align <<<"$output")" = 24 ]
}

@test "--oversize refuses, truncates, splits or drops" {
    documents 10 3 >in.jsonl
    run --separate-stderr pppack -l 4 -o out in.jsonl
    [ "$status" -eq 2 ]
    [ ! -e out ]
    for what in 'truncate [2,7,1,0,0]' 'split [4,13,0,1,0]' \
        'drop [1,3,0,0,1]'; do
        run --separate-stderr pppack -l 4 --oversize "${what% *}" -o out \
            --stats in.jsonl
        [ "$status" -eq 0 ]
        [ "$(jq -c '[.sequences, .tokens, .truncated, .split, .dropped]' \
            <<<"$output")" = "${what#* }" ]
        pppack --check out
    done
    printf '%s\n' 10 3 >lengths
    run --separate-stderr pppack -l 4 --oversize split --lengths lengths
    [ "$(jq -c . <<<"$output" | paste -sd ' ')" = \
        '[[0,0,4]] [[0,4,4]] [[1,0,3]] [[0,8,2]]' ]
}

@test "--empty refuses or drops documents without tokens" {
    printf '%s\n' '{"input_ids":[1]}' '{"input_ids":[]}' \
        '{"input_ids":[2]}' >in.jsonl
    run --separate-stderr pppack -l 4 -o out in.jsonl
    [ "$status" -eq 2 ]
    [ "$stderr" = "pppack: in.jsonl: line 2: 'input_ids' is empty;\
 try --empty drop" ]
    run --separate-stderr pppack -l 4 --empty drop --stats -o out in.jsonl
    [ "$status" -eq 0 ]
    [ "$(jq -c '[.inputs, .sequences, .empty]' <<<"$output")" = '[3,2,1]' ]
    pppack --check out
    run --separate-stderr pppack -l 4 -o none </dev/null
    [ "$status" -eq 2 ]
    [ "$stderr" = 'pppack: standard input: is empty; the program before it wrote nothing' ]
    : >empty
    run --separate-stderr pppack -l 4 -o none empty
    [ "$status" -eq 2 ]
    [ "$stderr" = 'pppack: there is nothing to pack' ]
    printf '%s\n' '{"input_ids":[]}' '{"input_ids":[1,2]}' >in.jsonl
    run --separate-stderr pppack -l 1 --empty drop --oversize drop -o none \
        in.jsonl
    [ "$status" -eq 2 ]
    [ "$stderr" = "pppack: there is nothing to pack: all '2' documents are empty\
 or too long, and dropped" ]
}

@test "--bins-multiple makes a multiple of bins" {
    documents 4 4 4 4 4 >in.jsonl
    run --separate-stderr pppack -l 8 --bins-multiple 4 --stats -o out in.jsonl
    [ "$status" -eq 0 ]
    [ "$(jq .bins <<<"$output")" = 4 ]
    pppack --check out
    run --separate-stderr pppack -l 8 --bins-multiple 6 --stats in.jsonl
    [ "$status" -eq 2 ]
    [ "$stderr" = "pppack: a multiple of '6' bins needs 6 sequences, but there are\
 5" ]
    # 5 bins become 8, but 4 larger ones are a multiple too.
    documents 8 8 8 8 8 >long.jsonl
    refused "a multiple of '4' bins needs 8 sequences, but there are 5; a larger \
capacity makes fewer bins" -l 8 --bins-multiple 4 -o out long.jsonl
    pppack -q -l 16 --bins-multiple 4 -o out long.jsonl
    # Pairs are not divided, and groups of responses are.
    for k in 1 2 3 4; do
        echo "{\"prompt\":[1,2],\"chosen\":[3,$k],\"rejected\":[6]}" >&3
    done 3>pairs.jsonl
    echo '{"prompt":[1],"responses":[[3,4],[5],[6],[7]]}' >responses.jsonl
    for kind in pairs responses; do
        refused "a multiple of '6' bins needs 6 $kind, but there are 4" \
            -l 20 --bins-multiple 6 -o out "$kind.jsonl"
        refused "at least '5' bins need as many $kind, but there are 4" \
            -l 20 --bins-min 5 -o out "$kind.jsonl"
        refused "--parts: '5' bins need as many $kind, but there are 4" \
            -l 20 -a lpt --parts 5 -o out "$kind.jsonl"
    done
}

@test "--shuffle gives the same order for the same seed" {
    seq 30 60 >lengths
    pppack -l 64 --lengths lengths >plain
    pppack -l 64 --shuffle 1 --lengths lengths >one
    pppack -l 64 --shuffle 1 --lengths lengths >again
    pppack -l 64 --shuffle 2 --lengths lengths >two
    cmp one again
    run ! cmp -s plain one
    run ! cmp -s one two
    cmp <(sort plain) <(sort one)
}

# order DIR: prints the documents of a directory in packed order, by their sizes.
order() {
    pppack --export megatron -o "$1/m" "$1"
    pppack -l 99 -a next-fit --no-shuffle -o "$1/again" "$1/m"
    int32 "$1/again/input_ids" | awk '$1 == 1 && n { printf "%d ", n } { n = $1 }
        END { print n }'
    rm -r "$1/again" "$1"/m.*
}

@test "a directory is shuffled unless its order is asked for" {
    documents 9 2 7 4 6 5 8 3 >in.jsonl
    pppack -l 9 -a next-fit -o out in.jsonl
    pppack -l 9 -a next-fit --shuffle 42 -o same in.jsonl
    diff -r out same
    [ "$(order out | tr ' ' '\n' | sort -n | paste -sd ' ')" = \
        '2 3 4 5 6 7 8 9' ]
    [ "$(order out)" != '9 2 7 4 6 5 8 3' ]
    local kept
    for kept in '-a next-fit --no-shuffle' '--compat torchtune' \
        '-a none --rows 1'; do
        # shellcheck disable=SC2086
        pppack -l 9 $kept -o kept in.jsonl
        [ "$(order kept)" = '9 2 7 4 6 5 8 3' ]
        # epoch_block: all epochs have one order.
        [ "$(int32 kept/index | sed -n 23p)" -eq 0 ]
        rm -r kept
    done
    pppack -l 9 -a next-fit -o out in.jsonl
    [ "$(int32 out/index | sed -n 23p)" -eq 1 ]
    run --separate-stderr pppack -l 9 --shuffle 1 --no-shuffle -o out in.jsonl
    [ "$status" -eq 2 ]
    [[ "$stderr" == 'pppack: --shuffle and --no-shuffle exclude each other'* ]]
}

@test "the same input gives the same bytes" {
    documents 5 3 4 2 7 1 >in.jsonl
    pppack -l 8 --shuffle 3 -o one in.jsonl
    pppack -l 8 --shuffle 3 -o two in.jsonl
    diff -r one two
}

@test "malformed lines are named" {
    documents 2 >in.jsonl
    echo '{"input_ids":[1,2.5]}' >>in.jsonl
    run --separate-stderr pppack -l 8 -o out in.jsonl
    [ "$status" -eq 2 ]
    [ -z "$output" ]
    [ "$stderr" = "pppack: in.jsonl: line 2, column 17: expected a\
 token id, got '2.5'" ]
    [ ! -e out ]
    run --separate-stderr pppack -l 8 -o out - <in.jsonl
    [ "$stderr" = "pppack: standard input: line 2, column 17: expected a\
 token id, got '2.5'" ]
    run --separate-stderr pppack -l 8 -o out absent.jsonl
    [ "$status" -eq 2 ]
    [ "$stderr" = 'pppack: absent.jsonl: No such file or directory' ]
    nothing_left
}

@test "wrong options are refused" {
    while read -r options; do
        # shellcheck disable=SC2086
        run --separate-stderr pppack $options </dev/null
        echo "$options: $status: $stderr"
        [ "$status" -eq 2 ]
        [ -z "$output" ]
        [ "${#stderr_lines[@]}" -le 2 ]
        [[ ${stderr_lines[0]} == 'pppack: '* ]]
    done <<'END'
-o out
-l 8
-l 0 -o out
-l x -o out
-l 3G -o out
-l 8 -a fastest -o out
-l 8 -a none -o out
-l 8 --rows 2 -o out
-l 8 -a none --rows 2 --bins-multiple 2 -o out
-l 8 --oversize maybe -o out
-l 8 --empty maybe -o out
-l 8 --pad-to 0 -o out
-l 8 --pad-to 16 -o out
-l 8 --cp 2147483647 -o out
-l 8 --shuffle -1 -o out
-l 8 --lengths --bytes
-l 8 --no-such-option
--check out -l 8
--check absent
END
    [ ! -e out ]
}

@test "only a packed or an empty directory is replaced" {
    documents 5 >in.jsonl
    documents 7 >more.jsonl
    pppack -l 8 -o out in.jsonl
    pppack -l 8 -o out/ more.jsonl
    [ "$(int32 out/input_ids | wc -l)" -eq 7 ]
    ln -s out link
    pppack -l 8 -o link in.jsonl
    [ -L link ]
    [ "$(int32 out/input_ids | wc -l)" -eq 5 ]
    mkdir precious
    echo mine >precious/file
    run --separate-stderr pppack -l 8 -o precious in.jsonl
    [ "$status" -eq 2 ]
    [ "$stderr" = "pppack: precious: has a file 'file', so it is not a packed\
 directory; it is left as it is" ]
    [ "$(cat precious/file)" = mine ]
    run --separate-stderr pppack -l 8 -o in.jsonl in.jsonl
    [ "$status" -eq 2 ]
    [ "$stderr" = 'pppack: in.jsonl: exists and is not a directory' ]
    nothing_left
}

@test "a full disk leaves nothing half-written" {
    documents 500 500 >in.jsonl
    documents 5 >small.jsonl
    pppack -l 8 -o old small.jsonl
    cp -r old before
    # A limit on file size acts as a full disk.
    for dir in new old; do
        run --separate-stderr bash -c \
            "ulimit -f 1; exec pppack -l 512 -o $dir in.jsonl"
        [ "$status" -eq 3 ]
        [[ $stderr == "pppack: "*"$dir/"*": cannot write: File too large" ]]
    done
    [ ! -e new ]
    diff -r old before
    nothing_left
    run --separate-stderr pppack -l 8 -o absent/out small.jsonl
    [ "$status" -eq 3 ]
    [ "$stderr" = 'pppack: absent/out: No such file or directory' ]
    run --separate-stderr bash -c 'pppack -l 8 --stats small.jsonl >/dev/full'
    [ "$status" -eq 3 ]
    [ "$stderr" = \
        'pppack: writing standard output failed: No space left on device' ]
}

@test "the remains of a killed run are removed, the work of a live one is not" {
    documents 5 >in.jsonl
    mkdir out.0123456789ab.tmp out.ba9876543210.tmp target
    touch out.0123456789ab.tmp/input_ids out.ba9876543210.tmp/input_ids
    touch target/input_ids
    ln -s target out.tmp
    exec 9<out.ba9876543210.tmp
    flock 9
    pppack -l 8 -o out in.jsonl
    pppack --check out
    [ ! -e out.0123456789ab.tmp ]
    [ -e out.ba9876543210.tmp/input_ids ]
    [ -L out.tmp ] && [ -e target/input_ids ]
}

@test "two runs at once leave the whole directory of one of them" {
    documents 5 >short.jsonl
    documents 5 7 8 2 >long.jsonl
    pppack -l 8 -o short short.jsonl
    pppack -l 8 -o long long.jsonl
    for ((i = 0; i < 10; i++)); do
        pppack -l 8 -o out short.jsonl &
        pppack -l 8 -o out long.jsonl &
        wait
        diff -rq out short || diff -rq out long
    done
    nothing_left
}

@test "damage is found by --check or when the directory is opened" {
    documents 5 3 4 >in.jsonl
    pppack -l 8 -o good in.jsonl
    # change FILE OFFSET copies the directory and changes a byte of FILE.
    change() {
        rm -rf bad
        cp -r good bad
        printf '\377' |
            dd of="bad/$1" bs=1 seek="$2" conv=notrunc status=none
    }
    change input_ids 4
    run --separate-stderr pppack --check bad
    [ "$status" -eq 1 ]
    [ "$stderr" = 'pppack: bad/input_ids: wrong checksum: the file is damaged' ]
    change index 16
    run --separate-stderr pppack --check bad
    [ "$status" -eq 2 ]
    [ "$stderr" = 'pppack: bad/index: wrong checksum: the file is damaged' ]
    change index 8
    run --separate-stderr pppack --check bad
    [ "$status" -eq 2 ]
    [ "$stderr" = "pppack: bad/index: version '255' needs a newer pptools, this\
 one reads 10" ]
    change index 0
    run --separate-stderr pppack --check bad
    [ "$status" -eq 2 ]
    [ "$stderr" = 'pppack: bad/index: not the index of a packed directory' ]
    rm -rf bad
    cp -r good bad
    truncate -s -4 bad/labels
    run --separate-stderr pppack --check bad
    [ "$status" -eq 2 ]
    [ "$stderr" = "pppack: bad/labels: has '44' bytes, but the index says 48" ]
    rm bad/labels
    run --separate-stderr pppack --check bad
    [ "$status" -eq 2 ]
    [ "$stderr" = 'pppack: bad/labels: No such file or directory' ]
    truncate -s 100 bad/index
    run --separate-stderr pppack --check bad
    [ "$status" -eq 2 ]
    [ "$stderr" = 'pppack: bad/index: cut short' ]
}

@test "--quiet, --help and --version work" {
    run --separate-stderr pppack --help
    [ "$status" -eq 0 ]
    [ -z "$stderr" ]
    [[ $output == 'usage: pppack '* ]]
    run --separate-stderr pppack -V
    [ "$status" -eq 0 ]
    [[ ${lines[0]} =~ ^pppack\ [0-9]+\.[0-9]+\.[0-9]+$ ]]
    [ "${#lines[@]}" -eq 2 ]
}

@test "input that cannot be read has status 2" {
    run --separate-stderr pppack -l 8 -o out .
    [ "$status" -eq 2 ]
    [ "$stderr" = 'pppack: .: is a directory, but not a packed one; name files' ]
    run --separate-stderr bash -c 'pppack -l 8 --lengths <&-'
    [ "$status" -eq 2 ]
    [ "$stderr" = 'pppack: standard input: is closed' ]
}

@test "--stats gives the same without a directory" {
    documents 5 3 4 2 >ids.jsonl
    {
        documents 3 1
        echo '{"input_ids":[1,2,3],"labels":[-100,-100,3]}'
        echo '{"input_ids":[1,2,3,4],"loss_mask":[0,1,0,1]}'
        documents 4
    } >labels.jsonl
    printf '%s\n' \
        '{"prompt":[1,2],"chosen":[3,4,5],"rejected":[6]}' \
        '{"prompt":[1],"chosen":[3],"rejected":[6,7]}' >pairs.jsonl
    echo '{"input_ids":[1,2,3,4,5],"seq_start_id":[0,2]}' >rows.jsonl
    pppack -l 8 -o packed labels.jsonl
    pppack -l 8 -o plain ids.jsonl
    pppack --export megatron -o indexed plain
    pppack --export safetensors -o tensors.safetensors packed
    for input in ids.jsonl labels.jsonl pairs.jsonl rows.jsonl packed indexed \
        tensors.safetensors; do
        run --separate-stderr pppack -l 12 --stats "$input"
        [ "$status" -eq 0 ]
        [ -z "$stderr" ]
        [ "$(jq .scored <<<"$output")" -gt 0 ]
        [ "$output" = "$(pppack -l 12 --stats -o out "$input")" ]
    done
}

@test "sequences that lose every scored token are counted" {
    {
        documents 9 3
        echo '{"input_ids":[1,2,3,4,5,6,7,8,9,10],"loss_mask":[1,0,0,0,0,0,0,0,1,1]}'
        echo '{"input_ids":[1,2,3,4,5,6,7,8,9,10],"loss_mask":[0,0,0,0,0,0,1,0,1,1]}'
        echo '{"input_ids":[1,2,3,4,5,6,7,8,9],"loss_mask":[0,0,0,0,0,0,0,0,1]}'
        # Without a scored token from the start, so it lost none.
        echo '{"input_ids":[1,2,3,4,5,6,7,8,9],"loss_mask":[0,0,0,0,0,0,0,0,0]}'
    } >in.jsonl
    local lost='pppack: 2 of 6 sequences lost every scored token when they were
 cut to 8 tokens, the first of document 2; they train nothing: try a larger -l'
    run --separate-stderr pppack -l 8 --oversize truncate -o out in.jsonl
    [ "${stderr_lines[0]}" = \
        'pppack: 5 of 6 documents were too long and cut by 7 tokens' ]
    [ "${stderr_lines[1]}" = "${lost//$'\n'/}" ]
    for how in '-l 10 --oversize truncate' '-l 8 --oversize split' \
        '-l 8 --oversize drop' '-q -l 8 --oversize truncate'; do
        # shellcheck disable=SC2086
        run --separate-stderr pppack $how -o out in.jsonl
        [[ $stderr != *lost* ]]
    done
    # A generator's token is enough.
    jq -c '.generator_ids = .input_ids |
        .generator_mask = (.input_ids | map(1))' in.jsonl >two.jsonl
    run --separate-stderr pppack -l 8 --oversize truncate -o out two.jsonl
    [[ $stderr != *lost* ]]
}

@test "pairs, groups and models without a scored token are named" {
    # notes LINE...: pppack says these lines of in.jsonl, and its result.
    notes() {
        run -0 --separate-stderr pppack -l 16 -o out in.jsonl
        [ "${#stderr_lines[@]}" -eq $(($# + 1)) ]
        diff <(printf 'pppack: %s\n' "$@") <(head -n $# <<<"$stderr")
    }
    local whole='{"prompt":[1,2],"chosen":[3],"rejected":[6]}'
    local chosen='"chosen":{"input_ids":[1,2]' rejected='"rejected":{"input_ids":[1,3]'
    local half="{$chosen,\"loss_mask\":[0,0]},$rejected}}"
    printf '%s\n' "$whole" "$half" "$whole" >in.jsonl
    notes "1 of 3 pairs has a side without a scored token, the first is document\
 1; dpo learns from at most one side of it"
    printf '%s\n' "{$chosen,\"loss_mask\":[0,0]},$rejected,\"loss_mask\":[0,0]}}" >in.jsonl
    notes "1 of 1 pairs has a side without a scored token, the first is document\
 0; dpo learns from at most one side of it" "no token is scored, so pprun trains\
 only rewards on this data"
    local group='{"responses":[{"input_ids":[1,3],"loss_mask":[0,0]},[1,4]]}'
    printf '%s\n' '{"prompt":[1],"responses":[[3,4],[5]]}' "$group" "$group" >in.jsonl
    notes "2 of 6 responses have no scored token, the first is of document 1;\
 they train nothing"
    local line='{"input_ids":[1,2,3],"generator_ids":[4,5,6]' none='[0,0,0]' all='[1,1,1]'
    echo "$line,\"loss_mask\":$all,\"generator_mask\":$none}" >in.jsonl
    notes 'no token of the generator is scored, so it learns nothing'
    echo "$line,\"loss_mask\":$none,\"generator_mask\":$all}" >in.jsonl
    notes "no token of the language model is scored, so only the generator's loss\
 trains it"
    echo "$line,\"loss_mask\":$all,\"generator_mask\":$all}" >in.jsonl
    run -0 --separate-stderr pppack -l 16 -o out in.jsonl
    [ "${#stderr_lines[@]}" -eq 1 ]
}

@test "--realign pads every kind of directory anew and changes nothing else" {
    {
        documents 5 20 0 3 7
        echo '{"input_ids":[1,2,3,4],"loss_mask":[0,1,0,1]}'
        documents 0 11 1 6
    } >documents.jsonl
    printf '%s\n' \
        '{"prompt":[1,2],"chosen":[3,4,5],"rejected":[6],"ref_chosen_logps":-1,"ref_rejected_logps":-2}' \
        '{"prompt":[1],"chosen":[3],"rejected":[6,7],"ref_chosen_logps":-3,"ref_rejected_logps":-4}' \
        >pairs.jsonl
    printf '%s\n' \
        '{"prompt":[1,2],"responses":[[3,4,5],[6],[7,8]],"rewards":[1,2,3]}' \
        '{"prompt":[1],"responses":[[3],[6,7]],"rewards":[4,5]}' >groups.jsonl
    echo '{"input_ids":[9,1,2],"images":[[[[1,2],[3,4]]]]}' >images.jsonl
    documents 5 2 7 >>images.jsonl
    echo '{"input_ids":[1,2,3],"generator_ids":[41,42,43]}' >speech.jsonl
    documents 5 2 >>speech.jsonl
    while read -r name options; do
        rm -rf packed there back
        # shellcheck disable=SC2086
        pppack -q --empty drop $options -o packed "$name.jsonl"
        pppack -q --realign packed --pad-to 3 --fp8 tensorwise -o there
        pppack --check there
        [ "$(pppack --stats there | jq -c '[.align, .fullest % 48]')" = '[3,0]' ]
        pppack -q --realign there -o back \
            --pad-to "$(pppack --stats packed | jq .align)"
        pppack --check back
        for file in packed/*; do
            [ "$file" = packed/index ] || cmp "$file" "back/${file#*/}"
        done
        jq -n -e 'def told: {inputs, sequences, groups, tokens, scored, bins,
            capacity}; (input | told) == (input | told)' \
            <(pppack --stats packed) <(pppack --stats back)
        pppack --stats there | jq -e '.fullest <= .capacity'
        # In its place, by default.
        pppack -q --realign packed --pad-to 3 --fp8 tensorwise
        diff -r packed there
    done <<'END'
documents -l 9 --oversize split
documents -l 9 --oversize drop
documents --oversize truncate --pad-to 4 -l 8
pairs -l 9
groups -l 16
images -l 9 --image-token 9 --patch 2
speech -l 9
END
    refused '--algorithm has no effect with --realign' --realign packed -a ffd
    refused '--realign takes no operands' --realign packed documents.jsonl
    refused 'absent/index: No such file or directory' --realign absent --cp 2
    run --separate-stderr pppack --realign packed --pad-to 2000000000
    [ "$status" -eq 2 ]
    [[ $stderr == "pppack: packed: bin "?" would be longer than '2147483647' \
tokens with this padding" ]]
    pppack -q -l 16 --cp 2 --cp-sizes per-sequence --balance tokens \
        --oversize drop --empty drop -o ranks documents.jsonl
    refused "ranks: its sequences are on '2' context-parallel ranks of their own; \
pack it anew" --realign ranks --cp 4
    nothing_left
}
