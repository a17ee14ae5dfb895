#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# memory - plans say what needs less memory, and pprun allocates no other bytes.
# The tables, such as splits.rows, compare the bytes of all programs.

bats_require_minimum_version 1.5.0
load helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    model llama false
    model qwen3-tied true
    data 1 90 >data.jsonl
    pppack -q -l 48 -o packed data.jsonl
}

setup() { cd "$BATS_FILE_TMPDIR"; }

# need NAME OPTION...: writes the memory of each rank of NAME.json.
need() { pprun "$1.json" --data packed --print-memory >"$1.need"; }

@test "messages count slices, which need less memory" {
    ppsplit -q -p 2 model-llama >split.json
    ppsched -q -s 1f1b -m 6 split.json >whole.json
    ppsched -q -s seq1f1b -m 6 --slices 6 split.json >parts.json
    need whole
    need parts
    jq -se 'map(.[0].activations) | .[1] < 0.75 * .[0]' whole.need parts.need
    ppsplit -q -p 1 model-llama | ppsched -q -s gpipe -m 6 >whole.json
    ppsched -q -s gpipe -m 6 --slices 3 whole.json >parts.json
    need whole
    need parts
    jq -se 'map(.[0].slots) | .[1] == 3 * .[0]' whole.need parts.need
    pprun parts.json --data packed --init 5 --steps 1 -v 2>err >log
    grep -qx 'pprun: rank 0: at most 18 slices of microbatches were alive' err
    run --separate-stderr pprun parts.json --data packed --init 5 --steps 1 \
        --max-in-flight 17
    [ "$status" -eq 1 ]
    [ "$stderr" = "pprun: rank 0 keeps 18 slices of microbatches alive, but\
 --max-in-flight allows 17" ]
}

@test "recomputation saves memory" {
    local kind mode
    for kind in 1f1b zb-h2; do
        for mode in none selective full; do
            ppsplit -q -p 4 --recompute $mode model-qwen3-tied |
                ppsched -q -s $kind -m 6 >$mode.json
            need $mode
        done
        # Rank 0 keeps the most microbatches, so it saves the most.
        jq -se 'map(.[0].activations) | .[0] > .[1] and .[1] > .[2]' \
            none.need selective.need full.need
    done
}

@test "B has room for what W needs of one layer" {
    local mode
    for mode in none selective full mlp+norms qkv+outputs; do
        ppsplit -q -p 1 --recompute $mode model-llama |
            ppsched -q -s 1f1b -m 2 --data packed >plan.json
        need plan
        jq -e --slurpfile need plan.need --arg mode $mode '.data.max_tokens as $n |
            [.model.units[] | .recompute[$mode].act_bytes // .act_bytes] |
            (map(.[0] + .[1]) | add) + (map(.[2]) | max) | . * $n ==
            $need[0][0].activations' plan.json
    done
    # Between I and W it is there for every layer.
    ppsplit -q -p 2 model-llama | ppsched -q -s zb-h1 -m 6 --data packed >plan.json
    need plan
    jq -e --slurpfile need plan.need '.data.max_tokens as $n |
        .stages[1].act_bytes | add | . * $n <= $need[0][1].activations' plan.json
}

@test "ppsplit recomputes as little as fits, to the byte" {
    local need least
    ppsplit -q -p 3 -m 6 --micro-batch-tokens 48 --layers 2,2,2 \
        --recompute full,selective,none model-llama |
        ppsched -q -s 1f1b -m 6 --data packed >plan-mixed.json
    jq -e '[.stages[].recompute] == ["full", "selective", null]' plan-mixed.json
    need=$(pprun --print-memory --data packed --init 5 --steps 1 plan-mixed.json |
        jq 'map(.total) | max')
    auto() {
        ppsplit -q -p 3 -m 6 --layers 2,2,2 --recompute auto --memory "$1" \
            --micro-batch-tokens "$(jq .data.max_tokens plan-mixed.json)" \
            --seq-len "$(longest packed)" model-llama | ppsched -q -s 1f1b -m 6 --data packed >plan-auto.json
        pprun --print-memory --data packed --init 5 --steps 1 plan-auto.json |
            jq 'map(.total) | max'
    }
    least=$(auto "$need")
    [ "$least" -le "$need" ]
    jq -c '[.stages[].recompute]' plan-auto.json >modes
    [ "$(auto $((least - 1)))" -lt "$least" ]
    run ! diff modes <(jq -c '[.stages[].recompute]' plan-auto.json)
    pprun --verify --data packed --init 5 plan-auto.json
}

@test "the memory of both copies is planned" {
    ppsplit -q -p 4 --placement both-ways model-llama |
        ppsched -q -s dualpipe -m 8 >both.json
    need both
    jq -e --slurpfile m both.json '[.[].weights] == [range(4) as $r |
        [$m[0].stages[] | select(.rank == $r).params] | add * 4]' both.need
}

@test "an objective's rows and metrics are in every plan" {
    rollouts 3 32 >rollouts.jsonl
    pppack -q -l 64 --cp 2 --bins-multiple 16 -o rollouts rollouts.jsonl
    local mesh need
    for mesh in '-p 3' '-p 2 --cp 2 --dp 2'; do
        # shellcheck disable=SC2086
        ppsplit -q --method uniform $mesh model-llama |
            ppsched -q -s 1f1b -m 8 --data rollouts -o plan.json
        pprun --print-memory --data rollouts --objective grpo,kl=none plan.json >need.json
        ppsched --stats --objective grpo plan.json |
            jq -e --slurpfile need need.json '.rank_bytes == [$need[0][].total]'
        ppsched --stats plan.json |
            jq -e --slurpfile need need.json '.rank_bytes < [$need[0][].total]'
        need=$(jq 'map(.total) | max' need.json)
        within() {
            # shellcheck disable=SC2086
            ppsplit -q --method uniform $mesh -s 1f1b -m 8 --objective grpo \
                --seq-len "$(longest rollouts)" \
                --micro-batch-tokens "$(jq .data.max_tokens plan.json)" \
                --memory "$1" model-llama
        }
        run -0 within "$need"
        run -1 within $((need - 1))
        pprun -q --data rollouts --init 1 --steps 1 --objective grpo,kl=none \
            plan.json >log
    done
}

# total ARGS...: prints the bytes of all ranks.
total() {
    pprun --print-memory --data packed "$@" plan.json | jq 'map(.total) | add'
}

@test "training, evaluation and scores share one arena" {
    data 7 40 >long.jsonl
    pppack -q -l 52 -o eval long.jsonl
    ppsplit -q -p 2 model-qwen3-tied |
        ppsched -q -s 1f1b -m 4 --data packed -o plan.json
    [ "$(od -An -t u4 -j 100 -N 4 eval/index)" -gt \
        "$(od -An -t u4 -j 100 -N 4 packed/index)" ]
    # An evaluation adds its losses and longer arrays, but no arena.
    jq -s -e 'transpose | all(.[0].activations == .[1].activations and
        .[0].workspace <= .[1].workspace and .[0].tables < .[1].tables)' \
        <(pprun --print-memory --data packed plan.json) \
        <(pprun --print-memory --data packed --steps 1 --eval eval plan.json)
    pprun -q --data packed --init 5 --steps 2 --eval eval --eval-every 1 \
        --save ckpt plan.json >log
    ppscore -q --data packed --init 5 --eval eval plan.json >log
    ppscore -q --data packed --init 5 --logprobs plan.json >log
    pprun -q --data packed --init 5 --steps 1 --message-size max plan.json >log
    pprun -q --data packed --init 5 --steps 1 --optimizer sgd plan.json >log
    [ "$(ppscore -q --print-memory --data packed --eval eval plan.json |
        jq 'map(.total) | add')" -lt "$(total --steps 1 --optimizer sgd)" ]
    [ "$(total --steps 1 --optimizer sgd)" -lt "$(total --steps 1)" ]
}

@test "channels are those that ranks use, in the plan and before a run" {
    channels() {
        # shellcheck disable=SC2086
        ppsplit -q --method uniform $1 model-llama |
            ppsched -q -s 1f1b -m 2 | pprun --print-memory --data packed |
            jq 'map(.channels) | add'
    }
    # Neighbours alone talk, and all to rank 0; members of a group to each other.
    local most=$((2 * 6 * 1500))
    [ "$(channels '-p 6')" -lt $most ]
    [ "$(channels '-p 6 --dp 20')" -lt $((20 * most + 6 * 20 * 20 * 350)) ]
    ppsplit -q -p 2 --dp 2000 model-llama |
        ppsched -q -s 1f1b -m 1 --data packed -o plan.json
    pprun --print-memory plan.json | jq -e 'all(.ranks == 2000) and
        all(.stacks == 2000 * 1048576) and
        (map(.channels) | add) < 4000 * 2000 * 350'
    limited() (
        ulimit -v 4000000
        pprun --init 1 --steps 1 plan.json
    )
    run -3 --separate-stderr limited
    [[ $stderr == "pprun: out of memory: the ranks here need "*" GiB, but ulimit"* ]]
    [ "$(wc -l <<<"$stderr")" -eq 1 ]
}

@test "an allocation that is not in the plan fails" {
    ppsplit -q -p 2 model-llama | ppsched -q -s 1f1b -m 2 -o plan.json
    PP_INJECT=allocation run --separate-stderr \
        "$BUILDDIR/tests/parity/pprun_inject" --data packed --init 5 --steps 1 \
        plan.json
    [ "$status" -eq 3 ]
    [[ "$stderr" == *"rank "*" allocated "*", not the "*" of its plan"* ]]
}
