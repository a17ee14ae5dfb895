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
    ppsplit --zero 0 -p 2 --placement both-ways -s dualpipe --dp 2 model-llama |
        ppsched -s dualpipe -m 4 >plan.json
    rm -rf run
    train run plan.json --eval eval --dtype fp64
    near run eight
}

@test "replicas score with the bits of one rank" {
    ppsplit --zero 0 -p 2 --dp 2 model-llama | ppsched -s 1f1b -m 3 >two.json
    pprun two.json --data packed --weights base-llama/ckpt/latest \
        --logprobs two.scores
    pprun llama.json --data packed --weights base-llama/ckpt/latest \
        --logprobs one.scores
    cmp two.scores one.scores
}

@test "resuming gives the same bits, and keeps the microbatches of a step" {
    ppsplit --zero 0 -p 2 --dp 2 model-llama | ppsched -s 1f1b -m 3 >two.json
    rm -rf whole half
    train whole two.json
    pprun two.json --data packed --init 5 --steps 3 --lr 1e-2 --clip 0.5 \
        --weight-decay 0.1 --save half
    pprun two.json --data packed --steps 5 --lr 1e-2 --clip 0.5 \
        --weight-decay 0.1 --save half --resume half
    compare whole/ckpt/latest half/latest
    # At another number of replicas, but with as many microbatches in a step.
    ppsplit --zero 0 -p 1 --dp 3 model-llama | ppsched -s 1f1b -m 2 >three.json
    pprun three.json --data packed --steps 6 --resume half >log
    [ "$(jq .step log)" -eq 6 ]
    ppsplit --zero 0 -p 1 --dp 3 model-llama | ppsched -s 1f1b -m 3 >nine.json
    run -2 --separate-stderr pprun nine.json --data packed --steps 7 \
        --resume half
    [[ $stderr == *"with 6 microbatches a step, not 9" ]]
}

@test "the verification judges replicas" {
    ppsplit --zero 0 -p 2 --dp 2 model-qwen3-tied | ppsched -s zb-h1 -m 4 |
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

@test "the verification finds a reduction that is missing or done twice" {
    ppsplit --zero 0 -p 3 --dp 2 model-llama | ppsched -s 1f1b -m 3 >two.json
    caught reduce-missing
    caught reduce-twice
}

@test "a plan that does not list its reductions gives the same bits" {
    ppsplit --zero 0 -p 2 -c 2 --placement v --dp 2 model-llama |
        ppsched -s zbv -m 3 >listed.json
    jq '.schedule.actions |= map(gsub(" [0-9]REDUCE_GRAD"; ""))' listed.json \
        >old.json
    [ "$(grep -o REDUCE_GRAD listed.json | wc -l)" -eq 4 ]
    run ! grep -q REDUCE_GRAD old.json
    ppsched --check old.json
    rm -rf listed old
    train listed listed.json
    train old old.json
    same listed old
}

@test "traces have a row of each pipeline rank" {
    ppsplit --zero 0 -p 2 --dp 2 model-llama | ppsched -s 1f1b -m 3 >two.json
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
    ppsplit --zero 0 -p 2 --dp 2 model-llama |
        ppsched -s 1f1b -m 3 --data uneven --stats | jq .makespan >first
    ppsplit -p 2 model-llama |
        ppsched -s 1f1b -m 3 --data long --stats | jq .makespan >alone
    cmp first alone
}

@test "replicas that divide the optimizer's state are refused" {
    ppsplit -p 1 --dp 2 model-llama | ppsched -s 1f1b -m 3 >zero1.json
    run -2 --separate-stderr pprun zero1.json --data packed --init 1 --steps 1
    [[ $stderr == *"/mesh/zero: '1', but pprun does not divide the \
optimizer's state yet; try ppsplit --zero 0"* ]]
}
