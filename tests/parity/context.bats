#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# context - context-parallel ranks: against one rank in fp64, so that only the
# order of sums differs. Sequences are uneven, and padding lies between them.

bats_require_minimum_version 1.5.0
load helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    model llama false
    model qwen3-tied true
    model mistral false
    data 1 40 >data.jsonl
    pppack -l 64 --cp 4 -o packed data.jsonl
    data 2 9 >eval.jsonl
    pppack -l 64 --cp 4 -o eval eval.jsonl
    for name in llama qwen3-tied mistral; do
        ppsplit -p 1 "model-$name" | ppsched -s gpipe -m 4 >"$name.json"
        train "base-$name" "$name.json" --eval eval --dtype fp64
    done
}

setup() { cd "$BATS_FILE_TMPDIR"; }

@test "2 context-parallel ranks" { against_one llama gpipe 4 -p 1 --cp 2; }
@test "4 context-parallel ranks of 1f1b on 2 ranks" {
    against_one llama 1f1b 4 -p 2 --cp 4
}
@test "2 of zero-bubble V, tied, with recomputation" {
    against_one qwen3-tied zbv 4 -p 2 -c 2 --placement v --cp 2 \
        --recompute full
}
@test "2 with sliding windows, which also exchange heads" {
    against_one mistral 1f1b 4 -p 2 --cp 2
    against_one mistral gpipe 4 -p 1 --cp 2 --cp-exchange a2a
}
@test "2 that exchange heads" {
    against_one llama gpipe 4 -p 1 --cp 2 --cp-exchange a2a
}
@test "2 that exchange heads, of zero-bubble V, tied, with recomputation" {
    against_one qwen3-tied zbv 4 -p 2 -c 2 --placement v --cp 2 \
        --recompute selective --cp-exchange a2a
}
@test "2 that exchange heads, of 1f1b on 2 replicas" {
    against_one llama 1f1b 2 -p 3 --cp 2 --dp 2 --cp-exchange a2a
}
@test "2 in a ring, tied, of zero-bubble V with recomputation" {
    against_one qwen3-tied zbv 4 -p 2 -c 2 --placement v --cp 2 \
        --recompute full --cp-exchange ring
}
@test "4 in a ring, with sliding windows" {
    against_one mistral 1f1b 4 -p 1 --cp 4 --cp-exchange ring
}
@test "2 of interleaved on 2 replicas" {
    against_one llama interleaved 2 -p 2 -c 3 --cp 2 --dp 2 \
        --mesh-order dp-pp-cp-tp
}
@test "context-parallel ranks score all sequences" {
    ppsplit -p 2 --cp 4 model-llama | ppsched -s 1f1b -m 3 >four.json
    ppscore four.json --data packed --weights base-llama/ckpt/latest \
        --dtype fp64 --logprobs -o four.scores
    ppscore llama.json --data packed --weights base-llama/ckpt/latest \
        --dtype fp64 --logprobs -o one.scores
    paste four.scores one.scores | jq -se '
        [range(0; length; 2) as $i | .[$i].sequence == .[$i + 1].sequence and
            ([.[$i].logprobs, .[$i + 1].logprobs] | transpose |
                all(.[]; .[0] - .[1] | fabs < 1e-12))] |
        length == 40 and all'
}

@test "with --row-invariant they score with the bits of one rank" {
    awk 'BEGIN { srand(7); for (i = 0; i < 4; i++) {
        ids = ""
        for (t = 0; t < 150 + 73 * i; t++)
            ids = ids (t ? "," : "") int(rand() * 67)
        print "{\"input_ids\": [" ids "]}" } }' >long.jsonl
    pppack -l 600 --cp 4 -o long long.jsonl
    score() { ppscore "$1.json" --data long --init 3 --row-invariant \
        --logprobs -o "$1.scores"; }
    score llama
    for how in "4" "2 --cp-exchange a2a"; do
        # shellcheck disable=SC2086
        ppsplit -p 2 --cp $how model-llama |
            ppsched -s 1f1b -m 4 >parts.json
        rm -f parts.scores
        score parts
        cmp parts.scores llama.scores
    done
}

# losses PLAN ARGS...: prints the losses of 3 steps that leave the weights.
losses() {
    pprun -q "$1" --data packed --init 3 --steps 3 --lr 0 "${@:2}" |
        jq -c .loss
}

@test "losses and scores of an exact plan have the bits of one rank" {
    local type how kind m
    for type in fp32 fp64; do
        losses llama.json --dtype $type --row-invariant >one.losses
        ppscore -q llama.json --data packed --init 3 --dtype $type \
            --row-invariant --logprobs -o one.scores
        while read -r kind m how; do
            # shellcheck disable=SC2086
            ppsplit -q $how --cp-exact model-llama |
                ppsched -q -s "$kind" -m "$m" >exact.json
            diff <(losses exact.json --dtype $type) one.losses
            rm -f exact.scores
            ppscore -q exact.json --data packed --init 3 --dtype $type \
                --logprobs -o exact.scores
            cmp exact.scores one.scores
        done <<'END'
1f1b 2 -p 2 --cp 2 --dp 2 --cp-exchange a2a
1f1b 2 -p 3 --cp 2 --dp 2
gpipe 4 -p 1 --cp 4
END
    done
}

@test "objectives of an exact plan have the bits of one rank" {
    local data how kept='del(.seconds, .tokens_per_s, .bubble, .grad_norm)'
    rollouts 5 16 | pppack -q -l 64 --cp 2 --bins-multiple 4 -o rollouts -
    pairs 6 16 | pppack -q -l 64 --cp 2 --bins-multiple 4 -o pairs -
    ppsplit -q -p 2 --cp 2 --cp-exact --cp-exchange a2a model-llama |
        ppsched -q -s 1f1b -m 4 >exact.json
    while read -r data how; do
        # shellcheck disable=SC2086
        set -- --data "$data" --init 3 --dtype fp64 $how
        pprun -q llama.json --steps 2 --lr 0 --row-invariant "$@" |
            jq -c "$kept" >one.log
        pprun -q exact.json --steps 2 --lr 0 "$@" | jq -c "$kept" |
            diff - one.log
        pprun -q exact.json --verify "$@" | grep -qx 'the same: 57 tensors'
    done <<'END'
rollouts --objective grpo
rollouts --objective grpo,ratio=sequence,aggregate=seq-mean-mean
pairs --objective dpo
END
    run -1 env PP_INJECT=exact-sum "$BUILDDIR/tests/parity/pprun_inject" \
        --verify --init 3 --data rollouts --objective grpo exact.json
    [[ $output == *"but not their sum: look at the order"* ]]
}

@test "resuming gives the same bits" {
    ppsplit -p 2 --cp 2 model-llama | ppsched -s 1f1b -m 4 >two.json
    rm -rf whole half
    train whole two.json
    pprun two.json --data packed --init 5 --steps 3 --lr 1e-2 --clip 0.5 \
        --weight-decay 0.1 --save half
    pprun two.json --data packed --steps 5 --lr 1e-2 --clip 0.5 \
        --weight-decay 0.1 --save half --resume half
    compare whole/ckpt/latest half/latest
}

@test "ppsched gives the memory of context-parallel ranks" {
    for how in "4" "2 --cp-exchange a2a" "4 --cp-exchange ring" \
        "4 --cp-exact"; do
        # shellcheck disable=SC2086
        ppsplit -p 2 --cp $how model-llama |
            ppsched -s 1f1b -m 4 --data packed >plan.json
        pprun plan.json --print-memory --dtype fp32 | jq -c 'map(.total)' >pprun
        ppsched --stats plan.json | jq -c .rank_bytes >ppsched
        diff pprun ppsched
    done
}

# caught FAULT PLAN: the verification passes without the fault, and not with it.
caught() {
    run -0 env PP_INJECT=none "$BUILDDIR/tests/parity/pprun_inject" \
        --verify --init 1 --data packed "$2"
    run -1 env PP_INJECT="$1" "$BUILDDIR/tests/parity/pprun_inject" \
        --verify --init 1 --data packed "$2"
    [[ $output == *"not the same"* ]]
}

@test "the verification judges context-parallel ranks, and finds their faults" {
    ppsplit -p 2 --cp 2 model-llama | ppsched -s 1f1b -m 4 >two.json
    caught context-order two.json
    caught context-labels two.json
    echo "$output"
    [[ $output == *"outputs are not compared, as ranks divide tokens and the loss differs:"* ]]
    caught context-unsummed two.json
    [[ $output == *"the loss agrees, and "* ]]
    [[ $output != *"all outputs"* ]]
    caught context-doubled two.json
    pprun --verify --shrink two.json | grep -q '^the same'
    ppsplit -p 2 --cp 2 --cp-exchange a2a model-llama |
        ppsched -s 1f1b -m 4 >two.json
    caught context-order two.json
    pprun --verify --shrink two.json | grep -q '^the same'
}

@test "the verification finds a step of the ring that is not merged" {
    ppsplit -p 1 --cp 2 --cp-exchange ring model-llama |
        ppsched -s gpipe -m 2 >ring.json
    caught ring-unmerged ring.json
    caught ring-lost ring.json
}

@test "the verification finds means and positions of a rank alone" {
    ppsplit -p 2 --cp 2 --dp 2 model-llama | ppsched -s 1f1b -m 2 >four.json
    caught context-mean four.json
    caught lane-mean four.json
    caught mean-again four.json
    [[ $output == *"are 0.25 times what they should be"* ]]
    caught context-positions four.json
    caught update-small four.json
    [[ $output == *"the first step agrees and a later one differs"* ]]
}

@test "the verification holds an exact plan to the bit" {
    ppsplit -p 2 --cp 2 --cp-exchange a2a --cp-exact model-llama |
        ppsched -s 1f1b -m 4 >exact.json
    caught exact-sum exact.json
    [[ $output == *"but not their sum: look at the order"* ]]
    caught exact-rows exact.json
    [[ $output == *"the outputs of stage 0 on rank 0 do not have the bits"* ]]
    caught exact-gradients exact.json
    [[ $output == *"the input gradients of stage 1 on rank 1 do not have"* ]]
    caught heads-shifted exact.json
    # The bits of gradients depend on the order in which ranks are added.
    jq '.mesh.cp_exchange = "gather"' exact.json >gather.json
    caught exact-sum gather.json
    # Tensor-parallel ranks add parts of sums in the other run too.
    ppsplit -p 2 --cp 2 --tp 2 --cp-exact model-llama |
        ppsched -s 1f1b -m 4 >exact.json
    caught exact-rows exact.json
}

@test "exact plans that are none are refused" {
    run -2 --separate-stderr ppsplit -p 1 --cp 2 --cp-exact --cp-exchange ring \
        model-llama
    [[ $stderr == *"a ring adds in another order than one rank, and the plan \
is exact; try --cp-exchange gather"* ]]
    run -2 --separate-stderr ppsplit -p 2 --cp 4 --cp-exact --cp-exchange a2a \
        model-llama
    [[ $stderr == *"try --cp-exchange gather"* ]]
    ppsplit -p 1 --cp 2 --cp-exact model-llama |
        ppsched -s gpipe -m 4 >exact.json
    run -2 --separate-stderr pprun exact.json --data packed --init 1 \
        --steps 1 --blas-threads 2
    [[ $stderr == *"/mesh/cp_exact: 'true' implies --row-invariant, which \
excludes --blas-threads"* ]]
    jq '.mesh.cp_exchange = "ring"' exact.json >ring.json
    run -2 --separate-stderr pprun ring.json --data packed --init 1 --steps 1
    [[ $stderr == *"a ring adds in another order"* ]]
}

@test "heads that do not divide are refused" {
    run -2 --separate-stderr ppsplit -p 2 --cp 4 --cp-exchange a2a model-llama
    [[ $stderr == *"the model's 4 heads and 2 key and value heads do not \
divide by 4 ranks (cp); try --cp-exchange gather"* ]]
    ppsplit -p 2 --cp 4 model-llama | ppsched -s 1f1b -m 4 |
        jq '.mesh.cp_exchange = "a2a"' >four.json
    run -2 --separate-stderr pprun four.json --data packed --init 1 --steps 1
    [[ $stderr == *"do not divide by 4 ranks (cp)"* ]]
}

@test "data, schedules and states that cannot be divided are refused" {
    pppack -l 64 -o plain data.jsonl
    ppsplit -p 2 --cp 2 model-llama | ppsched -s 1f1b -m 4 >two.json
    run -2 --separate-stderr pprun two.json --data plain --init 1 --steps 1
    [[ $stderr == *"the padded length of sequence 0 is not a multiple of \
2 x cp = 4; pad it anew with pppack --realign "*" --cp 2" ]]
    ppsplit -p 2 --cp 2 model-llama |
        ppsched -s seq1f1b -m 4 --slices 2 >slices.json
    run -2 --separate-stderr pprun slices.json --data packed --init 1 --steps 1
    [[ $stderr == *"/schedule/slices: '2', but context-parallel ranks divide"* ]]
}
