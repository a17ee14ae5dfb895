#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# encoder_data - packed data with images and audio, for plans with an encoder of
# each: what ppsched and pppack count of them, beside counts by hand.

bats_require_minimum_version 1.5.0
load ../parity/helpers
load pack_helpers
load split_helpers

setup() {
    command -v python3 >/dev/null || skip 'no python3'
    cd "$BATS_TEST_TMPDIR"
    OMNI=$SRCDIR/tests/golden/qwen2.5-omni
    ARGS=(-l 60 -a next-fit --image-token 31 --audio-token 32 --merge 2
        --no-shuffle)
}

# lines N: prints N documents of 40 to 60 tokens. Some have several images and
# clips, some have one of these, some have none.
lines() {
    python3 - "$1" <<'END'
import json, random, sys
random.seed(5)
for d in range(int(sys.argv[1])):
    images, clips, ids = [], [], [5]
    if d % 4 in (0, 1):
        images = [(2 * random.randint(1, 3), 2 * random.randint(1, 3))
                  for _ in range(random.randint(1, 4))]
    if d % 4 in (0, 2):
        clips = [4 * random.randint(1, 5) for _ in range(random.randint(1, 3))]
    for rows, columns in images:
        ids += [33] + [31] * (rows * columns // 4)
    for frames in clips:
        ids += [34] + [32] * (frames // 4)
    ids += [7] * (random.randint(40, 60) - len(ids))
    line = {"input_ids": ids}
    if images:
        line["images"] = [{"grid": [1, r, c], "pixels": [[0.5] * 24] * (r * c)}
                          for r, c in images]
    if clips:
        line["audio"] = [[[0.25] * f] * 6 for f in clips]
    print(json.dumps(line))
END
}

# plan ARGS...: plans for one image of 16 patches and two clips of 8 rows.
plan() {
    ppsplit -q --seq-len 60 --images 1 --image-patches 16 --clips 2 \
        --clip-rows 8 "$@" "$OMNI"
}

# near JQ A B: passes if a number, or each of a list, is the same in two files.
near() {
    jq -nce --slurpfile a "$2" --slurpfile b "$3" \
        "[[\$a[0] | $1], [\$b[0] | $1] | flatten] | transpose | length > 0 and
        all(.[0] != null and (.[0] == .[1] or
            (.[0] / .[1] - 1 | fabs) < 1e-9))"
}

@test "each encoder takes the time of its own items" {
    local args
    lines 24 >in.jsonl
    for args in '-p 3 --encoder-ranks 2' '-p 2 --encoder-ranks 1' '-p 1' '-p 2' \
        '-p 2 --encoder-mesh vision:dp=3 --encoder-mesh audio:shared' \
        '-p 3 --encoder-ranks 2 --tp 2' '-p 5 --encoder-mesh vision:pp=1,dp=3 '\
'--encoder-mesh audio:pp=2,dp=2' '-p 3 --dp 2 --encoder-mesh vision:dp=3 '\
'--encoder-mesh audio:dp=1' '-p 3 --dp 3 --encoder-mesh vision:dp=2,tp=2 '\
'--encoder-mesh audio:cp=2'; do
        echo "$args"
        # shellcheck disable=SC2086
        plan $args >plan.json
        pad=()
        [[ $args != *--tp* ]] || pad=(--tp 2)
        pppack -q "${ARGS[@]}" "${pad[@]}" -o data in.jsonl
        [ "$(pppack --stats data | jq .bins)" -eq 24 ]
        dp=$(jq .mesh.dp plan.json)
        ppsched -q -s 1f1b -m $((24 / dp)) --data data --stats plan.json >got
        "$SRCDIR/tests/cli/encoder_work" plan.json in.jsonl >want
        jq -c '.busy = [.idle[].busy] | .busy' got
        jq -c .busy want
        jq '.busy = [.idle[].busy]' got >busy
        near '.busy' busy want
    done
}

@test "a step has the items of its own microbatches, also for auto" {
    lines 24 >in.jsonl
    pppack -q "${ARGS[@]}" -o data in.jsonl
    plan -p 5 --encoder-mesh vision:pp=1,dp=3 --encoder-mesh audio:pp=2 >plan.json
    for step in 1 2 3; do
        sed -n "$((8 * step - 7)),$((8 * step))p" in.jsonl >step.jsonl
        "$SRCDIR/tests/cli/encoder_work" plan.json step.jsonl >want
        for kind in 1f1b auto; do
            search=()
            [ $kind = 1f1b ] || search=(--time 0.2)
            ppsched -q -s $kind "${search[@]}" -m 8 --data data --step $step \
                plan.json |
                ppsched --stats --step $step | jq '.busy = [.idle[].busy]' >$kind
            # A head whose gradients are two actions has more to do.
            near '.busy[:-1]' $kind want
        done
        near .busy 1f1b want
        jq -ne --slurpfile a auto --slurpfile b 1f1b \
            '$a[0].makespan <= $b[0].makespan'
    done
}

# alike IMAGES CLIPS: prints four documents of 40 tokens, each with so many images
# of 16 patches and clips of 8 rows.
alike() {
    jq -nc --argjson i "$1" --argjson c "$2" 'range(4) | {input_ids:
        ([range(4 * $i) | 31] + [range(4 * $c) | 32] +
            [range(40 - 4 * ($i + $c)) | 7]),
        images: [range($i) | {grid: [1, 4, 4],
            pixels: [range(16) | [range(24) | 0.5]]}],
        audio: [range($c) | [range(6) | [range(16) | 0.5]]]} |
        del(.[] | select(. == []))'
}

@test "data with the items of a plan have its step and its memory" {
    # With the efficiency of products a plan's items take longer or shorter if
    # the plan assumes others; so all take as many operations a second.
    local args of h100='--gpu h100 --flops 400T'
    for of in '2 1' '1 3' '3 3' '4 1'; do
        # shellcheck disable=SC2086
        alike $of >in.jsonl
        pppack -q "${ARGS[@]}" -l 40 -o data in.jsonl
        read -r images clips <<<"$of"
        for args in '-p 1' '-p 3 --encoder-ranks 2' '-p 2 --encoder-ranks 1' \
            "-p 3 --encoder-ranks 2 $h100" "-p 2 --encoder-ranks 1 $h100" \
            "-p 3 --encoder-ranks 2 --freeze vision $h100" \
            "-p 3 --encoder-mesh vision:tp=2 --encoder-mesh audio:tp=1 $h100"; do
            echo "$of: $args"
            # shellcheck disable=SC2086
            plan --seq-len 40 $args >plan.json
            # shellcheck disable=SC2086
            plan --seq-len 40 --images "$images" --clips "$clips" $args |
                ppsched -q -s 1f1b -m 4 --stats >want
            ppsched -q -s 1f1b -m 4 --data data --stats plan.json >got
            near '.makespan' got want
            near '[.channels[].time] | add // 0' got want
            diff <(jq -c '.peak_bytes, .arena_bytes' got) \
                <(jq -c '.peak_bytes, .arena_bytes' want)
            # The manifest has what the data are, too.
            ppsched -q -s 1f1b -m 4 --data data plan.json | ppsched --stats |
                diff got -
        done
    done
    # Without items of one kind its encoder takes no time, and no memory.
    plan -p 3 --encoder-ranks 2 >plan.json
    for of in '2 0' '0 2'; do
        # shellcheck disable=SC2086
        alike $of >in.jsonl
        pppack -q "${ARGS[@]}" -l 40 -o data in.jsonl
        ppsched -q -s 1f1b -m 4 --data data --stats plan.json |
            jq -c '[.idle[:2][].busy == 0, .memory[:2][].activations == 0]'
    done >none
    [ "$(cat none)" = $'[false,true,false,true]\n[true,false,true,false]' ]
}

@test "pppack counts both streams as ppsched does" {
    lines 24 >in.jsonl
    local args
    for args in '-p 3 --encoder-ranks 2' '-p 3 --dp 2 --encoder-mesh '\
'vision:dp=2 --encoder-mesh audio:dp=4'; do
        # shellcheck disable=SC2086
        plan $args >plan.json
        dp=$(jq .mesh.dp plan.json)
        ppsched -q -s 1f1b -m $((24 / dp)) plan.json -o plan.json
        cp plan.json before.json
        pppack -q "${ARGS[@]}" --manifest plan.json --balance flops --stats \
            -o data in.jsonl >stats
        jq '{step: .step_time}' stats >got
        ppsched --stats plan.json | jq '{step: .makespan}' >want
        [ "$dp" -gt 1 ] || near .step got want
        jq -c .data plan.json >of_pppack
        ppsched -q -s 1f1b -m $((24 / dp)) --data data before.json |
            jq -c .data | diff of_pppack -
        # Bins are one document each, so no order of them is more even.
        "$SRCDIR/tests/cli/encoder_work" before.json in.jsonl >want
        near .imbalance stats want
        jq -c '[.items[], .rows[]]' want
        jq -e --slurpfile want want '$want[0] as $w | [.max_images, .max_clips] ==
            $w.items and (if '"$dp"' > 1 then .max_patches >= $w.rows[0] and
                .max_clip_rows >= $w.rows[1]
            else [.max_patches, .max_clip_rows] == $w.rows end)' of_pppack
    done
    # The streams are not the other's: counts with twice the rows of audio are
    # others.
    "$SRCDIR/tests/cli/encoder_work" before.json in.jsonl 2 >wrong
    run -1 near .imbalance stats wrong
}

@test "a stage with both encoders passes on the features of both" {
    lines 24 >in.jsonl
    pppack -q "${ARGS[@]}" -o data in.jsonl
    # A message also takes a time that does not depend on its size, and the second
    # plan has twice as many. The difference of two bandwidths is without it.
    for n in 1 2; do
        for link in 1M 2M; do
            plan -p $((n + 1)) --encoder-ranks $n --gpu h100 --link $link >plan.json
            ppsched -q -s gpipe -m 24 --data data --stats plan.json |
                jq '[.channels[] | select(.direction == "forward") | .time] | add'
        done | jq -s '{forward: (.[0] - .[1])}' >times$n
    done
    near .forward times1 times2
    jq -e '.forward > 0' times1
    # ppsplit plans the same step, also over bridges: messages take most of it.
    for args in '-p 2 --encoder-ranks 1' '-p 3 --encoder-ranks 2' \
        '-p 3 --encoder-mesh vision:tp=2 --encoder-mesh audio:tp=1'; do
        # shellcheck disable=SC2086
        ppsplit --seq-len 60 --image-patches 16 --clips 2 --clip-rows 8 $args \
            -m 4 -s 1f1b --gpu h100 --link 1M -v "$OMNI" >plan.json 2>said
        best=$(sed -n 's/.* a step of \([^ ]*\) .*/\1/p' said)
        echo "$args: $best, $(makespan 1f1b 4 plan.json)"
        jq -ne "$(makespan 1f1b 4 plan.json) / $best - 1 | fabs < 1e-5"
    done
}

@test "plans without an encoder for each stream are refused" {
    alike 1 1 >in.jsonl
    pppack -q "${ARGS[@]}" -l 40 -o both in.jsonl
    for model in 'qwen2-vl --image-patches 16' llama/model; do
        # shellcheck disable=SC2086
        ppsplit -q -p 2 --seq-len 40 $SRCDIR/tests/golden/$model >plan.json
        cp plan.json before.json
        refused "plan.json: the documents have images and audio, but the plan \
does not have an encoder for each" "${ARGS[@]}" -l 40 --stats --manifest plan.json \
            in.jsonl
        run --separate-stderr ppsched -s 1f1b -m 1 --data both plan.json
        [ "$status" -eq 2 ]
        [ "$stderr" = "ppsched: both: has images and audio, but the plan does \
not have an encoder for each" ]
        cmp plan.json before.json
    done
    # Clips that the model's encoder of audio cannot take.
    plan -p 1 --seq-len 40 >plan.json
    jq -c '.audio |= map(.[:5])' in.jsonl >wrong.jsonl
    refused "plan.json: rows have '15' values and 2 of them make a feature, \
but the model takes 18 and 2" "${ARGS[@]}" -l 40 --manifest plan.json -o out \
        wrong.jsonl
    # Sizes in the manifest are checked.
    ppsched -q -s 1f1b -m 1 --data both plan.json >data.json
    for key in max_clips max_clip_rows; do
        jq ".data.$key = 0" data.json >zero.json
        run --separate-stderr ppsched --check zero.json
        [ "$status" -eq 2 ]
        [[ $stderr == "ppsched: zero.json: /data/$key: '0' is not "* ]]
    done
}
