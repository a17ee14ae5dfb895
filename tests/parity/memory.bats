#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# memory - ppsplit and ppsched compute the bytes that pprun allocates: a limit of
# exactly so many bytes passes, and one of a byte less fails. A rank of pprun
# that allocates other bytes than its plan fails, in every test.

bats_require_minimum_version 1.5.0
load helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    model llama false
    model qwen3-tied true
    model qwen2-moe false
    data 1 90 >data.jsonl
    pppack -q -l 48 -o packed data.jsonl
}

setup() { cd "$BATS_FILE_TMPDIR"; }

# agree MODEL KIND ARGS...: compares them for a uniform split of 8 microbatches.
agree() {
    local model=$1 kind=$2 need
    shift 2
    ppsplit -q --method uniform "$@" "model-$model" |
        ppsched -q -s "$kind" -m 8 --data packed -o plan.json
    pprun --print-memory --data packed --init 5 --steps 1 plan.json >need.json
    need=$(jq 'map(.total) | max' need.json)
    ppsched --stats plan.json |
        jq -e --slurpfile need need.json '.rank_bytes == [$need[0][].total]'
    split() {
        ppsplit -q --method uniform --schedule "$kind" -m 8 --seq-len "$(longest packed)" \
            --micro-batch-tokens "$(jq .data.max_tokens plan.json)" \
            --memory "$1" "${@:2}" "model-$model"
    }
    echo "$model $kind $*: $need"
    run -0 split "$need" "$@"
    run -1 split $((need - 1)) "$@"
}

@test "one stage a rank" {
    for kind in gpipe 1f1b eager-1f1b zb-h1 zb-h2; do
        agree llama $kind -p 3
        agree qwen3-tied $kind -p 2
    done
}

@test "several stages a rank" {
    for kind in interleaved looped-bfs zb-interleaved; do
        agree llama $kind -p 2 -c 2
        agree qwen3-tied $kind -p 2 -c 3
    done
    for kind in zbv v-half v-min dualpipev hanayo; do
        agree llama $kind -p 2 -c 2 --placement v
    done
}

@test "copies, slices and recomputation" {
    agree llama dualpipe -p 2 --placement both-ways
    agree llama seq1f1b -p 2
    agree llama dualpipev -p 2 -c 2 --placement v --recompute full
    agree qwen3-tied zbv -p 2 -c 2 --placement v --recompute selective
}

@test "ranks that divide experts have room for each other's rows" {
    agree qwen2-moe zbv -p 2 -c 2 --placement v --dp 2 --ep 2 \
        --recompute selective
    local most least
    agree qwen2-moe 1f1b -p 2 --dp 2 --ep 2
    most=$(jq 'map(.total) | max' need.json)
    agree qwen2-moe 1f1b -p 2 --dp 2 --ep 2 --expert-limit 2
    least=$(jq 'map(.total) | max' need.json)
    [ "$least" -lt "$most" ]
}

@test "a capacity has room for choices, weights and padded rows" {
    local capacity=(--expert-capacity 0.7)
    agree qwen2-moe 1f1b -p 2 "${capacity[@]}"
    agree qwen2-moe zbv -p 2 -c 2 --placement v "${capacity[@]}" \
        --expert-drop probs --recompute full
    agree qwen2-moe 1f1b -p 2 --dp 2 --ep 2 "${capacity[@]}" --expert-drop probs
    agree qwen2-moe 1f1b -p 2 --dp 2 --ep 2 "${capacity[@]}" --expert-padding
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
    pppack -q -l 60 -o eval long.jsonl
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
