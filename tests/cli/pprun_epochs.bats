#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# pprun_epochs - the order of the data over the epochs, in pprun and in ppsched.

bats_require_minimum_version 1.5.0
load ../parity/helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    model llama false
    # Eleven bins of one document each, all of other sizes.
    for n in $(seq 4 14); do
        echo "{\"input_ids\":[$(seq -s, 1 "$n")]}"
    done >data.jsonl
    pppack -l 14 -a next-fit --bins-min 11 -o packed data.jsonl
    ppsplit -q -p 1 model-llama >split.json
    ppsched -q -s 1f1b -m 1 split.json >plan.json
}

setup() { cd "$BATS_FILE_TMPDIR"; }

# epoch N FILE: prints the tokens of the steps of an epoch.
epoch() {
    jq .tokens "$2" | sed -n "$((11 * $1 - 10)),$((11 * $1))p"
}

@test "every epoch has every bin once, in another order" {
    pprun plan.json --data packed --init 1 --epochs 3 >log
    [ "$(wc -l <log)" -eq 33 ]
    for n in 1 2 3; do
        epoch $n log >order.$n
        diff <(sort -n order.$n) <(seq 4 14)
    done
    run ! cmp -s order.1 order.2
    run ! cmp -s order.2 order.3
    run ! cmp -s order.1 order.3
}

@test "a run that is resumed in its second epoch gives the same bits" {
    pprun plan.json --data packed --init 1 --epochs 3 >whole.jsonl
    for n in 15 33; do
        pprun -q plan.json --data packed --init 1 --steps $n --save ckpt \
            --resume ckpt
    done | jq -c '[.step, .loss, .grad_norm]' >parts
    jq -c '[.step, .loss, .grad_norm]' whole.jsonl | cmp - parts
}

@test "--no-shuffle keeps the order in every epoch" {
    pppack -l 14 -a next-fit --bins-min 11 --no-shuffle -o kept data.jsonl
    pprun plan.json --data kept --init 1 --epochs 2 >log.kept
    diff <(epoch 1 log.kept) <(epoch 2 log.kept)
}

@test "balanced groups stay together" {
    pppack -l 14 --bins-min 12 --bins-multiple 4 --balance tokens --oversize \
        split -o balanced data.jsonl data.jsonl
    ppsched -q -s 1f1b -m 4 split.json >four.json
    pprun four.json --data balanced --init 1 --epochs 3 >log.balanced
    n=$(($(wc -l <log.balanced) / 3))
    [ "$n" -ge 3 ]
    for e in 1 2 3; do
        jq .tokens log.balanced | sed -n "$((n * e - n + 1)),$((n * e))p" |
            sort -n >sums.$e
    done
    cmp sums.1 sums.2
    cmp sums.1 sums.3
}

@test "ppsched --step knows the order" {
    pprun plan.json --data packed --init 1 --epochs 2 >log.two
    for step in 1 5 11 12 17 22; do
        echo "$(jq "select(.step == $step).tokens" log.two)" \
            "$(ppsched -q --stats --data packed --step $step plan.json |
                jq .makespan)"
    done | sort -n >durations
    # More tokens take longer, and the same number takes the same time.
    awk 'NR > 1 && ($1 > t) != ($2 > m) { exit 1 } { t = $1; m = $2 }' durations
    [ "$(wc -l <durations)" -eq 6 ]
}

@test "--epochs counts the steps, and excludes --steps" {
    ppsched -q -s 1f1b -m 2 split.json >two.json
    pprun two.json --data packed --init 1 --epochs 1 >log.short
    [ "$(wc -l <log.short)" -eq 6 ]
    pprun two.json --data packed --init 1 --epochs 0.5 --grad-accum 2 >log.half
    [ "$(wc -l <log.half)" -eq 2 ]
    run --separate-stderr pprun two.json --data packed --init 1 --epochs 1 \
        --steps 2
    [ "$status" -eq 2 ]
    [[ "$stderr" == 'pprun: --epochs and --steps exclude each other'* ]]
}

# tokens OPTION...: trains two epochs with steps of four bins, and prints the
# tokens of each.
tokens() {
    ppsched -q -s 1f1b -m 4 split.json |
        pprun -q --data packed --init 1 --epochs 2 "$@" | jq .tokens
}

@test "the last step of an epoch wraps, is short or is left out" {
    tokens >wrapped
    [ "$(wc -l <wrapped)" -eq 6 ] # of 22 bins, rounded up
    for how in short drop; do
        tokens --last-batch $how >"$how"
        for epoch in 1 2; do
            [ $how = short ] && n=3 || n=2
            sed -n "$((n * epoch - n + 1)),$((n * epoch))p" $how |
                jq -s add >"$how.$epoch"
        done
    done
    # Eleven bins have 99 tokens: each epoch has all of them, or eight bins.
    [ "$(cat short.1 short.2 | tr '\n' ' ')" = '99 99 ' ]
    [ "$(wc -l <drop)" -eq 4 ]
    [ "$(cat drop.1)" -lt 99 ]
    head -n 2 drop | cmp - <(head -n 2 short)
    run -2 --separate-stderr pprun plan.json --data packed --init 1 --epochs 1 \
        --last-batch drop --grad-accum 12
    [[ $stderr == *"leaves nothing: the data has 11 bins, and a step takes 12"* ]]
}

@test "a resumed run keeps the end of its epochs, and its learning rate" {
    ppsched -q -s 1f1b -m 4 split.json >four.json
    go() { pprun -q four.json --data packed --last-batch short "$@"; }
    go --init 1 --steps 6 --lr 1e-2 | jq -c '[.step, .lr, .loss]' >whole
    rm -rf ckpt
    {
        go --init 1 --steps 4 --lr 1e-2 --save ckpt
        go --steps 6 --resume ckpt
    } | jq -c '[.step, .lr, .loss]' | cmp - whole
    run -2 --separate-stderr pprun four.json --data packed --steps 6 \
        --resume ckpt
    [[ $stderr == *"was made with 12 microbatches an epoch, not 11"* ]]
}
