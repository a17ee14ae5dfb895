#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# ppsplit --method joint: placement, chunks, recomputation, split and order
# chosen together.

bats_require_minimum_version 1.5.0
load split_helpers

setup() {
    cd "$BATS_TEST_TMPDIR"
    llama 6 16000 >model.json
}

# beats_all ARGS...: passes if no kind has a shorter step on its own best split,
# on any placement with one to four chunks.
beats_all() {
    local best bound other kind chunks placement tried=0
    ppsplit "$@" --method joint -o joint.json model.json
    best=$(ppsched --stats joint.json | jq .makespan)
    bound=$(jq '."x-search".bound' joint.json)
    # ppsched simulates the step that the search found, not below the bound.
    holds "$bound <= $best * (1 + 1e-9)"
    jq -e "(.\"x-search\".step / $best - 1) | fabs < 1e-9" joint.json
    for chunks in 1 2 3 4; do
        for placement in loop v; do
            for kind in gpipe 1f1b eager-1f1b interleaved zb-h1 zb-h2 \
                zb-interleaved hanayo zbv v-half v-min dualpipev; do
                # One chunk is the same in a loop and in a V.
                [ "$chunks$placement" = 1v ] && continue
                ppsplit "$@" -c $chunks --placement $placement -s $kind -v \
                    -o kind.json model.json 2>note || continue
                # The note has six digits.
                other=$(sed -n 's/.*a step of \([^ ]*\) .*/\1/p' note)
                echo "$*: $best, $chunks $placement $kind $other"
                holds "$best <= $other * (1 + 1e-5)"
                holds "$bound <= $other * (1 + 1e-5)"
                tried=$((tried + 1))
            done
        done
    done
    echo "$tried combinations"
    [ "$tried" -ge 6 ]
}

@test "no combination of placement, chunks and kind has a shorter step" {
    beats_all -p 2 -m 2
}

@test "nor one that fits in memory" {
    beats_all -p 2 -m 4 --memory 2250M
    # The limit matters: without it the step is shorter.
    jq -ne "$(ppsplit -p 2 -m 4 --method joint model.json |
        jq '."x-search".step') < $(jq '."x-search".step' joint.json)"
}

@test "the plan has a valid order and says what it was chosen from" {
    ppsplit -p 3 -m 6 --method joint -o joint.json model.json
    ppsched --check joint.json
    jq -e '."x-search" | .gap >= 0 and .gap < 0.1 and
        (.tried | map(.schedule) | index("1f1b") and index("zbv")) and
        .step == (.tried | map(.step // infinite) | min)' joint.json
    run -0 ppsplit -p 3 -m 6 --method joint -t model.json
    [[ "$output" == *'each kind on its best'*'1f1b '*' takes less than '*' within '* ]]
    # The same input gives the same plan.
    ppsplit -p 3 -m 6 --method joint -o again.json model.json
    diff <(jq -S 'del(.history)' joint.json) <(jq -S 'del(.history)' again.json)
}

# short SIZE: "1.23 GiB" as a table of kinds has it.
short() { sed 's/ \(.\)iB/\1/' <<<"$1"; }

@test "the table compares time, bubble and memory of all schedules" {
    ppsplit -p 3 -m 6 --method joint -t model.json >table
    sed -n '/each kind/,$p' table | tee rows
    [ "$(awk 'length > 80' rows | wc -l)" -eq 0 ]
    # One is the best: its figures are those of the plan above.
    [ "$(grep -c '  best$' table)" -eq 1 ]
    holds=$(sed -n 's/^The fullest rank, [0-9]*, holds \([^ ]* [^ ]*\) .*/\1/p' table)
    idle=$(tr '\n' ' ' <table | sed -n 's/.* ranks are idle \([^ ]*\) .*/\1/p')
    grep '  best$' table | grep -F " $(short "$holds") " | grep -F " $idle%"
    # Those of a kind are the ones of its own plan; 1f1b is best with one chunk.
    ppsplit -p 3 -m 6 -s 1f1b -t model.json >own
    holds=$(sed -n 's/^The fullest rank, [0-9]*, holds \([^ ]* [^ ]*\) .*/\1/p' own)
    idle=$(sed -n 's/.* ranks are idle \([^ ]*\) .*/\1/p' own)
    grep '^1f1b  *chain ' table | grep -F " $(short "$holds") " | grep -F " $idle%"
    # With less memory some schedules have no split.
    ppsplit -p 3 -m 6 --method joint -t --memory 1700M model.json >table
    sed -n '/each kind/,$p' table
    grep 'does not fit' table | tee unfit
    [ -s unfit ]
    awk '{ sub(/.* needs /, "") } $2 == "GiB," && $1 < 1700 / 1024 { exit 1 }' unfit
}

@test "chunks and placement may be fixed" {
    ppsplit -p 2 -m 4 -c 2 --placement v --method joint model.json |
        jq -e '[.stages[].rank] == [0, 1, 1, 0]'
    ppsplit -p 2 -m 4 -c 3 --placement loop --method joint model.json |
        jq -e '[.stages[].rank] == [0, 1, 0, 1, 0, 1]'
}

@test "recomputation is chosen too" {
    run -1 ppsplit -p 2 -m 4 --method joint --memory 1500M model.json
    ppsplit -p 2 -m 4 --method joint --memory 1500M --recompute auto \
        -o joint.json model.json
    ppsched --check joint.json
    jq -e '[.stages[].recompute // "none"] | unique != ["none"]' joint.json
}

@test "an option that joint chooses is refused" {
    refuses "--method joint chooses the schedule; omit -s" \
        -p 2 -s 1f1b --method joint model.json
    refuses "--method joint chooses the stages; give one mode of --recompute, or auto" \
        -p 2 --recompute none,full --method joint model.json
    refuses "--method joint has no --placement both-ways" \
        -p 2 --placement both-ways --method joint model.json
    refuses "--method joint has no --encoder-ranks" \
        -p 2 --encoder-ranks 1 --method joint model.json
}

@test "ranks that cannot divide the model are refused" {
    refuses 'the model has no experts for 2 expert-parallel ranks; try --ep 1' \
        -p 2 --ep 2 --method joint model.json
}
