#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# verify - pprun --verify catches a fault of every kind and names its place.

bats_require_minimum_version 1.5.0
load helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    model llama false
    model qwen3-tied true
    data 1 20 >data.jsonl
    pppack -q -l 48 -o packed data.jsonl
    # Microbatches of one size: a message in the wrong order has the right size.
    data 1 20 | jq -c '.input_ids += [range(12)] |
        {input_ids: .input_ids[:12]}' | pppack -q -l 24 -o even
    ppsplit -q -p 3 model-llama |
        ppsched -q -s gpipe -m 5 --depth 2 >three.json
    ppsplit -q -p 2 -c 2 --placement v model-qwen3-tied |
        ppsched -q -s zbv -m 5 --depth 2 >tied.json
    ppsplit -q -p 3 --recompute full model-llama |
        ppsched -q -s gpipe -m 5 --depth 2 >again.json
    ppsplit -q -p 3 model-llama | ppsched -q -s gpipe -m 5 --depth 2 \
        --max-in-flight 3 --offload auto --copy 1 >away.json
    # Rank 1 receives a gradient and an activation in another order than rank 0
    # sends them. This is right as long as they have channels of their own.
    ppsplit -q -p 2 -c 2 model-llama |
        ppsched -q -s interleaved -m 4 --depth 2 >straight.json
    sed 's/1RECV_B0 1RECV_F3/1RECV_F3 1RECV_B0/' straight.json >crossed.json
    ppsplit -q -p 2 --placement both-ways model-llama |
        ppsched -q -s dualpipe -m 4 --depth 2 >both.json
    ppsplit -q -p 2 model-llama |
        ppsched -q -s seq1f1b -m 4 --slices 3 >slices.json
    # Smaller bins do not fill the last pass of an evaluation.
    data 2 11 | jq -c '{input_ids: .input_ids[:9]}' | pppack -q -l 24 -o eval
    # This model is so steep that fp32 diverges within five steps, at any rate.
    model qwen2-steep false
    jq '.initializer_range = 1 | .num_hidden_layers = 10 |
        .hidden_size = 30 | .num_attention_heads = 3 |
        .num_key_value_heads = 1 | del(.head_dim)' \
        model-qwen2-steep/config.json >config
    mv config model-qwen2-steep/config.json
    ppsplit -q -p 3 model-qwen2-steep | ppsched -q -s zb-h1 -m 6 >steep.json
}

setup() { cd "$BATS_FILE_TMPDIR"; }

# caught FAULT PLAN DATA PATTERN [OPTION...]: the plan passes without the fault,
# which one test for each plan finds out. With it the last line matches the
# pattern. With FEWER set only a part of the faults is tried.
caught() {
    local fault=$1 plan=$2 data=$3 pattern=$4
    skip_some
    shift 4
    set -- --verify --init 1 --data "$data" "$@" "$plan"
    if [ ! -e "right.${*//\//_}" ]; then
        run --separate-stderr env PP_INJECT=none \
            "$BUILDDIR/tests/parity/pprun_inject" "$@"
        [ "$status" -eq 0 ]
        touch "right.${*//\//_}"
    fi
    run --separate-stderr env PP_INJECT="$fault" timeout 200 \
        "$BUILDDIR/tests/parity/pprun_inject" "$@"
    echo "status $status: ${lines[-1]} $stderr"
    [ "$status" -eq 1 ]
    [ -z "$stderr" ]
    # shellcheck disable=SC2053
    [[ "${lines[-1]}" == $pattern ]]
}

away="*loss agree, and gradients differ from stage 1 on rank 1 down, those above\
 agree: look at what comes back from the host*"

@test "objectives verify, and so do their slices and parts of sequences" {
    local kind data plan
    ppsplit -q -p 2 --cp 2 model-llama | ppsched -q -s 1f1b -m 4 >parts.json
    rollouts 5 12 >rollouts.jsonl
    pairs 6 12 >pairs.jsonl
    for kind in grpo dpo; do
        data=rollouts
        [ $kind = grpo ] || data=pairs
        pppack -q -l 64 --cp 2 --bins-multiple 4 -o $data $data.jsonl
        for plan in slices.json parts.json; do
            pprun -q --verify --init 1 --data $data --objective $kind \
                --dtype fp64 $plan | grep -qx 'the same: 57 tensors'
            pprun -q --verify --shrink --data $data --objective $kind $plan |
                grep -qx 'the same: 57 tensors'
        done
    done
    run -2 --separate-stderr pprun --verify --shrink --objective dpo parts.json
    [[ $stderr == *'no data: give --data DIR'* ]]
}
@test "a dummy sequence counted by an objective" {
    caught dummy-counted parts.json rollouts "*the loss and the gradients are\
 0.9* times *the normaliser" --objective grpo
    caught dummy-counted parts.json rollouts "*times *the normaliser" \
        --objective grpo,aggregate=seq-mean-mean
    caught dummy-counted parts.json pairs "*times *the normaliser" --objective dpo
}
@test "counts of microbatches for those of a step" {
    caught local-mean parts.json rollouts "*whether all microbatches have one\
 normaliser" --objective grpo
    caught local-mean parts.json pairs "*whether all microbatches have one\
 normaliser" --objective dpo
}
@test "a ratio against the wrong column" {
    caught exchanged-columns parts.json rollouts "*outputs are not compared,\
 as ranks divide tokens and the loss differs:*at the columns that the objective reads*" \
        --objective grpo --dtype fp64
}
@test "pairs that microbatches cut without an exchange" {
    caught pair-cut parts.json pairs "*" --objective dpo
    caught pair-cut parts.json pairs "*" --objective dpo,reference-free
}
@test "pairs whose parts are not added over ranks" {
    caught sums-local parts.json pairs "*" --objective dpo --dtype fp64
}
@test "a divergence without its gradient" {
    caught divergence-detached parts.json rollouts "*: the loss agrees, and the\
 gradients differ from the head down: look at the gradient of the objective*" \
        --objective grpo
}

@test "sequence bounds lost on a middle stage" {
    caught bounds three.json packed "*stage 1 on rank 1 is the first*\
sequences that begin a microbatch agree, so look at the bounds*"
}
@test "positions that do not restart" {
    caught positions three.json packed "*stage 0 on rank 0 is the first*\
sequences that begin a microbatch agree, so look at the bounds*positions*"
}
@test "labels shifted across sequences" {
    caught label-shift three.json packed \
        "*outputs of all stages agree and the loss differs:*their shift*"
}
@test "a mean per microbatch instead of one per step" {
    caught local-mean three.json packed "*outputs of all stages agree and\
 the loss differs:*whether all microbatches have one normaliser"
}
@test "a dummy sequence counted" {
    caught dummy-counted three.json packed \
        "*the loss and the gradients are 0.99* times *the normaliser"
}
@test "a missing weight gradient" {
    caught weight-skipped three.json packed \
        "*loss agree, and only stage 1 on rank 1*weight gradients*"
}
@test "a weight gradient added twice" {
    caught weight-twice three.json packed \
        "*loss agree, and only stage 1 on rank 1*weight gradients*"
}
@test "activations of another microbatch" {
    caught slot three.json even "*loss agree, and gradients differ from\
 stage 1 on rank 1 down, those above agree:*its backward*"
}
@test "recomputation without the bounds of sequences" {
    caught again-bounds again.json packed "*loss agree, and gradients differ from stage 1 on rank 1 down, those above agree: look at what it recomputes*"
}
@test "recomputation from another microbatch" {
    caught slot again.json even "*loss agree, and gradients differ from stage 1 on rank 1 down, those above agree: look at what it recomputes*"
}
@test "activations of another microbatch from the host" {
    caught reload-other away.json even "$away"
}
@test "activations that are read while they are on the host" {
    caught reload-away away.json even "$away"
}
@test "copies to the host that nobody waits for" {
    caught offload-late away.json even "$away"
}
@test "copies from the host that nobody waits for" {
    caught reload-late away.json even "$away"
}
@test "tied gradients not added" {
    caught tied-unsummed tied.json packed \
        "*only the gradients of the tied embedding and head*stages 0 and 3*"
}
@test "activations that overtake each other" {
    caught overtaking-forward three.json even \
        "*stage 1 on rank 1 is the first*look at what this stage receives"
}
@test "gradients that overtake each other" {
    caught overtaking-backward three.json even "*loss agree, and gradients\
 differ from stage 1 on rank 1 down*the gradient that it receives"
}
@test "activations and gradients on one channel" {
    run ! cmp straight.json crossed.json
    caught shared-channel crossed.json even \
        "*stage 1 on rank 1 is the first*look at what this stage receives"
}
@test "an update lost in a later step" {
    caught update-lost three.json packed \
        "*the first step agrees and a later one differs: look at the update*"
}

@test "sizes of the previous evaluation" {
    # If all messages have one size, only the numbers tell.
    caught stale-shapes three.json packed "*the first step agrees and a later\
 one differs:*such as the sizes of the evaluation in between" --eval eval --message-size max
    local how
    for how in planned exchange; do
        run --separate-stderr env PP_INJECT=stale-shapes timeout 200 \
            "$BUILDDIR/tests/parity/pprun_inject" --verify --init 1 \
            --data packed --eval eval --message-size $how three.json
        echo "status $status: $stderr"
        [ "$status" -eq 3 ]
        [[ "$stderr" == "pprun: microbatch 0: rank 1: "*"message from rank 0 "*\
" bytes, "* ]]
    done
}
@test "an evaluation that takes microbatches twice" {
    caught eval-wrapped three.json packed "*training agrees and the loss of\
 the evaluation differs: look at its microbatches*" --eval eval
}

@test "gradients of copies not added" {
    caught copies-unsummed both.json packed "*the gradients of the copies of\
 the weights are parts that make the right sum: they are not added*"
}
@test "a norm of one rank's gradients" {
    caught norm-local three.json packed "*every gradient agrees and their norm\
 differs: look at how it is summed over the ranks"
}
@test "the loss taken from the last rank, which has no head" {
    caught last-rank tied.json packed "*every gradient agrees and the loss\
 differs: look at how it is gathered from rank 0, which has the head"
}
@test "a slice that does not see the earlier ones" {
    caught slice-context slices.json packed "*stage 0 on rank 0 is the first*\
look at what this stage receives, and at the keys and values of the slices*"
}
@test "gradients of keys and values lost between slices" {
    caught slice-gradients slices.json packed "*loss agree, and gradients\
 differ from stage 1 on rank 1 down*look at its backward*"
}

@test "if fp32 itself diverges, later steps are judged in fp64" {
    local said="fp32 rounding errors grow too large"
    for dtype in fp32 fp64; do
        pprun --verify --init 1 --data packed --dtype $dtype steep.json >table
        [ "$(grep -cx "$said" table)" -eq $([ $dtype = fp32 ] && echo 1 ||
            echo 0) ]
    done
    pprun --verify --init 1 --data packed --json steep.json |
        jq -e '.later_steps == "fp64" and .scalars[2].bound < 1e-9 and
            all(.parameters[]; .weights_bound < 1e-6)'
    pprun --verify --init 1 --data packed --json three.json |
        jq -e '.later_steps == "as planned"'
    caught update-lost steep.json packed \
        "*the first step agrees and a later one differs: look at the update*"
    caught weight-skipped steep.json packed \
        "*loss agree, and only stage 1 on rank 1*weight gradients*"
}

@test "non-finite numbers differ, and are null in JSON" {
    PP_INJECT=update-infinite run --separate-stderr \
        "$BUILDDIR/tests/parity/pprun_inject" --verify --shrink --json \
        three.json
    [ "$status" -eq 1 ]
    jq -e '.same == false and .scalars[2].found == null' <<<"$output"
}
