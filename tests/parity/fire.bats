#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# fire - a run that is killed at random instants, and goes on after each on
# another mesh and schedule. Its losses are those of an undisturbed run, and the
# same meshes in the same steps give the same bits. Slow. KILLS and SEED may be
# set.

bats_require_minimum_version 1.5.0
load helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    model qwen2-tied true
    eight_heads model-qwen2-tied
    data 1 60 >data.jsonl
    pppack -q -l 64 --cp 2 --tp 4 -o packed data.jsonl
    ppsplit -q -p 1 model-qwen2-tied | ppsched -q -s gpipe -m 12 >one.json
    ppsplit -q -p 2 --tp 2 --cp 2 --dp 2 model-qwen2-tied |
        ppsched -q -s 1f1b -m 6 >sixteen.json
    "$SRCDIR/tests/parity/cover" "$SRCDIR/tests/parity/meshes.factors" |
        while read -r -a row; do
            name=mesh-$(IFS=-; echo "${row[*]}")
            plan_row $((12 / ${row[4]#dp})) model-qwen2-tied "${row[@]}" \
                >"$name.json"
        done
    export KILLS=${KILLS-50} SEED=${SEED-$RANDOM}
    echo "# seed $SEED" >&3
}

setup() { cd "$BATS_FILE_TMPDIR"; }

options=(-q --data packed --dtype fp64 --lr 1e-3 --init 5)

# saved DIR: prints the step of the checkpoint that a run resumes from, or 0.
saved() {
    local newest
    newest=$(readlink "$1/latest" || true)
    echo $((10#0${newest##*step-}))
}

# burn DIR NAME...: kills runs of the plans at random instants, every second one
# with checkpoints that are written beside training; lists in DIR.lives which plan
# came to which step, and keeps the logs.
burn() {
    local dir=$1 killed=0 life=0 plan pid begun beside
    shift
    RANDOM=$SEED
    : >"$dir.lives"
    while [ "$killed" -lt "$KILLS" ]; do
        plan=${*:RANDOM % $# + 1:1}
        begun=$(saved "$dir")
        life=$((life + 1))
        beside=()
        ((life % 2)) || beside=(--save-background)
        pprun "$plan.json" "${options[@]}" --steps 100000 --save-every 1 \
            --keep 2 --save "$dir" --resume "$dir" -o "$dir-$life.log" \
            "${beside[@]}" \
            3>&- 2>"$dir.err" &
        pid=$!
        sleep "$(printf 0.%03d $((RANDOM % 1000)))"
        kill -9 "$pid" || cat "$dir.err"
        wait "$pid" 2>wait.err || [ $? -eq 137 ]
        killed=$((killed + 1))
        [ "$(saved "$dir")" -eq "$begun" ] ||
            echo "$plan $(saved "$dir")" >>"$dir.lives"
    done
    echo "# $dir: $(wc -l <"$dir.lives") of $killed lives made $(saved "$dir") steps" >&3
}

# numbers_of LOG...: prints [step, loss, norm] of the whole lines.
numbers_of() {
    cat "$@" | jq -cR 'fromjson? | [.step, .loss, .grad_norm]'
}

# replay DIR: makes the same steps on the same meshes without kills.
replay() {
    local plan to
    while read -r plan to; do
        pprun "$plan.json" "${options[@]}" --steps "$to" --save again \
            --resume again -o "again-$to.log"
    done <"$1.lives"
    diff -r "$1/latest" again/latest
}

@test "meshes change at every kill, and the losses are those of one rank" {
    local names
    names=(mesh-*.json)
    burn fire "${names[@]%.json}"
    [ "$(cut -d ' ' -f 1 fire.lives | sort -u | wc -l)" -ge $((KILLS / 8)) ]
    pprun one.json "${options[@]}" --steps "$(saved fire)" -o one.log
    numbers_of one.log fire-*.log | jq -se --argjson n "$(saved fire)" '
        group_by(.[0])[:$n] | length == $n and all(.[]; length >= 2) and
        (map(.[0][1] as $x | map(.[1] / $x - 1 | fabs) | max) | max < 1e-6)'
    replay fire
}

@test "on one mesh of 16 ranks the bits are those of a run without kills" {
    burn sixteen sixteen
    pprun sixteen.json "${options[@]}" --steps "$(saved sixteen)" \
        --save whole -o whole.log
    diff -r whole/latest sixteen/latest
    sort -u <(numbers_of whole.log) <(numbers_of sixteen-*.log) |
        jq -se --argjson n "$(saved sixteen)" 'map(select(.[0] <= $n)) |
            length == $n'
}
