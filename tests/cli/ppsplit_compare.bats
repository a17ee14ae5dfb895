#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# ppsplit --compare: the kinds of schedule, each on its best split.

bats_require_minimum_version 1.5.0
load split_helpers

setup() {
    cd "$BATS_TEST_TMPDIR"
    llama 6 16000 >model.json
}

@test "each row is the plan of its kind" {
    ppsplit -p 2 -m 6 --compare all model.json | tee rows
    # Shortest first, and one is the best.
    sed -n '/^kind /,$p' rows | awk '/%/ { print $(NF - (/best$/ ? 1 : 0)) }' |
        tr -d % | tee longer | sort -gc
    [ "$(head -n 1 longer)" = 0.0 ]
    [ "$(grep -c '  best$' rows)" -eq 1 ]
    for how in '1f1b chain' 'zbv v 2' 'interleaved loop 3' \
        'dualpipe both ways' 'seq1f1b chain'; do
        read -r kind place chunks <<<"$how"
        case $place in
        chain) args='' ;;
        both) args='--placement both-ways' ;;
        *) args="-c $chunks --placement $place" ;;
        esac
        # shellcheck disable=SC2086 # options
        ppsplit -p 2 -m 6 -s "$kind" $args -t model.json | tr '\n' ' ' >plan
        step=$(sed 's/.* takes \([^ ]*\) flop.*/\1/' plan)
        idle=$(sed 's/.* ranks are idle \([^ ]*\) .*/\1/' plan)
        most=$(ppsplit -p 2 -m 6 -s "$kind" $args -t model.json |
            awk '/^rank weights/ { on = 1; next } !NF { on = 0 } on' |
            awk '{ n = $NF; u = substr(n, length(n)); sub(/[KMGT]/, "", n)
                n *= u == "K" ? 1 : u == "M" ? 1024 : 1048576
                if (n > best) { best = n; text = $NF } } END { print text }')
        grep "^$kind  *$place.* $step  *$idle%  *$most " rows
    done
}

@test "kinds that do not fit or cannot run have a reason" {
    ppsplit -p 2 -m 6 --compare gpipe,1f1b --memory 3G model.json | tee rows
    grep -q '^1f1b .* best$' rows
    need=$(sed -n 's/^gpipe  *chain: does not fit: rank [01] needs \(.*\), of 3.00 GiB$/\1/p' rows)
    [ -n "$need" ]
    # The plan of that kind is refused with the same need.
    run -1 --separate-stderr ppsplit -p 2 -m 6 -s gpipe --memory 3G model.json
    [[ "$stderr" == *" needs $need ("* ]]
    run -1 --separate-stderr ppsplit -q -p 2 -m 6 --compare all --memory 1M model.json
    [[ "$output" != *"  best"* ]]
    [[ "$stderr" == 'ppsplit: --compare: no kind fits in 1.00 MiB: '*' needs least, '*' on rank '[01] ]]
    [[ "$output" == *$'\n'"$(sed 's/.*MiB: \([^ ]*\) .*/\1/' <<<"$stderr") "* ]]
    run -2 --separate-stderr ppsplit -q -p 200 -m 6 --compare zbv,1f1b model.json
    [[ "$stderr" == 'ppsplit: --compare: no kind can run: zbv: 400 stages are too many '* ]]
    run -0 ppsplit -p 3 -m 6 --compare dualpipe,1F1B model.json
    [[ "$output" == *'1f1b '*' best'*'dualpipe '*'cannot run: '*'even number'* ]]
    # Chunks and a placement restrict the rows.
    ppsplit -p 2 -m 6 -c 2 --placement v --compare all model.json >rows
    [ -z "$(sed -n '/^kind /,$p' rows | grep -E ' (loop|chain|both|v [34])')" ]
    grep -q '^zbv  *v 2 ' rows
    # So does a list of modes, which is for so many stages.
    ppsplit -p 2 -m 6 --recompute none,full --compare all model.json >rows
    [ -z "$(sed -n '/^kind /,$p' rows | grep -E ' (loop|v) [234]')" ]
    step=$(ppsplit -p 2 -m 6 -s 1f1b --recompute none,full -t model.json |
        tr '\n' ' ' | sed 's/.* takes \([^ ]*\) flop.*/\1/')
    grep -q "^1f1b  *chain  *$step " rows
}

@test "orders are a kind, and joint takes the best row" {
    ppsplit -q -p 3 -m 4 --compare 1f1b,zbv,auto model.json | tee rows
    grep -q '^auto ' rows
    ppsplit -q -p 3 -m 4 --method joint:1f1b,zbv,auto -t model.json |
        sed -n '/microbatches of .* on 3 ranks, each kind/,$p' | diff rows -
    # Without auto it is a named kind.
    ppsplit -q -p 3 -m 4 --method joint:1f1b,zbv model.json >plan.json
    jq -e '."x-search".tried | map(.schedule) | unique == ["1f1b", "zbv"]' plan.json
    ppsched --check plan.json
    refuses '--method joint: seq1f1b has slices or copies, which only --compare and -s have' \
        -p 2 --method joint:1f1b,seq1f1b model.json
}

@test "stages recompute as little as fits, in the memory of the GPU" {
    local how='-p 2 -m 48 --tp 2 --gpu a100 --seq-len 16384'
    # shellcheck disable=SC2086 # options
    ppsplit -q $how --compare gpipe,1f1b model.json >none
    # shellcheck disable=SC2086
    ppsplit -q $how --recompute auto --compare gpipe,1f1b model.json | tee auto
    grep -q '^gpipe .* does not fit: ' none
    grep '^gpipe ' auto | grep -v 'does not fit'
    # It is the row of the plan of the kind.
    # shellcheck disable=SC2086
    ppsplit -q $how --recompute auto -s gpipe -t model.json >plan
    step=$(tr '\n' ' ' <plan | sed 's/.*the update it takes \([^ ]*\) s:.*/\1/')
    grep -q "^gpipe  *chain  *$step " auto
    # A trainer without modes by stage has one for all.
    # shellcheck disable=SC2086
    ppsplit -q $how --dtype bf16 --trainer torchtitan --recompute auto --compare gpipe model.json |
        tee one | grep '^gpipe .* best$'
    refuses '--recompute auto needs --memory or --gpu' \
        -p 2 --recompute auto --compare all model.json
}

@test "--compare --svg draws bubble against memory" {
    ppsplit -p 2 -m 6 --compare all --memory 3G --svg kinds.svg model.json >rows
    xmllint --noout kinds.svg
    [ -z "$(grep -E '[^a-z](nan|inf)[^a-z]' kinds.svg)" ]
    # A point for each split, hollow if it does not fit, and one is the best.
    # The legend has a point for each series too.
    series=$(grep -cE 'class="m".*>(chain|loop|V|both ways|does not fit|shortest step)<' kinds.svg)
    [ "$series" -ge 4 ]
    splits=$(grep -cE '%|does not fit' rows)
    [ "$(grep -c '<circle ' kinds.svg)" -eq $((splits + series)) ]
    unfit=$(grep -c 'does not fit' rows)
    [ "$unfit" -gt 0 ]
    [ "$(grep -c '<circle class="o5"' kinds.svg)" -eq $((unfit + 1)) ]
    best=$(awk '/  best$/ { print $1 }' rows)
    step=$(awk '/  best$/ { print $(NF - 4) }' rows)
    grep -q "<circle class=\"a4\".*<title>$best, .*: step $step, " kinds.svg
    grep -q '>--memory<' kinds.svg
    # Standard output has the table or the picture.
    run -2 --separate-stderr ppsplit -p 2 -m 6 --compare all --svg - model.json
    [[ "$stderr" == *"only one of "* ]]
}

@test "--svg draws cost and memory of the ranks" {
    ppsplit -p 3 -c 2 -m 6 --memory 8G --svg plan.svg model.json >plan.json
    xmllint --noout plan.svg
    [ -z "$(grep -E '[^a-z](nan|inf)[^a-z]' plan.svg)" ]
    # Nothing stands between two ranks.
    grep -q '>1</text>' plan.svg
    [ -z "$(grep -F '>0.5</text>' plan.svg)" ]
    # Bars for two stages and for every part of the memory of each rank, and
    # the legend's.
    [ "$(grep -c '<rect class="a' plan.svg)" -eq $((3 * (2 + 7) + 2 + 7)) ]
    for name in weights gradients optimizer activations messages workspace \
        tables --memory; do
        grep -q ">$name<" plan.svg
    done
    # The plan does not depend on the picture.
    ppsplit -p 3 -c 2 -m 6 --memory 8G model.json |
        diff <(jq 'del(.history)' plan.json) <(jq 'del(.history)')
}

@test "options that --compare excludes are refused" {
    refuses '--compare and -s exclude each other' -p 2 --compare all -s 1f1b \
        model.json
    refuses '--compare and --account-loss exclude each other' \
        -p 2 --compare all --account-loss model.json
    ppsplit -q -p 2 model.json >plan.json
    refuses 'a manifest has its split; give -p and a model to make another' \
        --compare all --svg kinds.svg plan.json
    refuses "--compare: none of these kinds has the chunks and the placement of the other options; leave out -c, --placement and a list of --recompute" \
        -p 2 -c 1 --compare interleaved model.json
    run -2 --separate-stderr ppsplit -p 2 --compare nosuch model.json
    [[ "$stderr" == *"--compare: 'nosuch' is not one of"* ]]
}
