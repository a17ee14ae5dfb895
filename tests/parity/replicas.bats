#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# replicas - data-parallel ranks: against one rank with as many microbatches, and
# with checkpoints. Runs are in fp64, so that only the order of sums differs. A
# replica with other weights would change the gradients of the next steps.

bats_require_minimum_version 1.5.0
load helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    model llama false
    model qwen3-tied true
    data 1 60 >data.jsonl
    pppack -l 48 -o packed data.jsonl
    data 2 11 >eval.jsonl
    pppack -l 48 -o eval eval.jsonl
    for name in llama qwen3-tied; do
        ppsplit -p 1 "model-$name" | ppsched -s gpipe -m 6 >"$name.json"
        train "base-$name" "$name.json" --eval eval --dtype fp64
    done
}

setup() { cd "$BATS_FILE_TMPDIR"; }

@test "2 replicas of 1 rank" { against_one llama gpipe 3 -p 1 --dp 2; }
@test "2 replicas of 1f1b on 2 ranks" { against_one llama 1f1b 3 -p 2 --dp 2; }
@test "3 replicas, tied" { against_one qwen3-tied 1f1b 2 -p 2 --dp 3; }
@test "6 replicas of a microbatch each" { against_one llama 1f1b 1 -p 2 --dp 6; }
@test "2 replicas of zero-bubble V, tied" {
    against_one qwen3-tied zbv 3 -p 2 -c 2 --placement v --dp 2
}
@test "replicas that are the last axis of the mesh, and the first" {
    against_one llama interleaved 3 -p 3 -c 2 --dp 2 --mesh-order tp-cp-pp-dp
    against_one llama 1f1b 3 -p 2 --dp 2 --mesh-order dp-pp-tp-cp
}
@test "2 replicas of both copies" {
    ppsplit -p 1 model-llama | ppsched -s gpipe -m 8 >eight.json
    train eight eight.json --eval eval --dtype fp64
    ppsplit -p 2 --placement both-ways -s dualpipe --dp 2 model-llama |
        ppsched -s dualpipe -m 4 >plan.json
    rm -rf run
    train run plan.json --eval eval --dtype fp64
    near run eight
}

@test "replicas score with the bits of one rank" {
    ppsplit -p 2 --dp 2 model-llama | ppsched -s 1f1b -m 3 >two.json
    ppscore two.json --data packed --weights base-llama/ckpt/latest \
        --logprobs -o two.scores
    ppscore llama.json --data packed --weights base-llama/ckpt/latest \
        --logprobs -o one.scores
    cmp two.scores one.scores
}

@test "resuming gives the same bits, and keeps the microbatches of a step" {
    ppsplit -p 2 --dp 2 model-llama | ppsched -s 1f1b -m 3 >two.json
    rm -rf whole half
    train whole two.json
    pprun two.json --data packed --init 5 --steps 3 --lr 1e-2 --clip 0.5 \
        --weight-decay 0.1 --save half
    pprun two.json --data packed --steps 5 --lr 1e-2 --clip 0.5 \
        --weight-decay 0.1 --save half --resume half
    compare whole/ckpt/latest half/latest
    # At another number of replicas, but with as many microbatches in a step.
    ppsplit -p 1 --dp 3 model-llama | ppsched -s 1f1b -m 2 >three.json
    pprun three.json --data packed --steps 6 --resume half >log
    [ "$(jq .step log)" -eq 6 ]
    ppsplit -p 1 --dp 3 model-llama | ppsched -s 1f1b -m 3 >nine.json
    run -2 --separate-stderr pprun nine.json --data packed --steps 7 \
        --resume half
    [[ $stderr == *"with 6 microbatches a step, not 9" ]]
}

@test "the verification judges replicas" {
    ppsplit -p 2 --dp 2 model-qwen3-tied | ppsched -s zb-h1 -m 4 |
        pprun --verify --shrink --eval eval >out
    grep -q '^the same' out
}

# caught FAULT: the verification passes without the fault, and names stage 1
# with it.
caught() {
    run -0 env PP_INJECT=none "$BUILDDIR/tests/parity/pprun_inject" \
        --verify --init 1 --data packed two.json
    run -1 env PP_INJECT="$1" "$BUILDDIR/tests/parity/pprun_inject" \
        --verify --init 1 --data packed two.json
    [[ ${lines[-1]} == *"only stage 1 on rank 1 has wrong gradients: look at \
its weight gradients and their sum over replicas"* ]]
}

@test "the verification finds weights that are not fetched after an update" {
    ppsplit -p 2 --dp 2 model-llama | ppsched -s 1f1b -m 3 >two.json
    run -1 env PP_INJECT=gather-missing \
        "$BUILDDIR/tests/parity/pprun_inject" --verify --init 1 \
        --data packed two.json
    [[ ${lines[-1]} == *"the first step agrees and a later one differs: look \
at the update and at what is kept"*"weights that replicas fetch"* ]]
}

@test "the verification finds a reduction that is missing or done twice" {
    ppsplit -p 3 --dp 2 model-llama | ppsched -s 1f1b -m 3 >two.json
    caught reduce-missing
    caught reduce-twice
}

@test "a plan that does not list its reductions is refused" {
    ppsplit -p 2 -c 2 --placement v --dp 2 model-llama |
        ppsched -s zbv -m 3 >listed.json
    jq '.schedule.actions |= map(gsub(" [0-9]REDUCE_GRAD"; ""))' listed.json \
        >old.json
    [ "$(grep -o REDUCE_GRAD listed.json | wc -l)" -eq 4 ]
    run ! grep -q REDUCE_GRAD old.json
    ppsched --check old.json
    run --separate-stderr pprun -q old.json --data packed --init 1 --steps 1
    [ "$status" -eq 1 ]
    [ "$stderr" = "pprun: old.json: rank 0: '0REDUCE_GRAD' is missing; make the\
 schedule with ppsched" ]
}

@test "traces have a row of each pipeline rank" {
    ppsplit -p 2 --dp 2 model-llama | ppsched -s 1f1b -m 3 >two.json
    pprun two.json --data packed --init 1 --steps 3 --trace trace.json
    jq -e '[.traceEvents[] | select(.name == "thread_name")] | length > 2' \
        trace.json
    jq -e '[.traceEvents[] | select(.name == "1REDUCE_GRAD")] | length == 1 and
        .[0].dur > 0' trace.json
    ppsched --overlay trace.json two.json
}

@test "the simulation takes the microbatches of the first replica" {
    # Every other bin is short.
    seq 6 | awk '{ printf "{\"input_ids\": [1"
        for (t = 1; t < ($1 % 2 ? 40 : 10); t++) printf ",1"
        print "]}" }' >uneven.jsonl
    sed -n 1~2p uneven.jsonl >long.jsonl
    for name in uneven long; do
        pppack -l 48 -a none --rows 1 --no-shuffle -o $name $name.jsonl
    done
    ppsplit -p 2 --dp 2 model-llama |
        ppsched -s 1f1b -m 3 --data uneven --stats | jq .makespan >first
    ppsplit -p 2 model-llama |
        ppsched -s 1f1b -m 3 --data long --stats | jq .makespan >alone
    cmp first alone
}

# whole_and_divided NAME KIND M SPLIT...: trains with whole optimizer states
# and with divided ones.
whole_and_divided() {
    local name=$1 kind=$2 m=$3
    shift 3
    for zero in 0 1; do
        ppsplit --zero "$zero" "$@" "model-$name" |
            ppsched -s "$kind" -m "$m" >"plan$zero.json"
        rm -rf "zero$zero"
        train "zero$zero" "plan$zero.json" --eval eval
    done
    same zero0 zero1
    diff -r zero0/ckpt/latest/ zero1/ckpt/latest/
}

@test "dividing the optimizer's state changes no bit" {
    whole_and_divided llama 1f1b 3 -p 2 --dp 2
    whole_and_divided qwen3-tied zbv 2 -p 2 -c 2 --placement v --dp 3
    whole_and_divided qwen3-tied dualpipe 4 -p 2 --placement both-ways \
        -s dualpipe --dp 2
}

@test "nor does dividing a tensor, under any split" {
    mkdir -p model-wide
    jq '.vocab_size = 4100 | .num_hidden_layers = 1' \
        model-qwen3-tied/config.json >model-wide/config.json
    whole_and_divided wide 1f1b 2 -p 1 --dp 2
    mv zero1 one
    whole_and_divided wide 1f1b 2 -p 2 --dp 2
    same one zero1
    whole_and_divided wide 1f1b 1 -p 2 --dp 4
}

@test "a divided state takes the memory that the plans say" {
    for how in "--dp 2" "--dp 2 --zero 0" "--dp 3 --placement both-ways"; do
        kind=1f1b
        [[ $how != *both-ways ]] || kind=dualpipe
        # shellcheck disable=SC2086 # a list of words
        ppsplit --dtype fp32 -p 2 $how -s $kind model-qwen3-tied |
            ppsched -s $kind -m 4 --data packed >plan.json
        pprun plan.json --data packed --dtype fp32 --print-memory |
            jq -c 'map(.total)' >pprun
        ppsched --stats plan.json | jq -c .rank_bytes >ppsched
        diff pprun ppsched
        # Every rank allocates what its plan says, or fails.
        pprun plan.json --data packed --dtype fp32 --init 1 --steps 1
        mv pprun "bytes${how//[^0-9]/}"
    done
    [ "$(jq '.[0]' bytes2)" -lt "$(jq '.[0]' bytes20)" ]
}
